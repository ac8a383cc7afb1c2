"""The risk of one class: rows below a threshold that is learned as well, the last entry of w."""

from __future__ import annotations

from functools import partial

import numpy as np

from streamsvm.data.cache import Columns
from streamsvm.data.rows import Rows
from streamsvm.problems.hinge_risk import HingeRisk
from streamsvm.problems.passes import Passes
from streamsvm.problems.products import times
from streamsvm.problems.row_risk import MarginTerms

RHO = -1.0  # the constant feature of every row, whose weight is rho: a score is w'x - rho
DIGITS = 16  # bits of a score that a pass counts
SLACK = 1e-6  # of rho: so that rounding leaves no row at rho outside


class SupportRisk(HingeRisk):
    """R(w, rho) = sum_i upper_i max(0, rho - w'x_i), with a reward of nu sum upper for each unit of rho. With 1/2 |w|^2
    that is the primal of Schoelkopf et al. 2001 in LIBSVM's scale. passes: with a bias of RHO."""

    def __init__(self, passes: Passes, nu: float) -> None:
        super().__init__(passes, MarginTerms())
        _, (weight,) = passes.over(_weight_of)
        self.reward = nu * float(weight)

    def threshold(self, w: np.ndarray) -> float:
        """The best rho for w (d - 1,): rows whose weights add up to the reward are below it, and so outside. A pass
        counts scores by their leading bits, the next one those that share the leading bits of rho by their next bits,
        and so on to the last bit, with nothing in memory for each row."""
        rho_bits, left = np.uint64(0), self.reward * (1 + 1e-12)
        for start in range(64 - DIGITS, -1, -DIGITS):
            visit = partial(_counted, start, int(rho_bits))
            _, (counts,) = self._passes.over(visit, shared=(w[:, None],))
            up_to = np.cumsum(counts)
            place = min(int(np.searchsorted(up_to, left, side="right")), int(np.flatnonzero(counts)[-1]))
            left -= float(up_to[place] - counts[place])
            rho_bits |= np.uint64(place) << np.uint64(start)
        rho = _number(rho_bits)
        return rho - SLACK * abs(rho)


def _weight_of(block: tuple[Rows, Columns]) -> tuple[None, tuple[np.ndarray, ...]]:
    return None, (np.array(block[1][-1].sum()),)


def _counted(
    start: int, leading: int, w: np.ndarray, block: tuple[Rows, Columns]
) -> tuple[None, tuple[np.ndarray, ...]]:
    """(2^DIGITS,) weights by the digit of scores from the bit `start` on, of rows with these leading bits."""
    rows, (*_, upper) = block
    order = _ordered(times(rows, w)[:, 0])
    first, above = np.uint64(start), np.uint64(start + DIGITS)
    if start + DIGITS < 64:
        same = order >> above == np.uint64(leading) >> above
        order, upper = order[same], upper[same]
    digits = (order >> first & np.uint64((1 << DIGITS) - 1)).astype(np.int64)
    return None, (np.bincount(digits, upper, 1 << DIGITS),)


def _ordered(f: np.ndarray) -> np.ndarray:
    """(m,) whole numbers in the order of f."""
    bits = (f + 0.0).view(np.uint64)
    return np.where(bits >> np.uint64(63) == 1, ~bits, bits | np.uint64(1 << 63))


def _number(order: np.uint64) -> float:
    """The number that `_ordered` maps to this."""
    bits = order ^ np.uint64(1 << 63) if order >> np.uint64(63) else ~order
    return float(np.array(bits, np.uint64).view(np.float64))
