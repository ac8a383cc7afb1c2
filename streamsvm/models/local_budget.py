"""Models of parallel learners: regions of input space, each with its own budget."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from streamsvm.data.rows import Rows, concat
from streamsvm.errors import ModelError
from streamsvm.kernels.kmeans import Partition, by_their_part, partition_from_state, partition_state
from streamsvm.models.base import Header, Model, known_task
from streamsvm.models.learner import BudgetLearner
from streamsvm.models.shapes import Expansion, PartitionRouting
from streamsvm.storage.arrays import Arrays, Attrs, State


@dataclass(frozen=True, repr=False)
class LocalBudgetModel(Model):
    """f_c(x) = sum_j coef_jc K(x, s_j) + bias_pc over the supports j of the region p that x falls into.

    One column for two classes, else one for each class against the rest. A decision costs the supports of one region.
    Learning cannot continue from it: it keeps no learner's state.
    """

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
