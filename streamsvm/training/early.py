"""The model of early prediction, made part by part as parts are solved."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from streamsvm.data.rows import rows_state
from streamsvm.kernels.kmeans import Partition, partition_from_state
from streamsvm.models import Header, LocalModel
from streamsvm.runs.part_log import PartLog
from streamsvm.solvers.dcsvm import Division
from streamsvm.tasks.pairs import n_pairs
from streamsvm.training.drafts import Draft
from streamsvm.training.parts import ModelPart
from streamsvm.training.prepare import Prepared

MOST_COLUMNS, MOST_PARTS = 12, 40  # that a report shows


class EarlyParts:
    """Takes one part after another, keeps it in the run directory, and has each decide for the rows that were kept out
    of it: in memory stays what tells parts apart."""

    def __init__(self, draft: Draft, prepared: Prepared, log: PartLog) -> None:
        self._draft, self._prepared, self._log = draft, prepared, log
        self._options, self._header = prepared.config.dcsvm, prepared.header()
        self._partition: Partition | None = None  # of the one division whose parts come
        self._sizes, self._entries = [0], 0
        self._present: list[np.ndarray] = []
        self._weights: list[np.ndarray] = []
        kept = prepared.kept_out
        self._kept = None if kept is None else prepared.scaling.apply(kept.rows)
        self._asked: np.ndarray | None = None  # (h, parts that are asked about a row that was kept out)
        self._decided = np.zeros((0 if kept is None else len(kept.ids), n_pairs(len(prepared.classes))))

    def add(self, division: Division, part: ModelPart) -> None:
        """The next part."""
        self._log.add(len(self._present), part.to_arrays())
        self._take(division, part)

    def known(self, division: Division, count: int) -> int:
        """Takes the first parts that an earlier run has kept; how many of so many there were."""
        for number in range(count):
            arrays = self._log.read(number)
            if arrays is None:
                return number
            self._take(division, ModelPart.from_arrays(arrays))
        return count

    def _take(self, division: Division, part: ModelPart) -> None:
        number = len(self._present)
        self._sizes.append(len(part.codes))
        self._present.append(part.present)
        if part.weights is not None:
            self._weights.append(part.weights)
        support = rows_state("support", part.rows)
        state = {"alpha": part.alpha, "codes": part.codes}
        if self._kept is not None:
            self._decide(division, number, part, support | state)
        if "support_indptr" in support:  # one indptr for all parts, starting with a single 0
            support["support_indptr"] = support["support_indptr"][number > 0 :] + self._entries
            self._entries += len(support["support_data"])
        for name, array in (support | state).items():
            self._draft.append(name, array)

    def _decide(
        self, division: Division, number: int, part: ModelPart, arrays: dict[str, np.ndarray]
    ) -> None:
        """Adds what a part says of the rows that are kept out and that it is asked about."""
        kept, options, none = self._kept, self._options, np.zeros((1, 0), bool)
        assert kept is not None
        partition = self._partition_of(division)
        if self._asked is None and options.combine == "nearest":
            self._asked = partition.nearest(kept, options.neighbours)
        everyone = np.arange(len(kept))
        here = everyone if self._asked is None else np.flatnonzero((self._asked == number).any(axis=1))
        weights = None if part.weights is None else part.weights[None]
        bounds = np.array([0, len(part.codes)])
        alone = LocalModel(self._header, partition, bounds, none, arrays, options.combine, weights=weights)
        self._decided[here] += alone.says(0, kept.take(here))

    def _partition_of(self, division: Division) -> Partition:
        """Which part a row falls into."""
        if self._partition is None:
            nodes, width = json.loads(str(division.routes["nodes"])), self._header.scaling.width
            self._partition = partition_from_state(division.routes, nodes, width)
        return self._partition

    def model(self, header: Header, division: Division) -> LocalModel:
        """The model of all parts of a division; in a file, its arrays are there already."""
        return LocalModel(
            header,
            self._partition_of(division),
            np.cumsum(self._sizes, dtype=np.int64),
            np.stack(self._present),
            self._draft.arrays,
            self._options.combine,
            self._options.neighbours,
            np.stack(self._weights) if self._weights else None,
        )

    def decided(self, model: LocalModel) -> np.ndarray | None:
        """(h, pairs) what the model decides of the rows that were kept out; None where there are none."""
        if self._kept is None or self._asked is None:
            return None if self._kept is None else self._decided
        return self._decided / self._asked.shape[1] + model.one_sided[self._asked].mean(axis=1)


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
