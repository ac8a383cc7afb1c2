"""The model of early prediction, made part by part as parts are solved."""

from __future__ import annotations

import json

import numpy as np

from streamsvm.config import DCSVMConfig
from streamsvm.data.rows import Rows, rows_state
from streamsvm.kernels.kmeans import partition_from_state
from streamsvm.models import Header, LocalModel
from streamsvm.solvers.dcsvm import Division, PartSolution
from streamsvm.training.drafts import Draft


class EarlyParts:
    """Takes the support rows of one part after another. codes (n,): positions of all rows' labels in k classes."""

    def __init__(self, draft: Draft, codes: np.ndarray, k: int) -> None:
        self._draft, self._codes, self._k = draft, codes, k
        self._sizes, self._entries = [0], 0

    def add(self, part: PartSolution, rows: Rows) -> None:
        self._sizes.append(len(part.ids))
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
        )
