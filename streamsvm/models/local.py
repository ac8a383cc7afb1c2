"""Models of early prediction: parts of the rows, each of which decides for its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from streamsvm.data.rows import Rows, rows_from_state
from streamsvm.errors import ModelError
from streamsvm.kernels.kmeans import Partition, by_their_part, partition_from_state, partition_state
from streamsvm.models.base import Header, Model
from streamsvm.models.shapes import Expansion, Routes
from streamsvm.tasks.pairs import n_pairs, pair_coefficients


@dataclass(frozen=True)
class LocalModel(Model):
    """Early prediction: each part of the partition decides for the rows that fall into it.

    combine: "nearest" is equation (11) of Hsieh et al. 2014, "naive" equation (10), the sum over all parts, and
    "committee" the Bayesian committee machine (Tresp 2000), parts weighted by their certainty. With neighbours > 1
    "nearest" is the mean over a row's own part and those with the nearest centres. A part may have a metric of its own:
    weights that it multiplies the columns of scaled rows with, its support rows among them.
    """

    kind: ClassVar[str] = "local"
    is_pairwise: ClassVar[bool] = True
    header: Header
    partition: Partition
    bounds: np.ndarray  # (parts + 1,) int64: part p holds support rows bounds[p]..bounds[p+1]
    present: np.ndarray  # (parts, k) bool: classes among the part's training rows
    arrays: Mapping[str, Any]  # support (or its CSR arrays), alpha, codes: in memory or read part by part
    combine: str = "nearest"
    neighbours: int = 1
    weights: np.ndarray | None = None  # (parts, width) float64, above 0

    @property
    def n_support(self) -> int:
        return int(self.bounds[-1])

    def part(self, p: int) -> tuple[Rows, np.ndarray]:
        """Support rows of a part, scaled but not weighed, and their pair coefficients."""
        start, stop = int(self.bounds[p]), int(self.bounds[p + 1])
        codes = np.asarray(self.arrays["codes"][start:stop])
        coefficients = pair_coefficients(
            np.asarray(self.arrays["alpha"][start:stop]), codes, len(self.classes)
        )
        return rows_from_state("support", self.arrays, self.header.scaling.width, start, stop), coefficients

    def says(self, p: int, rows: Rows) -> np.ndarray:
        """(m, n_pairs) what a part's support rows say of scaled rows; of a committee by the certainty of it."""
        support, coefficients = self.part(p)
        said = self.header.kernel.apply(self._weighed(p, rows), self._weighed(p, support), coefficients)
        return (
            said / self._variance(p, rows)[:, None] if self.combine == "committee" and len(support) else said
        )

    def _weighed(self, p: int, rows: Rows) -> Rows:
        return rows if self.weights is None else rows.times(self.weights[p])

    def binary_decisions(self, rows: Rows) -> np.ndarray:
        """(m, n_pairs) decision values of each pair (i, j), positive for j; rows are raw."""
        rows = self.header.scaling.apply(rows)
        if self.combine == "nearest":
            return self._nearest(rows)
        return sum(self.says(p, rows) for p in range(len(self.present)))  # type: ignore

    def _nearest(self, rows: Rows) -> np.ndarray:
        decisions = np.zeros((len(rows), n_pairs(len(self.classes))))
        parts = self.partition.nearest(rows, self.neighbours)
        for p, here in by_their_part(parts):
            decisions[here] += self.says(p, rows.take(here)) + self.one_sided[p]
        return decisions / parts.shape[1]

    def _variance(self, p: int, rows: Rows) -> np.ndarray:
        """(m,) Gaussian process variance of a part's prediction, from at most 512 of its support rows."""
        kernel, support = self.header.kernel, self._weighed(p, self.part(p)[0])
        rows = self._weighed(p, rows)
        basis = support.take(np.linspace(0, len(support) - 1, min(512, len(support))).astype(np.intp))
        noise = 1e-2 * float(kernel.diag(basis).mean())
        factor = np.linalg.cholesky(
            kernel.block(basis, basis).astype(np.float64) + noise * np.eye(len(basis))
        )
        half = np.linalg.solve(factor, kernel.block(basis, rows).astype(np.float64))
        return np.maximum(kernel.diag(rows) - np.einsum("ij,ij->j", half, half), 0.0) + noise

    @cached_property
    def one_sided(self) -> np.ndarray:
        """(parts, n_pairs): -1 or +1 where only one class of a pair was in the part, else 0."""
        first, second = np.triu_indices(len(self.classes), 1)
        return self.present[:, second].astype(np.float64) - self.present[:, first]

    def as_expansion(self) -> Expansion:
        raise ModelError(
            "the model is an early prediction: each part of the data decides for its own rows, which the format has "
            "no words for; fit without --early (dcsvm.early), or export --format onnx"
        )

    def as_routes(self) -> Routes:
        if self.combine != "nearest":
            raise ModelError(
                f"combine = {self.combine!r} asks all parts about every row, which is neither exported nor "
                "explained; fit with dcsvm.combine=nearest, or without --early"
            )
        own = self.header.kernel, self.header.scaling
        return Routes(
            *own, self.partition, self.neighbours, self.bounds, self.part, self.one_sided, self.weights
        )

    def to_state(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """The state; support arrays that are read from disk stay there until they are written."""
        arrays, attrs = self.small_state()
        return arrays | dict(self.arrays), attrs

    def small_state(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """All but the support arrays."""
        arrays, attrs = self.header.to_state()
        tree_arrays, tree_attrs = partition_state(self.partition)
        arrays |= {"bounds": self.bounds, "present": self.present} | tree_arrays
        if self.weights is not None:
            arrays["weights"] = self.weights
        return arrays, attrs | {
            "partition": tree_attrs,
            "combine": self.combine,
            "neighbours": self.neighbours,
        }

    @classmethod
    def from_state(cls, arrays: Mapping[str, Any], attrs: dict[str, Any]) -> LocalModel:
        header = Header.from_state(arrays, attrs)
        names = ("support",) if "support" in arrays else ("support_indptr", "support_indices", "support_data")
        return cls(
            header,
            partition_from_state(arrays, attrs["partition"], header.scaling.width),
            np.asarray(arrays["bounds"]),
            np.asarray(arrays["present"]),
            {name: arrays[name] for name in (*names, "alpha", "codes")},
            attrs["combine"],
            attrs["neighbours"],
            _weights(arrays, header.scaling.width),
        )


def _weights(arrays: Mapping[str, Any], width: int) -> np.ndarray | None:
    if "weights" not in arrays:
        return None
    weights = np.asarray(arrays["weights"], np.float64)
    expected = (len(arrays["present"]), width)
    if weights.shape != expected:
        raise ValueError(f"found weights of parts {weights.shape}, expected {expected}")
    return weights
