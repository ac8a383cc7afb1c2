"""Models of early prediction: partitions of the rows, each of which decides for its own rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from streamsvm.data.rows import Rows, rows_from_state
from streamsvm.errors import ModelError
from streamsvm.kernels.kmeans import Partition, by_their_part, partition_from_state, partition_state
from streamsvm.models.base import Header, Model, known_task
from streamsvm.models.shapes import Expansion, PartitionRouting
from streamsvm.parallel.strips import evenly
from streamsvm.tasks import task_of
from streamsvm.tasks.base import Task
from streamsvm.tasks.pairs import pair_coefficients


@dataclass(frozen=True, repr=False)
class LocalModel(Model):
    """Early prediction: each partition decides for the rows that fall into it.

    combine: "nearest" is equation (11) of Hsieh et al. 2014, "naive" equation (10), the sum over all partitions, and
    "committee" the Bayesian committee machine (Tresp 2000), partitions weighted by their certainty. With neighbours > 1
    "nearest" is the mean over a row's partition and those with the nearest centres. A partition may have its own
    metric: weights that it multiplies the columns of scaled rows with, its support rows among them. A column of
    decisions is a pair of classes; alpha is compact then, see tasks.pairs, else the coefficients (s, columns)
    themselves. multiclass: how several classes are separated, see `FitConfig`.
    """

    kind: ClassVar[str] = "local"
    header: Header
    partition: Partition
    bounds: np.ndarray  # (partitions + 1,) int64: partition p holds support rows bounds[p]..bounds[p+1]
    present: np.ndarray  # (partitions, k) bool: classes among the partition's training rows, see Task.present
    arrays: Mapping[str, Any]  # support (or its CSR arrays), alpha, codes: in memory, or read by partition
    combine: str = "nearest"
    neighbours: int = 1
    weights: np.ndarray | None = None  # (partitions, width) float64, above 0
    bias: np.ndarray | None = None  # (partitions, columns) float64; None: 0
    task: str = "classify"
    multiclass: str = "pairs"

    @property
    def learned(self) -> Task:
        return task_of(self.task).by(self.multiclass)

    @property
    def is_pairwise(self) -> bool:
        return self.learned.in_pairs

    @property
    def columns(self) -> int:
        return self.learned.n_subproblems(len(self.classes))

    @property
    def n_parts(self) -> int:
        return len(self.present) if self.combine == "nearest" else 1

    def parts_of(self, rows: Rows) -> np.ndarray:
        return self.partition.assign(self.header.scaling.apply(rows))

    @property
    def n_support(self) -> int:
        return int(self.bounds[-1])

    def part(self, p: int) -> tuple[Rows, np.ndarray]:
        """Support rows of a partition, scaled but not weighted, and their coefficients (s, columns)."""
        start, stop = int(self.bounds[p]), int(self.bounds[p + 1])
        rows = rows_from_state("support", self.arrays, self.header.scaling.width, start, stop)
        alpha, codes = (np.asarray(self.arrays[name][start:stop]) for name in ("alpha", "codes"))
        return rows, pair_coefficients(alpha, codes, len(self.classes)) if self.is_pairwise else alpha

    def says(self, p: int, rows: Rows) -> np.ndarray:
        """(m, columns) what a partition's support rows decide for scaled rows; weighted by certainty in a committee."""
        support, coefficients = self.part(p)
        said = self.header.kernel.apply(self._weighed(p, rows), self._weighed(p, support), coefficients)
        return (
            said / self._variance(p, rows)[:, None] if self.combine == "committee" and len(support) else said
        )

    def _weighed(self, p: int, rows: Rows) -> Rows:
        return rows if self.weights is None else rows.times(self.weights[p])

    def binary_decisions(self, rows: Rows) -> np.ndarray:
        """(m, columns) decision values, of a pair (i, j) positive for j; rows are raw."""
        rows = self.header.scaling.apply(rows)
        if self.combine == "nearest":
            return self._nearest(rows)
        return sum(self.says(p, rows) for p in range(len(self.present)))  # type: ignore

    def _nearest(self, rows: Rows) -> np.ndarray:
        decisions = np.zeros((len(rows), self.columns))
        parts = self.partition.nearest(rows, self.neighbours)
        for p, here in by_their_part(parts):
            decisions[here] += self.says(p, rows.take(here)) + self.intercept[p]
        return decisions / parts.shape[1]

    def _variance(self, p: int, rows: Rows) -> np.ndarray:
        """(m,) Gaussian process variance of a partition's prediction, from at most 512 of its support rows."""
        kernel, support = self.header.kernel, self._weighed(p, self.part(p)[0])
        rows = self._weighed(p, rows)
        basis = support.take(evenly(len(support), 512))
        noise = 1e-2 * float(kernel.diag(basis).mean())
        factor = np.linalg.cholesky(
            kernel.block(basis, basis).astype(np.float64) + noise * np.eye(len(basis))
        )
        half = np.linalg.solve(factor, kernel.block(basis, rows).astype(np.float64))
        return np.maximum(kernel.diag(rows) - np.einsum("ij,ij->j", half, half), 0.0) + noise

    @cached_property
    def intercept(self) -> np.ndarray:
        """(partitions, columns): what "nearest" adds to each; -1 or +1 if a partition had rows of one side only."""
        one_sided = self.learned.one_sided(self.present)
        return one_sided if self.bias is None else one_sided + self.bias

    def as_expansion(self) -> Expansion:
        raise ModelError(
            "the model is an early prediction: each partition decides for its own rows, which the format "
            "cannot express; fit without --early (dcsvm.early), or export --format onnx"
        )

    def as_routes(self) -> PartitionRouting:
        if self.combine != "nearest":
            raise ModelError(
                f"combine = {self.combine!r} asks all partitions about every row, which is neither exported nor "
                "explained; fit with dcsvm.combine=nearest, or without --early"
            )
        own = self.header.kernel, self.header.scaling
        return PartitionRouting(
            *own, self.partition, self.neighbours, self.bounds, self.part, self.intercept, self.weights
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
        if self.bias is not None:
            arrays["bias"] = self.bias
        own = {} if self.is_pairwise else {"task": self.task, "multiclass": self.multiclass}
        return arrays, attrs | own | {
            "partition": tree_attrs,
            "combine": self.combine,
            "neighbours": self.neighbours,
        }

    @classmethod
    def from_state(cls, arrays: Mapping[str, Any], attrs: dict[str, Any]) -> LocalModel:
        header = Header.from_state(arrays, attrs)
        task, multiclass = known_task(attrs.get("task", "classify")), attrs.get("multiclass", "pairs")
        columns = task_of(task).by(multiclass).n_subproblems(len(header.classes))
        names = ("support",) if "support" in arrays else ("support_indptr", "support_indices", "support_data")
        return cls(
            header,
            partition_from_state(arrays, attrs["partition"], header.scaling.width),
            np.asarray(arrays["bounds"]),
            np.asarray(arrays["present"]),
            {name: arrays[name] for name in (*names, "alpha", "codes")},
            attrs["combine"],
            attrs["neighbours"],
            _of_parts(arrays, "weights", header.scaling.width),
            _of_parts(arrays, "bias", columns),
            task,
            multiclass,
        )


def _of_parts(arrays: Mapping[str, Any], name: str, width: int) -> np.ndarray | None:
    """(partitions, width) float64; None if the model has none."""
    if name not in arrays:
        return None
    found, expected = np.asarray(arrays[name], np.float64), (len(arrays["present"]), width)
    if found.shape != expected:
        raise ValueError(f"found {name} of partitions {found.shape}, expected {expected}")
    return found
