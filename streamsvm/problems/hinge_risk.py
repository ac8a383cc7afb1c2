"""Sums of hinge losses, each class against the rest: known by one pass for each set of planes, and nothing of each row
is kept between passes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np
from numba import njit

from streamsvm.data.pass_cache import Columns
from streamsvm.data.rows import Rows
from streamsvm.problems.passes import Passes, scores
from streamsvm.problems.products import add_transposed_times, no_slopes

FIRST, LAST, DIGITS = -16, 6, 5  # a step is 0, or 1.xxxxx times one of these powers of 2
POWERS = 2.0 ** np.arange(FIRST, LAST + 1)
STEPS = np.append(0.0, np.outer(POWERS, 1 + np.arange(1 << DIGITS) / (1 << DIGITS)))
N_STEPS = len(STEPS)
LINE_NUMBERS = 4 * N_STEPS  # that a pass brings of each column
SHIFT = 52 - DIGITS
BELOW = (1023 + FIRST << DIGITS) - 1  # the leading bits of STEPS[1] less 1
STRETCH_BYTES = 1 << 20  # of rows that are in cache from their scores to the slope
TOGETHER = 512  # rows whose bends are found before they are counted
NOTHING = np.empty(0)


class HingeRisk:
    """R_c(w) = sum_i upper_i max(0, 1 - y_ic w'x_i), y_ic = +1 where row i has the code that c stands for, else -1.

    Beside the rows of each block are their codes (m,), of k classes, and upper (m,). Two classes make one column, of
    the second; more make one each (one-vs-rest). OP2 of Joachims 2006 has C/n where this has C: its C is n times ours.

    Along w + k (q - w) the loss of row i is upper_i max(0, m_i - k s_i), which bends at k = m_i / s_i. A pass adds up
    m_i and s_i of the rows by where they bend among STEPS, which are 2 to 3 % apart: so R is known at each of these
    steps to the last digit, and the best of them gains all but 1e-4 of what the lowest point of the line would.
    """

    def __init__(self, passes: Passes, k: int) -> None:
        self._passes = passes
        self._positive = np.array([1]) if k == 2 else np.arange(k)
        self.d, self.columns = passes.d, len(self._positive)

    def start(self) -> np.ndarray:
        return NOTHING

    def at(self, columns: np.ndarray, W: np.ndarray, Q: np.ndarray, known: list[np.ndarray]) -> list[_View]:
        both = np.stack([W, Q], axis=2).reshape(self.d, -1)
        visit = partial(_hinge_of, self._positive[columns], self._passes.bias)
        _, (values, A, bends) = self._passes.over(visit, shared=(both,))
        return [
            _View(float(value), a, risks_at_steps(own))
            for value, a, own in zip(values, A.T, bends, strict=True)
        ]

    def support(self, W: np.ndarray, known: list[np.ndarray]) -> int:
        visit = partial(_active_of, self._positive, self._passes.bias)
        _, (count,) = self._passes.over(visit, shared=(W,))
        return int(count)


def risks_at_steps(bends: np.ndarray) -> np.ndarray:
    """(N_STEPS,) R at each of STEPS, of sums of m and s (2, N_STEPS, 2): of the rows whose loss ends after this step,
    and before the next; of those whose loss begins there."""
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
    known: ClassVar[np.ndarray] = NOTHING

    def lowest(self, slope: float, curvature: float) -> Iterator[tuple[float, float, np.ndarray]]:
        best = int(np.argmin((slope + curvature / 2 * STEPS) * STEPS + self.risks))
        yield float(STEPS[best]), float(self.risks[best]), NOTHING


def _stretches(rows: Rows, columns: int) -> Iterator[tuple[int, int]]:
    """Of a block's rows, with so many numbers beside each."""
    m = len(rows)
    step = max(1, STRETCH_BYTES * m // (rows.nbytes + 8 * columns * m))
    return ((start, min(m, start + step)) for start in range(0, m, step))


def _hinge_of(
    positive: np.ndarray, bias: float, both: np.ndarray, block: tuple[Rows, Columns]
) -> tuple[None, tuple[np.ndarray, ...]]:
    """Values and slopes at Q, and how the risks run from W to Q; both (d, 2 q): their columns by turns."""
    (rows, (codes, upper)), q = block, len(positive)
    sums, bends, A = np.zeros((2, q)), np.zeros((q, 2, N_STEPS, 2)), no_slopes(rows, q)
    for start, stop in _stretches(rows, 3 * q):
        F, G = scores(rows, both, bias, start, stop), np.empty((stop - start, q))
        _hinge(F, codes[start:stop], positive, upper[start:stop], G, sums, bends)
        add_transposed_times(rows, G, start, A)
    return None, (sums[0], np.vstack([A, bias * sums[1]]) if bias else A, bends)


def _active_of(
    positive: np.ndarray, bias: float, W: np.ndarray, block: tuple[Rows, Columns]
) -> tuple[None, tuple[np.ndarray, ...]]:
    (rows, (codes, _)), count = block, 0
    for start, stop in _stretches(rows, 2 * len(positive)):
        F = scores(rows, W, bias, start, stop)
        margins = np.where(codes[start:stop, None] == positive, F, -F)
        count += int(np.count_nonzero((margins < 1).any(axis=1)))
    return None, (np.array(count),)


@njit(cache=True, nogil=True, error_model="numpy", fastmath={"reassoc", "contract"})
def _hinge(F, codes, positive, upper, G, sums, bends):
    """G = the slope of the losses with respect to the scores at Q; adds the losses there and G to the sums (2, q), and
    m and s of each row to the bends, see `risks_at_steps`.

    Without a branch that depends on the row: half of them would be foretold wrongly, at three times the cost of all
    else. A row that never bends has a k below 0 or infinite, which is beyond the last step whatever its sign.
    """
    M, S, at, places = (
        np.empty(TOGETHER),
        np.empty(TOGETHER),
        np.empty(TOGETHER),
        np.empty(TOGETHER, np.int64),
    )
    bits = at.view(np.uint64)
    for start in range(0, len(F), TOGETHER):
        n = min(TOGETHER, len(F) - start)
        for c in range(len(positive)):
            value = slope = 0.0
            for i in range(n):
                j = start + i
                y, u = (1.0 if codes[j] == positive[c] else -1.0), upper[j]
                m, there = 1.0 - y * F[j, 2 * c], 1.0 - y * F[j, 2 * c + 1]
                G[j, c] = -y * u if there > 0.0 else 0.0
                value += u * max(there, 0.0)
                slope += G[j, c]
                s = m - there
                M[i], S[i], at[i] = m, s, m / s
            sums[0, c] += value
            sums[1, c] += slope
            for i in range(n):
                place = int(bits[i] >> np.uint64(SHIFT)) - BELOW
                place = min(max(place, 0), N_STEPS - 1)
                places[i] = place if M[i] >= 0.0 else N_STEPS + place
            own = bends[c].reshape(2 * N_STEPS, 2)
            for i in range(n):
                u = upper[start + i]
                own[places[i], 0] += u * M[i]
                own[places[i], 1] += u * S[i]
