"""Kernel values from a tile of inner products, float32 in place: one compiled loop for each kernel, and |a-b|_1.

Exponentials are 2^x = 2^n 2^f with |f| <= 1/2, n added to the exponent bits, which makes 2^-127 0: loops of them run
on vectors, math.exp does not."""

from __future__ import annotations

import math

import numpy as np

from streamsvm.private.numba import njit, njit_inner

NEAR = 2.0**-21  # of |a|^2 + |b|^2: a smaller squared distance is rounding of float32, and counts as 0
LOG2_E = 1.4426950408889634
TAYLOR = tuple(math.log(2) ** k / math.factorial(k) for k in range(13, -1, -1))  # of 2^f: to 6e-18 for |f| <= 1/2


@njit(cache=True, fastmath=True, error_model="numpy")
def rbf(tile, a_norms, b_norms, gamma):  # inner products (m, q) -> exp(-gamma |a - b|^2), in place
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


@njit(cache=True, fastmath=True, error_model="numpy")
def rbf_float64(tile, a_norms, b_norms, gamma):  # as rbf, in float64: a relative error of about 1e-15
    m, q = tile.shape
    bits = tile.view(np.int64)
    exponents = np.empty(q, np.int64)
    for i in range(m):
        row, row_bits, norm = tile[i], bits[i], a_norms[i]
        for j in range(q):
            sq = max(norm + b_norms[j] - 2.0 * row[j], 0.0)
            x = max(-LOG2_E * gamma * sq, -1021.0)
            n = np.floor(x + 0.5)
            f = x - n
            p = TAYLOR[0]
            for k in range(1, len(TAYLOR)):
                p = p * f + TAYLOR[k]
            row[j] = p
            exponents[j] = np.int64(n) << 52
        for j in range(q):
            row_bits[j] += exponents[j]


@njit(cache=True, fastmath=True, error_model="numpy")
def poly(tile, gamma, coef0, degree):  # inner products -> (gamma t + coef0)^degree, in place
    flat = tile.reshape(-1)
    for i in range(len(flat)):
        base = gamma * flat[i] + coef0
        power = np.float32(1)
        for _ in range(degree):
            power *= base
        flat[i] = power


@njit(cache=True, fastmath=True, error_model="numpy")
def cauchy(tile, a_norms, b_norms, gamma):  # inner products (m, q) -> 1 / (1 + gamma |a - b|^2)
    m, q = tile.shape
    for i in range(m):
        row, norm = tile[i], a_norms[i]
        for j in range(q):
            sq = max(norm + b_norms[j] - np.float32(2) * row[j], np.float32(0))
            row[j] = np.float32(1) / (np.float32(1) + gamma * sq)


@njit(cache=True, fastmath=True, error_model="numpy")
def matern(tile, a_norms, b_norms, rate, first, second):
    """Inner products (m, q) -> (1 + first s + second s^2) exp(-s), s = rate |a - b|, in place."""
    m, q = tile.shape
    bits = tile.view(np.int32)
    exponents, factors = np.empty(q, np.int32), np.empty(q, np.float32)
    for i in range(m):
        row, norm = tile[i], a_norms[i]
        for j in range(q):
            s = rate * np.sqrt(_sq_distance(norm + b_norms[j], row[j]))
            factors[j] = np.float32(1) + s * (first + second * s)
            row[j] = -s
        _exp(row, bits[i], exponents)
        for j in range(q):
            row[j] *= factors[j]


@njit(cache=True, fastmath=True, error_model="numpy")
def matern_edge(tile, a_norms, b_norms, rate):  # inner products -> exp(-s) / s, 0 where the distance is 0
    m, q = tile.shape
    bits = tile.view(np.int32)
    exponents, factors = np.empty(q, np.int32), np.empty(q, np.float32)
    for i in range(m):
        row, norm = tile[i], a_norms[i]
        for j in range(q):
            sq = _sq_distance(norm + b_norms[j], row[j])
            differs = sq > np.float32(0)
            s = rate * np.sqrt(sq if differs else np.float32(1))
            factors[j] = np.float32(1) / s if differs else np.float32(0)
            row[j] = -s
        _exp(row, bits[i], exponents)
        for j in range(q):
            row[j] *= factors[j]


@njit_inner(fastmath=True, error_model="numpy")
def _sq_distance(norms, inner):  # |a|^2 + |b|^2 and a'b -> |a - b|^2, 0 where that is rounding
    sq = norms - np.float32(2) * inner
    return sq if sq > np.float32(NEAR) * norms else np.float32(0)


@njit(cache=True, fastmath=True, error_model="numpy")
def sigmoid(tile, gamma, coef0):  # inner products -> tanh(gamma t + coef0)
    m, q = tile.shape
    bits = tile.view(np.int32)
    exponents, sign = np.empty(q, np.int32), np.empty(q, np.float32)
    for i in range(m):
        row = tile[i]
        for j in range(q):
            t = gamma * row[j] + coef0
            sign[j] = np.float32(-1) if t < np.float32(0) else np.float32(1)
            row[j] = np.float32(-2) * abs(t)
        _exp(row, bits[i], exponents)
        for j in range(q):
            row[j] = sign[j] * (np.float32(1) - row[j]) / (np.float32(1) + row[j])


@njit(cache=True, fastmath=True, error_model="numpy")
def laplacian(tile, gamma):  # |a - b|_1 -> exp(-gamma |a - b|_1)
    m, q = tile.shape
    bits = tile.view(np.int32)
    exponents = np.empty(q, np.int32)
    for i in range(m):
        row = tile[i]
        for j in range(q):
            row[j] *= -gamma
        _exp(row, bits[i], exponents)


@njit_inner(fastmath=True, error_model="numpy")
def _exp(row, bits, exponents):  # exp in place, as in rbf
    for j in range(len(row)):
        x = max(np.float32(LOG2_E) * row[j], np.float32(-127))
        n = np.floor(x + np.float32(0.5))
        f = x - n
        p = np.float32(1.32647271e-3)
        p = p * f + np.float32(9.67151264e-3)
        p = p * f + np.float32(5.55073374e-2)
        p = p * f + np.float32(2.40222421e-1)
        p = p * f + np.float32(6.93146978e-1)
        row[j] = p * f + np.float32(1)
        exponents[j] = np.int32(n) << 23
    for j in range(len(row)):
        bits[j] += exponents[j]


@njit(cache=True, fastmath=True)
def l1_dense(X, right, out):  # out (m, q) = |a - b|_1 of X (m, d) and right (d, q)
    # four rows and four features a pass: what is loaded serves several sums
    m, d = X.shape
    q = out.shape[1]
    out[:] = 0
    rows, features = m // 4 * 4, d // 4 * 4
    for i in range(0, rows, 4):
        A, B, C, D = out[i], out[i + 1], out[i + 2], out[i + 3]
        for k in range(0, features, 4):
            R, S, T, U = right[k], right[k + 1], right[k + 2], right[k + 3]
            a0, a1, a2, a3 = X[i, k], X[i, k + 1], X[i, k + 2], X[i, k + 3]
            b0, b1, b2, b3 = X[i + 1, k], X[i + 1, k + 1], X[i + 1, k + 2], X[i + 1, k + 3]
            c0, c1, c2, c3 = X[i + 2, k], X[i + 2, k + 1], X[i + 2, k + 2], X[i + 2, k + 3]
            d0, d1, d2, d3 = X[i + 3, k], X[i + 3, k + 1], X[i + 3, k + 2], X[i + 3, k + 3]
            for j in range(q):
                r, s, t, u = R[j], S[j], T[j], U[j]
                A[j] += abs(a0 - r) + abs(a1 - s) + abs(a2 - t) + abs(a3 - u)
                B[j] += abs(b0 - r) + abs(b1 - s) + abs(b2 - t) + abs(b3 - u)
                C[j] += abs(c0 - r) + abs(c1 - s) + abs(c2 - t) + abs(c3 - u)
                D[j] += abs(d0 - r) + abs(d1 - s) + abs(d2 - t) + abs(d3 - u)
    for i in range(m):
        row = out[i]
        for k in range(features if i < rows else 0, d):
            value, R = X[i, k], right[k]
            for j in range(q):
                row[j] += abs(value - R[j])


@njit(cache=True, fastmath=True)
def l1_rows(indptr, indices, data, right, out):  # |a - b|_1 of CSR (m, d) and right (d, q); out starts as |b|_1
    for i in range(len(out)):
        row = out[i]
        for p in range(indptr[i], indptr[i + 1]):
            value, R = data[p], right[indices[p]]
            for j in range(len(row)):
                row[j] += abs(value - R[j]) - abs(R[j])


@njit(cache=True, fastmath=True)
def l1_scatter(indptr, indices, data, right_indptr, right_indices, right_data, out):
    """|a - b|_1 of CSR (m, d) and, by features, right (d, q); out starts as |a|_1 + |b|_1."""
    for i in range(len(out)):
        row = out[i]
        for p in range(indptr[i], indptr[i + 1]):
            k, value = indices[p], data[p]
            for r in range(right_indptr[k], right_indptr[k + 1]):
                other = right_data[r]
                row[right_indices[r]] += abs(value - other) - abs(value) - abs(other)


@njit(cache=True, fastmath=True)
def l1_signs(tile, coef, X, right, out):
    # out (k, m, d) = sum_j coef[:, j] tile[:, j] sign(a - b_j) of coef (k, q), X (m, d) and right (d, q); rows b
    # without a coefficient take no time
    for c in range(len(coef)):
        ids = np.flatnonzero(coef[c])
        weighted, rows = np.empty((len(tile), len(ids)), np.float32), np.empty((len(right), len(ids)), np.float32)
        for i in range(len(tile)):
            for p in range(len(ids)):
                weighted[i, p] = coef[c, ids[p]] * tile[i, ids[p]]
        for k in range(len(right)):
            for p in range(len(ids)):
                rows[k, p] = right[k, ids[p]]
        _sum_signs(weighted, X, rows, out[c])


@njit_inner(fastmath=True)
def _sum_signs(tile, X, right, out):  # out (m, d) = sum_j tile[:, j] sign(a - b_j) of X (m, d) and right (d, q)
    # X and right are times 2^60, so that a difference clipped to [-1, 1] is its sign, which takes less time than two
    # comparisons. Two rows and four features a pass (d is a multiple of four): sums stay in registers
    m, d = X.shape
    one, none = np.float32(1), np.float32(0)
    for k in range(0, d, 4):
        R, S, T, U = right[k], right[k + 1], right[k + 2], right[k + 3]
        for i in range(0, m, 2):
            other = min(i + 1, m - 1)  # the last of an odd number is paired with itself
            v, w = tile[i], tile[other]
            a0, a1, a2, a3 = X[i, k], X[i, k + 1], X[i, k + 2], X[i, k + 3]
            b0, b1, b2, b3 = X[other, k], X[other, k + 1], X[other, k + 2], X[other, k + 3]
            p0, p1, p2, p3, q0, q1, q2, q3 = none, none, none, none, none, none, none, none
            for j in range(len(R)):
                x, y = v[j], w[j]
                p0 += x * max(min(a0 - R[j], one), -one)
                p1 += x * max(min(a1 - S[j], one), -one)
                p2 += x * max(min(a2 - T[j], one), -one)
                p3 += x * max(min(a3 - U[j], one), -one)
                q0 += y * max(min(b0 - R[j], one), -one)
                q1 += y * max(min(b1 - S[j], one), -one)
                q2 += y * max(min(b2 - T[j], one), -one)
                q3 += y * max(min(b3 - U[j], one), -one)
            out[i, k], out[i, k + 1], out[i, k + 2], out[i, k + 3] = p0, p1, p2, p3
            out[other, k], out[other, k + 1], out[other, k + 2], out[other, k + 3] = q0, q1, q2, q3


@njit(cache=True, fastmath=True)
def l1_sign_columns(tile, X, right, signs, out):
    # as l1_signs, transposed: tile (q, m), X the (indptr, indices, data) of rows b by features, right (d, m) rows a
    # times 2^60, and signs (d, m) theirs; out (d, m) starts as sum_j tile[j] sign(a), which holds where b is 0
    indptr, indices, data = X
    one = np.float32(1)
    for k in range(len(out)):
        A, sign_a, sums = right[k], signs[k], out[k]
        start, stop = indptr[k], indptr[k + 1]
        fours = start + (stop - start) // 4 * 4
        for p in range(start, fours, 4):  # what is loaded serves several sums
            b, c, d, e = data[p], data[p + 1], data[p + 2], data[p + 3]
            r, s, t, u = tile[indices[p]], tile[indices[p + 1]], tile[indices[p + 2]], tile[indices[p + 3]]
            for i in range(len(A)):
                a, sign = A[i], sign_a[i]
                x = r[i] * (max(min(a - b, one), -one) - sign) + s[i] * (max(min(a - c, one), -one) - sign)
                y = t[i] * (max(min(a - d, one), -one) - sign) + u[i] * (max(min(a - e, one), -one) - sign)
                sums[i] += x + y
        for p in range(fours, stop):
            b, row = data[p], tile[indices[p]]
            for i in range(len(A)):
                sums[i] += row[i] * (max(min(A[i] - b, one), -one) - sign_a[i])
