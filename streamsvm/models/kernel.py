"""Models of exact fits: support rows with a coefficient for each pair of classes that they are in."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from streamsvm.data.rows import Rows, rows_from_state, rows_state
from streamsvm.kernels.base import Float64, Kernel
from streamsvm.models.base import Header, Model
from streamsvm.models.shapes import Expansion, PairCoefficients
from streamsvm.storage.arrays import Arrays, Attrs, State
from streamsvm.tasks.pairs import MANY, pair_coefficients, pair_decisions


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
