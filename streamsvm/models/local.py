"""Models of early prediction and of parallel learners: partitions of the rows, each of which decides for its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from streamsvm.data.rows import Rows, concat, rows_from_state
from streamsvm.errors import ModelError
from streamsvm.kernels.kmeans import Partition, by_their_part, partition_from_state, partition_state
from streamsvm.models.base import Header, Model, known_task
from streamsvm.models.learner import BudgetLearner
from streamsvm.models.shapes import Expansion, PartitionRouting
from streamsvm.parallel.strips import evenly
from streamsvm.storage.arrays import Arrays, Attrs, State
from streamsvm.tasks import task_of
from streamsvm.tasks.base import Task
from streamsvm.tasks.pairs import pair_coefficients


@dataclass(frozen=True, repr=False)
class LocalModel(Model):
    """Early prediction: each partition decides for the rows that are assigned to it.

    combine: "nearest" is equation (11) of Hsieh et al. 2014, "naive" equation (10), the sum over all partitions, and
    "committee" the Bayesian committee machine (Tresp 2000), partitions weighted by their certainty. With neighbours > 1
    "nearest" is the mean over a row's partition and those with the nearest centres. A partition may have its own
    metric: weights that it multiplies the columns of scaled rows with, its support rows among them. A column of
    decisions is a pair of classes; alpha is compact then, see tasks.pairs, else the coefficients (s, columns)
    themselves. multiclass: how several classes are separated, see `FitConfig`."""

    kind: ClassVar[str] = "local"
    header: Header
    partition: Partition
    bounds: np.ndarray  # (partitions + 1,) int64: partition p holds support rows bounds[p]..bounds[p+1]
    present: np.ndarray  # (partitions, k) bool: classes among the partition's training rows, see Task.present
    arrays: Arrays  # support (or its CSR arrays), alpha, codes: in memory, or read by partition
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

    def part_sums(self, p: int, rows: Rows) -> np.ndarray:
        """(m, columns) sums over a partition's support rows, for scaled rows; in a committee over their variance."""
        support, coefficients = self.part(p)
        a, b = self.header.kernel.distinguishing(self._weighed(p, rows), self._weighed(p, support))
        sums = self.header.kernel.apply(a, b, coefficients)
        is_weighted = self.combine == "committee" and len(support) > 0
        return sums / self._variance(p, rows)[:, None] if is_weighted else sums

    def _weighed(self, p: int, rows: Rows) -> Rows:
        return rows if self.weights is None else rows.times(self.weights[p])

    def binary_decisions(self, rows: Rows) -> np.ndarray:
        """(m, columns) decision values, of a pair (i, j) positive for j; rows are raw."""
        rows = self.header.scaling.apply(rows)
        if self.combine == "nearest":
            return self._nearest(rows)
        return sum(self.part_sums(p, rows) for p in range(len(self.present)))  # type: ignore

    def _nearest(self, rows: Rows) -> np.ndarray:
        decisions = np.zeros((len(rows), self.columns))
        parts = self.partition.nearest(rows, self.neighbours)
        for p, members in by_their_part(parts):
            decisions[members] += self.part_sums(p, rows.take(members)) + self.intercept[p]
        return decisions / parts.shape[1]

    def _variance(self, p: int, rows: Rows) -> np.ndarray:
        """(m,) Gaussian process variance of a partition's prediction, from at most 512 of its support rows."""
        kernel, support = self.header.kernel, self._weighed(p, self.part(p)[0])
        rows = self._weighed(p, rows)
        basis = support.take(evenly(len(support), 512))
        noise = 1e-2 * float(kernel.diag(basis).mean())
        K = kernel.block(basis, basis).astype(np.float64)
        factor = np.linalg.cholesky(K + noise * np.eye(len(basis)))
        half = np.linalg.solve(factor, kernel.block(basis, rows).astype(np.float64))
        return np.maximum(kernel.diag(rows) - np.einsum("ij,ij->j", half, half), 0.0) + noise

    @cached_property
    def intercept(self) -> np.ndarray:
        """(partitions, columns) added to the sums by "nearest"; -1 or +1 if a partition had rows of one side only."""
        one_sided = self.learned.one_sided(self.present)
        return one_sided if self.bias is None else one_sided + self.bias

    def as_expansion(self) -> Expansion:
        raise ModelError(
            "the model is an early prediction: each partition decides for its own rows, which the format "
            "cannot express; fit without --early, or with --must-export libsvm, or export --format onnx"
        )

    def as_routes(self) -> PartitionRouting:
        if self.combine != "nearest":
            raise ModelError(
                f"combine = {self.combine!r} asks all partitions about every row, which is neither exported nor "
                "explained; fit with dcsvm.combine=nearest, or without --early"
            )
        return PartitionRouting(
            self.header.kernel,
            self.header.scaling,
            self.partition,
            self.neighbours,
            self.bounds,
            self.part,
            self.intercept,
            self.weights,
        )

    def to_state(self) -> State:
        """The state; support arrays that are read from disk stay there until they are written."""
        arrays, attrs = self.small_state()
        return arrays | dict(self.arrays), attrs

    def small_state(self) -> State:
        """All but the support arrays."""
        arrays, attrs = self.header.to_state()
        tree_arrays, tree_attrs = partition_state(self.partition)
        arrays |= {"bounds": self.bounds, "present": self.present} | tree_arrays
        if self.weights is not None:
            arrays["weights"] = self.weights
        if self.bias is not None:
            arrays["bias"] = self.bias
        task = {} if self.is_pairwise else {"task": self.task, "multiclass": self.multiclass}
        return arrays, attrs | task | {"partition": tree_attrs, "combine": self.combine, "neighbours": self.neighbours}

    @classmethod
    def from_state(cls, arrays: Arrays, attrs: Attrs) -> LocalModel:
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


def _of_parts(arrays: Arrays, name: str, width: int) -> np.ndarray | None:
    """(partitions, width) float64; None if the model has none."""
    if name not in arrays:
        return None
    values, expected = np.asarray(arrays[name], np.float64), (len(arrays["present"]), width)
    if values.shape != expected:
        raise ValueError(f"found {name} of partitions {values.shape}, expected {expected}")
    return values


@dataclass(frozen=True, repr=False)
class LocalBudgetModel(Model):
    """f_c(x) = sum_j coef_jc K(x, s_j) + bias_pc over the supports j of the region p that x falls into. One column for
    two classes, else one for each class against the rest. A decision costs the supports of one region. Learning cannot
    continue from it: it keeps no learner's state."""

    kind: ClassVar[str] = "local-budget"
    header: Header
    partition: Partition
    bounds: np.ndarray  # (regions + 1,) int64: region p holds supports bounds[p]..bounds[p+1]
    support: Rows
    coef: np.ndarray  # (s, columns)
    bias: np.ndarray  # (regions, columns)
    task: str = "classify"

    @classmethod
    def of(
        cls, header: Header, partition: Partition, learners: Sequence[BudgetLearner], task: str = "classify"
    ) -> LocalBudgetModel:
        """The model of the present states of all regions' learners."""
        coefs, biases = zip(*(learner.coefficients() for learner in learners), strict=True)
        bounds = np.cumsum([0, *map(len, coefs)], dtype=np.int64)
        support = concat([learner.supports() for learner in learners])
        return cls(header, partition, bounds, support, np.concatenate(coefs), np.stack(biases), task)

    @property
    def n_parts(self) -> int:
        return len(self.bias)

    def parts_of(self, rows: Rows) -> np.ndarray:
        return self.partition.assign(self.header.scaling.apply(rows))

    @property
    def n_support(self) -> int:
        return len(self.support)

    def part(self, p: int) -> tuple[Rows, np.ndarray]:
        """Supports of a region, scaled, and their coefficients."""
        members = slice(*self.bounds[p : p + 2].tolist())
        return self.support.take(members), self.coef[members]

    def binary_decisions(self, rows: Rows) -> np.ndarray:
        """(m, columns) decision values; rows are raw."""
        rows = self.header.scaling.apply(rows)
        parts = self.partition.assign(rows)
        decisions = self.bias[parts]
        for p, members in by_their_part(parts):
            decisions[members] += self.header.kernel.apply(rows.take(members), *self.part(p))
        return decisions

    def as_expansion(self) -> Expansion:
        raise ModelError(
            "the model has parallel learners: each region decides for its own rows, which the format "
            "cannot express; fit with bsgd.partitions=1, or export --format onnx"
        )

    def as_routes(self) -> PartitionRouting:
        kernel, scaling = self.header.kernel, self.header.scaling
        return PartitionRouting(kernel, scaling, self.partition, 1, self.bounds, self.part, self.bias)

    def to_state(self) -> State:
        arrays, attrs = self.header.to_state()
        tree, nodes = partition_state(self.partition)
        arrays |= {"bounds": self.bounds, "support": self.support.dense()} | tree
        return arrays | {"coef": self.coef, "bias": self.bias}, attrs | {"partition": nodes, "task": self.task}

    @classmethod
    def from_state(cls, arrays: Arrays, attrs: Attrs) -> LocalBudgetModel:
        header = Header.from_state(arrays, attrs)
        partition = partition_from_state(arrays, attrs["partition"], header.scaling.width)
        bounds, support, coef, bias = (np.asarray(arrays[name]) for name in ("bounds", "support", "coef", "bias"))
        task = known_task(attrs.get("task", "classify"))
        return cls(header, partition, bounds, Rows(support), coef, bias, task)
