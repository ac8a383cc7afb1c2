"""Fewer supports: merged, which ones, into which point and at what loss; or the weakest projected on the others (Wang,
Crammer and Vucetic 2012, section 4.2)."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from streamsvm.private.numba import borrowed, njit_inner
from streamsvm.solvers.budget.state import SUPPORTS
from streamsvm.solvers.budget.values import (
    add_scaled,
    add_to,
    copy,
    dot,
    exponents_of_support,
    kernel_values,
    refresh,
    scale,
)

STRIP = 32  # supports that are passed over together if none is near
GRID = 400  # nodes of the merge table each way (Glasmachers and Qaadan 2018)


def merge_weight(m: np.ndarray, kappa: np.ndarray, rounds: int = 40) -> np.ndarray:
    """h in [1/2, 1] for m in [1/2, 1]: the point z = h p + (1-h) q that keeps most of a_p phi(p) + a_q phi(q).
    Maximises m kappa^((1-h)^2) + (1-m) kappa^(h^2), m = a_p / (a_p + a_q), by golden section search; from 1/2 on there
    is one maximum only."""
    golden, kappa = (np.sqrt(5) - 1) / 2, np.maximum(kappa, 1e-12)  # 0 would keep nothing but h = 1 itself
    low, high = np.full(np.broadcast(m, kappa).shape, 0.5), np.ones(np.broadcast(m, kappa).shape)
    for _ in range(rounds):
        left, right = high - golden * (high - low), low + golden * (high - low)
        up = _preserved(left, m, kappa) < _preserved(right, m, kappa)
        low, high = np.where(up, left, low), np.where(up, high, right)
    return (low + high) / 2


def _preserved(h: np.ndarray, m: np.ndarray, kappa: np.ndarray) -> np.ndarray:
    return m * kappa ** ((1 - h) ** 2) + (1 - m) * kappa ** (h**2)


@lru_cache(maxsize=1)
def merge_tables() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """merge_weight, and what the merge loses of a_p = m, a_q = 1 - m, over a grid, (GRID, GRID) float32; and a bound.

    Rows are m in [1/2, 1], columns kappa in [0, 1]. h jumps at m = 1/2 where kappa < e^-2: the tables end there, the
    other half is their mirror image. Bound (GRID,), falling: a merge of a_q = 1 loses at least that, whatever the other
    one; between two values of kappa, at least what is between their bounds."""
    m, kappa = np.linspace(0.5, 1, GRID)[:, None], np.linspace(0, 1, GRID)
    h = merge_weight(m, kappa)
    lost = np.maximum(m**2 + (1 - m) ** 2 + 2 * m * (1 - m) * kappa - _preserved(h, m, kappa) ** 2, 0)
    h, lost = h.astype(np.float32), lost.astype(np.float32)
    # a bound between rows, too, as (1 - m)^2 is convex
    return h, lost, (lost[:-1] / (1 - m[:-1]) ** 2).min(axis=0) * (1 - 1e-9)


@njit_inner(inline="always")
def partners(s, p, gamma, tables, count, since):
    """p, and the supports that lose least when merged with it, among those that point the same way; best first."""
    n = s.counts[SUPPORTS]
    distances, K = np.empty(n, np.float32), np.empty(n, np.float32)
    exponents_of_support(s, p, gamma, since, distances)
    kernel_values(distances, np.bool_(True), K)
    chosen, losses = np.empty(1 + count, np.int64), np.empty(count)
    chosen[0] = p
    if s.A.shape[1] == 1:
        size = _least_with_one(s.A[:, 0], p, K, tables, s.born, (chosen[1:], losses))
    else:
        lost, size = np.empty(n), 0
        _lost_with(distances, s.A, p, K, tables[0], lost)
        for j in range(n):
            size = _enter(j, lost[j], s.born, (chosen[1:], losses), size)
    return chosen[: 1 + size]


@njit_inner()
def _enter(j, lost, born, best, size):
    """Puts j in its place among the `size` best so far, the first born of equals first; returns their number."""
    chosen, losses = best
    place = size
    while place > 0 and lost <= losses[place - 1]:
        if lost == losses[place - 1] and born[chosen[place - 1]] < born[j]:
            break
        place -= 1
    if place == len(chosen) or lost == np.inf:
        return size
    size = min(size + 1, len(chosen))
    for q in range(size - 1, place, -1):
        chosen[q], losses[q] = chosen[q - 1], losses[q - 1]
    chosen[place], losses[place] = j, lost
    return size


@njit_inner(error_model="numpy")
def _least_with_one(a, p, K, tables, born, best):
    """Supports with one coefficient each, p the smallest. The nearest come first: the bound then excludes most others
    by their value alone."""
    (table, bound), size, tops = tables[1:], 0, _tops(K)
    near = _nearest(a, p, K, tops, len(best[0]))
    for j in near:
        size = _enter(j, _lost_with_one(a, p, j, K, table), born, best, size)
    worst = _worst(best, size)
    far = _far(worst / (a[p] * a[p]), bound)
    for strip in range(len(tops)):
        if tops[strip] < far:
            continue
        for j in range(strip * STRIP, min((strip + 1) * STRIP, len(K))):
            if K[j] < far or j == p or a[p] * a[j] <= 0 or _is_in(near, j):
                continue
            if a[j] * a[j] * (1 - 1e-5 - (len(table) - 1) * K[j]) > worst:  # at a value of 0 nothing is kept
                continue
            lost = _lost_with_one(a, p, j, K, table)
            if lost <= worst:
                size = _enter(j, lost, born, best, size)
                worst = _worst(best, size)
                far = _far(worst / (a[p] * a[p]), bound)
    return size


@njit_inner()
def _worst(best, size):  # loss that any other has to be below, once there are enough
    return best[1][size - 1] if size == len(best[0]) else np.inf


@njit_inner(error_model="numpy")
def _lost_with_one(a, p, j, K, table):  # by a merge of p, the smaller, with j
    both = abs(a[p]) + abs(a[j])
    return both * both * _lookup(table, abs(a[j]) / both, np.float64(K[j]))


@njit_inner(error_model="numpy")
def _far(worst, bound):
    """A kernel value below which any merge of a coefficient of 1 loses more than this."""
    low, high = 0, len(bound) - 1
    while low < high:
        middle = (low + high) // 2
        low, high = (middle + 1, high) if bound[middle] > worst else (low, middle)
    if low == 0:
        return np.float32(0)
    cells = low - (worst - bound[low]) / (bound[low - 1] - bound[low])
    return np.float32(cells / (len(bound) - 1) * (1 - 1e-6))


@njit_inner()
def _tops(K):
    """The largest of each STRIP of values from 0 on: their bits are in their order, and maxima of integers are
    vectorised."""
    tops, bits = np.empty(-(-len(K) // STRIP), np.float32), borrowed(K).view(np.int32)
    bits_of_tops = tops.view(np.int32)
    for strip in range(len(tops)):
        values, largest = bits[strip * STRIP : (strip + 1) * STRIP], np.int32(0)
        for j in range(len(values)):
            largest = max(largest, values[j])
        bits_of_tops[strip] = largest
    return tops


@njit_inner()
def _nearest(a, p, K, tops, count):
    """The supports of p's sign, at most so many, that have the largest kernel values with it."""
    chosen, size, least = np.empty(count, np.int64), 0, np.float32(-1)
    for strip in range(len(tops)):
        if tops[strip] <= least:
            continue
        for j in range(strip * STRIP, min((strip + 1) * STRIP, len(K))):
            if K[j] <= least or j == p or a[p] * a[j] <= 0:
                continue
            size = min(size + 1, count)
            place = size - 1
            while place > 0 and K[j] > K[chosen[place - 1]]:
                chosen[place] = chosen[place - 1]
                place -= 1
            chosen[place] = j
            if size == count:
                least = K[chosen[count - 1]]
    return chosen[:size]


@njit_inner()
def _is_in(ids, j):
    for i in ids:
        if i == j:
            return True
    return False


@njit_inner()
def _lost_with(distances, A, p, K, table, lost):  # fills lost (n,): by merges with p, of coefficients A (n, k)
    a, aa = A[p], dot(A[p], A[p])
    for j in range(len(K)):
        ab, bb = dot(a, A[j]), dot(A[j], A[j])
        size, other = np.sqrt(aa), np.sqrt(bb)
        lost[j] = np.inf
        if j != p and ab > 1e-9 * size * other:  # nearly orthogonal is by rounding alone
            h = 1 - _lookup(table, other / (size + other), np.float64(K[j]))
            kp, kq = np.exp(-((1 - h) ** 2) * distances[j]), np.exp(-h * h * distances[j])
            lost[j] = aa * (1 - kp * kp) + bb * (1 - kq * kq) + 2 * ab * (K[j] - kp * kq)


@njit_inner(inline="always")
def unite(s, m, first, mates, bearable, table, together):
    """Merges supports into one point, in the slot of the first; the others stay in their slots. mates: their ids, and
    `values_between` them. Returns the squared norm that is lost, and how many were merged."""
    X, D, A, U, W = s.X, s.values, s.A, s.U, m.W
    ids, S = mates
    size, k = len(ids), A.shape[1]
    a = np.empty((size, k))
    for i in range(size):
        copy(a[i], A[ids[i]])
    c = _in_sequence(S, a, bearable, table)
    size, ids = len(c), ids[: len(c)]
    if together is not None:
        c = _together(S, a[:size])
    distances, spread = _to_mix(S, c)
    merged, merged_U, lost = np.zeros(k), np.zeros(U.shape[1]), 0.0
    for i in range(size):
        k_iz = np.exp(-distances[i])
        add_scaled(merged, k_iz, a[i])
        add_scaled(merged_U, k_iz, U[ids[i]])
        for j in range(size):
            lost += dot(a[i], a[j]) * np.exp(-S[i, j])
    for q in ids:
        add_to(m.F, A[q], W[q], first, np.bool_(True), -1.0)
    _combine(D, np.int64(0), min(s.counts[SUPPORTS], len(D)), ids, c, spread)
    _combine(W, first, np.int64(W.shape[1]), ids, c, spread)
    _combine(X, np.int64(0), np.int64(X.shape[1]), ids, c, -np.inf)
    z = ids[0]
    s.norms[z] = dot(X[z], X[z])
    if len(s.T):
        copy(s.T[:, z], X[z])
    else:
        D[z, z] = 0
    copy(A[z], merged)
    copy(U[z], merged_U)
    add_to(m.F, A[z], W[z], first, np.bool_(True), 1.0)
    return max(lost - dot(merged, merged), 0.0), size


@njit_inner()
def values_between(s, ids, gamma, since):
    """Values of these supports with each other."""
    size, S = len(ids), np.zeros((len(ids), len(ids)))
    if len(s.T):
        for i in range(size):
            for j in range(i):
                S[i, j] = S[j, i] = gamma * _sq_distance(s.X[ids[i]], s.X[ids[j]])
        return S
    for q in ids:
        refresh(s.values, s.born, q, s.counts[SUPPORTS], since)
    for i in range(size):
        for j in range(size):
            S[i, j] = s.values[ids[i], ids[j]]
    return S


@njit_inner(fastmath=True)
def _sq_distance(a, b):
    total = 0.0
    for r in range(len(a)):
        total += (a[r] - b[r]) * (a[r] - b[r])
    return total


@njit_inner(fastmath=True)
def _combine(rows, start, stop, ids, c, spread):
    """rows[ids[0]] = max(sum_i c_i rows[ids[i]] - spread, 0) from start to stop; without the bound for -inf."""
    if start == stop:
        return
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


@njit_inner()
def _in_sequence(S, a, bearable, table):
    """Weights of a sequence of binary merges, in order (Qaadan and Glasmachers 2018, algorithm 1).

    Partners are near the first point, but perhaps not near each other. The sequence ends before a merge that loses
    more than is bearable: the squared size of the second weakest support, which the next maintenance can give up
    instead; or infinity, as in the paper."""
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
        zz, zq, qq, kappa = dot(z, z), dot(z, a[q]), dot(a[q], a[q]), np.exp(-distance)
        h = _weight(table, np.sqrt(zz), np.sqrt(qq), kappa)
        copy(both, z)
        scale(both, np.exp(-((1 - h) ** 2) * distance))
        add_scaled(both, np.exp(-h * h * distance), a[q])
        if q > 1 and zz + qq + 2 * kappa * zq - dot(both, both) > bearable:
            return c[:q]
        scale(c, h)
        c[q] = 1 - h
        copy(z, both)
    return c


@njit_inner()
def _together(S, a):
    """Weights of the point that keeps most of sum_i a_i phi(s_i), by gradient ascent (algorithm 2). The gradient of
    |sum_i a_i k(s_i, z)|^2 leads from z to sum_i c_i s_i, c_i in proportion to (a_i'a_z) k(s_i, z)."""
    size, k_z = len(a), np.ones(len(a))
    c = _shares(a, k_z)
    for _ in range(100):
        distances, _spread = _to_mix(S, c)
        for i in range(size):
            k_z[i] = np.exp(-distances[i])
        new, moved, total = _shares(a, k_z), 0.0, 0.0
        for i in range(size):
            moved, total = max(moved, abs(new[i] - c[i])), total + new[i]
        if not total > 0:  # too far apart for a point between them: the largest stays as it is
            largest = 0
            for i in range(size):
                largest = i if dot(a[i], a[i]) > dot(a[largest], a[largest]) else largest
            new[largest] = 1
            return new
        c = new
        if moved < 1e-6:
            break
    return c


@njit_inner()
def _shares(a, k_z):  # in proportion to k_i a_i'z, z = sum_i k_i a_i; all zero where z vanishes
    z, shares, total = np.zeros(a.shape[1]), np.empty(len(a)), 0.0
    for i in range(len(a)):
        add_scaled(z, k_z[i], a[i])
    for i in range(len(a)):
        shares[i] = k_z[i] * max(dot(a[i], z), 0.0)
        total += shares[i]
    scale(shares, 1 / total if total > 1e-200 else 0.0)
    return shares


@njit_inner()
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


@njit_inner()
def _weight(table, a, b, kappa):  # h of z = h p + (1-h) q, for sizes a of p and b of q
    if a >= b:
        return _lookup(table, a / (a + b), kappa)
    return 1 - _lookup(table, b / (a + b), kappa)


@njit_inner()
def _lookup(table, m, kappa):  # bilinear; the weight of the larger coefficient, m >= 1/2
    size = len(table) - 1
    x, y = min(max(2 * m - 1, 0.0), 1.0) * size, min(max(kappa, 0.0), 1.0) * size
    i, j = min(int(x), size - 1), min(int(y), size - 1)
    u, v = x - i, y - j
    low = (1 - v) * table[i, j] + v * table[i, j + 1]
    high = (1 - v) * table[i + 1, j] + v * table[i + 1, j + 1]
    return (1 - u) * low + u * high


@njit_inner(forceinline=True)
def project_on_others(s, m, first, p, is_rbf):
    """Gives the others the coefficients that come closest to support p: K beta = k_p, by conjugate gradients. A ridge
    of 1e-4 of the mean diagonal keeps beta small where supports nearly coincide, and rounding out of it."""
    born, A, U, n = s.born, s.A, s.U, s.counts[SUPPORTS]
    K, row, k_p = np.empty((n, n)), np.empty(n, np.float32), np.zeros(n)
    for j in range(n):
        kernel_values(s.values[j, :n], is_rbf, row)
        for q in range(n):
            if born[j] >= born[q]:
                K[j, q] = K[q, j] = row[q]
    K_pp, ridge = K[p, p], 0.0
    for j in range(n):
        ridge += 1e-4 * K[j, j] / n
    for j in range(n):
        k_p[j] = K[p, j] if j != p else 0.0
        K[p, j], K[j, p] = 0.0, 0.0
        K[j, j] += ridge
    beta, residual, direction = np.zeros(n), k_p.copy(), k_p.copy()
    square = dot(residual, residual)
    goal = 1e-12 * square
    for _ in range(4 * n):
        image = _times(K, direction)
        curvature = dot(direction, image)
        if square <= goal or curvature <= 0:
            break
        add_scaled(beta, square / curvature, direction)
        add_scaled(residual, -square / curvature, image)
        before, square = square, dot(residual, residual)
        scale(direction, square / before)
        add_scaled(direction, 1.0, residual)
    squared = dot(beta, _times(K, beta)) - ridge * dot(beta, beta)
    lost = dot(A[p], A[p]) * (K_pp - 2 * dot(beta, k_p) + squared)
    beta[p] = -1  # which removes p
    a, u = A[p].copy(), U[p].copy()
    for j in range(n):
        part = np.zeros(len(a))
        add_scaled(part, beta[j], a)
        add_to(m.F, part, m.W[j], first, is_rbf, 1.0)
        add_scaled(A[j], beta[j], a)
        add_scaled(U[j], beta[j], u)
    return max(lost, 0.0)


@njit_inner(fastmath=True)
def _times(K, x):
    out = np.zeros(len(x))
    for i in range(len(x)):
        total = 0.0
        for j in range(len(x)):
            total += K[i, j] * x[j]
        out[i] = total
    return out
