"""The problems that solvers see: oracles over Q or over the data, never stores, kernels or graphs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from streamsvm.data.rows import Rows
from streamsvm.kernels import Kernel


class DualQP(Protocol):
    """min over a of 1/2 a'Qa - e'a, 0 <= a_i <= upper_i, with Q_ij = y_i y_j K(x_i, x_j) (Hsieh et al. 2014, (1)).

    y: (n,) float64, -1 or +1. upper: (n,) float64, C times the weights.
    """

    y: np.ndarray
    upper: np.ndarray

    def gram(self, ids: np.ndarray) -> np.ndarray:
        """Q[ids, ids], (q, q) float32."""

    def apply(self, ids: np.ndarray, delta: np.ndarray, rows: np.ndarray | None = None) -> np.ndarray:
        """Q[rows, ids] @ delta, (len(rows),) float64; rows None: all."""


@dataclass
class KernelDual:
    """The dual of one binary problem whose rows are in memory."""

    kernel: Kernel
    rows: Rows
    y: np.ndarray
    upper: np.ndarray
    threads: int = 1
    _view: tuple[np.ndarray, Rows] | None = field(default=None, repr=False)

    def gram(self, ids: np.ndarray) -> np.ndarray:
        part, signs = self.rows.take(ids), self.y[ids].astype(np.float32)
        Q = self.kernel.block(part, part, self.threads)
        Q *= signs
        Q *= signs[:, None]
        return Q

    def apply(self, ids: np.ndarray, delta: np.ndarray, rows: np.ndarray | None = None) -> np.ndarray:
        product = self.kernel.apply(self._rows(rows), self.rows.take(ids), delta * self.y[ids], self.threads)
        return product * (self.y if rows is None else self.y[rows])

    def _rows(self, ids: np.ndarray | None) -> Rows:
        """The rows of an active set, gathered once for the rounds that share it."""
        if ids is None:
            return self.rows
        if self._view is None or self._view[0] is not ids:
            self._view = None  # let the old copy go before making the new one
            self._view = ids, self.rows.take(ids)
        return self._view[1]
