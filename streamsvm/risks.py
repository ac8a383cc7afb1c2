"""Risks of linear functions, known by passes over the rows: what cutting planes are taken of.

R_c(w) >= 0 is convex and a sum of losses of the scores f = X w, for each column c. A pass gives, at any point, the
scores, the risk and its slope; along a line whose scores are known, the minimum needs no pass.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol

import numpy as np
from numba import njit
from scipy.optimize import brentq

from streamsvm.data.held import HeldSamples
from streamsvm.data.rows import Rows
from streamsvm.data.samples import read_blocks
from streamsvm.events import Event, Events, Progress, Record, ignore
from streamsvm.graph import Engine, Later
from streamsvm.latest import Latest
from streamsvm.products import times, transposed_times
from streamsvm.strips import strips

LINE_ROWS = 16_384  # rows of pairs on which a line is searched first
THREADS_FROM = 50_000  # rows of pairs: fewer are swept in the time that waking a thread takes
FEW_RANKS = 8  # up to which sums of each rank are faster than a tree of them
ROUGH, FINE = 1e-3, 1e-7  # accuracy of a step, as a share of it


class LinearRisk(Protocol):
    """n: rows. d: length of w. columns: how many problems share the passes."""

    n: int
    d: int
    columns: int

    def at(self, W: np.ndarray, columns: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Scores (n, q), risks (q,) and slopes (d, q) of these columns at W (d, q)."""

    def value(self, column: int, f: np.ndarray) -> float:
        """R_c where the scores are f (n,)."""

    def active(self, column: int, f: np.ndarray) -> np.ndarray:
        """(n,) bool: the rows that have a loss there."""

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
        """The k >= 0 that minimises slope k + curvature k^2 / 2 + R_c(f + k df), or about that."""


class Passes:
    """Passes over rows with a constant feature `bias` unless it is 0. count: how many; note: of the bar beside them."""

    def __init__(
        self, samples: HeldSamples, engine: Engine, bias: float = 0.0, events: Events = ignore
    ) -> None:
        self.n, self.d = samples.n, samples.d + (bias != 0)
        self.count, self.note = 0, dict[str, Any]()
        self._engine, self.bias, self._events = engine, bias, events
        self._blocks = samples.blocks()
        if engine.is_local:
            self._rows = engine.hold(samples.read, *zip(*self._blocks, strict=True))
        else:  # workers hold what they read
            groups, source = list(samples.groups.values()), engine.share(samples.source)
            self._rows = engine.hold(read_blocks, groups, shared=(source,), nbytes=samples.source.nbytes)

    def keep(self, *columns: np.ndarray) -> Sequence[Any]:
        """Columns that no pass changes, for `over`: on a cluster they are sent once, to where the rows are held."""
        places = [None if isinstance(rows, Later) else rows for rows in self._rows]
        return self._engine.hold(_beside, places, *map(self._parts, columns))

    def over(
        self,
        visit: Callable[..., tuple[Any, Any]],
        *columns: np.ndarray,
        kept: Sequence[Any] = (),
        shared: tuple[Any, ...] = (),
    ) -> tuple[list[Any], Any]:
        """visit(*shared, rows, ...) of each block, with what `keep` gave of it and its rows of the columns.

        Returns what is the rows' own, block by block, and the sum of the rest.
        """
        self.count += 1
        parts = [*((kept,) if kept else ()), *map(self._parts, columns)]
        shared = tuple(self._engine.share(value) for value in shared)
        events = Events(self._progress)
        return self._engine.map_reduce(visit, _sum, self._rows, *parts, shared=shared, events=events)

    def _parts(self, column: np.ndarray) -> list[np.ndarray]:
        return [column[slice(*block)] for block in self._blocks]

    def _progress(self, record: Record[Event]) -> None:
        """Blocks done, told as rows."""
        assert isinstance(record.event, Progress)  # all that a map tells
        done = int(record.event.done)
        rows = self._blocks[done - 1][1] if done else 0  # about: blocks end out of their order
        self._events.progress("rows", rows, self.n, **{"pass": self.count}, **self.note)


def _beside(rows: Any, *columns: np.ndarray) -> tuple[np.ndarray, ...]:
    """The columns; that the task needs the rows brings it to them."""
    return columns


def _sum(a: tuple[np.ndarray, ...], b: tuple[np.ndarray, ...]) -> tuple[np.ndarray, ...]:
    return tuple(x + y for x, y in zip(a, b, strict=True))


def _scores(rows: Rows, W: np.ndarray, bias: float) -> np.ndarray:
    """(m, q) X W of a block's rows."""
    return times(rows, W[:-1]) + bias * W[-1] if bias else times(rows, W)


def _slopes(rows: Rows, G: np.ndarray, bias: float) -> np.ndarray:
    """(d, q) X'G."""
    A = transposed_times(rows, G)
    return np.vstack([A, bias * G.sum(axis=0)]) if bias else A


def _hinge_of(
    positive: np.ndarray, bias: float, W: np.ndarray, rows: Rows, targets: tuple[np.ndarray, np.ndarray]
) -> tuple[np.ndarray, tuple[np.ndarray, ...]]:
    F, (codes, upper) = _scores(rows, W, bias), targets
    G, values = np.empty_like(F), np.zeros(len(positive))
    _hinge(F, codes, positive, upper, G, values)
    return F, (values, _slopes(rows, G, bias))


def _scores_of(bias: float, W: np.ndarray, rows: Rows) -> tuple[np.ndarray, tuple[np.ndarray, ...]]:
    return _scores(rows, W, bias), ()


def _slopes_of(bias: float, rows: Rows, G: np.ndarray) -> tuple[None, tuple[np.ndarray, ...]]:
    return None, (_slopes(rows, G, bias),)


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


class PairRisk:
    """R(w) = C sum_i v_i / sum_P v_i v_j * sum_P v_i v_j max(0, 1 - w'(x_i - x_j)), P the pairs of rows (i, j) of one
    group of which i has the higher rank: n C times the mean loss of a pair (OP4 of Joachims 2006 with n C as its C).

    ranks: (n,) codes, higher is better. groups: (n,) codes of queries. weight: (n,) v. Groups of one rank only have no
    pairs. The pairs are never listed: one sort and one sweep, O(n log n) (algorithm 2).
    """

    columns = 1

    def __init__(
        self, passes: Passes, ranks: np.ndarray, groups: np.ndarray, weight: np.ndarray, C: float
    ) -> None:
        self._passes, self.n, self.d = passes, passes.n, passes.d
        self._pairs = _Pairs(ranks, groups, weight)
        self._few = self._pairs.sample(LINE_ROWS)
        self._scale, self.total = C * float(weight.sum()), self._pairs.total
        self._known: Latest[tuple[float, np.ndarray]] = Latest()

    def at(self, W: np.ndarray, columns: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        bias = self._passes.bias
        F = np.concatenate(self._passes.over(partial(_scores_of, bias), shared=(W,))[0])
        value, g = self._pairs.mean_loss(F[:, 0])
        G = (self._scale * g)[:, None]
        _, (slopes,) = self._passes.over(partial(_slopes_of, bias), G)
        return F, np.array([self._scale * value]), slopes

    def value(self, column: int, f: np.ndarray) -> float:
        return self._scale * self._loss(f)[0]

    def active(self, column: int, f: np.ndarray) -> np.ndarray:
        return self._loss(f)[1] != 0

    def _loss(self, f: np.ndarray) -> tuple[float, np.ndarray]:
        """The mean loss and its slope; those of the last scores asked for are kept: a line starts from there."""
        return self._known.of(f, self._pairs.mean_loss)

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
        """By a sample of the rows, whose slope is mended by that of all rows at 0, unless exact."""
        pairs = self._pairs if exact or self._few is None else self._few
        start, direction = f[pairs.ids], df[pairs.ids]

        def risk_slope(k: float) -> float:
            return self._scale * float(pairs.mean_loss(start + k * direction)[1] @ direction)

        mend = 0.0 if pairs is self._pairs else self._scale * float(self._loss(f)[1] @ df) - risk_slope(0.0)
        return _root(lambda k: slope + mend + curvature * k + risk_slope(k), FINE if exact else ROUGH)


class _Pairs:
    """Rows in groups, with the total weight of their pairs. ids: which rows of the whole these are."""

    def __init__(
        self, ranks: np.ndarray, groups: np.ndarray, weight: np.ndarray, ids: np.ndarray | None = None
    ) -> None:
        self.ids = np.arange(len(ranks)) if ids is None else ids
        self._ranks = np.unique(ranks, return_inverse=True)[1].astype(np.int32)
        _, self._groups = np.unique(groups, return_inverse=True)
        self._weight, self._bounds = weight, np.append(0, np.cumsum(np.bincount(self._groups)))
        self._n_ranks, self._is_weighted = int(self._ranks.max()) + 1, bool(np.any(weight != weight[0]))
        self.total = self._total()

    def _total(self) -> float:
        """Sum of v_i v_j over all pairs: of each group, half of its whole squared less its ranks' squared."""
        _, cells = np.unique(self._groups * self._n_ranks + self._ranks, return_inverse=True)
        squares = np.bincount(cells, self._weight) ** 2
        return float(np.sum(np.bincount(self._groups, self._weight) ** 2) - squares.sum()) / 2

    def sample(self, n: int) -> _Pairs | None:
        """About n rows, of whole groups where there are many; None where there are no more, or no pairs among them."""
        if len(self._ranks) <= 2 * n:
            return None
        rng = np.random.default_rng(0)
        n_groups = len(self._bounds) - 1
        if n_groups > 64:
            chosen = rng.random(n_groups)[self._groups] < n / len(self._ranks)
        else:
            chosen = rng.random(len(self._ranks)) < n / len(self._ranks)
        ids = np.flatnonzero(chosen)
        if not len(ids):
            return None
        some = _Pairs(self._ranks[ids], self._groups[ids], self._weight[ids], self.ids[ids])
        return some if some.total > 0 else None

    def mean_loss(self, f: np.ndarray) -> tuple[float, np.ndarray]:
        """The mean loss of a pair at scores f, and its slope with respect to them, (n,)."""
        order = np.argsort(f)
        if len(self._bounds) > 2:
            order = order[np.argsort(self._groups[order], kind="stable")]
        f, ranks = f[order], self._ranks[order]
        weight = self._weight[order] if self._is_weighted else self._weight
        g = np.empty((2, len(f)))

        def sweep(start: int, stop: int) -> None:
            for k in range(start, stop):
                (_sweep_up, _sweep_down)[k](f, ranks, weight, self._bounds, self._n_ranks, g[k])

        strips(sweep, 2, 1, 2 if len(f) > THREADS_FROM else 1)
        slope = np.empty(len(f))
        slope[order] = (g[1] - g[0]) / self.total
        return float(g[0].sum() + f @ (g[1] - g[0])) / self.total, slope


def _root(derivative: Callable[[float], float], accuracy: float) -> float:
    """Where an increasing function of k >= 0 crosses 0, or 0 where it starts above; accuracy: a share of k."""
    if derivative(0.0) >= 0:
        return 0.0
    high = 1.0
    while derivative(high) < 0:
        high *= 4
    return float(brentq(derivative, 0.0, high, xtol=accuracy * high, rtol=1e-15))


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


@njit(cache=True, nogil=True)
def _sweep_up(f, ranks, v, bounds, n_ranks, g):
    """g_i = v_i times the weight of the rows j of lower rank with f_j > f_i - 1.

    Rows group after group, by rising score. The weights of those that are not a margin below stand in a tree of partial
    sums over the ranks (Fenwick 1994).
    """
    tree = np.zeros(n_ranks + 1)
    for q in range(len(bounds) - 1):
        start, stop = bounds[q], bounds[q + 1]
        for i in range(start, stop):
            _add(tree, ranks[i], v[i])
        passed = start
        for i in range(start, stop):
            while passed < stop and f[passed] <= f[i] - 1.0:
                _add(tree, ranks[passed], -v[passed])
                passed += 1
            g[i] = v[i] * _below(tree, ranks[i])
        for i in range(passed, stop):
            _add(tree, ranks[i], -v[i])


@njit(cache=True, nogil=True)
def _sweep_down(f, ranks, v, bounds, n_ranks, g):
    """g_j = v_j times the weight of the rows i of higher rank with f_i - 1 < f_j; as above."""
    tree = np.zeros(n_ranks + 1)
    for q in range(len(bounds) - 1):
        start, stop = bounds[q], bounds[q + 1]
        reached, total = start, 0.0
        for j in range(start, stop):
            while reached < stop and f[reached] - 1.0 < f[j]:
                _add(tree, ranks[reached], v[reached])
                total += v[reached]
                reached += 1
            g[j] = v[j] * (total - _below(tree, ranks[j] + 1))
        for i in range(start, reached):
            _add(tree, ranks[i], -v[i])


@njit(cache=True, nogil=True)
def _add(tree, rank, weight):
    if len(tree) <= FEW_RANKS:  # plain sums of each rank: no branch that depends on the row
        tree[rank] += weight
        return
    at = rank + 1
    while at < len(tree):
        tree[at] += weight
        at += at & -at


@njit(cache=True, nogil=True)
def _below(tree, rank):
    """Sum of weights of lower ranks."""
    total = 0.0
    if len(tree) <= FEW_RANKS:
        for lower in range(len(tree)):
            total += tree[lower] * (lower < rank)
        return total
    at = rank
    while at > 0:
        total += tree[at]
        at -= at & -at
    return total
