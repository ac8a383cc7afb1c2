"""Gradients by tiles: the slopes of a kernel, times coefficients, times rows, while a tile of them is in cache.

These tiles are transposed, (q, h): a row of the tile for each row b, a column for each row a of a strip. So every
product with b is one of long rows, GEMM or sums over the features of CSR, and only a is transposed for each strip.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from scipy import sparse

from streamsvm.data.rows import Rows
from streamsvm.kernels.tiles import add_rows, inner_tile, transposed

Slopes = Callable[[Rows, np.ndarray], None]  # adds gradients at rows a (h, d) to an array (k, h, d)
Products = Callable[[np.ndarray], np.ndarray]  # of a tile (q, h): (k, d, h)
OPERAND_BYTES = 32 << 20  # of rows b times each column of coefficients, which GEMM reads


def groups(coef: np.ndarray, b: Rows) -> Iterator[slice]:
    """Columns of coefficients (k, q) that one tile serves: rows b times each stay within OPERAND_BYTES."""
    one = 4 * (b.X.size if isinstance(b.X, np.ndarray) else b.X.nnz)
    step = max(1, OPERAND_BYTES // max(1, one))
    return (slice(first, first + step) for first in range(0, len(coef), step))


def inner_across(b: Rows, a: Rows) -> np.ndarray:
    """b @ a', (q, h) float32."""
    out = np.empty((len(b), len(a)), np.float32)
    inner_tile(b, transposed_like(a, b), out)
    return out


def transposed_like(a: Rows, b: Rows) -> np.ndarray | sparse.csc_array:
    """a' (d, h) float32, dense where b is."""
    return transposed(a if b.is_sparse else Rows(a.dense()))


def products(b: Rows, coef: np.ndarray) -> Products:
    """tile -> sum_j coef[c, j] b_j' tile[j], (k, d, h), for rows and coef (k, q) of float32."""
    if not isinstance(b.X, np.ndarray):
        return _sparse_products(b.X.tocsc(), coef)
    weighted = (b.X.T * coef[:, None]).reshape(-1, len(b))

    def of(tile: np.ndarray) -> np.ndarray:
        return _matmul(weighted, tile).reshape(len(coef), -1, tile.shape[1])

    return of


def _sparse_products(X: Any, coef: np.ndarray) -> Products:
    weighted = X.data * coef[:, X.indices]

    def of(tile: np.ndarray) -> np.ndarray:
        out = np.empty((len(coef), X.shape[1], tile.shape[1]), np.float32)
        for data, column in zip(weighted, out, strict=True):
            add_rows(X.indptr, X.indices, data, tile, column)
        return out

    return of


def of_distances(b: Rows, coef: np.ndarray, slope: Callable[[np.ndarray, np.ndarray, np.ndarray], float]) -> Slopes:
    """sum_j c_j 2 k'_ij (a_i - b_j). slope: turns a tile of inner products into k' divided by a factor, in place, and
    returns the factor."""
    b = b.astype(np.float32)
    norms, with_rows = b.sq_norms.astype(np.float32), products(b, coef)

    def add(a: Rows, out: np.ndarray) -> None:
        a = a.astype(np.float32)
        tile, X = inner_across(b, a), a.dense()
        factor = np.float32(2 * slope(tile, norms, a.sq_norms.astype(np.float32)))
        for gradient, sums, others in zip(out, _matmul(coef, tile), with_rows(tile), strict=True):
            gradient += factor * (sums[:, None] * X - others.T)

    return add


def of_inner_products(b: Rows, coef: np.ndarray, slope: Callable[[np.ndarray], float]) -> Slopes:
    """sum_j c_j k'_ij b_j. slope: as of `of_distances`."""
    b = b.astype(np.float32)
    with_rows = products(b, coef)

    def add(a: Rows, out: np.ndarray) -> None:
        tile = inner_across(b, a.astype(np.float32))
        factor = np.float32(slope(tile))
        out += factor * with_rows(tile).transpose(0, 2, 1)

    return add


def _matmul(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    with np.errstate(invalid="ignore"):  # BLAS sets the flag at times where all is finite; `gradients` checks
        return left @ right
