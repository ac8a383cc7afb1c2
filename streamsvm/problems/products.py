"""Products of a block of rows with a few vectors, in float64 and one thread: X W, and X'G.

For so few vectors reading the rows is what takes time; BLAS would want them as float64 first, at twice the cost.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from streamsvm.data.rows import Rows


def times(rows: Rows, W: np.ndarray) -> np.ndarray:
    """X W, (m, k) float64, of rows X (m, d) and W (d, k)."""
    if isinstance(rows.X, np.ndarray):
        return dense_times(rows.X, W)
    out = np.empty((len(rows), W.shape[1]))
    _csr_times(*_csr(rows), np.ascontiguousarray(W, np.float64), out)
    return out


def dense_times(X: np.ndarray, W: np.ndarray) -> np.ndarray:
    """X W of an array X (m, d)."""
    out = np.empty((len(X), W.shape[1]))
    _dense_times(X, np.ascontiguousarray(W.T, np.float64), out)
    return out


def transposed_times(rows: Rows, G: np.ndarray) -> np.ndarray:
    """X'G, (d, k) float64, of rows X (m, d) and G (m, k); zeros in G cost nothing."""
    if isinstance(rows.X, np.ndarray):
        return dense_transposed_times(rows.X, G)
    out = np.zeros((rows.d, G.shape[1]))
    _csr_transposed_times(*_csr(rows), np.ascontiguousarray(G, np.float64), out)
    return out


def dense_transposed_times(X: np.ndarray, G: np.ndarray) -> np.ndarray:
    """X'G of an array X (m, d)."""
    out = np.zeros((G.shape[1], X.shape[1]))
    _dense_transposed_times(X, np.ascontiguousarray(G, np.float64), out)
    return out.T


def _csr(rows: Rows) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    X: Any = rows.X
    return X.indptr, X.indices, X.data


@njit(cache=True, nogil=True, fastmath={"reassoc", "contract"})
def _dense_times(X, WT, out):
    for i in range(len(X)):
        for c in range(len(WT)):
            f = 0.0
            for j in range(X.shape[1]):
                f += X[i, j] * WT[c, j]
            out[i, c] = f


@njit(cache=True, nogil=True, fastmath={"reassoc", "contract"})
def _dense_transposed_times(X, G, out):
    for i in range(len(X)):
        for c in range(len(out)):
            g = G[i, c]
            if g != 0.0:
                for j in range(X.shape[1]):
                    out[c, j] += g * X[i, j]


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
