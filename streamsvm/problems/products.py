"""Products of a block of rows with a few vectors, in float64 and one thread: X W, and X'G. With so small a number of
vectors, reading the rows takes the time; BLAS would want them as float64 first, at twice the cost."""

from __future__ import annotations

from typing import Any

import numpy as np

from streamsvm.data.rows import Rows
from streamsvm.private.numba import njit


def times(
    rows: Rows, W: np.ndarray, start: int = 0, stop: int | None = None, plus: np.ndarray | None = None
) -> np.ndarray:
    """X W, (m, k) float64, of rows start..stop of X (n, d) and W (d, k); plus (k,) is added to each row."""
    if isinstance(rows.X, np.ndarray):
        return dense_times(rows.X[start:stop], W, plus)
    indptr, indices, data = _csr(rows, start, stop)
    out = np.empty((len(indptr) - 1, W.shape[1]))
    _csr_times(indptr, indices, data, np.ascontiguousarray(W, np.float64), _added(plus, W), out)
    return out


def dense_times(X: np.ndarray, W: np.ndarray, plus: np.ndarray | None = None) -> np.ndarray:
    """X W of an array X (m, d)."""
    out = np.empty((len(X), W.shape[1]))
    _dense_times(X, np.ascontiguousarray(W.T, np.float64), _added(plus, W), out)
    return out


def _added(plus: np.ndarray | None, W: np.ndarray) -> np.ndarray:
    return np.zeros(W.shape[1]) if plus is None else plus


def transposed_times(rows: Rows, G: np.ndarray) -> np.ndarray:
    """X'G, (d, k) float64, of rows X (m, d) and G (m, k); zeros in G cost nothing."""
    out = no_slopes(rows, G.shape[1])
    add_transposed_times(rows, G, 0, out)
    return out


def no_slopes(rows: Rows, k: int) -> np.ndarray:
    """(d, k) zeros, for `add_transposed_times`."""
    return np.zeros((rows.d, k)) if rows.is_sparse else np.zeros((k, rows.d)).T


def add_transposed_times(rows: Rows, G: np.ndarray, start: int, out: np.ndarray) -> None:
    """Adds X'G to out (d, k), of rows X (m, d) from start on and G (m, k)."""
    G = np.ascontiguousarray(G, np.float64)
    if isinstance(rows.X, np.ndarray):
        _dense_transposed_times(rows.X[start : start + len(G)], G, out.T)
    else:
        _csr_transposed_times(*_csr(rows, start, start + len(G)), G, out)


def dense_transposed_times(X: np.ndarray, G: np.ndarray) -> np.ndarray:
    """X'G of an array X (m, d)."""
    out = np.zeros((G.shape[1], X.shape[1]))
    _dense_transposed_times(X, np.ascontiguousarray(G, np.float64), out)
    return out.T


def _csr(rows: Rows, start: int, stop: int | None) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """indptr of these rows alone; indices and data of all, into which it points."""
    X: Any = rows.X
    return X.indptr[start : None if stop is None else stop + 1], X.indices, X.data


@njit(cache=True, fastmath={"reassoc", "contract"})
def _dense_times(X, WT, plus, out):
    m, k = len(X), len(WT)
    for i in range(0, m - 1, 2):
        for c in range(0, k - 1, 2):  # two of each at a time: an entry is read and made a float64 half as often
            e = f = g = h = 0.0
            for j in range(X.shape[1]):
                e += X[i, j] * WT[c, j]
                f += X[i, j] * WT[c + 1, j]
                g += X[i + 1, j] * WT[c, j]
                h += X[i + 1, j] * WT[c + 1, j]
            out[i, c], out[i, c + 1] = e + plus[c], f + plus[c + 1]
            out[i + 1, c], out[i + 1, c + 1] = g + plus[c], h + plus[c + 1]
    for i in range(m):
        for c in range(k - k % 2 if i < m - m % 2 else 0, k):
            f = 0.0
            for j in range(X.shape[1]):
                f += X[i, j] * WT[c, j]
            out[i, c] = f + plus[c]


@njit(cache=True, fastmath={"reassoc", "contract"})
def _dense_transposed_times(X, G, out):
    for i in range(len(X)):
        for c in range(len(out)):
            g = G[i, c]
            if g != 0.0:
                for j in range(X.shape[1]):
                    out[c, j] += g * X[i, j]


@njit(cache=True, fastmath={"reassoc", "contract"})
def _csr_times(indptr, indices, data, W, plus, out):
    k = W.shape[1]
    for i in range(len(indptr) - 1):
        if k == 1:  # a sum in a register
            f = 0.0
            for j in range(indptr[i], indptr[i + 1]):
                f += data[j] * W[indices[j], 0]
            out[i, 0] = f + plus[0]
            continue
        if k == 2:
            f = g = 0.0
            for j in range(indptr[i], indptr[i + 1]):
                f += data[j] * W[indices[j], 0]
                g += data[j] * W[indices[j], 1]
            out[i, 0], out[i, 1] = f + plus[0], g + plus[1]
            continue
        for c in range(k):  # out[i] = plus takes two seconds to compile
            out[i, c] = plus[c]
        for j in range(indptr[i], indptr[i + 1]):
            column = indices[j]
            for c in range(k):
                out[i, c] += data[j] * W[column, c]


@njit(cache=True, fastmath={"reassoc", "contract"})
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
