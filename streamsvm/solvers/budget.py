"""Budget maintenance and the sequential steps of budgeted SGD, on numbers alone.

A support set s_1..s_n with coefficients A (n, k) stands for f_c(x) = sum_j A_jc K(s_j, x). All that the steps need
of the vectors are "values": gamma |a - b|^2 for rbf, K(a, b) for the other kernels. Values between supports, between
supports and the rows of a block, and inside the block are known before the first step. A new support brings its
values along; for a merged point z = sum_i c_i s_i, sum_i c_i = 1,

    |z - x|^2 = sum_i c_i |s_i - x|^2 - 1/2 sum_ij c_i c_j |s_i - s_j|^2,

so no kernel is ever evaluated on vectors (Wang, Crammer and Vucetic 2012; Qaadan and Glasmachers 2018).

A first fit waits for the compiler. So what a strategy does not need is None, whose branches numba leaves out, and
literal arguments have a type, np.int64(0): numba would compile a function anew for a literal 0 or True.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numba as nb
import numpy as np

GRID = 400  # nodes of the merge table each way (Glasmachers and Qaadan 2018)
STEPS, SUPPORTS, EVENTS, NANOSECONDS, BORN = range(5)  # counts (int64)
FREE = 0  # what is born later counts from 1
DEGRADATION, GRADIENT_ERROR = range(2)  # sums (float64)


def merge_weight(m: np.ndarray, kappa: np.ndarray, rounds: int = 40) -> np.ndarray:
    """h in [1/2, 1] for m in [1/2, 1]: the point z = h p + (1-h) q that keeps most of a_p phi(p) + a_q phi(q).

    Maximises m kappa^((1-h)^2) + (1-m) kappa^(h^2), m = a_p / (a_p + a_q), by golden section search; from 1/2 on there
    is one maximum only.
    """
    golden, kappa = (np.sqrt(5) - 1) / 2, np.maximum(kappa, 1e-12)  # 0 would keep nothing but h = 1 itself
    low, high = np.full(np.broadcast(m, kappa).shape, 0.5), np.ones(np.broadcast(m, kappa).shape)
    for _ in range(rounds):
        left, right = high - golden * (high - low), low + golden * (high - low)
        up = _kept(left, m, kappa) < _kept(right, m, kappa)
        low, high = np.where(up, left, low), np.where(up, high, right)
    return (low + high) / 2


def _kept(h: np.ndarray, m: np.ndarray, kappa: np.ndarray) -> np.ndarray:
    return m * kappa ** ((1 - h) ** 2) + (1 - m) * kappa ** (h**2)


@lru_cache(maxsize=1)
def merge_tables() -> np.ndarray:
    """merge_weight, and what the merge loses of a_p = m, a_q = 1 - m, over a grid; (2, GRID, GRID) float32.

    Rows are m in [1/2, 1], columns kappa in [0, 1]. h jumps at m = 1/2 where kappa < e^-2: the tables end there, the
    other half is their mirror image.
    """
    m, kappa = np.linspace(0.5, 1, GRID)[:, None], np.linspace(0, 1, GRID)
    h = merge_weight(m, kappa)
    lost = m**2 + (1 - m) ** 2 + 2 * m * (1 - m) * kappa - _kept(h, m, kappa) ** 2
    return np.stack([h, np.maximum(lost, 0)]).astype(np.float32)


@nb.njit(nogil=True, cache=True)
def steps(
    X,
    norms,
    D,
    born,
    A,
    U,
    bias,
    block,
    W,
    entries,
    V,
    F,
    Y,
    weight,
    counts,
    sums,
    tables,
    together,
    projects,
    options,
    decisions,
):
    """One SGD step for each row of a block, in order; all arrays but the block's own are the learner's and change.

    forced, of options: no steps, but rows that become supports whose coefficients are Y.

    X (slots, d) supports, norms (slots,) their squared norms, D (slots, slots) their values, born (slots,) their ages,
    A and U (slots, k) coefficients and what averaging needs (k or 0 columns), bias (k,); coefficients stand for
    A / (lambda t).
    tables: `merge_tables` where supports are merged, else None. together: True where all merge at once, projects: where
    the weakest is projected on the others; else None. What is None is not compiled.
    block (b, d) rows, W (slots, b) values with the supports, V[entries[i]] of row i with itself and those after it
    (entries[i] = -1: not known yet), F (k, b) sum_j A_j K(s_j, x); Y (b, k) -1 or +1, weight (b,) of the loss.
    decisions (b, k): of each row before its step.
    """
    lam, merges, budget, use_bias, rbf, gamma, forced = options
    b, k = Y.shape
    delta = np.empty(k)
    top = counts[SUPPORTS]  # slots in use, or free again in this block
    for i in range(b):
        t = counts[STEPS]
        scale = 1 / (lam * t) if t > 0 else 0.0
        violated = False
        for c in range(k):
            f = scale * (F[c, i] + bias[c])
            decisions[i, c] = f
            delta[c] = Y[i, c] * weight[i] if forced or Y[i, c] * f < 1 else 0.0
            violated |= delta[c] != 0
        counts[STEPS] = t if forced else t + 1
        if violated:
            if use_bias:
                _add_scaled(bias, 1.0, delta)
            slot = top
            if counts[SUPPORTS] < top:
                slot = 0
                while born[slot] != FREE:
                    slot += 1
            else:
                top += 1
            if entries[i] < 0:
                _exponents_after(block, i, gamma, W[slot])
            else:
                _copy(W[slot, i:], V[entries[i], i:])
            counts[SUPPORTS] += 1
            counts[BORN] += 1
            born[slot] = counts[BORN]
            _insert(X, norms, D, A, U, block, W, i, delta, t, slot, top)
            _add_to(F, A[slot], W[slot], i + 1, rbf, 1.0)
            if counts[SUPPORTS] > budget:
                lost = _maintain(
                    X, norms, D, born, A, U, W, F, i + 1, tables, together, projects, merges, rbf, counts
                )
                counts[EVENTS] += 1
                sums[DEGRADATION] += lost / (lam * (t + 1)) ** 2
                sums[GRADIENT_ERROR] += np.sqrt(lost)
    _close_up(X, norms, D, born, A, U, top)


@nb.njit(nogil=True, fastmath=True, cache=True)
def exponents_of_row(X, norms, n, x, gamma, W):
    """Fills W (slots, 1) with gamma |s_j - x|^2 for one row x (d,)."""
    own = np.float32(0)
    for r in range(len(x)):
        own += x[r] * x[r]
    for j in range(n):
        s, dot = X[j], np.float32(0)
        for r in range(len(x)):
            dot += s[r] * x[r]
        W[j, 0] = max(gamma * (norms[j] + own - 2 * dot), np.float32(0))


@nb.njit(nogil=True, cache=True)
def sq_norms(X):
    """(m,) float32 of rows X (m, d)."""
    out = np.empty(len(X), np.float32)
    for i in range(len(X)):
        out[i] = _dot(X[i], X[i])
    return out


@nb.njit(nogil=True, fastmath=True, cache=True)
def _exponents_after(block, i, gamma, out):  # gamma |x_i - x_j|^2 for j >= i
    for j in range(i, len(block)):
        x, y, square = block[i], block[j], np.float32(0)
        for r in range(len(x)):
            square += (x[r] - y[r]) * (x[r] - y[r])
        out[j] = gamma * square


@nb.njit(nogil=True, fastmath=True, cache=True, error_model="numpy")
def exponents(products, a_norms, b_norms, gamma):
    """Inner products (m, q) -> gamma |a - b|^2, in place."""
    m, q = products.shape
    for i in range(m):
        row, norm = products[i], a_norms[i]
        for j in range(q):
            row[j] = max(gamma * (norm + b_norms[j] - 2 * row[j]), np.float32(0))


@nb.njit(nogil=True, cache=True)
def decide(W, n, A, F, rbf):
    """F (k, b) = sum_j A_j K(s_j, x) from values W (slots, b)."""
    F[:] = 0
    if W.shape[1] > 1:
        for j in range(n):
            _add_to(F, A[j], W[j], np.int64(0), rbf, 1.0)
        return
    K = np.empty(n, np.float32)  # of one row with all supports at once
    _kernel_values(W.ravel()[:n], rbf, K)
    for j in range(n):
        for c in range(len(F)):
            F[c, 0] += A[j, c] * K[j]


@nb.njit(nogil=True, fastmath=True, cache=True, error_model="numpy")
def _kernel_values(values, rbf, out):  # K of a row's values; exp as in kernels._rbf
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


@nb.njit(nogil=True, fastmath=True, cache=True)
def _add_to(F, a, values, first, rbf, sign):  # F[:, first:] += sign a K(values)
    met = values[first:]  # loops that begin at 0: from another index on, each one might be negative
    K = np.empty(len(met), np.float32)
    _kernel_values(met, rbf, K)
    for c in range(len(a)):
        factor, row = sign * a[c], F[c, first:]
        if factor != 0:
            for j in range(len(met)):
                row[j] += factor * K[j]


@nb.njit(nogil=True, cache=True)
def _insert(X, norms, D, A, U, block, W, i, delta, t, slot, top):  # row i of the block becomes a support
    _copy(X[slot], block[i])
    norms[slot] = _dot(block[i], block[i])
    for j in range(top):
        D[slot, j] = W[j, i]
    _copy(A[slot], delta)
    for c in range(U.shape[1]):
        U[slot, c] = delta[c] * t


@nb.njit(nogil=True, cache=True)
def _maintain(X, norms, D, born, A, U, W, F, first, tables, together, projects, merges, rbf, counts):
    """Brings the supports back to the budget; returns the squared norm of what w lost, in units of A.

    All slots are in use when it begins. The oldest of equals goes first, so that the order of slots is all one.
    """
    n = counts[SUPPORTS]
    weakest: Any = np.int64(0)
    least, second = np.inf, np.inf
    for j in range(n):
        size = _dot(A[j], A[j])
        if size < least or (size == least and born[j] < born[weakest]):
            weakest, least, second = j, size, least
        elif size < second:
            second = size
    _refresh(D, born, weakest, n)
    if projects is not None:
        lost = _project(D, born, A, U, W, F, first, n, weakest, rbf)
    elif tables is not None:
        ids = _partners(D, born, A, n, weakest, tables, merges - 1)
        if len(ids) > 1:
            lost, merged = _merge(X, norms, D, born, A, U, W, F, first, n, ids, second, tables[0], together)
            counts[BORN] += 1
            born[weakest] = counts[BORN]
            for q in ids[1:merged]:
                born[q] = FREE
            counts[SUPPORTS] -= merged - 1
            return lost
        lost = _lose(D, A, W, F, first, weakest, rbf)  # nothing points its way
    else:
        lost = _lose(D, A, W, F, first, weakest, rbf)
    born[weakest] = FREE
    counts[SUPPORTS] -= 1
    return lost


@nb.njit(nogil=True, cache=True)
def _refresh(D, born, p, n):  # the whole row of support p
    for j in range(n):
        if born[j] > born[p]:
            D[p, j] = D[j, p]


@nb.njit(nogil=True, fastmath=True, cache=True)
def _dot(a, b):
    total = 0.0
    for c in range(len(a)):
        total += a[c] * b[c]
    return total


@nb.njit(nogil=True, fastmath=True, cache=True)
def _add_scaled(out, factor, row):
    for j in range(len(out)):
        out[j] += factor * row[j]


@nb.njit(nogil=True, cache=True)
def _scale(out, factor):
    for j in range(len(out)):
        out[j] *= factor


@nb.njit(nogil=True, cache=True)
def _copy(out, row):
    for j in range(len(out)):
        out[j] = row[j]


@nb.njit(nogil=True, cache=True)
def _lookup(table, m, kappa):  # bilinear; the weight of the larger coefficient, m >= 1/2
    size = len(table) - 1
    x, y = min(max(2 * m - 1, 0.0), 1.0) * size, min(max(kappa, 0.0), 1.0) * size
    i, j = min(int(x), size - 1), min(int(y), size - 1)
    u, v = x - i, y - j
    low = (1 - v) * table[i, j] + v * table[i, j + 1]
    high = (1 - v) * table[i + 1, j] + v * table[i + 1, j + 1]
    return (1 - u) * low + u * high


@nb.njit(nogil=True, cache=True)
def _weight(table, a, b, kappa):  # h of z = h p + (1-h) q, for sizes a of p and b of q
    if a >= b:
        return _lookup(table, a / (a + b), kappa)
    return 1 - _lookup(table, b / (a + b), kappa)


@nb.njit(nogil=True, cache=True)
def _partners(D, born, A, n, p, tables, count):
    """p, and the supports that lose least when merged with it, among those that point the same way; best first."""
    K = np.empty(n, np.float32)
    _kernel_values(D[p, :n], np.bool_(True), K)
    a, size = A[p], np.sqrt(_dot(A[p], A[p]))
    lost = np.empty(n)
    for j in range(n):
        lost[j] = np.inf
    if len(a) == 1:
        for j in range(n):
            if j != p and a[0] * A[j, 0] > 0:
                both = size + abs(A[j, 0])
                lost[j] = (
                    both * both * _lookup(tables[1], abs(A[j, 0]) / both, np.float64(K[j]))
                )  # p is the smallest
    else:
        _lost_with(D[p], A, n, p, K, tables[0], lost)
    chosen = np.empty(1 + count, np.int64)
    chosen[0] = p
    found = 1
    while found <= count:
        best = 0
        for j in range(n):
            if lost[j] < lost[best] or (lost[j] == lost[best] and born[j] < born[best]):
                best = j
        if lost[best] == np.inf:
            break
        chosen[found] = best
        lost[best] = np.inf
        found += 1
    return chosen[:found]


@nb.njit(nogil=True, cache=True)
def _lost_with(distances, A, n, p, K, table, lost):  # the same for coefficients that are vectors
    a, aa = A[p], _dot(A[p], A[p])
    for j in range(n):
        ab, bb = _dot(a, A[j]), _dot(A[j], A[j])
        size, other = np.sqrt(aa), np.sqrt(bb)
        if j != p and ab > 1e-9 * size * other:  # nearly orthogonal is by rounding alone
            h = 1 - _lookup(table, other / (size + other), np.float64(K[j]))
            kp, kq = np.exp(-((1 - h) ** 2) * distances[j]), np.exp(-h * h * distances[j])
            lost[j] = aa * (1 - kp * kp) + bb * (1 - kq * kq) + 2 * ab * (K[j] - kp * kq)


@nb.njit(nogil=True, cache=True)
def _merge(X, norms, D, born, A, U, W, F, first, n, ids, bearable, table, together):
    """Puts one point in place of the first of the supports `ids`, at ids[0]; the others stay in their slots.

    Returns what that loses, and how many have become one.
    """
    size, k = len(ids), A.shape[1]
    for q in ids:
        _refresh(D, born, q, n)
    S, a = np.empty((size, size)), np.empty((size, k))
    for i in range(size):
        _copy(a[i], A[ids[i]])
        for j in range(size):
            S[i, j] = D[ids[i], ids[j]]
    c = _in_sequence(S, a, bearable, table)
    size, ids = len(c), ids[: len(c)]
    if together is not None:
        c = _together(S, a[:size])
    distances, spread = _to_mix(S, c)
    merged, merged_U, lost = np.zeros(k), np.zeros(U.shape[1]), 0.0
    for i in range(size):
        kept = np.exp(-distances[i])
        _add_scaled(merged, kept, a[i])
        _add_scaled(merged_U, kept, U[ids[i]])
        for j in range(size):
            lost += _dot(a[i], a[j]) * np.exp(-S[i, j])
    for q in ids:
        _add_to(F, A[q], W[q], first, np.bool_(True), -1.0)
    _combine(D, np.int64(0), n, ids, c, spread)
    _combine(W, first, np.int64(W.shape[1]), ids, c, spread)
    _combine(X, np.int64(0), np.int64(X.shape[1]), ids, c, -np.inf)
    z = ids[0]
    norms[z] = _dot(X[z], X[z])
    D[z, z] = 0
    _copy(A[z], merged)
    _copy(U[z], merged_U)
    _add_to(F, A[z], W[z], first, np.bool_(True), 1.0)
    return max(lost - _dot(merged, merged), 0.0), size


@nb.njit(nogil=True, fastmath=True, cache=True)
def _combine(rows, start, stop, ids, c, spread):
    """rows[ids[0]] = max(sum_i c_i rows[ids[i]] - spread, 0) from start to stop; without the bound for -inf."""
    out = rows[ids[0], start:stop]
    bounded = spread > -1e300
    first = np.float32(c[0])
    for j in range(len(out)):
        out[j] *= first
    for i in range(1, len(ids)):
        row, weight = rows[ids[i], start:stop], np.float32(c[i])
        for j in range(len(out)):
            out[j] += weight * row[j]
    if bounded:
        shift = np.float32(spread)
        for j in range(len(out)):
            out[j] = max(out[j] - shift, np.float32(0))


@nb.njit(nogil=True, cache=True)
def _in_sequence(S, a, bearable, table):
    """Weights of a sequence of binary merges, in order (Qaadan and Glasmachers 2018, algorithm 1).

    Partners are near the first point, but perhaps not near each other. The sequence ends before a merge that loses
    more than is bearable: the squared size of the second weakest support, which the next maintenance can give up
    instead. On MNIST, where points are far apart, 3 points at once are as accurate as 2 that way.
    """
    size = len(S)
    c = np.zeros(size)
    c[0] = 1
    z, both = a[0].copy(), a[0].copy()
    for q in range(1, size):
        distance = 0.0
        for i in range(q):
            distance += c[i] * S[i, q]
            for j in range(q):
                distance -= 0.5 * c[i] * c[j] * S[i, j]
        distance = max(distance, 0.0)
        zz, zq, qq, kappa = _dot(z, z), _dot(z, a[q]), _dot(a[q], a[q]), np.exp(-distance)
        h = _weight(table, np.sqrt(zz), np.sqrt(qq), kappa)
        _copy(both, z)
        _scale(both, np.exp(-((1 - h) ** 2) * distance))
        _add_scaled(both, np.exp(-h * h * distance), a[q])
        if q > 1 and zz + qq + 2 * kappa * zq - _dot(both, both) > bearable:
            return c[:q]
        _scale(c, h)
        c[q] = 1 - h
        _copy(z, both)
    return c


@nb.njit(nogil=True, cache=True)
def _together(S, a):
    """Weights of the point that keeps most of sum_i a_i phi(s_i), by gradient ascent (algorithm 2).

    The gradient of |sum_i a_i k(s_i, z)|^2 leads from z to sum_i c_i s_i, c_i in proportion to (a_i'a_z) k(s_i, z).
    """
    size, kept = len(a), np.ones(len(a))
    c = _shares(a, kept)
    for _ in range(100):
        distances, _spread = _to_mix(S, c)
        for i in range(size):
            kept[i] = np.exp(-distances[i])
        new, moved, total = _shares(a, kept), 0.0, 0.0
        for i in range(size):
            moved, total = max(moved, abs(new[i] - c[i])), total + new[i]
        if not total > 0:  # too far apart: the point between them keeps nothing, the largest keeps itself
            largest = 0
            for i in range(size):
                largest = i if _dot(a[i], a[i]) > _dot(a[largest], a[largest]) else largest
            new[largest] = 1
            return new
        c = new
        if moved < 1e-6:
            break
    return c


@nb.njit(nogil=True, cache=True)
def _shares(a, kept):  # in proportion to kept_i a_i'z, z = sum_i kept_i a_i; all zero where z vanishes
    z, shares, total = np.zeros(a.shape[1]), np.empty(len(a)), 0.0
    for i in range(len(a)):
        _add_scaled(z, kept[i], a[i])
    for i in range(len(a)):
        shares[i] = kept[i] * max(_dot(a[i], z), 0.0)
        total += shares[i]
    _scale(shares, 1 / total if total > 1e-200 else 0.0)
    return shares


@nb.njit(nogil=True, cache=True)
def _to_mix(S, c):
    """Values of z = sum_i c_i s_i with each s_i, and 1/2 sum_ij c_i c_j S_ij."""
    distances, spread = np.zeros(len(c)), 0.0
    for i in range(len(c)):
        for j in range(len(c)):
            distances[i] += c[j] * S[i, j]
        spread += 0.5 * c[i] * distances[i]
    for i in range(len(c)):
        distances[i] = max(distances[i] - spread, 0.0)
    return distances, spread


@nb.njit(nogil=True, cache=True)
def _lose(D, A, W, F, first, p, rbf):  # forgets support p
    _add_to(F, A[p], W[p], first, rbf, -1.0)
    return _dot(A[p], A[p]) * (1.0 if rbf else max(np.float64(D[p, p]), 0.0))


@nb.njit(nogil=True, cache=True)
def _project(D, born, A, U, W, F, first, n, p, rbf):
    """Gives the others the coefficients that come closest to support p: K beta = k_p, by conjugate gradients.

    A ridge of 1e-4 of the mean diagonal keeps beta small where supports nearly coincide, and rounding out of it.
    """
    K, row, k_p = np.empty((n, n)), np.empty(n, np.float32), np.zeros(n)
    for j in range(n):
        _kernel_values(D[j, :n], rbf, row)
        for q in range(n):
            if born[j] >= born[q]:
                K[j, q] = K[q, j] = row[q]
    own, ridge = K[p, p], 0.0
    for j in range(n):
        ridge += 1e-4 * K[j, j] / n
    for j in range(n):
        k_p[j] = K[p, j] if j != p else 0.0
        K[p, j], K[j, p] = 0.0, 0.0
        K[j, j] += ridge
    beta, residual, direction = np.zeros(n), k_p.copy(), k_p.copy()
    square = _dot(residual, residual)
    goal = 1e-12 * square
    for _ in range(4 * n):
        image = _times(K, direction)
        curvature = _dot(direction, image)
        if square <= goal or curvature <= 0:
            break
        _add_scaled(beta, square / curvature, direction)
        _add_scaled(residual, -square / curvature, image)
        before, square = square, _dot(residual, residual)
        _scale(direction, square / before)
        _add_scaled(direction, 1.0, residual)
    squared = _dot(beta, _times(K, beta)) - ridge * _dot(beta, beta)
    lost = _dot(A[p], A[p]) * (own - 2 * _dot(beta, k_p) + squared)
    beta[p] = -1  # and takes p out
    a, u = A[p].copy(), U[p].copy()
    for j in range(n):
        part = np.zeros(len(a))
        _add_scaled(part, beta[j], a)
        _add_to(F, part, W[j], first, rbf, 1.0)
        _add_scaled(A[j], beta[j], a)
        _add_scaled(U[j], beta[j], u)
    return max(lost, 0.0)


@nb.njit(nogil=True, fastmath=True, cache=True)
def _times(K, x):
    out = np.zeros(len(x))
    for i in range(len(x)):
        total = 0.0
        for j in range(len(x)):
            total += K[i, j] * x[j]
        out[i] = total
    return out


@nb.njit(nogil=True, cache=True)
def _close_up(X, norms, D, born, A, U, top):  # the last supports take the free slots
    slot = 0
    for _ in range(top):
        while top > 0 and born[top - 1] == FREE:
            top -= 1
        while slot < top and born[slot] != FREE:
            slot += 1
        if slot >= top:
            return
        last = top - 1
        born[slot], born[last] = born[last], FREE
        norms[slot] = norms[last]
        _copy(X[slot], X[last])
        _copy(A[slot], A[last])
        _copy(U[slot], U[last])
        own = D[last, last]
        for j in range(last):
            D[slot, j] = D[last, j]
            D[j, slot] = D[j, last]
        D[slot, slot] = own
