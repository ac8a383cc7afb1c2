"""Products of a block of rows with a few vectors, in float64: X W, and X'G. Both visit each entry once."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from streamsvm.data.rows import Rows

TILE = 1 << 16  # entries of dense rows that are made float64 at once: they stay in L2


def times(rows: Rows, W: np.ndarray) -> np.ndarray:
    """X W, (m, k) float64, of rows X (m, d) and W (d, k)."""
    W = np.ascontiguousarray(W, np.float64)
    out = np.empty((len(rows), W.shape[1]))
    if rows.is_sparse:
        _csr_times(*_csr(rows), W, out)
        return out
    for here, tile in _tiles(rows):
        np.matmul(tile, W, out=out[here])
    return out


def transposed_times(rows: Rows, G: np.ndarray) -> np.ndarray:
    """X'G, (d, k) float64, of rows X (m, d) and G (m, k); rows of zeros in G cost nothing where X is sparse."""
    out = np.zeros((rows.d, G.shape[1]))
    if rows.is_sparse:
        _csr_transposed_times(*_csr(rows), np.ascontiguousarray(G, np.float64), out)
        return out
    for here, tile in _tiles(rows):
        out += tile.T @ G[here]
    return out


def _csr(rows: Rows) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    X: Any = rows.X
    return X.indptr, X.indices, X.data


def _tiles(rows: Rows) -> Any:
    """(slice, float64 rows) over a dense block."""
    step = max(1, TILE // rows.d)
    for start in range(0, len(rows), step):
        here = slice(start, start + step)
        yield here, rows.dense()[here].astype(np.float64)


@njit(cache=True, nogil=True, fastmath={"reassoc", "contract"})
def _csr_times(indptr, indices, data, W, out):
    k = W.shape[1]
    for i in range(len(indptr) - 1):
        if k == 1:  # a sum in a register
            f = 0.0
            for j in range(indptr[i], indptr[i + 1]):
                f += data[j] * W[indices[j], 0]
            out[i, 0] = f
            continue
        out[i] = 0.0
        for j in range(indptr[i], indptr[i + 1]):
            column = indices[j]
            for c in range(k):
                out[i, c] += data[j] * W[column, c]


@njit(cache=True, nogil=True, fastmath={"reassoc", "contract"})
def _csr_transposed_times(indptr, indices, data, G, out):
    k = G.shape[1]
    for i in range(len(indptr) - 1):
        if not G[i].any():
            continue
        if k == 1:
            for j in range(indptr[i], indptr[i + 1]):
                out[indices[j], 0] += data[j] * G[i, 0]
            continue
        for j in range(indptr[i], indptr[i + 1]):
            column = indices[j]
            for c in range(k):
                out[column, c] += data[j] * G[i, c]
