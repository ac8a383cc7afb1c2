"""Products with a kernel that vanishes at a distance: only rows near each other have values that a sum can see.

Rows are the leaves of a k-d tree (Bentley 1975), groups with the box that contains each. The distance between two boxes
is a lower bound of that between their rows (as in Gray and Moore 2001), so most tiles of a narrow kernel need not be
computed: on covtype with the gamma of Hsieh et al. 2014 nine of ten.
"""

from __future__ import annotations

from dataclasses import dataclass

import numba as nb
import numpy as np
from numpy.typing import DTypeLike

from streamsvm.data.rows import Rows
from streamsvm.kernels.tiles import COLUMNS, Tiles, accumulate, height
from streamsvm.parallel.sizes import SizedInBytes
from streamsvm.parallel.strips import evenly, strips

NEGLIGIBLE = 2.0**-53  # of the largest value: a float64 sum does not see it
MANY_VALUES = 1 << 22  # of a product from which leaves pay
NEAR_SHARE = 0.25  # of pairs of rows up to which they do
SAMPLE = 64  # rows of each side for this share
LEAF_ROWS, SMALL_LEAF_ROWS = 512, 64  # of leaves for the rows of a product, and for those that it sums over
LEAVES = 16  # at least, of the rows of a product
SPREAD_ROWS = 128  # of a node, by whose spread it is divided


@dataclass(frozen=True)
class Leaves(SizedInBytes):
    """order (n,): the rows, leaf after leaf; starts (leaves + 1,): where each begins there. low, high (leaves, d): the
    corners of their boxes."""

    order: np.ndarray
    starts: np.ndarray
    low: np.ndarray
    high: np.ndarray

    @classmethod
    def of(cls, rows: Rows, most: int) -> Leaves:
        """Dense rows in leaves of at most so many. A node is divided at the median of the feature that varies most."""
        X = rows.dense()
        order, starts = _divided(X, most)
        return cls(order, starts, *_boxes(X, order, starts))

    def __len__(self) -> int:
        return len(self.starts) - 1

    def members(self, leaf: int) -> np.ndarray:
        """The rows of a leaf."""
        return self.order[self.starts[leaf] : self.starts[leaf + 1]]

    def near(self, low: np.ndarray, high: np.ndarray, sq_radius: float) -> tuple[np.ndarray, np.ndarray]:
        """Rows of the leaves whose boxes are within a distance of the box between two corners; and in which features
        (d,) not all of these boxes are the same number."""
        is_near = _sq_distances(low, high, self.low, self.high) < sq_radius
        lowest = self.low[is_near].min(axis=0, initial=np.inf)
        highest = self.high[is_near].max(axis=0, initial=-np.inf)
        return _members(self.order, self.starts, is_near), np.minimum(low, lowest) < np.maximum(high, highest)


def large_leaves(rows: Rows) -> Leaves:
    """Leaves for the rows of a product: each is set up once, and of few rows large ones are not compact."""
    return Leaves.of(rows, min(LEAF_ROWS, max(SMALL_LEAF_ROWS, len(rows) // LEAVES)))


def small_leaves(rows: Rows) -> Leaves:
    """Leaves for the rows that a product sums over."""
    return Leaves.of(rows, SMALL_LEAF_ROWS)


def near_radius(sq_radius: float, a: Rows, b: Rows) -> float | None:
    """The squared radius within which products of rows a and b should look; None: all values should be computed."""
    if not np.isfinite(sq_radius) or len(a) * len(b) < MANY_VALUES or not (_is_float32(a) and _is_float32(b)):
        return None
    some_a, some_b = (rows.take(evenly(len(rows), SAMPLE)).dense().astype(np.float64) for rows in (a, b))
    sq_norms = np.einsum("ij,ij->i", some_a, some_a)[:, None] + np.einsum("ij,ij->i", some_b, some_b)
    is_near = sq_norms - 2 * some_a @ some_b.T < sq_radius
    return sq_radius if is_near.mean() <= NEAR_SHARE else None


def _is_float32(rows: Rows) -> bool:
    return not rows.is_sparse and rows.X.dtype == np.float32


def applied_near(
    tiles: Tiles, a: Rows, b: Rows, coef: np.ndarray, threads: int, sq_radius: float, dtype: DTypeLike = np.float32
) -> np.ndarray:
    """As `tiles.applied`, without values of rows that are farther apart than the radius."""
    left, right = a.once(large_leaves), b.once(small_leaves)
    out = np.zeros((len(a), *coef.shape[1:]))

    def add_leaves(start: int, stop: int) -> None:
        for leaf in range(start, stop):
            members, (near, varying) = left.members(leaf), right.near(left.low[leaf], left.high[leaf], sq_radius)
            features = np.flatnonzero(varying)  # the others do not count in a distance
            rows, sums = _part(a, members, features), np.zeros((len(members), *coef.shape[1:]))
            for first in range(0, len(near), COLUMNS):
                some = near[first : first + COLUMNS]
                add = accumulate(tiles(_part(b, some, features)), coef[some], rows, sums, None, dtype)
                strips(add, len(members), height(len(some), len(features), dtype), 1)
            out[members] = sums

    strips(add_leaves, len(left), 4, threads)
    return out


def _part(rows: Rows, ids: np.ndarray, features: np.ndarray) -> Rows:
    return Rows(_taken(rows.X, ids, features))


@nb.njit(nogil=True, cache=True)
def _taken(X, ids, features):  # X[ids][:, features]
    out = np.empty((len(ids), len(features)), X.dtype)
    for i in range(len(ids)):
        row = X[ids[i]]
        for j in range(len(features)):
            out[i, j] = row[features[j]]
    return out


def _divided(X: np.ndarray, most: int) -> tuple[np.ndarray, np.ndarray]:
    """order (n,) and starts (leaves + 1,), see `Leaves`."""
    order, starts, nodes = np.arange(len(X)), [0], [(0, len(X))]
    while nodes:
        start, stop = nodes.pop()
        if stop - start <= most:
            starts.append(stop)
        else:
            middle = start + _halve(X, order[start:stop])
            nodes += [(middle, stop), (start, middle)]
    return order, np.array(starts)


@nb.njit(nogil=True, cache=True)
def _halve(X, ids):  # moves rows of the lower half to the front, in their order; returns how many these are
    feature, cut, highest = _split(X, ids)
    before, after, later = 0, 0, np.empty(len(ids), np.int64)
    for i in ids:
        value = X[i, feature]
        if value < cut or (value == cut and cut < highest):
            ids[before] = i
            before += 1
        else:
            later[after] = i
            after += 1
    ids[before:] = later[:after]
    return before if 0 < before < len(ids) else len(ids) // 2


@nb.njit(nogil=True, cache=True)
def _split(X, ids):  # the feature that varies most over some of these rows, and its median and largest value there
    count, d = min(SPREAD_ROWS, len(ids)), X.shape[1]
    sums, squares, values = np.zeros(d), np.zeros(d), np.empty(count)
    for i in range(count):
        row = X[ids[i * len(ids) // count]]
        for j in range(d):
            sums[j] += row[j]
            squares[j] += row[j] * row[j]
    feature = np.argmax(squares - sums * sums / count)
    for i in range(count):  # sorted as they come: compiling a sort would take two seconds
        value, place = X[ids[i * len(ids) // count], feature], i
        while place > 0 and values[place - 1] > value:
            values[place] = values[place - 1]
            place -= 1
        values[place] = value
    return feature, values[count // 2], values[-1]


@nb.njit(nogil=True, cache=True)
def _boxes(X, order, starts):  # low and high (leaves, d)
    low, high = np.empty((len(starts) - 1, X.shape[1]), X.dtype), np.empty((len(starts) - 1, X.shape[1]), X.dtype)
    for leaf in range(len(low)):
        low[leaf] = high[leaf] = X[order[starts[leaf]]]
        for i in range(starts[leaf], starts[leaf + 1]):
            row = X[order[i]]
            for j in range(X.shape[1]):
                low[leaf, j] = min(low[leaf, j], row[j])
                high[leaf, j] = max(high[leaf, j], row[j])
    return low, high


@nb.njit(nogil=True, fastmath=True, cache=True)
def _sq_distances(low, high, others_low, others_high):  # (others,) of a box to others (others, d)
    out = np.zeros(len(others_low), np.float32)
    for i in range(len(out)):
        for j in range(len(low)):
            gap = max(others_low[i, j] - high[j], low[j] - others_high[i, j], np.float32(0))
            out[i] += gap * gap
    return out


@nb.njit(nogil=True, cache=True)
def _members(order, starts, chosen):  # of the chosen leaves, one after another
    count = 0
    for leaf in range(len(chosen)):
        if chosen[leaf]:
            count += starts[leaf + 1] - starts[leaf]
    out, end = np.empty(count, np.int64), 0
    for leaf in range(len(chosen)):
        if chosen[leaf]:
            for i in range(starts[leaf], starts[leaf + 1]):
                out[end] = order[i]
                end += 1
    return out
