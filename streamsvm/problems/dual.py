"""The problems that solvers see: oracles over Q or over the data, never stores, kernels or graphs. Duals of
squared losses have a ridge on the diagonal instead of bounds."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Protocol, TypeVar

import numpy as np

from streamsvm.data.cache import SingleEntryCache
from streamsvm.data.rows import Rows
from streamsvm.kernels.base import Float64, Kernel
from streamsvm.kernels.device import computes
from streamsvm.kernels.leaves import spatial_order
from streamsvm.kernels.row_cache import WIDE, RowCache, add_rows, gather, multiply_signs
from streamsvm.parallel.strips import strips
from streamsvm.tasks.base import Subproblem

MOST_KEPT = 4096  # rows of a Gram matrix (64 MiB) whose memory a thread keeps
SIGNS_STRIP = 256  # rows of a Gram matrix that are multiplied by signs at once
MATRIX_ROWS = 2032  # of a dual whose kernel values are made once: as many as a working set of `solvers.blockws`
MATRIX_STRIP = 1024  # columns of a given matrix that are multiplied at once, as float64
UNBOUNDED = 1e30  # of a variable: finite, as compiled code knows no infinity


class BlockProblem(Protocol):
    """The oracle that solving a block needs: labels y (n,), bounds upper (n,) and linear terms p, (n,) or a number."""

    y: np.ndarray
    upper: np.ndarray
    linear: np.ndarray | float

    def gram(self, ids: np.ndarray) -> np.ndarray:
        """Q[ids, ids], (q, q) float32, in memory that the thread's next call may use again."""


class DualQP(BlockProblem, Protocol):
    """min over a of 1/2 a'Qa + p'a, 0 <= a_i <= upper_i, with Q_ij = y_i y_j K(x_i, x_j).

    y: (n,) float64, -1 or +1. upper: (n,) float64, C times the weights. linear: p (n,), or -1 for classification (Hsieh
    et al. 2014, (1)). nu, over_margin: as of a `Subproblem`; nu is relative to the bounds of all variables."""

    linear: np.ndarray | float
    nu: float | None
    over_margin: bool

    @property
    def value_error(self) -> float:
        """About the error of a float32 kernel value, independent of that of others; 0 where values are given, or
        float64."""

    def cross(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """K(x_a, x_b), (len(a), len(b)) float32: no labels in it."""

    def diagonal(self, ids: np.ndarray) -> np.ndarray:
        """K(x_i, x_i), (len(ids),) float64."""

    def apply(self, ids: np.ndarray, delta: np.ndarray, rows: np.ndarray | None = None) -> np.ndarray:
        """Q[rows, ids] @ delta, (len(rows),) float64; rows None: all."""

    def gap(self, alpha: np.ndarray, shifted: np.ndarray) -> float:
        """Primal minus dual objective at a, shifted (n,): Qa + p + y b, for any b where y'a is kept."""

    def in_float64(self) -> DualQP:
        """The same dual with Gram matrices and products in float64; itself if its values have no more digits."""

    def order(self) -> np.ndarray | None:
        """(n,) the variables, those of neighbouring rows one after another; None: not known."""


class BoundedGap:
    """The gap of losses that grow with the error itself, whose duals have bounds."""

    upper: np.ndarray
    over_margin: bool = False

    @property
    def value_error(self) -> float:
        return 0.0

    def gap(self, alpha: np.ndarray, shifted: np.ndarray) -> float:
        """a's + sum_i upper_i max(0, -s_i), s = shifted."""
        return float(alpha @ shifted + self.upper @ np.maximum(-shifted, 0.0))

    def in_float64(self) -> Any:
        return self

    def order(self) -> np.ndarray | None:
        return None


class ColumnsQP(Protocol):
    """min over a of 1/2 a'Qa + p'a, 0 <= a <= upper_c, for each column c: duals of the same rows and labels. y: (n,)
    float64, -1 or +1. upper: (columns, n) float64. linear: p (n,), or a number."""

    y: np.ndarray
    upper: np.ndarray
    linear: np.ndarray | float

    def gram(self, ids: np.ndarray) -> np.ndarray:
        """Q[ids, ids], (q, q) float32, in memory that the next call uses again."""

    def apply(self, ids: np.ndarray, deltas: np.ndarray, rows: np.ndarray | None = None) -> np.ndarray:
        """deltas @ Q[ids, rows], (columns, len(rows)) float64, for deltas (columns, len(ids)); rows None: all."""


class PairsQP(Protocol):
    """The duals of classification between one class of m rows and each of some later ones, of l rows, class by class:
    those of pair p are begins[p] to begins[p + 1].

    first, later: places of their variables among the coefficients of all rows, (m, pairs) and (l,). K: kernel values
    in float64, between them (m, l), within the first class (m, m), and within later ones, one flat matrix after
    another. bounds: upper, the ridge on the diagonal, and the cost of errors, (m + l,) each."""

    first: tuple[np.ndarray, ...]
    later: tuple[np.ndarray, ...]
    begins: np.ndarray
    K: tuple[np.ndarray, np.ndarray, np.ndarray]
    bounds: tuple[np.ndarray, np.ndarray, np.ndarray]


@dataclass
class KernelDual(BoundedGap):
    """The dual of one binary problem whose rows are in memory; kernel rows of wide data are kept in cache_bytes."""

    kernel: Kernel | Float64
    rows: Rows
    y: np.ndarray
    upper: np.ndarray
    threads: int = 1
    cache_bytes: int = 0
    linear: np.ndarray | float = -1.0
    nu: float | None = None
    _active: SingleEntryCache[Rows] = field(default_factory=SingleEntryCache, repr=False)

    def __post_init__(self) -> None:
        is_cached = is_wide(self.rows) and not computes(self.kernel, self.rows)  # a device has values again sooner
        self._cache = RowCache(len(self.y), self.cache_bytes if is_cached else 0)

    def in_float64(self) -> KernelDual:
        return self if isinstance(self.kernel, Float64) else self._in_float64

    @cached_property
    def _in_float64(self) -> KernelDual:
        assert isinstance(self.kernel, Kernel)
        return like(self, replace(self, kernel=self.kernel.in_float64(), cache_bytes=0))

    @cached_property
    def value_error(self) -> float:
        return 0.0 if isinstance(self.kernel, Float64) else self.kernel.float32_error(self.rows)

    def order(self) -> np.ndarray | None:
        return spatial_order(self.rows)

    def cross(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return self.kernel.block(self.rows.take(a), self.rows.take(b), self.threads)

    def diagonal(self, ids: np.ndarray) -> np.ndarray:
        return self.kernel.diag(self.rows.take(ids))

    def gram(self, ids: np.ndarray) -> np.ndarray:
        if isinstance(self.kernel, Float64):
            rows = self.rows.take(ids)
            return signed(self.kernel.block(rows, rows, self.threads), self.y[ids], self.threads)
        K = _thread_buffer.of(len(ids))
        cached = self._cache.block(ids, K, self.threads)
        new, rows = ~cached, self.rows.take(ids[~cached])
        if cached.any():
            K[np.ix_(new, new)] = self.kernel.block(rows, rows, self.threads)
            K[np.ix_(new, cached)] = K[np.ix_(cached, new)].T
        else:
            self.kernel.block(rows, rows, self.threads, K)
        return signed(K, self.y[ids], self.threads)

    def apply(self, ids: np.ndarray, delta: np.ndarray, rows: np.ndarray | None = None) -> np.ndarray:
        coef = delta * self.y[ids]
        if self._cache.focus(rows):
            product = self._apply_cached(ids, coef, self._rows(rows))
        else:
            product = self.kernel.apply(self._rows(rows), self.rows.take(ids), coef, self.threads)
        return product * (self.y if rows is None else self.y[rows])

    def _apply_cached(self, ids: np.ndarray, coef: np.ndarray, active: Rows) -> np.ndarray:
        places = self._cache.find(ids)
        cached, new = places >= 0, places < 0
        product = self._cache.product(places[cached], coef[cached], self.threads)
        places = self._cache.admit(ids[new])

        def keep(columns: slice, start: int, tile: np.ndarray) -> None:
            self._cache.store(places[columns], start, tile)

        return product + self.kernel.apply(active, self.rows.take(ids[new]), coef[new], self.threads, keep)

    def _rows(self, ids: np.ndarray | None) -> Rows:
        """The rows of an active set, gathered once for the rounds that share it."""
        return self.rows if ids is None else self._active.of(ids, self.rows.take)


def is_wide(rows: Rows) -> bool:
    """Whether computing kernel values of rows again costs more than keeping them."""
    few = rows.take(slice(1000)).X
    return bool(np.count_nonzero(few.data if rows.is_sparse else few) >= WIDE * few.shape[0])


class MatrixDual(BoundedGap):
    """The dual of one binary problem whose kernel matrix K (n, n), symmetric, is given. source: the dual whose kernel
    values it has, if they were computed."""

    linear: np.ndarray | float = -1.0
    nu: float | None = None

    def __init__(
        self, K: np.ndarray, y: np.ndarray, upper: np.ndarray, threads: int = 1, source: KernelDual | None = None
    ) -> None:
        self.y, self.upper = y, upper
        self._K, self._threads, self._source = np.ascontiguousarray(K, np.float32), threads, source

    def in_float64(self) -> Any:
        return self if self._source is None else like(self, self._source.in_float64())

    @property
    def value_error(self) -> float:
        return 0.0 if self._source is None else self._source.value_error

    def cross(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return gathered(self._K, a, b)

    def diagonal(self, ids: np.ndarray) -> np.ndarray:
        return self._K[ids, ids].astype(np.float64)

    def gram(self, ids: np.ndarray) -> np.ndarray:
        return signed(gathered(self._K, ids, ids, _thread_buffer.of(len(ids))), self.y[ids])

    def apply(self, ids: np.ndarray, delta: np.ndarray, rows: np.ndarray | None = None) -> np.ndarray:
        coef, out = delta * self.y[ids], np.zeros(len(self.y))
        # not by BLAS, whose sums depend on its threads
        strips(lambda i, j: add_rows(self._K, ids, coef, i, out[i:j]), len(out), MATRIX_STRIP, self._threads)
        out *= self.y
        return out if rows is None else out[rows]


class GramBuffer:
    """Memory for Gram matrices, one at a time, used again and again: fresh pages cost more than the values. rows: it
    has room for so many from its first use on."""

    def __init__(self, rows: int = 0) -> None:
        self._rows, self._space = rows, np.empty(0, np.float32)

    def of(self, q: int) -> np.ndarray:
        """(q, q) float32, not set."""
        if len(self._space) < q * q:
            self._space = np.empty(max(q, self._rows) ** 2, np.float32)
        return self._space[: q * q].reshape(q, q)


class _ThreadBuffer(threading.local):
    """A buffer of each thread, for matrices of up to MOST_KEPT rows."""

    def __init__(self) -> None:
        self._buffer = GramBuffer()

    def of(self, q: int) -> np.ndarray:
        return np.empty((q, q), np.float32) if q > MOST_KEPT else self._buffer.of(q)


_thread_buffer = _ThreadBuffer()


class CachedGram:
    """The Gram matrix of the last ids; problems that take turns can share its memory. rows: see `GramBuffer`."""

    def __init__(self, rows: int = 0) -> None:
        self._buffer = GramBuffer(rows)
        self._owner: KernelColumns | None = None
        self._latest: SingleEntryCache[np.ndarray] = SingleEntryCache()

    def of(self, owner: KernelColumns, ids: np.ndarray, make: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
        """make(out (q, q) float32) of q ids of a problem; cached if they are those of the call before."""
        if owner is not self._owner:  # the same ids are other rows there
            self._owner, self._latest = owner, SingleEntryCache()
        return self._latest.of(ids, lambda ids: make(self._buffer.of(len(ids))))


@dataclass
class KernelColumns:
    """Duals of the same rows, in memory, that differ in their bounds upper (columns, n) alone: see `ColumnsQP`."""

    kernel: Kernel
    rows: Rows
    y: np.ndarray
    upper: np.ndarray
    threads: int = 1
    linear: np.ndarray | float = -1.0
    cache: CachedGram = field(default_factory=CachedGram, repr=False)
    _active: SingleEntryCache[Rows] = field(default_factory=SingleEntryCache, repr=False)

    def gram(self, ids: np.ndarray) -> np.ndarray:
        def make(out: np.ndarray) -> np.ndarray:
            some = self.rows.take(ids)
            return signed(self.kernel.block(some, some, self.threads, out), self.y[ids])

        return self.cache.of(self, ids, make)

    def apply(self, ids: np.ndarray, deltas: np.ndarray, rows: np.ndarray | None = None) -> np.ndarray:
        coef = np.ascontiguousarray((deltas * self.y[ids]).T)
        active = self.rows if rows is None else self._active.of(rows, self.rows.take)  # gathered once for its rounds
        product = self.kernel.apply(active, self.rows.take(ids), coef, self.threads)
        return np.ascontiguousarray(product.T) * (self.y if rows is None else self.y[rows])


class RepeatedDual(BoundedGap):
    """A dual with several variables for each row: of y, linear (c n,) the first n are the first ones of all rows. once:
    the problem of the n rows with one variable each and labels of 1; variables of a row have its bound, times shares
    (c,) if they are given."""

    nu: float | None = None

    def __init__(
        self, once: DualQP, y: np.ndarray, linear: np.ndarray | float, shares: tuple[float, ...] | None = None
    ) -> None:
        self.y, self.linear, self._n = y, linear, len(once.y)
        factors = np.ones(len(y) // self._n) if shares is None else np.array(shares)
        self.upper = np.outer(factors, once.upper).ravel()
        self._once, self._shares = once, shares
        self._active: SingleEntryCache[tuple[np.ndarray, np.ndarray]] = SingleEntryCache()

    def in_float64(self) -> RepeatedDual:
        return like(self, RepeatedDual(self._once.in_float64(), self.y, self.linear, self._shares))

    @property
    def value_error(self) -> float:
        return self._once.value_error

    def order(self) -> np.ndarray | None:
        order = self._once.order()
        if order is None:
            return None
        return (order[:, None] + self._n * np.arange(len(self.y) // self._n)).ravel()

    def cross(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return self._once.cross(a % self._n, b % self._n)

    def diagonal(self, ids: np.ndarray) -> np.ndarray:
        return self._once.diagonal(ids % self._n)

    def gram(self, ids: np.ndarray) -> np.ndarray:
        return signed(self._once.gram(ids % self._n), self.y[ids])

    def apply(self, ids: np.ndarray, delta: np.ndarray, rows: np.ndarray | None = None) -> np.ndarray:
        base, place = np.unique(ids % self._n, return_inverse=True)
        coef = np.bincount(place, weights=delta * self.y[ids], minlength=len(base))
        if not coef.any():  # each row's two variables cancel
            return np.zeros(len(self.y) if rows is None else len(rows))
        if rows is None:
            return np.tile(self._once.apply(base, coef), len(self.y) // self._n) * self.y
        distinct, inverse = self._active.of(rows, lambda rows: np.unique(rows % self._n, return_inverse=True))
        return self._once.apply(base, coef, distinct)[inverse] * self.y[rows]


def dual_of(part: Subproblem, of_rows: Callable[[np.ndarray], Any]) -> DualQP:
    """The dual of a subproblem. of_rows: makes the dual of its rows with one variable each, from labels y (m,)."""
    dual: DualQP
    if part.copies > 1:
        dual = RepeatedDual(of_rows(np.ones(len(part.ids))), part.y, part.linear, part.shares)
    else:
        dual = of_rows(part.y)
        dual.linear = part.linear
    dual.nu = None if part.nu is None else part.nu / part.copies  # of all variables' bounds
    dual.over_margin = part.over_margin
    return dual


Dual = TypeVar("Dual", bound=Any)


def like(dual: DualQP, other: Dual) -> Dual:
    """The other dual, of the same variables, with this one's terms that `dual_of` sets."""
    other.linear, other.nu, other.over_margin = dual.linear, dual.nu, dual.over_margin
    return other


def gathered(K: np.ndarray, a: np.ndarray, b: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
    """K[a][:, b], of float32, written into `out` if it is given; in a quarter of the time of indexing."""
    out = np.empty((len(a), len(b)), np.float32) if out is None else out
    gather(K, a, b, out)
    return out


def signed(K: np.ndarray, y: np.ndarray, threads: int = 1) -> np.ndarray:
    """Q from K, in place."""
    signs = y.astype(np.float32)
    strips(lambda i, j: multiply_signs(K[i:j], signs[i:j], signs), len(K), SIGNS_STRIP, threads)
    return K


class SquaredDual:
    """min over a >= 0 of 1/2 a'(Q + D)a + p'a, D_ii = 1 / (2 c_i): the dual of 1/2 |w|^2 + sum_i c_i xi_i^2. xi_i =
    max(0, -h_i), of h = Qa + p + y b, are the same errors as those of the dual of the losses themselves, whose bounds
    are the c; rows of c_i = 0 have variables of 0 (Hsieh et al. 2008, (2)). Decision values do not contain D."""

    over_margin = False

    def __init__(self, dual: DualQP) -> None:
        self._dual, self._cost = dual, dual.upper
        self.y, self.linear, self.nu = dual.y, dual.linear, dual.nu
        self.upper, self.ridge = squared_terms(dual.upper)

    def in_float64(self) -> SquaredDual:
        return SquaredDual(self._dual.in_float64())

    @property
    def value_error(self) -> float:
        return self._dual.value_error

    def order(self) -> np.ndarray | None:
        return self._dual.order()

    def cross(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return self._dual.cross(a, b)

    def diagonal(self, ids: np.ndarray) -> np.ndarray:
        return self._dual.diagonal(ids) + self.ridge[ids]

    def gram(self, ids: np.ndarray) -> np.ndarray:
        return ridged(self._dual.gram(ids), self.ridge[ids])

    def apply(self, ids: np.ndarray, delta: np.ndarray, rows: np.ndarray | None = None) -> np.ndarray:
        """As `DualQP.apply`; ids are distinct, and rows rise."""
        out, diagonal = self._dual.apply(ids, delta, rows), self.ridge[ids] * delta
        if rows is None:
            out[ids] += diagonal
            return out
        place = np.minimum(np.searchsorted(rows, ids), len(rows) - 1)
        present = rows[place] == ids
        out[place[present]] += diagonal[present]
        return out

    def gap(self, alpha: np.ndarray, shifted: np.ndarray) -> float:
        """a'h + sum_i c_i xi_i^2 + a_i^2 / (4 c_i), of shifted = h + Da."""
        h = shifted - self.ridge * alpha
        return float(alpha @ h + self._cost @ np.maximum(-h, 0.0) ** 2 + 0.5 * (self.ridge * alpha) @ alpha)


def squared_terms(cost: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Bounds and ridge (n,) of variables whose squared errors cost so much."""
    counts = cost > 0
    return np.where(counts, UNBOUNDED, 0.0), np.divide(0.5, cost, out=np.zeros(len(cost)), where=counts)


def loss_terms(cost: np.ndarray, *, squared: bool) -> tuple[np.ndarray, np.ndarray]:
    """Bounds and ridge (n,) of variables whose errors, or squared errors, cost so much."""
    return squared_terms(cost) if squared else (cost, np.zeros(len(cost)))


def ridged(Q: np.ndarray, ridge: np.ndarray) -> np.ndarray:
    """Q (q, q) with a ridge (q,) on its diagonal, in place."""
    Q[np.arange(len(Q)), np.arange(len(Q))] += ridge.astype(Q.dtype)
    return Q
