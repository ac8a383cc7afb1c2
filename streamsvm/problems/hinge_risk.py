"""Sums of hinge losses, each class against the rest."""

from __future__ import annotations

from functools import partial

import numpy as np
from numba import njit

from streamsvm.data.rows import Rows
from streamsvm.problems.passes import Passes, scores, slopes


class HingeRisk:
    """R_c(w) = sum_i upper_i max(0, 1 - y_ic w'x_i), y_ic = +1 where row i has the code that c stands for, else -1.

    codes: (n,) of k classes. Two classes make one column, of the second; more make one each (one-vs-rest).
    OP2 of Joachims 2006 has C/n where this has C: its C is n times ours.
    """

    def __init__(self, passes: Passes, codes: np.ndarray, k: int, upper: np.ndarray) -> None:
        self._passes, self._codes, self._upper = passes, codes, upper
        self._targets = passes.keep(codes, upper)
        self._positive = np.array([1]) if k == 2 else np.arange(k)
        self.n, self.d, self.columns = passes.n, passes.d, len(self._positive)

    def at(self, W: np.ndarray, columns: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        positive = self._positive[columns]

        visit = partial(_hinge_of, positive, self._passes.bias)
        F, (values, slopes) = self._passes.over(visit, kept=self._targets, shared=(W,))
        return np.concatenate(F), values, slopes

    def value(self, column: int, f: np.ndarray) -> float:
        return _hinge_value(f, self._codes, self._positive[column], self._upper)

    def active(self, column: int, f: np.ndarray) -> np.ndarray:
        return np.where(self._codes == self._positive[column], f, -f) < 1

    def step(
        self,
        column: int,
        f: np.ndarray,
        df: np.ndarray,
        slope: float,
        curvature: float,
        *,
        exact: bool,
    ) -> float:
        return _hinge_step(f, df, self._codes, self._positive[column], self._upper, slope, curvature)


def _hinge_of(
    positive: np.ndarray, bias: float, W: np.ndarray, rows: Rows, targets: tuple[np.ndarray, np.ndarray]
) -> tuple[np.ndarray, tuple[np.ndarray, ...]]:
    F, (codes, upper) = scores(rows, W, bias), targets
    G, values = np.empty_like(F), np.zeros(len(positive))
    _hinge(F, codes, positive, upper, G, values)
    return F, (values, slopes(rows, G, bias))


@njit(cache=True, nogil=True)
def _hinge(F, codes, positive, upper, G, values):
    """G = the slope of the losses with respect to the scores F; adds the losses of each column to values."""
    for i in range(len(F)):
        for c in range(len(positive)):
            y = 1.0 if codes[i] == positive[c] else -1.0
            loss = 1.0 - y * F[i, c]
            G[i, c] = 0.0
            if loss > 0.0:
                G[i, c] = -y * upper[i]
                values[c] += upper[i] * loss


@njit(cache=True, nogil=True)
def _hinge_value(f, codes, positive, upper):
    value = 0.0
    for i in range(len(f)):
        y = 1.0 if codes[i] == positive else -1.0
        value += upper[i] * max(0.0, 1.0 - y * f[i])
    return value


@njit(cache=True, nogil=True)
def _hinge_step(f, df, codes, positive, upper, slope, curvature):
    """Row i's loss upper_i max(0, m - k s) bends at k = m / s, where the derivative jumps up by upper_i |s|."""
    bends, jumps = np.empty(len(f)), np.empty(len(f))
    n, at_zero = 0, slope
    for i in range(len(f)):
        y = 1.0 if codes[i] == positive else -1.0
        m, s = 1.0 - y * f[i], y * df[i]
        if m > 0.0 or (m == 0.0 and s < 0.0):
            at_zero -= upper[i] * s
        if m * s > 0.0:
            bends[n], jumps[n] = m / s, upper[i] * abs(s)
            n += 1
    return _root_of_jumps(bends[:n], jumps[:n], at_zero, curvature) if at_zero < 0.0 else 0.0


@njit(cache=True, nogil=True)
def _root_of_jumps(bends, jumps, left, slope):
    """Where left + slope k + the jumps of the bends up to k comes to 0; left < 0.

    Found as a quantile is: a pivot leaves the bends of one side, so that all is O(n). Overwrites bends and jumps.
    """
    n = len(bends)
    while n > 0:
        pivot = bends[n // 2]
        below = at = 0.0  # jumps before the pivot, and there
        for i in range(n):
            if bends[i] < pivot:
                below += jumps[i]
            elif bends[i] == pivot:
                at += jumps[i]
        before = left + slope * pivot + below
        if before < 0.0 <= before + at:
            return pivot
        kept = 0
        for i in range(n):
            if bends[i] != pivot and (bends[i] < pivot) == (before >= 0.0):
                bends[kept], jumps[kept] = bends[i], jumps[i]
                kept += 1
        n = kept
        left += below + at if before < 0.0 else 0.0
    return -left / slope
