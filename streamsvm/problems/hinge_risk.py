"""Sums of hinge losses, and how they run along a line: by sums of what ends and begins at some steps of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np
from numba import njit

from streamsvm.data.cache import Columns
from streamsvm.data.rows import Rows
from streamsvm.problems.passes import View, scores
from streamsvm.problems.row_risk import NOTHING, LossTerms, RowRisk, row_slices

FIRST, LAST, DIGITS = -16, 6, 5  # a step is 0, or 1.xxxxx times one of these powers of 2
POWERS = 2.0 ** np.arange(FIRST, LAST + 1)
STEPS = np.append(0.0, np.outer(POWERS, 1 + np.arange(1 << DIGITS) / (1 << DIGITS)))
N_STEPS = len(STEPS)
SHIFT = 52 - DIGITS
BELOW = (1023 + FIRST << DIGITS) - 1  # the leading bits of STEPS[1] less 1
TOGETHER = 512  # rows whose bends are found before they are counted


class HingeRisk(RowRisk):
    """R_c(w) = sum_i upper_i sum of the row's pieces max(0, c - y w'x_i), see `LossTerms`.

    Of classes it is OP2 of Joachims 2006, which has C/n where this has C: its C is n times ours.

    Along w + k (q - w) the loss of a piece is upper_i max(0, m_i - k s_i), which bends at k = m_i / s_i. A pass adds up
    m_i and s_i of the pieces by where they bend among STEPS, which are 2 to 3 % apart: so R is known at each of these
    steps to the last digit, and the best of them gains all but 1e-4 of what the lowest point of the line would.
    """

    line_shape = (2, N_STEPS, 2)

    def support(self, W: np.ndarray, scores: list[np.ndarray]) -> int:
        visit = partial(_count_active, self._terms, self._passes.bias)
        _, (count,) = self._passes.over(visit, shared=(W,))
        return int(count)

    @staticmethod
    def add(
        F: np.ndarray, c: int, piece: np.ndarray, upper: np.ndarray, G: np.ndarray, sums: np.ndarray, lines: np.ndarray
    ) -> None:
        _hinge(F, c, piece, upper, G, sums, lines)

    @staticmethod
    def view(value: float, slope: np.ndarray, line: np.ndarray) -> View:
        return _View(value, slope, risks_at_steps(line))


def risks_at_steps(bends: np.ndarray) -> np.ndarray:
    """(N_STEPS,) R at each of STEPS, from sums of m and s (2, N_STEPS, 2): of the rows whose loss ends between this
    step and the next; and of those whose loss begins there."""
    ending, beginning = bends
    active = np.cumsum(ending[::-1], axis=0)[::-1]
    active[1:] += np.cumsum(beginning, axis=0)[:-1]
    return active[:, 0] - STEPS * active[:, 1]


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


def _count_active(
    terms: LossTerms, bias: float, W: np.ndarray, block: tuple[Rows, Columns]
) -> tuple[None, tuple[np.ndarray, ...]]:
    (rows, (*row_columns, _)), count = block, 0
    for start, stop in row_slices(rows, 2 * terms.columns):
        F = scores(rows, W, bias, start, stop)
        active = np.zeros(stop - start, bool)
        sliced = tuple(values[start:stop] for values in row_columns)
        for column in range(terms.columns):
            for y, margin in terms.pieces(column, sliced):
                active |= margin - y * F[:, column] > 0
        count += int(np.count_nonzero(active))
    return None, (np.array(count),)


@njit(cache=True, nogil=True, error_model="numpy", fastmath={"reassoc", "contract"})
def _hinge(F, c, piece, upper, G, sums, bends):
    """See `RowRisk.add`: bends get m and s of each row, see `risks_at_steps`. Without a branch that depends on the row:
    half of them would be predicted wrongly, at three times the cost of all else. A row that never bends has a k below 0
    or infinite, which is beyond the last step whatever its sign."""
    M, S, at, places = (np.empty(TOGETHER), np.empty(TOGETHER), np.empty(TOGETHER), np.empty(TOGETHER, np.int64))
    bits = at.view(np.uint64)
    flat_bends = bends[c].reshape(2 * N_STEPS, 2)
    signs, margins = piece[0], piece[1]
    for start in range(0, len(F), TOGETHER):
        n = min(TOGETHER, len(F) - start)
        value = slope = 0.0
        for i in range(n):
            j = start + i
            y, u = signs[j], upper[j]
            m, m_q = margins[j] - y * F[j, 2 * c], margins[j] - y * F[j, 2 * c + 1]
            g = -y * u if m_q > 0.0 else 0.0
            G[j, c] += g
            value += u * max(m_q, 0.0)
            slope += g
            s = m - m_q
            M[i], S[i], at[i] = m, s, m / s
        sums[0, c] += value
        sums[1, c] += slope
        for i in range(n):
            place = int(bits[i] >> np.uint64(SHIFT)) - BELOW
            place = min(max(place, 0), N_STEPS - 1)
            places[i] = place if M[i] >= 0.0 else N_STEPS + place
        for i in range(n):
            u = upper[start + i]
            flat_bends[places[i], 0] += u * M[i]
            flat_bends[places[i], 1] += u * S[i]
