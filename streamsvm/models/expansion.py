"""Models that are one sum over support rows: of exact fits with a coefficient for each pair of classes that a row is
in, of classes against the rest, ranks and values with one a column; and linear models, of features or of landmarks."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar

import numpy as np

from streamsvm.data.rows import Rows, rows_from_state, rows_state
from streamsvm.kernels.base import Float64, Kernel
from streamsvm.kernels.inner import Linear
from streamsvm.models.base import Header, Model, known_task
from streamsvm.models.shapes import Expansion, PairCoefficients
from streamsvm.problems.products import times
from streamsvm.storage.arrays import Arrays, Attrs, State
from streamsvm.tasks.pairs import MANY, pair_coefficients, pair_decisions


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


@dataclass(frozen=True, repr=False)
class LinearModel(Model):
    """f_c(x) = w_c'x + b_c, one column for two classes, else one for each class against the rest. With landmarks z_j
    (Nystroem), f_c(x) = sum_j w_cj K(x, z_j) + b_c. Of a task with thresholds: one column, and the code of a row is the
    number of thresholds below it; of a task without labels: the score is the answer."""

    kind: ClassVar[str] = "linear"
    header: Header
    coef: np.ndarray  # (d or landmarks, columns)
    intercept: np.ndarray  # (columns,)
    task: str = "classify"
    thresholds: np.ndarray = field(default_factory=lambda: np.empty(0))  # (k - 1,) rising, see Task.thresholds
    landmarks: Rows | None = None

    def binary_decisions(self, rows: Rows) -> np.ndarray:
        """(m, columns) decision values; rows are raw."""
        rows = self.header.scaling.apply(rows)
        if self.landmarks is None:
            return times(rows, self.coef) + self.intercept
        return self.header.kernel.apply(rows, self.landmarks, self.coef) + self.intercept

    def as_expansion(self) -> Expansion:
        kernel, scaling = self.header.kernel, self.header.scaling
        if self.landmarks is not None:
            return Expansion(kernel, scaling, self.landmarks, self.coef, self.intercept)
        rows = Rows(self.coef.T.copy())  # w is its own support row
        return Expansion(Linear(), scaling, rows, np.eye(len(rows)), self.intercept, of_rows=False)

    def to_state(self) -> State:
        arrays, attrs = self.header.to_state()
        arrays |= {"coef": self.coef, "intercept": self.intercept, "thresholds": self.thresholds}
        if self.landmarks is not None:
            arrays |= rows_state("landmarks", self.landmarks)
        return arrays, attrs | {"task": self.task, "has_landmarks": self.landmarks is not None}

    @classmethod
    def from_state(cls, arrays: Arrays, attrs: Attrs) -> LinearModel:
        header = Header.from_state(arrays, attrs)
        landmarks = rows_from_state("landmarks", arrays, header.scaling.width) if attrs["has_landmarks"] else None
        coef, intercept, thresholds = (np.asarray(arrays[n]) for n in ("coef", "intercept", "thresholds"))
        return cls(header, coef, intercept, known_task(attrs["task"]), thresholds, landmarks)


@dataclass(frozen=True, repr=False)
class KernelModel(Model):
    """f(x) = sum_i y_i alpha_i K(x_i, x) + b of each pair of classes, over support rows already scaled."""

    kind: ClassVar[str] = "kernel"
    header: Header
    support: Rows
    alpha: np.ndarray  # (s, k - 1) compact, see tasks.pairs
    codes: np.ndarray  # (s,) class codes of the support rows
    ids: np.ndarray  # (s,) int64 rows of the training store that they were
    intercept: np.ndarray  # (n_pairs,)
    break_ties: bool = True  # by confidence; else equal votes are the first class's, as in LIBSVM

    @property
    def is_pairwise(self) -> bool:
        return True

    @property
    def n_support(self) -> int:
        return len(self.support)

    @cached_property
    def coefficients(self) -> np.ndarray:
        """(s, n_pairs) y_i alpha_i of each pair, float32 where that is enough for their sums."""
        return pair_coefficients(self.alpha, self.codes, len(self.classes), _coef_dtype(self._kernel))

    @cached_property
    def _kernel(self) -> Kernel | Float64:
        kernel, k = self.header.kernel, len(self.classes)
        if k >= MANY:  # whose table of coefficients is nearly all zeros
            return kernel.for_sums(self.support, self.alpha, self._pair_sums)
        return kernel.for_sums(self.support, pair_coefficients(self.alpha, self.codes, k, np.float64))

    def _decided(self, decision: np.ndarray) -> np.ndarray:
        # votes are whole numbers, and confidence below 1/3 is added
        return super()._decided(decision if self.break_ties or decision.ndim == 1 else np.rint(decision))

    def binary_decisions(self, rows: Rows) -> np.ndarray:
        """(m, n_pairs) decision values of each pair (i, j), positive for j; rows are raw."""
        rows, kernel, k = self.header.scaling.apply(rows), self._kernel, len(self.classes)
        if k < MANY or rows.is_sparse:  # of which each class would cost a pass over the entries
            return kernel.apply(rows, self.support, self.coefficients) + self.intercept

        return self._pair_sums(kernel, rows) + self.intercept

    def _pair_sums(self, kernel: Kernel | Float64, rows: Rows) -> np.ndarray:
        """(m, n_pairs) decision values of scaled rows without the intercepts, class by class."""
        dtype = _coef_dtype(kernel)

        def sums(ids: np.ndarray, coef: np.ndarray) -> np.ndarray:
            return kernel.apply(rows, self.support.take(ids), coef.astype(dtype))

        return pair_decisions(sums, len(rows), self.alpha, self.codes, len(self.classes))

    def as_expansion(self) -> Expansion:
        kernel, scaling = self.header.kernel, self.header.scaling
        compact = PairCoefficients(self.alpha, self.codes)
        return Expansion(kernel, scaling, self.support, self.coefficients, self.intercept, compact, self.ids)

    def to_state(self) -> State:
        arrays, attrs = self.header.to_state()
        return arrays | rows_state("support", self.support) | {
            "alpha": self.alpha,
            "codes": self.codes,
            "ids": self.ids,
            "intercept": self.intercept,
        }, attrs | {"break_ties": self.break_ties}

    @classmethod
    def from_state(cls, arrays: Arrays, attrs: Attrs) -> KernelModel:
        header = Header.from_state(arrays, attrs)
        support = rows_from_state("support", arrays, header.scaling.width)
        alpha, codes, ids, intercept = (np.asarray(arrays[name]) for name in ("alpha", "codes", "ids", "intercept"))
        return cls(header, support, alpha, codes, ids, intercept, attrs["break_ties"])


def _coef_dtype(kernel: Kernel | Float64) -> type:
    """The type of coefficients that a kernel is applied with."""
    return np.float64 if isinstance(kernel, Float64) else np.float32
