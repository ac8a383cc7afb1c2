"""Values of rows with supports, kernel values from them, and the loops over vectors of the steps. Functions that only
compiled code calls have no separate cache: they are cached with their callers."""

from __future__ import annotations

import numpy as np

from streamsvm.private.numba import njit, njit_inner

TILE = 16  # values in a line of the cache


@njit(cache=True, fastmath=True)
def exponents_of_row(X, T, norms, n, x, gamma, W):
    """Fills W (slots, 1) with gamma |s_j - x|^2 for one row x (d,). X, T: as in `Supports`."""
    exponents_from(X, T, norms, x, gamma, W.ravel()[:n])


@njit_inner(fastmath=True)
def exponents_from(X, T, norms, x, gamma, out):
    norm, two = np.float32(0), np.float32(2)
    for r in range(len(x)):
        norm += x[r] * x[r]
    if len(T):
        _products(T, x, out)
    else:
        for j in range(len(out)):
            s, product = X[j], np.float32(0)
            for r in range(len(x)):
                product += s[r] * x[r]
            out[j] = product
    for j in range(len(out)):
        out[j] = max(gamma * (norms[j] + norm - two * out[j]), np.float32(0))


@njit_inner(fastmath=True)
def _products(T, x, out):  # T'x, four rows of T at a time
    d, n = len(x), len(out)
    for j in range(n):
        out[j] = 0
    for r in range(0, d - 3, 4):
        a, b, c, e = T[r], T[r + 1], T[r + 2], T[r + 3]
        x0, x1, x2, x3 = x[r], x[r + 1], x[r + 2], x[r + 3]
        for j in range(n):
            out[j] += x0 * a[j] + x1 * b[j] + x2 * c[j] + x3 * e[j]
    for r in range(d - d % 4, d):
        a, x0 = T[r], x[r]
        for j in range(n):
            out[j] += x0 * a[j]


@njit_inner()
def exponents_of_support(s, p, gamma, since, out):
    """gamma |s_p - s_j|^2, or K(s_p, s_j) from the array `values`, with the first n supports, into out (n,)."""
    n = len(out)
    if len(s.T):
        exponents_from(s.X, s.T, s.norms, s.X[p], gamma, out)
        out[p] = 0
    else:
        refresh(s.values, s.born, p, n, since)
        copy(out, s.values[p, :n])


@njit(cache=True)
def sq_norms(X):
    """(m,) float32 of rows X (m, d)."""
    out = np.empty(len(X), np.float32)
    for i in range(len(X)):
        out[i] = dot(X[i], X[i])
    return out


@njit(cache=True, fastmath=True, error_model="numpy")
def exponents(products, a_norms, b_norms, gamma):
    """Inner products (m, q) -> gamma |a - b|^2, in place."""
    (m, q), two = products.shape, np.float32(2)
    for i in range(m):
        row, norm = products[i], a_norms[i]
        for j in range(q):
            row[j] = max(gamma * (norm + b_norms[j] - two * row[j]), np.float32(0))


@njit(cache=True)
def decide(W, n, A, F, rbf):
    """F (k, b) = sum_j A_j K(s_j, x) from values W (slots, b)."""
    F[:] = 0
    if W.shape[1] > 1:
        for j in range(n):
            add_to(F, A[j], W[j], np.int64(0), rbf, 1.0)
        return
    K = np.empty(n, np.float32)  # of one row with all supports at once
    kernel_values(W.ravel()[:n], rbf, K)
    for c in range(len(F)):
        F[c, 0] = weighted(A, c, K)


@njit_inner(fastmath=True)
def weighted(A, c, K):  # sum_j A_jc K_j
    total = 0.0
    for j in range(len(K)):
        total += A[j, c] * K[j]
    return total


@njit_inner(fastmath=True)
def exponents_after(block, i, gamma, out):  # gamma |x_i - x_j|^2 for j >= i
    for j in range(i, len(block)):
        x, y, square = block[i], block[j], np.float32(0)
        for r in range(len(x)):
            square += (x[r] - y[r]) * (x[r] - y[r])
        out[j] = gamma * square


@njit_inner(fastmath=True, error_model="numpy")
def kernel_values(values, rbf, out):  # K of a row's values; exp as in `kernels.epilogues.rbf`
    if not rbf:
        for j in range(len(values)):
            out[j] = values[j]
        return
    bits = out.view(np.int32)
    for j in range(len(values)):
        x = max(np.float32(-1.4426950408889634) * values[j], np.float32(-127))
        whole = np.floor(x + np.float32(0.5))
        f = x - whole
        p = np.float32(1.32647271e-3)
        p = p * f + np.float32(9.67151264e-3)
        p = p * f + np.float32(5.55073374e-2)
        p = p * f + np.float32(2.40222421e-1)
        p = p * f + np.float32(6.93146978e-1)
        out[j] = p * f + np.float32(1)
        bits[j] += np.int32(whole) << 23


@njit_inner(fastmath=True)
def add_to(F, a, values, first, rbf, sign):  # F[:, first:] += sign a K(values)
    if first == len(values):
        return
    later = values[first:]  # so that loops begin at 0: numba checks other indices for negative ones
    K = np.empty(len(later), np.float32)
    kernel_values(later, rbf, K)
    for c in range(len(a)):
        factor, row = sign * a[c], F[c, first:]
        if factor != 0:
            for j in range(len(later)):
                row[j] += factor * K[j]


@njit_inner(fastmath=True)
def dot(a, b):
    total = 0.0
    for c in range(len(a)):
        total += a[c] * b[c]
    return total


@njit_inner(fastmath=True)
def add_scaled(out, factor, row):
    for j in range(len(out)):
        out[j] += factor * row[j]


@njit_inner()
def scale(out, factor):
    for j in range(len(out)):
        out[j] *= factor


@njit_inner()
def copy(out, row):
    for j in range(len(out)):
        out[j] = row[j]


@njit_inner()
def refresh(values, born, p, n, since):
    """Completes the row of support p: values with supports born after `since` are in their rows only."""
    last = max(born[p], since)
    for j in range(n):
        if born[j] > last:
            values[p, j] = values[j, p]


@njit_inner()
def mirror(values, born, n, since):
    """Fills the columns of supports born after `since` from their rows: all at once, as each entry of a column is a
    cache miss."""
    new = np.flatnonzero(born[:n] > since)
    for j in range(n):
        row, age = values[j], born[j]
        for q in new:
            if age <= since or born[q] > age:
                row[q] = values[q, j]


@njit(cache=True)
def transpose(W, n, ids, out):
    """The columns `ids` of the first n rows of W, as rows of out (len(ids), n); in tiles that stay in the cache."""
    for start in range(0, n, TILE):
        stop = min(n, start + TILE)
        for k in range(len(ids)):
            for j in range(start, stop):
                out[k, j] = W[j, ids[k]]
