"""Models of each class against the rest, of ranks and of values: support rows with a coefficient a column."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from streamsvm.data.rows import Rows, rows_from_state, rows_state
from streamsvm.kernels.base import Float64, Kernel
from streamsvm.models.base import Header, Model, known_task
from streamsvm.models.shapes import Expansion
from streamsvm.storage.arrays import Arrays, Attrs, State


@dataclass(frozen=True, repr=False)
class ExpansionModel(Model):
    """f_c(x) = sum_i coef_ic K(x_i, x) + b_c, one column for two classes, else one for each class against the rest. For
    a task without labels: one column, whose value is the answer."""

    kind: ClassVar[str] = "expansion"
    header: Header
    support: Rows  # already scaled
    coef: np.ndarray  # (s, columns) y_i alpha_i
    intercept: np.ndarray  # (columns,)
    ids: np.ndarray  # (s,) int64 rows of the training store that they were
    task: str = "classify"

    @property
    def n_support(self) -> int:
        return len(self.support)

    def binary_decisions(self, rows: Rows) -> np.ndarray:
        """(m, columns) decision values; rows are raw."""
        rows = self.header.scaling.apply(rows)
        return self._kernel.apply(rows, self.support, self.coef) + self.intercept

    @cached_property
    def _kernel(self) -> Kernel | Float64:
        return self.header.kernel.for_sums(self.support, self.coef)

    def as_expansion(self) -> Expansion:
        kernel, scaling = self.header.kernel, self.header.scaling
        return Expansion(kernel, scaling, self.support, self.coef, self.intercept, ids=self.ids)

    def to_state(self) -> State:
        arrays, attrs = self.header.to_state()
        arrays |= rows_state("support", self.support)
        arrays |= {"coef": self.coef, "intercept": self.intercept, "ids": self.ids}
        return arrays, attrs | {"task": self.task}

    @classmethod
    def from_state(cls, arrays: Arrays, attrs: Attrs) -> ExpansionModel:
        header = Header.from_state(arrays, attrs)
        support = rows_from_state("support", arrays, header.scaling.width)
        coef, intercept, ids = (np.asarray(arrays[name]) for name in ("coef", "intercept", "ids"))
        return cls(header, support, coef, intercept, ids, known_task(attrs["task"]))
