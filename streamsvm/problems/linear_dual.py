"""The dual of linear problems, of rows in memory or in blocks that are read one after the other.

The problem of a column, min over w of 1/2 |w|^2 + sum_i C_i max(0, c_i - y_i w'x_i), has the dual

    min over a of 1/2 |w(a)|^2 - c'a,    0 <= a_i <= C_i,    w(a) = sum_i a_i y_i x_i,

one variable for each piece of a row's loss: arrays (p, n) of p pieces."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

import numpy as np

from streamsvm.data.rows import Rows
from streamsvm.parallel.engine import Engine
from streamsvm.private.numba import njit, njit_inner
from streamsvm.problems.passes import scores, slopes
from streamsvm.problems.row_risk import LossTerms

Result = TypeVar("Result")


class LinearDual(Protocol):
    """A dual of n rows for each of `columns` problems. d: length of w. count: passes over the rows so far."""

    count: int

    @property
    def n(self) -> int: ...

    @property
    def d(self) -> int: ...

    @property
    def columns(self) -> int: ...

    def weight(self, column: int) -> float:
        """The sum of the weights of all losses."""

    def zeros(self, column: int) -> np.ndarray:
        """Variables."""

    def loss(self, column: int, products: np.ndarray, start: int = 0) -> float:
        """The sum of the losses of rows start..n whose products with w are these."""

    def side_by_side(self, solve: Callable[[int], Result], columns: Sequence[int]) -> Iterator[Result]:
        """solve(column) of each."""


class LinearDualInMemory(LinearDual, Protocol):
    """Of rows that are in memory."""

    def descend(
        self, column: int, alpha: np.ndarray, w: np.ndarray, most: int, fall: float, seed: Sequence[int]
    ) -> int:
        """Sweeps over the variables until violations range over `fall` of what they did in the first, or after `most`
        visits of rows; alpha and w (d,) in place. Returns the number of visits."""

    def evaluated(self, column: int, alpha: np.ndarray) -> tuple[np.ndarray, float, float]:
        """w(alpha), its objective, and the value of the dual, computed from alpha alone."""


class LinearDualBlock(LinearDualInMemory, Protocol):
    """Rows that are in memory for a while, ids (n,) of the whole problem. kept: the first of them, which were in the
    last block, too. number: of the block. is_last: whether all other rows were in one of the blocks before."""

    ids: np.ndarray
    kept: int
    number: int
    is_last: bool

    def products(self, w: np.ndarray, start: int = 0) -> np.ndarray:
        """w'x_i of rows start..n."""

    def combined(self, column: int, alpha: np.ndarray) -> np.ndarray:
        """w(alpha) of these rows alone."""

    def free(self, alpha: np.ndarray) -> np.ndarray:
        """(n,) whether a variable of the row is between its bounds."""


class LinearDualInBlocks(LinearDual, Protocol):
    """Of rows that are read block by block."""

    def over(self, visit: Callable[[LinearDualBlock], np.ndarray], seed: Sequence[int]) -> None:
        """visit(block) of blocks that have all rows, in random order. It returns which rows (m,) of a block the next
        one begins with, at most half as many as fit a block."""

    def dual(self, column: int, alpha: np.ndarray, w: np.ndarray) -> float:
        """The value of the dual at alpha, of which w is w(alpha)."""


class RowLosses:
    """The losses of rows, which terms and row_columns make, and what is known of a dual without its rows."""

    terms: LossTerms
    row_columns: tuple[np.ndarray, ...]
    upper: np.ndarray
    engine: Engine

    @property
    def n(self) -> int:
        return len(self.upper)

    @property
    def columns(self) -> int:
        return self.terms.columns

    def pieces(self, column: int) -> np.ndarray:
        """(p, 2, n) y and c of the pieces of each row's loss."""
        return np.stack(list(self.terms.pieces(column, self.row_columns)))

    def weight(self, column: int) -> float:
        return self.terms.weight(column, self.row_columns, self.upper)

    def zeros(self, column: int) -> np.ndarray:
        return np.zeros((len(self.pieces(column)), self.n))

    def loss(self, column: int, products: np.ndarray, start: int = 0) -> float:
        upper, pieces = self.upper[start:], self.pieces(column)[:, :, start:]
        return sum(float(upper @ np.maximum(c - y * products, 0)) for y, c in pieces)

    def dual(self, column: int, alpha: np.ndarray, w: np.ndarray) -> float:
        return float(np.sum(alpha * self.pieces(column)[:, 1])) - 0.5 * float(w @ w)

    def side_by_side(self, solve: Callable[[int], Result], columns: Sequence[int]) -> Iterator[Result]:
        return self.engine.map(solve, columns, phase="columns")


@dataclass
class RowsDual(RowLosses):
    """The dual of rows in memory, with a constant feature `bias` unless it is 0. terms, row_columns: what makes their
    losses. engine: threads of this process, which has the rows. Its passes are visits of rows over their number."""

    rows: Rows
    terms: LossTerms
    row_columns: tuple[np.ndarray, ...]
    upper: np.ndarray  # (n,)
    bias: float
    engine: Engine
    count: int = 0
    note: dict[str, float] = field(default_factory=dict)

    @property
    def d(self) -> int:
        return self.rows.d + (self.bias != 0)

    def descend(
        self, column: int, alpha: np.ndarray, w: np.ndarray, most: int, fall: float, seed: Sequence[int]
    ) -> int:
        pieces = self.pieces(column)
        start = int(np.random.default_rng(seed).integers(1 << 62))
        norms = self.rows.sq_norms + self.bias**2
        losses = norms, np.ascontiguousarray(pieces[:, 0]), np.ascontiguousarray(pieces[:, 1]), self.upper
        return int(_descend(_arrays(self.rows), losses, alpha, w, self.bias, (most, fall, start)))

    def evaluated(self, column: int, alpha: np.ndarray) -> tuple[np.ndarray, float, float]:
        w = self.combined(column, alpha)
        return w, 0.5 * float(w @ w) + self.loss(column, self.products(w)), self.dual(column, alpha, w)

    def products(self, w: np.ndarray, start: int = 0) -> np.ndarray:
        """(n - start,) w'x_i."""
        return scores(self.rows, w[:, None], self.bias, start)[:, 0]

    def combined(self, column: int, alpha: np.ndarray) -> np.ndarray:
        """(d,) w(alpha)."""
        y = self.pieces(column)[:, 0]
        return slopes(self.rows, np.sum(alpha * y, axis=0)[:, None], self.bias)[:, 0]

    def free(self, alpha: np.ndarray) -> np.ndarray:
        """(n,) whether a variable of the row is between its bounds."""
        return np.any((alpha > 0) & (alpha < self.upper), axis=0)


Arrays = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


def _arrays(rows: Rows) -> Arrays:
    """(indptr, indices, data) of sparse rows, and X of dense ones; the others empty."""
    if rows.is_sparse:
        X = rows.csr
        return X.indptr, X.indices, X.data, np.zeros((0, 0), X.data.dtype)
    none = np.zeros(0, np.int32)
    return none, none, np.zeros(0, rows.X.dtype), rows.dense()


@njit_inner(inline="always")
def _score(arrays, i, w, bias):
    indptr, indices, data, X = arrays
    f = bias * w[-1] if bias != 0.0 else 0.0
    if len(indptr):
        for k in range(indptr[i], indptr[i + 1]):
            f += data[k] * w[indices[k]]
    else:
        for k in range(X.shape[1]):
            f += X[i, k] * w[k]
    return f


@njit_inner(inline="always")
def _add(arrays, i, by, bias, w):
    """w += by x_i."""
    indptr, indices, data, X = arrays
    if bias != 0.0:
        w[-1] += by * bias
    if len(indptr):
        for k in range(indptr[i], indptr[i + 1]):
            w[indices[k]] += by * data[k]
    else:
        for k in range(X.shape[1]):
            w[k] += by * X[i, k]


@njit_inner(inline="always")
def _shuffled(order, active, state):
    """Puts the first of order in random order (an LCG of Knuth); returns the next state."""
    for s in range(active):
        state = state * np.uint64(6364136223846793005) + np.uint64(1442695040888963407)
        j = s + np.int64((state >> np.uint64(33)) % np.uint64(active - s))
        order[s], order[j] = order[j], order[s]
    return state


@njit_inner(inline="always")
def _projected(slope, at, upper, below, above):
    """The slope that a variable can follow; and whether it is to be left out."""
    if at <= 0.0:
        return min(slope, 0.0), slope > above
    if at >= upper:
        return max(slope, 0.0), slope < below
    return slope, False


@njit_inner(inline="always")
def _best(at, slope, curvature, upper):
    """The minimiser in [0, upper] of the quadratic with this slope and curvature."""
    if curvature > 0.0:
        return min(max(at - slope / curvature, 0.0), upper)
    return upper if slope < 0.0 else 0.0


@njit(cache=True)
def _descend(arrays, losses, alpha, w, bias, limits):
    """`LinearDual.descend`. losses: |x_i|^2 with the constant (n,), y and c (p, n), upper (n,)."""
    norms, y, c, upper = losses
    most, fall, seed = limits
    n, state = alpha.shape[1], np.uint64(seed)
    order = np.array([v for v in range(alpha.size) if upper[v % n] > 0.0], np.int64)
    active = len(order)
    above, below, first, visits = np.inf, -np.inf, -1.0, 0
    while active:
        state = _shuffled(order, active, state)
        largest, least, s = -np.inf, np.inf, 0
        while s < active:
            p, i = 0, order[s]
            if i >= n:
                p, i = divmod(i, n)
            at = alpha[p, i]
            slope = y[p, i] * _score(arrays, i, w, bias) - c[p, i]
            visits += 1
            projected, is_out = _projected(slope, at, upper[i], below, above)
            if is_out:
                active -= 1
                order[s], order[active] = order[active], order[s]
                continue
            largest, least = max(largest, projected), min(least, projected)
            if projected != 0.0:
                new = _best(at, slope, norms[i] * y[p, i] * y[p, i], upper[i])
                if new != at:
                    alpha[p, i] = new
                    _add(arrays, i, (new - at) * y[p, i], bias, w)
            s += 1
        first = largest - least if first < 0.0 else first
        if visits >= most or largest - least <= fall * first:
            break
        above, below = largest if largest > 0.0 else np.inf, least if least < 0.0 else -np.inf
    return visits
