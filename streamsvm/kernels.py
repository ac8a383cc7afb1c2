"""Kernel blocks and their products, tiled so that GEMM, exp and the sum happen while a tile is in cache.

Values are float32 (relative error about 1e-7 in the exponential, and gamma |x|^2 2^-24 from the distances);
sums are float64, but for products with many columns, which are float32 within a tile.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, assert_never, get_args

import numba as nb
import numpy as np
from scipy import sparse

from streamsvm.data.rows import Rows
from streamsvm.errors import ConfigError
from streamsvm.strips import strips

Keep = Callable[[slice, int, np.ndarray], None]
KernelName = Literal["rbf", "poly", "linear"]
TILE_BYTES = 1 << 20  # half of a common L2: the other half holds the operands
COLUMNS = 2048  # b is split so that a tile keeps at least TILE_BYTES / (4 * COLUMNS) rows
SKIP = 0.25  # share of nonzeros below which skipping zeros beats GEMM where the right operand stays in L2: covtype 1.8,
SKIP_COLUMNS = 256  # a9a 3 times as fast; with fewer columns finding the nonzeros takes longer than GEMM
FEW = 8  # columns of coefficients up to which float64 sums cost less than half of what the tile does
SCATTER = 0.03  # share of nonzeros below which CSR rows are met entry by entry, not as dense rows


@dataclass(frozen=True)
class Kernel:
    """K(a, b): rbf exp(-gamma |a-b|^2), poly (gamma a'b + coef0)^degree, linear a'b."""

    name: KernelName
    gamma: float = 1.0
    degree: int = 3
    coef0: float = 0.0

    def __post_init__(self) -> None:
        if self.name not in get_args(KernelName):  # from a damaged model, or one of a later version
            known = ", ".join(get_args(KernelName))
            raise ValueError(f"found kernel {self.name!r}, expected one of {known}")

    def block(self, a: Rows, b: Rows, threads: int = 1, out: np.ndarray | None = None) -> np.ndarray:
        """K(a, b), (m, q) float32, written into `out` where it is given."""
        out = np.empty((len(a), len(b)), np.float32) if out is None else out
        right = _Right(self, b)

        def fill(start: int, stop: int) -> None:
            right.tile(a.take(slice(start, stop)), out[start:stop])

        strips(fill, len(a), _height(len(b), a.d), threads)
        return out

    def exact(self, a: Rows, b: Rows) -> np.ndarray:
        """K(a, b), (m, q) float64 throughout; for small blocks."""
        values = inner_products(a, b, np.float64)
        match self.name:
            case "linear":
                return values
            case "poly":
                return (self.gamma * values + self.coef0) ** self.degree
            case "rbf":
                values *= 2.0
                values -= a.sq_norms[:, None]
                values -= b.sq_norms
                np.minimum(values, 0.0, out=values)
                values *= self.gamma
                return np.exp(values, out=values)
            case _:
                assert_never(self.name)

    def diag(self, a: Rows) -> np.ndarray:
        """K(a_i, a_i), (m,) float64."""
        match self.name:
            case "rbf":
                return np.ones(len(a))
            case "linear":
                return a.sq_norms
            case "poly":
                return (self.gamma * a.sq_norms + self.coef0) ** self.degree
            case _:
                assert_never(self.name)

    def apply(
        self, a: Rows, b: Rows, coef: np.ndarray, threads: int = 1, keep: Keep | None = None
    ) -> np.ndarray:
        """K(a, b) @ coef for coef (q,) or (q, k): (m,) or (m, k) float64; the block is never formed.

        keep is shown each tile of it that is made: keep(columns, first row, tile). Raises ConfigError where values
        are beyond float32.
        """
        out = np.zeros((len(a), *coef.shape[1:]))
        for first in range(0, len(b), COLUMNS):
            columns = slice(first, first + COLUMNS)
            right, part = _Right(self, b.take(columns)), coef[columns]
            if len(part):
                work = _accumulate(right, part, a, out, keep and partial(keep, columns))
                strips(work, len(a), _height(len(part), a.d), threads)
        if not np.isfinite(out).all():
            raise ConfigError(
                f"values of the {self.name} kernel are beyond float32: scale the features, or take a smaller "
                "gamma, degree or C"
            )
        return out


def inner_products(a: Rows, b: Rows, dtype: type) -> np.ndarray:
    """a @ b', (m, q) of this dtype; for small blocks."""
    out = a.astype(dtype).X @ b.astype(dtype).X.T
    return out if isinstance(out, np.ndarray) else out.toarray()


class _Right:
    """The right operand of a kernel block, laid out once for many tiles."""

    def __init__(self, kernel: Kernel, b: Rows) -> None:
        self.kernel = kernel
        self.sq_norms = b.sq_norms.astype(np.float32) if kernel.name == "rbf" else None
        self.transposed = _transposed(b)

    def tile(self, a: Rows, out: np.ndarray) -> None:
        """Writes K(a, b) into out (m, q) float32."""
        _inner(a, self.transposed, out)
        kernel = self.kernel
        match kernel.name:
            case "rbf":
                _rbf(out, a.sq_norms.astype(np.float32), self.sq_norms, np.float32(kernel.gamma))
            case "poly":
                _poly(out, np.float32(kernel.gamma), np.float32(kernel.coef0), kernel.degree)
            case "linear":
                pass  # the inner products themselves
            case _:
                assert_never(kernel.name)


def _transposed(b: Rows) -> np.ndarray | sparse.csc_array:
    """b', (d, q) float32: dense, or by features where b is very sparse."""
    X = b.X.astype(np.float32, copy=False)
    if isinstance(X, np.ndarray):
        return np.ascontiguousarray(X.T)
    return X.tocsc() if X.nnz < SCATTER * len(b) * b.d else np.ascontiguousarray(X.toarray().T)


def _inner(a: Rows, transposed: np.ndarray | sparse.csc_array, out: np.ndarray) -> None:
    """Writes the inner products a @ b' into out: the one place that tells sparse from dense."""
    X, right = a.X.astype(np.float32, copy=False), transposed
    if isinstance(right, sparse.csc_array):
        X = sparse.csr_array(X)
        _scatter(X.indptr, X.indices, X.data, right.indptr, right.indices, right.data, out)
    elif not isinstance(X, np.ndarray):
        _add_rows(X.indptr, X.indices, X.data, right, out)
    elif right.shape[1] >= SKIP_COLUMNS and np.count_nonzero(X) < _worth_skipping(right) * X.size:
        _add_nonzero_rows(X, right, out)
    else:
        np.matmul(X, right, out=out)


def _worth_skipping(right: np.ndarray) -> float:
    return SKIP * min(1.0, TILE_BYTES / right.nbytes)


def _accumulate(
    right: _Right, coef: np.ndarray, a: Rows, out: np.ndarray, keep: Callable[[int, np.ndarray], None] | None
) -> Callable[[int, int], None]:
    few = coef.ndim == 1 or coef.shape[1] <= FEW
    columns: Any = np.ascontiguousarray(np.atleast_2d(coef.T), np.float64 if few else np.float32)

    def add(start: int, stop: int) -> None:
        tile = np.empty((stop - start, len(coef)), np.float32)
        right.tile(a.take(slice(start, stop)), tile)
        if few:
            _add_products(tile, columns, out[start:stop].reshape(stop - start, -1))
        else:
            # BLAS sets the invalid flag at times where all is finite; apply looks itself
            with np.errstate(invalid="ignore"):
                out[start:stop] += tile @ columns.T
        if keep is not None:
            keep(start, tile)

    return add


def _height(q: int, d: int) -> int:
    """Rows of a tile of q columns, and of as many rows of d features as float32."""
    return max(16, TILE_BYTES // (4 * max(q, min(d, COLUMNS), 1)))


@nb.njit(nogil=True, fastmath=True, cache=True, error_model="numpy")
def _rbf(tile, a_norms, b_norms, gamma):  # inner products (m, q) -> exp(-gamma |a - b|^2), in place
    m, q = tile.shape
    bits = tile.view(np.int32)
    exponents = np.empty(q, np.int32)
    scale = np.float32(-1.4426950408889634) * gamma
    for i in range(m):
        row, row_bits, norm = tile[i], bits[i], a_norms[i]
        for j in range(q):
            # 2^x = 2^n 2^f with |f| <= 1/2, n added to the exponent bits, which makes 2^-127 0; of the degree-5
            # polynomials that are 1 at 0 this one has the least relative error there, 9e-8
            sq = max(norm + b_norms[j] - np.float32(2) * row[j], np.float32(0))
            x = max(scale * sq, np.float32(-127))
            n = np.floor(x + np.float32(0.5))
            f = x - n
            p = np.float32(1.32647271e-3)
            p = p * f + np.float32(9.67151264e-3)
            p = p * f + np.float32(5.55073374e-2)
            p = p * f + np.float32(2.40222421e-1)
            p = p * f + np.float32(6.93146978e-1)
            row[j] = p * f + np.float32(1)
            exponents[j] = np.int32(n) << 23
        for j in range(q):
            row_bits[j] += exponents[j]


@nb.njit(nogil=True, fastmath=True, cache=True, error_model="numpy")
def _poly(tile, gamma, coef0, degree):  # inner products -> (gamma t + coef0)^degree, in place
    flat = tile.reshape(-1)
    for i in range(len(flat)):
        base = gamma * flat[i] + coef0
        power = np.float32(1)
        for _ in range(degree):
            power *= base
        flat[i] = power


@nb.njit(nogil=True, fastmath=True, cache=True)
def _add_products(tile, coef, out):  # out (m, k) += tile (m, q) @ coef (k, q)', in float64; four rows a pass
    m, q = tile.shape
    fours = m // 4 * 4
    for i in range(0, fours, 4):
        A, B, C, D = tile[i], tile[i + 1], tile[i + 2], tile[i + 3]
        for c in range(len(coef)):
            x = coef[c]
            r, s, t, u = 0.0, 0.0, 0.0, 0.0
            for j in range(q):
                r += A[j] * x[j]
                s += B[j] * x[j]
                t += C[j] * x[j]
                u += D[j] * x[j]
            out[i, c] += r
            out[i + 1, c] += s
            out[i + 2, c] += t
            out[i + 3, c] += u
    for i in range(fours, m):
        for c in range(len(coef)):
            r = 0.0
            for j in range(q):
                r += tile[i, j] * coef[c, j]
            out[i, c] += r


@nb.njit(nogil=True, fastmath=True, cache=True)
def _add_rows(indptr, indices, data, right, out):  # CSR (m, d) @ right (d, q)
    for i in range(len(out)):
        _combine(indices[indptr[i] : indptr[i + 1]], data[indptr[i] : indptr[i + 1]], right, out[i])


@nb.njit(nogil=True, fastmath=True, cache=True)
def _add_nonzero_rows(X, right, out):  # X (m, d) @ right (d, q)
    m, d = X.shape
    indices, data = np.empty(d, np.int32), np.empty(d, np.float32)
    for i in range(m):
        count = 0
        for k in range(d):
            if X[i, k] != 0:
                indices[count], data[count] = k, X[i, k]
                count += 1
        _combine(indices[:count], data[:count], right, out[i])


@nb.njit(nogil=True, fastmath=True, cache=True)
def _combine(indices, data, right, out):  # out = sum_p data[p] right[indices[p]]
    # four rows a pass: out is loaded and stored less often
    q = len(out)
    out[:] = 0
    fours = len(indices) // 4 * 4
    for p in range(0, fours, 4):
        r, s, t, u = data[p], data[p + 1], data[p + 2], data[p + 3]
        R, S, T, U = right[indices[p]], right[indices[p + 1]], right[indices[p + 2]], right[indices[p + 3]]
        for j in range(q):
            out[j] += r * R[j] + s * S[j] + t * T[j] + u * U[j]
    for p in range(fours, len(indices)):
        r, R = data[p], right[indices[p]]
        for j in range(q):
            out[j] += r * R[j]


@nb.njit(nogil=True, fastmath=True, cache=True)
def _scatter(indptr, indices, data, right_indptr, right_indices, right_data, out):  # CSR (m, d) @ CSR (d, q)
    out[:] = 0
    for i in range(len(out)):
        row = out[i]
        for p in range(indptr[i], indptr[i + 1]):
            k, value = indices[p], data[p]
            for r in range(right_indptr[k], right_indptr[k + 1]):
                row[right_indices[r]] += value * right_data[r]
