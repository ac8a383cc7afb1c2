"""Losses of pairs of rows in order, which are never listed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
from scipy.optimize import brentq

from streamsvm.data.cache import Columns, SingleEntryCache
from streamsvm.data.rows import Rows
from streamsvm.parallel.strips import strips
from streamsvm.private.numba import njit, njit_inner
from streamsvm.problems.passes import Passes, scores, slopes

LINE_ROWS = 16_384  # rows of pairs on which a line is searched first
THREADS_FROM = 50_000  # rows of pairs: fewer are swept in the time that waking a thread takes
FEW_RANKS = 8  # up to which sums of each rank are faster than a tree of them
ROUGH, FINE = 1e-3, 1e-7  # accuracy of a step, as a share of it


class PairRisk:
    """R(w) = C sum_i v_i / sum_P v_i v_j * sum_P v_i v_j max(0, 1 - w'(x_i - x_j)), P the pairs of rows (i, j) of one
    group of which i has the higher rank: n C times the mean loss of a pair (OP4 of Joachims 2006 with n C as its C).

    ranks: (n,) codes, higher is better. groups: (n,) codes of queries. weight: (n,) v. Groups of one rank only have no
    pairs. The pairs are never listed: one sort and one sweep, O(n log n) (algorithm 2), over the scores of all rows,
    which come from one pass; another one takes their slopes there."""

    columns, reward = 1, 0.0

    def __init__(self, passes: Passes, ranks: np.ndarray, groups: np.ndarray, weight: np.ndarray, C: float) -> None:
        self._passes, self.n, self.d = passes, passes.n, passes.d
        self._pairs = _Pairs(ranks, groups, weight)
        self._few = self._pairs.sample(LINE_ROWS)
        self._scale, self.total = C * float(weight.sum()), self._pairs.total
        self._latest: SingleEntryCache[tuple[float, np.ndarray]] = SingleEntryCache()

    def start(self) -> np.ndarray:
        return np.zeros(self.n)

    def at(self, columns: np.ndarray, W: np.ndarray, Q: np.ndarray, scores: list[np.ndarray]) -> list[_View]:
        bias = self._passes.bias
        f = np.concatenate(self._passes.over(partial(_scores_of, bias), shared=(Q,))[0])[:, 0]
        value, g = self._pairs.mean_loss(f)
        G = (self._scale * g)[:, None]
        _, (slopes,) = self._passes.over(partial(_slopes_of, bias), G)
        return [_View(self._scale * value, slopes[:, 0], self._scale, f, self, scores[0])]

    def support(self, W: np.ndarray, scores: list[np.ndarray]) -> int:
        return int(np.count_nonzero(self._loss(scores[0])[1]))

    def lowest(
        self, f: np.ndarray, df: np.ndarray, slope: float, curvature: float
    ) -> Iterator[tuple[float, float, np.ndarray]]:
        """As `View.lowest`, of scores f + k df: by a sample of the rows; then by all."""
        for exact in (False, True):
            k = self._step(f, df, slope, curvature, exact=exact)
            f_k = f + k * df
            yield k, self._scale * self._loss(f_k)[0], f_k

    def _loss(self, f: np.ndarray) -> tuple[float, np.ndarray]:
        """The mean loss and its slope; those of the last scores are cached: the next line starts from there."""
        return self._latest.of(f, self._pairs.mean_loss)

    def _step(self, f: np.ndarray, df: np.ndarray, slope: float, curvature: float, *, exact: bool) -> float:
        """By all rows if exact; else by a sample, whose slope is corrected by that of all rows at 0."""
        pairs = self._pairs if exact or self._few is None else self._few
        start, direction = f[pairs.ids], df[pairs.ids]

        def risk_slope(k: float) -> float:
            return self._scale * float(pairs.mean_loss(start + k * direction)[1] @ direction)

        correction = 0.0 if pairs is self._pairs else self._scale * float(self._loss(f)[1] @ df) - risk_slope(0.0)
        return _root(lambda k: slope + correction + curvature * k + risk_slope(k), FINE if exact else ROUGH)


@dataclass(frozen=True)
class _View:
    """scores, start (n,): scores at q, and at w."""

    value: float
    slope: np.ndarray
    weight: float
    scores: np.ndarray
    risk: PairRisk
    start: np.ndarray

    def lowest(self, slope: float, curvature: float) -> Iterator[tuple[float, float, np.ndarray]]:
        return self.risk.lowest(self.start, self.scores - self.start, slope, curvature)


def _scores_of(bias: float, W: np.ndarray, block: tuple[Rows, Columns]) -> tuple[np.ndarray, tuple[np.ndarray, ...]]:
    return scores(block[0], W, bias), ()


def _slopes_of(bias: float, block: tuple[Rows, Columns], G: np.ndarray) -> tuple[None, tuple[np.ndarray, ...]]:
    return None, (slopes(block[0], G, bias),)


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
        """About n rows, of whole groups where there are many; None if there are no more, or no pairs among them."""
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
    """The k >= 0 at which an increasing function crosses 0, or 0 if it starts above; accuracy: a share of k."""
    if derivative(0.0) >= 0:
        return 0.0
    high = 1.0
    while derivative(high) < 0:
        high *= 4
    return float(brentq(derivative, 0.0, high, xtol=accuracy * high, rtol=1e-15))


@njit(cache=True)
def _sweep_up(f, ranks, v, bounds, n_ranks, g):
    """g_i = v_i times the weight of the rows j of lower rank with f_j > f_i - 1. Rows group after group, by rising
    score. The weights of those that are not a margin below stand in a tree of partial sums over the ranks (Fenwick
    1994)."""
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


@njit(cache=True)
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


@njit_inner()
def _add(tree, rank, weight):
    if len(tree) <= FEW_RANKS:  # plain sums of each rank: no branch that depends on the row
        tree[rank] += weight
        return
    at = rank + 1
    while at < len(tree):
        tree[at] += weight
        at += at & -at


@njit_inner()
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
