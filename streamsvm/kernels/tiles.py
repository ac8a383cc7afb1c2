"""Tiles of kernel blocks, so small that GEMM, exp and the sum happen while one is in cache.

Values are float32 (relative error about 1e-7 in the exponential, and gamma |x|^2 2^-24 from the distances);
sums are float64, but for products with many columns, which are float32 within a tile.

Tiles of gradients, slopes times coefficients times rows, are transposed, (q, h): a row of the tile for each row b, a
column for each row a of a strip. So every product with b is one of long rows, GEMM or sums over the features of CSR,
and only a is transposed for each strip."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import DTypeLike
from scipy import sparse

from streamsvm.data.rows import Rows
from streamsvm.parallel.strips import strips
from streamsvm.private.numba import njit, njit_inner

Tile = Callable[[Rows, np.ndarray], None]  # writes K(a, b) of rows a into an array (m, q)
Tiles = Callable[[Rows], Tile]  # of rows b
Keep = Callable[[slice, int, np.ndarray], None]
TILE_BYTES = 1 << 20  # half of a common L2: the other half holds the operands
# b is split so that a tile keeps at least TILE_BYTES / (4 * COLUMNS) rows. No power of 2: the same columns of all rows
# would be in the same lines of L1, and GEMM take up to 0.4 ns longer per value
COLUMNS = 2032
# share of nonzeros below which skipping zeros is faster than GEMM if the right operand stays in L2: 1.8 times on
# covtype, 3 times on a9a; with fewer columns than SKIP_COLUMNS finding the nonzeros takes longer than GEMM
SKIP = 0.25
SKIP_COLUMNS = 256
FEW = 8  # columns of coefficients up to which float64 sums cost less than half of what the tile does
SCATTER = 0.03  # share of nonzeros below which CSR rows are read entry by entry, not as dense rows
Slopes = Callable[[Rows, np.ndarray], None]  # adds gradients at rows a (h, d) to an array (k, h, d)
Products = Callable[[np.ndarray], np.ndarray]  # of a tile (q, h): (k, h, d)
INNER = "inner products"  # the key of `inner_tiles`
FILLED = 0.2  # share of coefficients that are not 0 from which on GEMM is faster than sums over those rows alone
OPERAND_BYTES = 32 << 20  # of rows b times each column of coefficients, which GEMM reads


def transposed(b: Rows, dtype: type = np.float32) -> np.ndarray | sparse.csc_array:
    """b', (d, q) of this dtype: dense, or by features where b is very sparse."""
    X: Any = b.X.astype(dtype, copy=False)
    if isinstance(X, np.ndarray):
        return np.ascontiguousarray(X.T)
    return X.tocsc() if X.nnz < SCATTER * len(b) * b.d else np.ascontiguousarray(X.toarray().T)


def inner_tile(a: Rows, right: np.ndarray | sparse.csc_array, out: np.ndarray) -> None:
    """Writes the inner products a @ b', of the dtype of b', into out: the one place that distinguishes sparse from
    dense."""
    X = a.X.astype(right.dtype, copy=False)
    if isinstance(right, sparse.csc_array):
        X = sparse.csr_array(X)
        _scatter(X.indptr, X.indices, X.data, right.indptr, right.indices, right.data, out)
    elif not isinstance(X, np.ndarray):
        add_rows(X.indptr, X.indices, X.data, right, out)
    elif right.shape[1] >= SKIP_COLUMNS and np.count_nonzero(X) < SKIP * min(1.0, TILE_BYTES / right.nbytes) * X.size:
        _add_nonzero_rows(X, right, out)
    else:
        np.matmul(X, right, out=out)


def inner_tiles(b: Rows) -> Tile:
    """Writes the inner products a @ b' into float32 tiles."""
    right = transposed(b)
    return lambda a, out: inner_tile(a, right, out)


def filled(tile: Tile, a: Rows, out: np.ndarray, threads: int) -> np.ndarray:
    """out (m, q), with the kernel block of rows a written into it, tile by tile."""
    most = height(out.shape[1], a.d, out.dtype)
    strips(lambda start, stop: tile(a.take(slice(start, stop)), out[start:stop]), len(a), most, threads)
    return out


def applied(
    tiles: Tiles,
    a: Rows,
    b: Rows,
    coef: np.ndarray,
    threads: int,
    keep: Keep | None,
    dtype: DTypeLike = np.float32,
) -> np.ndarray:
    """K(a, b) @ coef, (m,) or (m, k) float64, for coef (q,) or (q, k), without the block. tiles: whose values have this
    dtype. keep(columns, first row, tile): called with each tile."""
    out = np.zeros((len(a), *coef.shape[1:]))
    for first in range(0, len(b), COLUMNS):
        columns = slice(first, first + COLUMNS)
        part = coef[columns]
        if len(part):
            add = accumulate(tiles(b.take(columns)), part, a, out, keep and partial(keep, columns), dtype)
            strips(add, len(a), height(len(part), a.d, dtype), threads)
    return out


def accumulate(
    tile_of: Tile,
    coef: np.ndarray,
    a: Rows,
    out: np.ndarray,
    keep: Callable[[int, np.ndarray], None] | None,
    dtype: DTypeLike,
) -> Callable[[int, int], None]:
    """The function that adds to out (m, ...) the products of tiles of rows start..stop of a with coef (q,) or (q, k),
    and calls keep(start, tile)."""
    columns = columns_of(coef, dtype)

    def add(start: int, stop: int) -> None:
        tile = np.empty((stop - start, len(coef)), dtype)
        tile_of(a.take(slice(start, stop)), tile)
        add_tile(tile, columns, out[start:stop].reshape(stop - start, -1))
        if keep is not None:
            keep(start, tile)

    return add


def columns_of(coef: np.ndarray, dtype: DTypeLike) -> np.ndarray:
    """Coefficients (q,) or (q, k) as columns (k, q) for tiles of this dtype."""
    columns = np.atleast_2d(coef.T)
    return np.ascontiguousarray(columns, np.float64 if len(columns) <= FEW else dtype)


def add_tile(tile: np.ndarray, columns: np.ndarray, sums: np.ndarray) -> None:
    """sums (h, k) += tile (h, q) @ columns', of columns (k, q) from `columns_of`. Of few columns a row's sums are the
    same in every tile, to the last bit; those of BLAS depend on the number of rows."""
    if len(columns) <= FEW:
        _add_products(tile, columns, sums)
    else:
        # BLAS sets the invalid flag at times where all is finite; `Kernel.apply` checks
        with np.errstate(invalid="ignore"):
            sums += tile @ columns.T


def height(q: int, d: int, dtype: DTypeLike = np.float32) -> int:
    """Rows of a tile of q columns of this dtype, and of as many rows of d features as float32."""
    return max(16, TILE_BYTES // (4 * max(np.dtype(dtype).itemsize // 4 * q, min(d, COLUMNS), 1)))


@njit(cache=True, fastmath=True)
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


@njit(cache=True, fastmath=True)
def add_rows(indptr, indices, data, right, out):  # CSR (m, d) @ right (d, q)
    for i in range(len(out)):
        _combine(indices[indptr[i] : indptr[i + 1]], data[indptr[i] : indptr[i + 1]], right, out[i])


@njit(cache=True, fastmath=True)
def _add_nonzero_rows(X, right, out):  # X (m, d) @ right (d, q)
    m, d = X.shape
    indices, data = np.empty(d, np.int32), np.empty(d, X.dtype)
    for i in range(m):
        count = 0
        for k in range(d):
            if X[i, k] != 0:
                indices[count], data[count] = k, X[i, k]
                count += 1
        _combine(indices[:count], data[:count], right, out[i])


@njit_inner(fastmath=True)
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


@njit(cache=True, fastmath=True)
def _scatter(indptr, indices, data, right_indptr, right_indices, right_data, out):  # CSR (m, d) @ CSR (d, q)
    out[:] = 0
    for i in range(len(out)):
        row = out[i]
        for p in range(indptr[i], indptr[i + 1]):
            k, value = indices[p], data[p]
            for r in range(right_indptr[k], right_indptr[k + 1]):
                row[right_indices[r]] += value * right_data[r]


def groups(coef: np.ndarray, b: Rows) -> Iterator[slice]:
    """Columns of coefficients (k, q) that one tile serves: rows b times each stay within OPERAND_BYTES."""
    one = 4 * (b.X.size if isinstance(b.X, np.ndarray) else b.X.nnz)
    step = max(1, OPERAND_BYTES // max(1, one))
    return (slice(first, first + step) for first in range(0, len(coef), step))


def inner_across(b: Rows, a: Rows) -> np.ndarray:
    """b @ a', (q, h) float32."""
    out = np.empty((len(b), len(a)), np.float32)
    inner_tile(b, transposed(a if b.is_sparse else Rows(a.dense())), out)  # dense where b is
    return out


def products(b: Rows, coef: np.ndarray) -> Products:
    """tile -> sum_j coef[c, j] tile[j]' b_j, (k, h, d), for rows and coef (k, q) of float32."""
    k, d, X = len(coef), b.d, b.X
    if not isinstance(X, np.ndarray):
        return _sparse_products(X, coef)
    if np.count_nonzero(coef) < FILLED * coef.size:
        return partial(_nonzero_products, X, np.ascontiguousarray(coef))
    weighted = (X.T * coef[:, None]).reshape(k * d, -1)
    return lambda tile: _matmul(weighted, tile).reshape(k, d, -1).transpose(0, 2, 1)


def _sparse_products(X: Any, coef: np.ndarray) -> Products:
    columns = []
    for column in coef:
        ids = np.flatnonzero(column)
        of_column = X[ids].tocsc()
        of_column.data *= column[ids][of_column.indices]
        columns.append((ids, of_column))

    def of(tile: np.ndarray) -> np.ndarray:
        out = np.empty((len(columns), X.shape[1], tile.shape[1]), np.float32)
        for (ids, of_column), sums in zip(columns, out, strict=True):
            add_rows(of_column.indptr, of_column.indices, of_column.data, tile[ids], sums)
        return out.transpose(0, 2, 1)

    return of


def _nonzero_products(X: np.ndarray, coef: np.ndarray, tile: np.ndarray) -> np.ndarray:
    out = np.empty((len(coef), tile.shape[1], X.shape[1]), np.float32)
    _combine_nonzero(coef, tile, X, out)
    return out


@njit(cache=True, fastmath=True)
def _combine_nonzero(coef, tile, X, out):  # out (k, h, d) = sum_j coef[:, j] tile[j] x_j
    for c in range(len(coef)):
        ids = np.flatnonzero(coef[c])
        weights = np.empty(len(ids), np.float32)
        for a in range(tile.shape[1]):
            for p in range(len(ids)):
                weights[p] = coef[c, ids[p]] * tile[ids[p], a]
            _combine(ids, weights, X, out[c, a])


def of_distances(b: Rows, coef: np.ndarray, slope: Callable[[np.ndarray, np.ndarray, np.ndarray], float]) -> Slopes:
    """sum_j c_j 2 k'_ij (a_i - b_j). slope: turns a tile of inner products into k' divided by a factor, in place, and
    returns the factor."""
    b = b.astype(np.float32)
    norms, with_rows = b.sq_norms.astype(np.float32), products(b, coef)

    def add(a: Rows, out: np.ndarray) -> None:
        a = a.astype(np.float32)
        tile, X = inner_across(b, a), a.dense()
        factor = np.float32(2 * slope(tile, norms, a.sq_norms.astype(np.float32)))
        out += factor * (_matmul(coef, tile)[:, :, None] * X - with_rows(tile))

    return add


def of_inner_products(b: Rows, coef: np.ndarray, slope: Callable[[np.ndarray], float]) -> Slopes:
    """sum_j c_j k'_ij b_j. slope: as of `of_distances`."""
    b = b.astype(np.float32)
    with_rows = products(b, coef)

    def add(a: Rows, out: np.ndarray) -> None:
        tile = inner_across(b, a.astype(np.float32))
        factor = np.float32(slope(tile))
        out += factor * with_rows(tile)

    return add


def _matmul(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    with np.errstate(invalid="ignore"):  # BLAS sets the flag at times where all is finite; `gradients` checks
        return left @ right
