"""Sums of losses of single rows: computed by one pass for each set of planes, with nothing of a row between passes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Protocol

import numpy as np

from streamsvm.data.cache import Columns
from streamsvm.data.rows import Rows
from streamsvm.private.numba import njit, njit_inner
from streamsvm.problems.passes import Passes, scores
from streamsvm.problems.products import add_transposed_times, no_slopes, times
from streamsvm.tasks.base import Targets

SLICE_BYTES = 1 << 20  # of rows that are in cache from their scores to the slope
NOTHING = np.empty(0)
FIRST, LAST, DIGITS = -16, 6, 5  # a step is 0, or 1.xxxxx times one of these powers of 2
POWERS = 2.0 ** np.arange(FIRST, LAST + 1)
HINGE_STEPS = np.append(0.0, np.outer(POWERS, 1 + np.arange(1 << DIGITS) / (1 << DIGITS)))
N_HINGE = len(HINGE_STEPS)
SHIFT = 52 - DIGITS
BELOW = (1023 + FIRST << DIGITS) - 1  # the leading bits of HINGE_STEPS[1] less 1
TOGETHER = 512  # rows whose bends, or losses at a step, are found before they are counted
LOGISTIC_STEPS = np.append(0.0, 2.0 ** (np.arange(-5, 5) / 2))
N_LOGISTIC, AT_Q = len(LOGISTIC_STEPS), int(np.flatnonzero(LOGISTIC_STEPS == 1.0)[0])
LARGEST = 700.0  # exponent of a float64
LOG2_E, LN_2_HIGH, LN_2_LOW = 1.4426950408889634, 0.6931471803691238, 1.9082149292705877e-10
RHO = -1.0  # the constant feature of every row, whose weight is rho: a score is w'x - rho
COUNTED_BITS = 16  # bits of a score that a pass counts
SLACK = 1e-6  # of rho: so that rounding leaves no row at rho outside


class LossTerms(Protocol):
    """The loss of a row in a column as a sum of pieces, each a function of c - y f: f is the row's score, and y is -1
    or +1, or c and y are both times a factor on the loss. columns: how many there are. row_bytes: of a row in
    `row_columns`."""

    row_bytes: ClassVar[int]

    @property
    def columns(self) -> int: ...

    def row_columns(self, targets: Targets) -> Columns:
        """What `pieces` needs of rows, (m,) each."""

    def pieces(self, column: int, row_columns: Columns) -> Iterator[np.ndarray]:
        """(2, m) y and c of the rows, one piece after the other."""

    def weight(self, column: int, row_columns: Columns, upper: np.ndarray) -> float:
        """The sum of the factors on the losses of rows with these upper bounds (m,)."""


class _WithoutFactors:
    def weight(self, column: int, row_columns: Columns, upper: np.ndarray) -> float:
        return float(upper.sum())


@dataclass(frozen=True)
class OneVsRestTerms(_WithoutFactors):
    """1 - y f, y = +1 where the row has the code that the column stands for, else -1. Two classes make one column, of
    the second; more make one each (one-vs-rest)."""

    k: int
    row_bytes: ClassVar[int] = 4

    @property
    def columns(self) -> int:
        return 1 if self.k == 2 else self.k

    def row_columns(self, targets: Targets) -> Columns:
        return (targets.codes,)

    def pieces(self, column: int, row_columns: Columns) -> Iterator[np.ndarray]:
        (codes,) = row_columns
        pieces = np.ones((2, len(codes)))
        np.multiply(codes == (1 if self.k == 2 else column), 2.0, out=pieces[0])
        pieces[0] -= 1.0
        yield pieces


@dataclass(frozen=True)
class MultilabelTerms:
    """1 - y f, y = +1 where the set that is the row's code has the label of the column, else -1. sets (l, columns).
    factors (2, columns): on the loss of rows that lack a label, and of those that have it."""

    sets: np.ndarray
    factors: np.ndarray | None = None
    row_bytes: ClassVar[int] = 4

    @property
    def columns(self) -> int:
        return self.sets.shape[1]

    def row_columns(self, targets: Targets) -> Columns:
        return (targets.codes,)

    def pieces(self, column: int, row_columns: Columns) -> Iterator[np.ndarray]:
        (codes,) = row_columns
        has = self.sets[codes, column].astype(np.intp)
        weight = np.ones(len(codes)) if self.factors is None else self.factors[has, column]
        yield np.stack([(2.0 * has - 1.0) * weight, weight])

    def weight(self, column: int, row_columns: Columns, upper: np.ndarray) -> float:
        if self.factors is None:
            return float(upper.sum())
        (codes,) = row_columns
        return float(upper @ self.factors[self.sets[codes, column].astype(np.intp), column])


@dataclass(frozen=True)
class TubeTerms(_WithoutFactors):
    """t - f - epsilon and f - t - epsilon, t the target of the row: at most one of them is above 0."""

    epsilon: float
    columns: ClassVar[int] = 1
    row_bytes: ClassVar[int] = 8

    def row_columns(self, targets: Targets) -> Columns:
        assert targets.linear is not None  # that of regression
        return ((targets.linear[:, 1] - targets.linear[:, 0]) / 2,)

    def pieces(self, column: int, row_columns: Columns) -> Iterator[np.ndarray]:
        (t,) = row_columns
        for y in (1.0, -1.0):
            yield np.stack([np.full(len(t), y), y * t - self.epsilon])


@dataclass(frozen=True)
class MarginTerms(_WithoutFactors):
    """-f, of a score that is to be above 0."""

    columns: ClassVar[int] = 1
    row_bytes: ClassVar[int] = 4

    def row_columns(self, targets: Targets) -> Columns:
        return (targets.codes,)  # all alike

    def pieces(self, column: int, row_columns: Columns) -> Iterator[np.ndarray]:
        pieces = np.zeros((2, len(row_columns[0])))
        pieces[0] = 1.0
        yield pieces


class RowRisk(ABC):
    """R_c(w) = sum_i upper_i loss_c(w'x_i), the loss a sum of the pieces of row i in column c. Each block of rows comes
    with `LossTerms.row_columns`, and upper (m,)."""

    reward = 0.0

    def __init__(self, passes: Passes, terms: LossTerms) -> None:
        self._passes, self._terms = passes, terms
        self.d, self.columns = passes.d, terms.columns

    def start(self) -> np.ndarray:
        return NOTHING

    def at(self, columns: np.ndarray, W: np.ndarray, Q: np.ndarray, scores: list[np.ndarray]) -> list[_View]:
        both = np.stack([W, Q], axis=2).reshape(self.d, -1)
        visit = partial(_sums_of, type(self), self._terms, columns, self._passes.bias)
        _, (values, A, lines, weights) = self._passes.over(visit, shared=(both,))
        sums = zip(values, A.T, weights, lines, strict=True)
        return [_View(float(r), slope, float(weight), self.steps, self.risks(line)) for r, slope, weight, line in sums]

    @abstractmethod
    def support(self, W: np.ndarray, scores: list[np.ndarray]) -> int:
        """How many rows have a loss in any column at W (d, columns)."""

    steps: ClassVar[np.ndarray]  # on the way from w (0) to q (1) and beyond
    line_shape: ClassVar[tuple[int, ...]]  # of the sums that say how the risk runs there

    @staticmethod
    @abstractmethod
    def add(
        F: np.ndarray, c: int, piece: np.ndarray, upper: np.ndarray, G: np.ndarray, sums: np.ndarray, lines: np.ndarray
    ) -> None:
        """Adds one piece (2, m) of column c, whose scores at w and q are F[:, 2 c : 2 c + 2]. To G (m, q) the slopes of
        the losses by the scores at q, to sums (2, q) the losses at q and these slopes, to lines (q, *line_shape) what
        describes the risk from w to q."""

    @staticmethod
    def risks(line: np.ndarray) -> np.ndarray:
        """R at each of `steps`, from these sums."""
        return line


@dataclass(frozen=True)
class _View:
    """risks: R at each of `steps` on the way."""

    value: float
    slope: np.ndarray
    weight: float
    steps: np.ndarray
    risks: np.ndarray
    scores: ClassVar[np.ndarray] = NOTHING

    def lowest(self, slope: float, curvature: float) -> Iterator[tuple[float, float, np.ndarray]]:
        best = int(np.argmin((slope + curvature / 2 * self.steps) * self.steps + self.risks))
        yield float(self.steps[best]), float(self.risks[best]), NOTHING


def row_slices(rows: Rows, columns: int) -> Iterator[tuple[int, int]]:
    """Start and stop of slices of a block's rows that fit in cache with so many numbers for each row."""
    m = len(rows)
    step = max(1, SLICE_BYTES * m // (rows.nbytes + 8 * columns * m))
    return ((start, min(m, start + step)) for start in range(0, m, step))


def _sums_of(
    risk: type[RowRisk],
    terms: LossTerms,
    columns: np.ndarray,
    bias: float,
    both: np.ndarray,
    block: tuple[Rows, Columns],
) -> tuple[None, tuple[np.ndarray, ...]]:
    """Values and slopes at q, and how the risks run from w to q; both (d, 2 q): their columns alternate."""
    (rows, (*row_columns, upper)), q = block, len(columns)
    sums, lines, A = np.zeros((2, q)), np.zeros((q, *risk.line_shape)), no_slopes(rows, q)
    weights = np.array([terms.weight(column, tuple(row_columns), upper) for column in columns.tolist()])
    for start, stop in row_slices(rows, 3 * q):
        F, G = scores(rows, both, bias, start, stop), np.zeros((stop - start, q))
        sliced = tuple(values[start:stop] for values in row_columns)
        for c, column in enumerate(columns):
            for piece in terms.pieces(column, sliced):
                risk.add(F, c, piece, upper[start:stop], G, sums, lines)
        add_transposed_times(rows, G, start, A)
    return None, (sums[0], np.vstack([A, bias * sums[1]]) if bias else A, lines, weights)


class HingeRisk(RowRisk):
    """R_c(w) = sum_i upper_i sum of the row's pieces max(0, c - y w'x_i), see `LossTerms`.

    Of classes it is OP2 of Joachims 2006, which has C/n where this has C: its C is n times ours.

    Along w + k (q - w) the loss of a piece is upper_i max(0, m_i - k s_i), which bends at k = m_i / s_i. A pass adds up
    m_i and s_i of the pieces by where they bend among HINGE_STEPS, which are 2 to 3 % apart: so R is known at each of
    these steps to the last digit, and the best of them gains all but 1e-4 of what the lowest point of the line would.
    """

    steps, line_shape = HINGE_STEPS, (2, N_HINGE, 2)

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
    def risks(line: np.ndarray) -> np.ndarray:
        """From sums of m and s (2, N_HINGE, 2): of the rows whose loss ends between this step and the next; and of
        those whose loss begins there."""
        ending, beginning = line
        active = np.cumsum(ending[::-1], axis=0)[::-1]
        active[1:] += np.cumsum(beginning, axis=0)[:-1]
        return active[:, 0] - HINGE_STEPS * active[:, 1]


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


@njit(cache=True, error_model="numpy", fastmath={"reassoc", "contract"})
def _hinge(F, c, piece, upper, G, sums, bends):
    """See `RowRisk.add`: bends get m and s of each row, see `HingeRisk.risks`. Without a branch that depends on the
    row: half of them would be predicted wrongly, at three times the cost of all else. A row that never bends has a k
    below 0 or infinite, which is beyond the last step whatever its sign."""
    M, S, at, places = (np.empty(TOGETHER), np.empty(TOGETHER), np.empty(TOGETHER), np.empty(TOGETHER, np.int64))
    bits = at.view(np.uint64)
    flat_bends = bends[c].reshape(2 * N_HINGE, 2)
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
            place = min(max(place, 0), N_HINGE - 1)
            places[i] = place if M[i] >= 0.0 else N_HINGE + place
        for i in range(n):
            u = upper[start + i]
            flat_bends[places[i], 0] += u * M[i]
            flat_bends[places[i], 1] += u * S[i]


class LogisticRisk(RowRisk):
    """R_c(w) = sum_i upper_i log(1 + exp(-y_ic w'x_i)). It is smooth and convex: a line has its lowest point between
    the neighbours of the best of these steps. They are a factor of 1.4 apart, so that the best of them gains all but 3
    % of what that point would, where losses are about quadratic; the next plane is taken from there."""

    steps, line_shape = LOGISTIC_STEPS, (N_LOGISTIC,)

    def support(self, W: np.ndarray, scores: list[np.ndarray]) -> int:
        """All rows: a loss is never 0."""
        return self._passes.n

    @staticmethod
    def add(
        F: np.ndarray, c: int, piece: np.ndarray, upper: np.ndarray, G: np.ndarray, sums: np.ndarray, lines: np.ndarray
    ) -> None:
        slopes, weight = piece
        _logistic(F, c, np.sign(slopes), weight * upper, G, sums, lines)


@njit(cache=True, error_model="numpy", fastmath={"reassoc", "contract"})
def _logistic(F, c, signs, upper, G, sums, risks):
    """See `RowRisk.add`: risks (q, N_LOGISTIC) get the losses at each step."""
    z, e, loss = np.empty(TOGETHER), np.empty(TOGETHER), np.empty(TOGETHER)
    for start in range(0, len(F), TOGETHER):
        n = min(TOGETHER, len(F) - start)
        for j in range(N_LOGISTIC):
            for i in range(n):
                f = F[start + i, 2 * c]
                z[i] = -signs[start + i] * (f + LOGISTIC_STEPS[j] * (F[start + i, 2 * c + 1] - f))
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


@njit_inner(error_model="numpy", fastmath={"reassoc", "contract"})
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
        for start in range(64 - COUNTED_BITS, -1, -COUNTED_BITS):
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
    """(2^COUNTED_BITS,) weights by the digit of scores from the bit `start` on, of rows with these leading bits."""
    rows, (*_, upper) = block
    order = _ordered(times(rows, w)[:, 0])
    first, above = np.uint64(start), np.uint64(start + COUNTED_BITS)
    if start + COUNTED_BITS < 64:
        same = order >> above == np.uint64(leading) >> above
        order, upper = order[same], upper[same]
    digits = (order >> first & np.uint64((1 << COUNTED_BITS) - 1)).astype(np.int64)
    return None, (np.bincount(digits, upper, 1 << COUNTED_BITS),)


def _ordered(f: np.ndarray) -> np.ndarray:
    """(m,) whole numbers in the order of f."""
    bits = (f + 0.0).view(np.uint64)
    return np.where(bits >> np.uint64(63) == 1, ~bits, bits | np.uint64(1 << 63))


def _number(order: np.uint64) -> float:
    """The number that `_ordered` maps to this."""
    bits = order ^ np.uint64(1 << 63) if order >> np.uint64(63) else ~order
    return float(np.array(bits, np.uint64).view(np.float64))
