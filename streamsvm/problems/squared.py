"""Duals of squared losses: a ridge on the diagonal instead of bounds."""

from __future__ import annotations

import numpy as np

from streamsvm.problems.dual import DualQP

UNBOUNDED = 1e30  # of a variable: finite, as compiled code knows no infinity


class SquaredDual:
    """min over a >= 0 of 1/2 a'(Q + D)a + p'a, D_ii = 1 / (2 c_i): the dual of 1/2 |w|^2 + sum_i c_i xi_i^2.

    xi_i = max(0, -h_i), of h = Qa + p + y b, are the same errors as those of the dual of the losses themselves, whose
    bounds are the c; rows of c_i = 0 have variables of 0 (Hsieh et al. 2008, (2)). Decision values do not contain D.
    """

    over_margin = False

    def __init__(self, dual: DualQP) -> None:
        self._dual, self._cost = dual, dual.upper
        self.y, self.linear, self.parts, self.nu = dual.y, dual.linear, dual.parts, dual.nu
        self.upper, self.ridge = squared_terms(dual.upper)

    def in_float64(self) -> SquaredDual:
        return SquaredDual(self._dual.in_float64())

    def float32_error(self, alpha: np.ndarray) -> float:
        return self._dual.float32_error(alpha)

    def cross(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return self._dual.cross(a, b)

    def diagonal(self, ids: np.ndarray) -> np.ndarray:
        return self._dual.diagonal(ids) + self.ridge[ids]

    def gram(self, ids: np.ndarray) -> np.ndarray:
        return ridged(self._dual.gram(ids), self.ridge[ids])

    def apply(self, ids: np.ndarray, delta: np.ndarray, rows: np.ndarray | None = None) -> np.ndarray:
        """As `DualQP.apply`; ids are distinct, and rows rise."""
        out, diagonal = self._dual.apply(ids, delta, rows), self.ridge[ids] * delta
        if rows is None:
            out[ids] += diagonal
            return out
        place = np.minimum(np.searchsorted(rows, ids), len(rows) - 1)
        present = rows[place] == ids
        out[place[present]] += diagonal[present]
        return out

    def gap(self, alpha: np.ndarray, shifted: np.ndarray) -> float:
        """a'h + sum_i c_i xi_i^2 + a_i^2 / (4 c_i), of shifted = h + Da."""
        h = shifted - self.ridge * alpha
        return float(alpha @ h + self._cost @ np.maximum(-h, 0.0) ** 2 + 0.5 * (self.ridge * alpha) @ alpha)


def squared_terms(cost: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Bounds and ridge (n,) of variables whose squared errors cost so much."""
    counts = cost > 0
    return np.where(counts, UNBOUNDED, 0.0), np.divide(0.5, cost, out=np.zeros(len(cost)), where=counts)


def ridged(Q: np.ndarray, ridge: np.ndarray) -> np.ndarray:
    """Q (q, q) with a ridge (q,) on its diagonal, in place."""
    Q[np.arange(len(Q)), np.arange(len(Q))] += ridge.astype(Q.dtype)
    return Q
