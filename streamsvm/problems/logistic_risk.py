"""Sums of logistic losses, and how they run along a line: by their values at some steps of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numba import njit

from streamsvm.problems.passes import View
from streamsvm.problems.row_risk import NOTHING, RowRisk

STEPS = np.append(0.0, 2.0 ** (np.arange(-5, 5) / 2))
N_STEPS, AT_Q = len(STEPS), int(np.flatnonzero(STEPS == 1.0)[0])
TOGETHER = 512  # rows whose losses at a step are taken at once
LARGEST = 700.0  # exponent of a float64
LOG2_E, LN_2_HIGH, LN_2_LOW = 1.4426950408889634, 0.6931471803691238, 1.9082149292705877e-10


class LogisticRisk(RowRisk):
    """R_c(w) = sum_i upper_i log(1 + exp(-y_ic w'x_i)).

    It is smooth and convex: a line has its lowest point between the neighbours of the best of these steps. They are
    a factor of 1.4 apart, so that the best of them gains all but 3 % of what that point would, where losses are about
    quadratic; the next plane is taken from there.
    """

    line_shape = (N_STEPS,)

    def support(self, W: np.ndarray, scores: list[np.ndarray]) -> int:
        """All rows: a loss is never 0."""
        return self._passes.n

    @staticmethod
    def add(
        F: np.ndarray, c: int, piece: np.ndarray, upper: np.ndarray, G: np.ndarray, sums: np.ndarray, lines: np.ndarray
    ) -> None:
        slopes, weight = piece
        _logistic(F, c, np.sign(slopes), weight * upper, G, sums, lines)

    @staticmethod
    def view(value: float, slope: np.ndarray, line: np.ndarray) -> View:
        return _View(value, slope, line)


@dataclass(frozen=True)
class _View:
    """risks (N_STEPS,): R at each of STEPS on the way."""

    value: float
    slope: np.ndarray
    risks: np.ndarray
    scores: ClassVar[np.ndarray] = NOTHING

    def lowest(self, slope: float, curvature: float) -> Iterator[tuple[float, float, np.ndarray]]:
        best = int(np.argmin((slope + curvature / 2 * STEPS) * STEPS + self.risks))
        yield float(STEPS[best]), float(self.risks[best]), NOTHING


@njit(cache=True, nogil=True, error_model="numpy", fastmath={"reassoc", "contract"})
def _logistic(F, c, signs, upper, G, sums, risks):
    """See `RowRisk.add`: risks (q, N_STEPS) get the losses at each step."""
    z, e, loss = np.empty(TOGETHER), np.empty(TOGETHER), np.empty(TOGETHER)
    for start in range(0, len(F), TOGETHER):
        n = min(TOGETHER, len(F) - start)
        for j in range(N_STEPS):
            for i in range(n):
                f = F[start + i, 2 * c]
                z[i] = -signs[start + i] * (f + STEPS[j] * (F[start + i, 2 * c + 1] - f))
            _losses(z, n, e, loss)
            total = slope = 0.0
            for i in range(n):
                total += upper[start + i] * loss[i]
            risks[c, j] += total
            if j == AT_Q:
                for i in range(n):
                    g = -signs[start + i] * upper[start + i] * (1.0 if z[i] > 0.0 else e[i]) / (1.0 + e[i])
                    G[start + i, c] += g
                    slope += g
                sums[0, c] += total
                sums[1, c] += slope


@njit(cache=True, nogil=True, error_model="numpy", fastmath={"reassoc", "contract"})
def _losses(z, n, e, loss):
    """e = exp(-|z|) and loss = log(1 + exp(z)) of the first n, to the rounding of float64. By polynomials, in 0.4 of
    the time that the library's functions take: exp(r) for |r| <= log(2) / 2 times a power of 2, and log(1 + e) = 2
    artanh(e / (2 + e)) for e <= 1."""
    power = np.empty(TOGETHER, np.int64)
    scale = power.view(np.float64)
    for i in range(n):
        x = -min(abs(z[i]), LARGEST)
        whole = np.floor(x * LOG2_E + 0.5)
        r = (x - whole * LN_2_HIGH) - whole * LN_2_LOW
        p = (((1 / 479001600 * r + 1 / 39916800) * r + 1 / 3628800) * r + 1 / 362880) * r + 1 / 40320
        p = (((p * r + 1 / 5040) * r + 1 / 720) * r + 1 / 120) * r + 1 / 24
        e[i] = (((p * r + 1 / 6) * r + 1 / 2) * r + 1) * r + 1
        power[i] = (int(whole) + 1023) << 52
    for i in range(n):
        e[i] *= scale[i]
        s = e[i] / (2.0 + e[i])
        s2 = s * s
        p = (((1 / 33 * s2 + 1 / 31) * s2 + 1 / 29) * s2 + 1 / 27) * s2 + 1 / 25
        p = (((p * s2 + 1 / 23) * s2 + 1 / 21) * s2 + 1 / 19) * s2 + 1 / 17
        p = (((p * s2 + 1 / 15) * s2 + 1 / 13) * s2 + 1 / 11) * s2 + 1 / 9
        p = (((p * s2 + 1 / 7) * s2 + 1 / 5) * s2 + 1 / 3) * s2 + 1
        loss[i] = max(z[i], 0.0) + 2.0 * s * p
