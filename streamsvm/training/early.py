"""The model of early prediction, made part by part as parts are solved."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from streamsvm.config import DCSVMConfig
from streamsvm.data.rows import Rows, rows_state
from streamsvm.kernels.kmeans import partition_from_state
from streamsvm.models import Header, LocalModel
from streamsvm.solvers.dcsvm import Division, PartSolution
from streamsvm.training.drafts import Draft

MOST_COLUMNS, MOST_PARTS = 12, 40  # that a report shows


class EarlyParts:
    """Takes the support rows of one part after another. codes (n,): positions of all rows' labels in k classes."""

    def __init__(self, draft: Draft, codes: np.ndarray, k: int) -> None:
        self._draft, self._codes, self._k = draft, codes, k
        self._sizes, self._entries = [0], 0
        self._weights: list[np.ndarray] = []

    def add(self, part: PartSolution, rows: Rows) -> None:
        """rows: as the store's scaling leaves them, whatever the part's own weights."""
        self._sizes.append(len(part.ids))
        if part.weights is not None:
            self._weights.append(part.weights)
        support = rows_state("support", rows)
        if "support_indptr" in support:  # one indptr for all parts, starting with a single 0
            support["support_indptr"] = support["support_indptr"][len(self._sizes) > 2 :] + self._entries
            self._entries += len(support["support_data"])
        state = {"alpha": part.alpha, "codes": self._codes[part.ids].astype(np.int32)}
        for name, array in (support | state).items():
            self._draft.append(name, array)

    def model(self, header: Header, division: Division, options: DCSVMConfig) -> LocalModel:
        """The model of all parts of a division; in a file, its arrays are there already."""
        routes = division.routes
        present = np.zeros((division.n_parts, self._k), bool)
        present[division.parts, self._codes] = True
        return LocalModel(
            header,
            partition_from_state(routes, json.loads(str(routes["nodes"])), header.scaling.width),
            np.cumsum(self._sizes, dtype=np.int64),
            present,
            self._draft.arrays,
            options.combine,
            options.neighbours,
            np.stack(self._weights) if self._weights else None,
        )


def part_facts(model: LocalModel, rows: np.ndarray) -> dict[str, Any]:
    """What the parts of a model that have metrics of their own look at, for its report; rows (parts,): how many.

    columns: those that count most, over all rows. shares: of them in each of the largest parts, of 1 in all columns:
    the diagonal of its metric, the global one's included. own: parts that kept a metric of theirs.
    """
    if model.weights is None:
        return {}
    scaling, names = model.header.scaling, model.header.feature_names
    metrics = (scaling.times(weights).metric for weights in model.weights)
    shares = np.array([metric.importances for metric in metrics if metric is not None])
    columns = np.argsort(-(rows @ shares), kind="stable")[:MOST_COLUMNS]
    largest = np.argsort(-rows, kind="stable")[:MOST_PARTS]
    parts = {
        "columns": [names[f] if names else str(f) for f in columns],
        "shares": shares[np.ix_(largest, columns)].round(5).tolist(),
        "rows": rows[largest].tolist(),
        "own": int(np.count_nonzero((model.weights != 1.0).any(axis=1))),
    }
    return {"parts": parts}
