"""Products with a kernel that vanishes at a distance: only rows near each other have values that a sum can see.

Rows are the leaves of a k-d tree (Bentley 1975), groups with the box that contains each. The distance between two boxes
is a lower bound of that between their rows (as in Gray and Moore 2001), so most tiles of a narrow kernel need not be
computed: on covtype with the gamma of Hsieh et al. 2014 nine of ten.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from streamsvm.data.rows import Rows
from streamsvm.kernels.tiles import COLUMNS, add_tile, columns_of, height
from streamsvm.parallel.sizes import SizedInBytes
from streamsvm.parallel.strips import evenly, strips
from streamsvm.private.numba import njit, njit_inner

Finish = Callable[[np.ndarray, np.ndarray, np.ndarray], None]
NEGLIGIBLE = 2.0**-53  # of the largest value: a float64 sum does not see it
MANY_VALUES = 1 << 22  # of a product from which leaves pay
NEAR_SHARE, NEAR_LEAVES = 0.25, 0.5  # of pairs of rows up to which they do, and of values in leaves that are near
SAMPLE = 64  # rows of each side for this share
LEAF_ROWS, SMALL_LEAF_ROWS = 512, 64  # of leaves for the rows of a product, and for those that it sums over
LEAVES = 16  # at least, of the rows of a product; and of which the share of near values is estimated
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
        """Rows of the leaves whose boxes are within a distance of the box between two corners; and the features in
        which these boxes are not all the same number: others do not count in a distance."""
        return _near(low, high, self.low, self.high, self.order, self.starts, sq_radius)


def large_leaves(rows: Rows) -> Leaves:
    """Leaves for the rows of a product: each is set up once, and of few rows large ones are not compact."""
    return Leaves.of(rows, min(LEAF_ROWS, max(SMALL_LEAF_ROWS, len(rows) // LEAVES)))


def small_leaves(rows: Rows) -> Leaves:
    """Leaves for the rows that a product sums over."""
    return Leaves.of(rows, SMALL_LEAF_ROWS)


def spatial_order(rows: Rows) -> np.ndarray | None:
    """(n,) the rows, those of a leaf one after another; None: not of sparse rows."""
    return rows.once(large_leaves).order if _is_float32(rows) else None


def near_rows(sq_radius: float, a: Rows, b: Rows) -> NearRows | None:
    """What a product of rows a and b with values within a radius looks at; None: it should compute all values."""
    if not np.isfinite(sq_radius) or len(a) * len(b) < MANY_VALUES or not (_is_float32(a) and _is_float32(b)):
        return None
    some_a, some_b = (rows.take(evenly(len(rows), SAMPLE)).dense().astype(np.float64) for rows in (a, b))
    sq_norms = np.einsum("ij,ij->i", some_a, some_a)[:, None] + np.einsum("ij,ij->i", some_b, some_b)
    if np.mean(sq_norms - 2 * some_a @ some_b.T < sq_radius) > NEAR_SHARE:
        return None
    near = NearRows(a, b, a.once(large_leaves), b.once(small_leaves), sq_radius)
    return near if near.share() <= NEAR_LEAVES else None


def _is_float32(rows: Rows) -> bool:
    return not rows.is_sparse and rows.X.dtype == np.float32


@dataclass(frozen=True)
class NearRows:
    """Rows a and b of a product, in leaves, and the squared radius beyond which their values are 0."""

    a: Rows
    b: Rows
    left: Leaves
    right: Leaves
    sq_radius: float

    def share(self) -> float:
        """About the share of values that is computed."""
        some = evenly(len(self.left), LEAVES)
        return float(np.mean([len(self._near(leaf)[0]) for leaf in some]) / len(self.b))

    def apply(self, finish: Finish, coef: np.ndarray, threads: int, dtype: type) -> np.ndarray:
        """K(a, b) @ coef, (m,) or (m, k) float64, for coef (q,) or (q, k). finish(tile, squared norms of a, of b):
        makes K of a tile of inner products of this dtype."""
        out, columns = np.zeros((len(self.a), *coef.shape[1:])), columns_of(coef, dtype)

        def add_leaves(start: int, stop: int) -> None:
            for leaf in range(start, stop):
                members, (near, features) = self.left.members(leaf), self._near(leaf)
                rows, sums = _part(self.a, members, features, dtype), np.zeros((len(members), len(columns)))
                for first in range(0, len(near), COLUMNS):
                    some = near[first : first + COLUMNS]
                    add = _adding(rows, _part(self.b, some, features, dtype), finish, columns[:, some], sums)
                    strips(add, len(members), height(len(some), len(features), dtype), 1)
                out[members] = sums.reshape(-1, *coef.shape[1:])

        strips(add_leaves, len(self.left), 4, threads)
        return out

    def _near(self, leaf: int) -> tuple[np.ndarray, np.ndarray]:
        return self.right.near(self.left.low[leaf], self.left.high[leaf], self.sq_radius)


class Part(NamedTuple):
    """Some rows, in some features, and their squared norms."""

    X: np.ndarray
    sq_norms: np.ndarray


def _part(rows: Rows, ids: np.ndarray, features: np.ndarray, dtype: type) -> Part:
    part = Part(np.empty((len(ids), len(features)), dtype), np.empty(len(ids), dtype))
    _take(rows.X, ids, features, *part)
    return part


def _adding(a: Part, b: Part, finish: Finish, columns: np.ndarray, sums: np.ndarray) -> Callable[[int, int], None]:
    """The function that adds the products of a strip of rows a with columns (k, q) to its sums."""

    def add(start: int, stop: int) -> None:
        tile = a.X[start:stop] @ b.X.T
        finish(tile, a.sq_norms[start:stop], b.sq_norms)
        add_tile(tile, columns, sums[start:stop])

    return add


@njit(cache=True)
def _take(X, ids, features, out, sq_norms):  # X[ids][:, features], and the squared norms of its rows
    for i in range(len(ids)):
        row, total = X[ids[i]], 0.0
        for j in range(len(features)):
            value = row[features[j]]
            out[i, j] = value
            total += np.float64(value) * value
        sq_norms[i] = total


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


@njit(cache=True)
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
    for k in range(after):
        ids[before + k] = later[k]
    return before if 0 < before < len(ids) else len(ids) // 2


@njit_inner()
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


@njit(cache=True)
def _boxes(X, order, starts):  # low and high (leaves, d)
    low, high = np.empty((len(starts) - 1, X.shape[1]), X.dtype), np.empty((len(starts) - 1, X.shape[1]), X.dtype)
    for leaf in range(len(low)):
        first = X[order[starts[leaf]]]
        for j in range(X.shape[1]):
            low[leaf, j] = high[leaf, j] = first[j]
        for i in range(starts[leaf], starts[leaf + 1]):
            row = X[order[i]]
            for j in range(X.shape[1]):
                low[leaf, j] = min(low[leaf, j], row[j])
                high[leaf, j] = max(high[leaf, j], row[j])
    return low, high


@njit(cache=True)
def _near(low, high, others_low, others_high, order, starts, sq_radius):  # see `Leaves.near`
    lowest, highest = low.copy(), high.copy()
    is_near, count = np.zeros(len(others_low), np.bool_), 0
    for i in range(len(others_low)):
        is_near[i] = _sq_distance(low, high, others_low[i], others_high[i]) < sq_radius
        if is_near[i]:
            count += int(starts[i + 1] - starts[i])
            for j in range(len(low)):
                lowest[j], highest[j] = min(lowest[j], others_low[i, j]), max(highest[j], others_high[i, j])
    rows, end = np.empty(count, np.int64), 0
    for leaf in np.flatnonzero(is_near):
        for k in range(starts[leaf], starts[leaf + 1]):
            rows[end] = order[k]
            end += 1
    return rows, np.flatnonzero(lowest < highest)


@njit_inner(fastmath=True)
def _sq_distance(low, high, other_low, other_high):  # between two boxes
    total = np.float32(0)
    for j in range(len(low)):
        gap = max(other_low[j] - high[j], low[j] - other_high[j], np.float32(0))
        total += gap * gap
    return total
