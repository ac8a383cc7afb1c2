"""Descent on one working set, compiled: `blockws` solves a block with it, over sub-blocks that fit in L1 and L2.

Without labels one coordinate at a time, greedily, and two where one alone gets nowhere. With them two at a time, which
keeps y'a; or two of the same sign, which keeps the sum of each. All of it is one file, as compiled functions that are
cached call none of another file."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from streamsvm.private.numba import njit, njit_inner

_INDEX = np.int32(0xFFF)  # low mantissa bits that carry an index in _descent and _pair_descent
FALLS = 0.1  # of the least violation: a smaller fall of it is none
LEAST_GAIN = 1e-7  # of the objective, about what float32 kernel values resolve: then rounding undoes what steps gain
# indices of `progress` in a block: the least violation, sub-blocks since it fell, the gain in these, and in all
LEAST, IDLE, RECENT, GAINED = range(4)
FLAT = 1e-6  # of the diagonal: a smaller curvature of two rows is not told from 0 by float32 kernel values
IDLE_VISITS = 40  # of each row of a block, in which violation and objective do not fall by so much


# What takes these has no cache: numba's would name the classes, and fail to open once they are renamed.
class SubBlock(NamedTuple):
    """Rows S (s,) of a block's Q (q, q): Q[S, S], or with labels K[S, S], and which rows of it are made."""

    Q: np.ndarray
    S: np.ndarray
    Q_S: np.ndarray
    is_made: np.ndarray


class SubBlockVariables(NamedTuple):
    """Of the chosen rows: diagonal of Q, gradient, coefficients and their bounds, (s,)."""

    diag: np.ndarray
    g: np.ndarray
    a: np.ndarray
    upper: np.ndarray


@njit(cache=True, fastmath=True, error_model="numpy")
def block_descent(Q, g, a, upper, y, signs, limits):
    """Minimises 1/2 a'Qa + ... over a block, in place: sub-blocks, each by _descent. Returns how many.

    With labels y (q,), by _pair_descent, which keeps y'a; then g moves by multiples of y, too. signs: y, where the sum
    of each sign is kept and g moves by a number for each. What is None is not compiled. limits: tol, rows of a
    sub-block, the most sub-blocks, and the objective at the start: it ends at a violation of tol, or where sub-blocks
    gain nothing in proportion to that objective."""
    q, (tol, s, most, objective) = len(g), limits
    v, diag = np.empty(q, np.float32), _diagonal(Q)
    progress = np.zeros(4)
    progress[LEAST] = 3e38
    S = np.empty(s, np.int64)
    for k in range(s):
        S[k] = k
    chosen = SubBlock(Q, S, np.empty((s, s), np.float32), np.empty(s, np.bool_))
    for round_ in range(most):
        if y is not None:
            _centre(g, a, upper, y, signs)
        worst = _violations32(g, a, upper, v)
        if worst <= tol or _is_idle(progress, worst, IDLE_VISITS * q // s, abs(objective)):
            break
        if s < q:
            if round_ > 0:
                _lift_half(v, S)
            _select(v, g, y, S)
        chosen.is_made[:] = False
        a_S, a_before, g_before = _taken(a, S), _taken(a, S), _taken(g, S)
        variables = SubBlockVariables(_taken(diag, S), _taken(g, S), a_S, _taken(upper, S))
        _sub_descent(chosen, variables, y, signs, max(tol, np.float32(0.3) * worst))
        if not _move(Q, g, a, a_S, S) and y is None:  # pairs of other rows may still move
            break
        _add_gain(progress, a_before, g_before, a, g, S)
    return round_ + 1


@njit(cache=True, error_model="numpy")
def pairs_descent(K, begins, a, upper, ridge, tol, size):
    """All pairs of classes that have rows, each as one block, in place; of hundreds, calls would take longer. K (n, n):
    of rows in the order of their classes, which begin at begins (k + 1,). a (n, k - 1): compact, see `tasks.pairs`.
    upper, ridge (n,): of each pair; the ridge is added to the diagonal. size: rows of a sub-block, and the most
    sub-blocks."""
    for j in range(1, len(begins) - 1):
        second = slice(begins[j], begins[j + 1])
        for i in range(j):
            first = slice(begins[i], begins[i + 1])
            if first.start < first.stop and second.start < second.stop:
                variables = a[first, j - 1], a[second, i]
                bounds = (upper[first], ridge[first]), (upper[second], ridge[second])
                _one_pair(_of_all(K, first, second), variables, bounds, tol, size)


@njit(cache=True, error_model="numpy")
def class_descent(K, begins, a, bounds, tol, size):
    """All pairs of a class with later ones, as `pairs_descent`; and the violation, objective and gap of each, (pairs,
    3). K: values between the m rows of the class and the l later ones (m, l), within the class (m, m), and within later
    classes, one flat matrix after another. begins (pairs + 1,): of later classes. a: (m, pairs) and (l,). bounds: upper
    and ridge of rows as there, and the cost of their errors, (m + l,)."""
    (between, within, flat), (upper, ridge, cost) = K, bounds
    m, certificates, end = len(between), np.empty((len(begins) - 1, 3)), 0
    for p in range(len(begins) - 1):
        second = slice(begins[p], begins[p + 1])
        both, q = slice(m + begins[p], m + begins[p + 1]), begins[p + 1] - begins[p]
        values = between[:, second], within, flat[end : end + q * q].reshape(q, q)
        variables = a[0][:, p], a[1][second]
        Q = _of_blocks(values)
        _one_pair(Q, variables, ((upper[:m], ridge[:m]), (upper[both], ridge[both])), tol, size)
        worst, objective, gap = _certificate(values, variables, (cost[:m], ridge[:m]), (cost[both], ridge[both]))
        certificates[p, 0], certificates[p, 1], certificates[p, 2] = worst, objective, gap
        end += q * q
    return certificates


@njit_inner(fastmath=True, error_model="numpy")
def _one_pair(Q, a, bounds, tol, size):
    """Q: its values, to which the ridge is added. a: variables of the first class and the second one. bounds: upper and
    ridge of each."""
    n, q = len(a[0]), len(Q)
    g, new, bound = np.full(q, np.float32(-1)), np.empty(q, np.float32), np.empty(q, np.float32)
    _begin(a[0], bounds[0], Q[:n, :n], new[:n], bound[:n])
    _begin(a[1], bounds[1], Q[n:, n:], new[n:], bound[n:])
    for k in range(q):
        if new[k] != 0:
            for j in range(q):
                g[j] += new[k] * Q[k, j]
    block_descent(Q, g, new, bound, None, None, (tol, min(size[0], q), size[1], _classifying(new, g)))
    _end(a[0], bounds[0][0], new[:n])
    _end(a[1], bounds[1][0], new[n:])


@njit_inner()
def _begin(a, bounds, Q, new, bound):
    """Writes the variables of a class and their bounds as float32, and adds the ridge."""
    for k in range(len(a)):
        bound[k] = bounds[0][k]
        new[k] = min(np.float32(a[k]), bound[k])
        Q[k, k] += np.float32(bounds[1][k])


@njit_inner()
def _end(a, upper, new):
    """Writes back the variables that have moved; at a bound, its digits beyond float32, too."""
    for k in range(len(a)):
        if new[k] >= np.float32(upper[k]):
            a[k] = upper[k]
        elif new[k] != np.float32(a[k]):
            a[k] = new[k]


@njit_inner()
def _of_all(K, first, second):
    """Q of two classes, from the values of all rows. first, second: slices of their rows."""
    n_first = first.stop - first.start
    q = n_first + second.stop - second.start
    Q = np.empty((q, q), np.float32)
    for k in range(q):
        i, sign = (first.start + k, 1) if k < n_first else (second.start + k - n_first, -1)
        _write_times(Q[k, :n_first], K[i, first], np.float32(sign))
        _write_times(Q[k, n_first:], K[i, second], np.float32(-sign))
    return Q


@njit_inner()
def _of_blocks(K):
    """Q of two classes, from the values between them (m, q), within the first one and within the second one."""
    between, first, second = K
    m, q = between.shape
    Q = np.empty((m + q, m + q), np.float32)
    for k in range(m):
        _write_times(Q[k, :m], first[k], np.float32(1))
        _write_times(Q[k, m:], between[k], np.float32(-1))
        for j in range(q):
            Q[m + j, k] = Q[k, m + j]
    for j in range(q):
        _write_times(Q[m + j, m:], second[j], np.float32(1))
    return Q


@njit_inner()
def _write_times(out, values, sign):
    for j in range(len(out)):
        out[j] = sign * np.float32(values[j])


@njit_inner(fastmath=True)
def _classifying(a, g):
    """The objective 1/2 a'Qa - e'a, whose gradient is g."""
    objective = 0.0
    for k in range(len(a)):
        objective += 0.5 * a[k] * (g[k] - np.float32(1))
    return objective


@njit_inner(error_model="numpy")
def _certificate(K, a, first, second):
    """The largest violation, the objective 1/2 a'Qa - e'a and the duality gap, in float64. K: as of `_of_blocks`. a: as
    of `_one_pair`. first, second: cost and ridge of each class."""
    between, within_first, within_second = K
    g_first, g_second = np.full(len(a[0]), -1.0), np.full(len(a[1]), -1.0)
    for k in range(len(a[0])):
        if a[0][k] != 0:
            _add_times(g_first, within_first[k], a[0][k])
            _add_times(g_second, between[k], -a[0][k])
    for k in range(len(a[1])):
        if a[1][k] != 0:
            _add_times(g_first, between[:, k], -a[1][k])
            _add_times(g_second, within_second[k], a[1][k])
    worst_first, objective_first, gap_first = _of_class(g_first, a[0], first)
    worst_second, objective_second, gap_second = _of_class(g_second, a[1], second)
    return max(worst_first, worst_second), objective_first + objective_second, gap_first + gap_second


@njit_inner()
def _add_times(out, values, factor):
    for j in range(len(out)):
        out[j] += factor * values[j]


@njit_inner(error_model="numpy")
def _of_class(h, a, bounds):
    """The largest violation of some rows, and what they add to objective and gap, as of `blockws` and of the duals. h
    (n,): Ka - 1, without the ridge."""
    (cost, ridge), worst, objective, gap = bounds, 0.0, 0.0, 0.0
    for k in range(len(h)):
        g, error = h[k] + ridge[k] * a[k], max(-h[k], 0.0)
        if a[k] > 0:
            worst = max(worst, g)
        if a[k] < cost[k] or ridge[k] > 0:
            worst = max(worst, -g)
        objective += 0.5 * a[k] * (g - 1)
        if ridge[k] > 0:
            gap += a[k] * h[k] + cost[k] * error * error + 0.5 * ridge[k] * a[k] * a[k]
        else:
            gap += a[k] * h[k] + cost[k] * error
    return worst, objective, gap


@njit_inner()
def _is_idle(progress, worst, most, objective):
    """Whether violation and objective have not fallen for so many sub-blocks; counts another one."""
    progress[IDLE] += 1
    if worst <= (1 - FALLS) * progress[LEAST]:
        progress[LEAST], progress[IDLE], progress[RECENT] = worst, 0, 0
    elif progress[IDLE] > most:
        if progress[RECENT] <= LEAST_GAIN * (objective + progress[GAINED]):
            return True
        progress[IDLE], progress[RECENT] = 0, 0
    return False


@njit_inner(fastmath=True, error_model="numpy")
def _move(Q, g, a, a_S, S):
    """Moves the chosen rows to a_S, and the gradient with them; whether any moved."""
    has_moved = False
    for k in range(len(S)):
        i = S[k]
        delta = np.float32(a_S[k] - a[i])
        if delta != 0:
            has_moved = True
            a[i] = a_S[k]
            row = Q[i]
            for j in range(len(g)):
                g[j] += delta * row[j]
    return has_moved


@njit_inner(fastmath=True, error_model="numpy")
def _add_gain(progress, a_before, g_before, a, g, S):
    """Adds by how much the objective has fallen as the chosen rows moved, and the gradient with them."""
    gain = 0.0
    for k in range(len(S)):
        i = S[k]
        gain -= 0.5 * (np.float64(a[i]) - a_before[k]) * (np.float64(g[i]) + g_before[k])
    progress[RECENT] += gain
    progress[GAINED] += gain


@njit_inner(inline="always")  # else it is optimised once more with all that it calls
def _sub_descent(chosen, variables, y, signs, tol):
    most = 20 * len(chosen.S)
    if y is None:
        _descent(chosen, variables, tol, most)
    else:
        y_S = _taken(y, chosen.S)
        _pair_descent(chosen, variables, y_S, None if signs is None else y_S, np.float32(2) * tol, most)


@njit_inner(fastmath=True, error_model="numpy")
def _row(chosen, i, y):
    """Row i of Q[S, S], or with labels y of K[S, S]; gathered when first asked for, as most rows of S never move."""
    S, row = chosen.S, chosen.Q_S[i]
    if not chosen.is_made[i]:
        chosen.is_made[i] = True
        whole = chosen.Q[S[i]]
        for j in range(len(S)):
            row[j] = whole[S[j]]
        if y is not None:
            for j in range(len(S)):
                row[j] *= y[i] * y[j]
    return row


@njit_inner(fastmath=True, error_model="numpy")
def _descent(chosen, variables, tol, max_steps):
    """Greedy coordinate descent on at most 4096 rows, in place. The loops are split so that each vectorises; the arg
    max packs the index into the low bits of |violation|.

    If as many steps as rows have not solved it, a step moves a second row with the first: what one of two similar rows
    gains the other would undo, step after step."""
    diag, g, a, upper = variables
    q = len(g)
    big, zero = np.float32(3e38), np.float32(0)
    v = np.empty(q, np.float32)
    bits = v.view(np.int32)
    low, high = np.empty(q, np.float32), np.empty(q, np.float32)
    for j in range(q):
        low[j] = -big if a[j] < upper[j] else zero
        high[j] = big if a[j] > 0 else zero
    delta, row = zero, np.zeros(q, np.float32)
    for step in range(max_steps):
        for k in range(q):
            g[k] += delta * row[k]
        for k in range(q):
            v[k] = abs(min(max(g[k], low[k]), high[k]))
        i = _arg_max(bits)
        if v[i] <= tol:
            break
        row = _row(chosen, i, None)
        new = min(max(a[i] - g[i] / diag[i], zero), upper[i])
        j = _partner(variables, low, high, i, row, v) if step >= q else i
        delta_j = zero
        if j != i:  # if any other row gains
            new, new_j = _best_pair(variables, i, j, row[j])
            delta_j = np.float32(new_j - a[j])
            _set(a, upper, low, high, j, new_j)
            second = _row(chosen, j, None)
            for k in range(q):
                g[k] += delta_j * second[k]
        delta = np.float32(new - a[i])
        if delta == 0 and delta_j == 0:  # lost to rounding, and would be again
            break
        _set(a, upper, low, high, i, new)


@njit_inner(fastmath=True, error_model="numpy")
def _arg_max(bits):
    """The index of the largest of at most 4096 numbers that are not negative, of which these are the bits."""
    key = np.int32(0)
    for j in range(len(bits)):
        key = max(key, (bits[j] & ~_INDEX) | np.int32(j))
    return key & _INDEX


@njit_inner(fastmath=True, error_model="numpy")
def _set(a, upper, low, high, i, value):
    """a_i = value, and how far a gradient may move it."""
    big, zero = np.float32(3e38), np.float32(0)
    a[i] = value
    low[i] = -big if value < upper[i] else zero
    high[i] = big if value > 0 else zero


@njit_inner(fastmath=True, error_model="numpy")
def _partner(variables, low, high, i, row, gain):
    """The j with which the objective falls most if a_i is at its best for each a_j (Steinwart, Hush and Scovel 2011,
    section 3), i if none gains; gain (q,) is overwritten. row: of Q[S, S], of i."""
    diag, g, _, _ = variables
    flat = FLAT * diag[i]
    for j in range(len(g)):
        share = row[j] / diag[i]
        slope = min(max(g[j] - share * g[i], low[j]), high[j])
        gain[j] = slope * slope / max(diag[j] - share * row[j], flat)
    gain[i] = 0
    j = _arg_max(gain.view(np.int32))
    return j if gain[j] > 0 else np.int32(i)


@njit_inner(fastmath=True, error_model="numpy")
def _best_pair(variables, i, j, Q_ij):
    """(a_i, a_j) in their bounds with the least objective, all other coefficients fixed: where both gradients are 0, or
    else the best of the four edges."""
    diag, g, a, upper = variables
    Q_ii, Q_jj = np.float64(diag[i]), np.float64(diag[j])
    g_i, g_j, a_i, a_j = np.float64(g[i]), np.float64(g[j]), np.float64(a[i]), np.float64(a[j])
    curvature = max(Q_jj - Q_ij * Q_ij / Q_ii, FLAT * Q_jj)
    d_j = -(g_j - Q_ij / Q_ii * g_i) / curvature
    d_i = -(g_i + Q_ij * d_j) / Q_ii
    if 0 <= a_i + d_i <= upper[i] and 0 <= a_j + d_j <= upper[j]:
        return np.float32(a_i + d_i), np.float32(a_j + d_j)
    best, best_i, best_j = np.inf, a_i, a_j
    for bound_i, bound_j in ((0.0, 0.0), (np.float64(upper[i]), np.float64(upper[j]))):
        edge_j = min(max(a_j - (g_j + Q_ij * (bound_i - a_i)) / Q_jj, 0.0), upper[j])
        edge_i = min(max(a_i - (g_i + Q_ij * (bound_j - a_j)) / Q_ii, 0.0), upper[i])
        for end_i, end_j in ((bound_i, edge_j), (edge_i, bound_j)):
            e_i, e_j = end_i - a_i, end_j - a_j
            value = g_i * e_i + g_j * e_j + 0.5 * (Q_ii * e_i * e_i + Q_jj * e_j * e_j) + Q_ij * e_i * e_j
            if value < best:
                best, best_i, best_j = value, np.float64(end_i), np.float64(end_j)
    return np.float32(best_i), np.float32(best_j)


@njit_inner(fastmath=True, error_model="numpy")
def _pair_descent(chosen, variables, y, signs, tol, max_steps):
    """Descent by pairs on at most 4096 rows until m - M <= tol, in place.

    In z = y a, whose sum is kept: z_i rises and z_j falls by t. i is the row of I_up with the largest level
    f = -y g, and j that of I_low with which the objective falls most, by (f_i - f_j)^2 / 2 |phi_i - phi_j|^2
    (Fan, Chen and Lin 2005, WSS 2). Loops are split, and indices packed, as in _descent. Signs with a sum each take
    turns: in a step the rows of the other one may not move, and both have to be done."""
    diag, g, a, upper = variables
    q = len(g)
    big, zero, two = np.float32(1e38), np.float32(0), np.float32(2)
    flat = np.float32(1e-12)  # least curvature, LIBSVM's
    f, z, least, most = np.empty(q, np.float32), np.empty(q), np.empty(q), np.empty(q)
    v, may_rise, may_fall = np.empty(q, np.float32), np.empty(q, np.float32), np.empty(q, np.float32)
    bits = v.view(np.int32)
    for k in range(q):
        f[k], z[k] = -y[k] * g[k], y[k] * a[k]
        least[k], most[k] = min(y[k] * upper[k], 0.0), max(y[k] * upper[k], 0.0)
        may_rise[k] = big if z[k] < most[k] else -big
        may_fall[k] = -big if z[k] > least[k] else big
    t, rising = zero, np.zeros(q, np.float32)  # loops, not array expressions: those are slow to compile
    falling = rising
    rises, falls = _room(may_rise, signs), _room(may_fall, signs)
    turn, is_last = np.float32(1), signs is None  # whose turn it is, and whether nobody else has one left
    for _ in range(max_steps):
        for k in range(q):
            f[k] -= t * (rising[k] - falling[k])
        _take_turns(rises, falls, may_rise, may_fall, signs, turn)
        for k in range(q):
            v[k] = min(f[k], rises[k])
        key = np.int32(-0x80000000)
        for k in range(q):  # flipped, the bits of negative numbers are in order, too
            flipped = bits[k] ^ ((bits[k] >> 31) & np.int32(0x7FFFFFFF))
            key = max(key, (flipped & ~_INDEX) | np.int32(k))
        i = key & _INDEX
        top, rising, worst = v[i], _row(chosen, i, y), zero
        for k in range(q):
            behind = max(top - max(f[k], falls[k]), zero)
            worst = max(worst, behind)
            v[k] = behind * behind / max(diag[i] + diag[k] - two * rising[k], flat)
        turn = -turn
        if worst <= tol:
            if is_last:
                break
            is_last, t = True, zero
            continue
        is_last = signs is None
        j = _arg_max(bits)
        falling = _row(chosen, j, y)
        step = (f[i] - f[j]) / max(diag[i] + diag[j] - two * rising[j], flat)
        room_i, room_j = most[i] - z[i], z[j] - least[j]
        step = min(step, room_i, room_j)
        z[i] = most[i] if step >= room_i else z[i] + step
        z[j] = least[j] if step >= room_j else z[j] - step
        may_rise[i] = big if z[i] < most[i] else -big
        may_fall[i] = -big
        may_rise[j] = big
        may_fall[j] = -big if z[j] > least[j] else big
        t = np.float32(step)
    _write(a, y, z)


@njit_inner()
def _room(v, signs):
    """v itself, or space for as many where each sign keeps its own sum."""
    return v if signs is None else np.empty_like(v)


@njit_inner(fastmath=True)
def _take_turns(rises, falls, may_rise, may_fall, signs, turn):
    """If each sign keeps its own sum: what may rise and fall of the sign whose turn it is, and nothing of the other."""
    if signs is not None:
        big = np.float32(1e38)
        for k in range(len(rises)):
            limit = turn * signs[k] * big
            rises[k] = min(may_rise[k], limit)
            falls[k] = max(may_fall[k], -limit)


@njit_inner()
def _write(a, y, z):
    for k in range(len(a)):
        a[k] = y[k] * z[k]


@njit_inner(fastmath=True, error_model="numpy")
def _centre(g, a, upper, y, signs):
    """Shifts g by the multiple of y that leaves the smallest violations; by one for each sign with its own sum."""
    _centre_sign(g, a, upper, y, signs, np.float32(1))
    if signs is not None:
        _centre_sign(g, a, upper, y, signs, np.float32(-1))


@njit_inner(fastmath=True, error_model="numpy")
def _centre_sign(g, a, upper, y, signs, sign):
    """Of rows of this sign alone, where each keeps its own sum; else of all."""
    big = np.float32(1e38)
    m, M = -big, big
    for j in range(len(g)):
        if signs is not None:
            if y[j] != sign:
                continue
        level = -y[j] * g[j]
        above, below = a[j] > 0, a[j] < upper[j]
        if below if y[j] > 0 else above:
            m = max(m, level)
        if above if y[j] > 0 else below:
            M = min(M, level)
    if m > -big and M < big:
        shift = np.float32(0.5) * (m + M)
        for j in range(len(g)):
            if signs is not None:
                if y[j] != sign:
                    continue
            g[j] += shift * y[j]


@njit_inner(fastmath=True, error_model="numpy")
def _violations32(g, a, upper, v):
    """Fills v; returns the largest. At most tol counts as 0: it must not compete, by a tie, with what is above."""
    worst = np.float32(0)
    for j in range(len(g)):
        down = max(g[j], np.float32(0)) if a[j] > 0 else np.float32(0)
        up = max(-g[j], np.float32(0)) if a[j] < upper[j] else np.float32(0)
        v[j] = max(down, up)
        worst = max(worst, v[j])
    return worst


@njit_inner()
def _diagonal(Q):
    out = np.empty(len(Q), Q.dtype)
    for i in range(len(Q)):
        out[i] = Q[i, i]
    return out


@njit_inner()
def _taken(v, S):  # v[S]; numba compiles fancy indexing, with its messages of errors, for a second and a half
    out = np.empty(len(S), v.dtype)
    for k in range(len(S)):
        out[k] = v[S[k]]
    return out


@njit_inner()
def _lift_half(v, S):
    """Lifts the worse half of S above all others, so that the next selection keeps it."""
    worse_half = np.empty(len(S) // 2, np.int64)
    _select_largest(_taken(v, S), worse_half)
    for k in worse_half:
        v[S[k]] += np.float32(1e20)


@njit_inner()
def _select(v, g, y, S):
    """Fills S with rows of largest v; with labels, one half of rows whose y a should rise, one where it should fall. Of
    many equal ones the first might all be of one side, and then no pair could move."""
    if y is None:
        _select_largest(v, S)
        return
    half, least = len(S) // 2, np.float32(1e-30)
    side = np.empty_like(v)
    for j in range(len(v)):
        side[j] = v[j] if y[j] * g[j] < 0 else np.float32(0)
    _select_largest(side, S[:half])
    for j in range(len(v)):
        side[j] = max(v[j], least) if y[j] * g[j] >= 0 else least
    for j in S[:half]:
        side[j] = 0
    _select_largest(side, S[half:])


@njit_inner()
def _select_largest(v, S):
    """Fills S with the indices of the len(S) largest v >= 0; of equals, the first."""
    bits = v.view(np.int32)
    smallest, room = 0, len(S)  # bits of the last value chosen, found digit by digit; how many places remain
    for shift, width in ((20, 11), (10, 10), (0, 10)):
        counts = np.zeros(1 << width, np.int64)
        for j in range(len(v)):
            if bits[j] >> (shift + width) == smallest:
                counts[(bits[j] >> shift) & ((1 << width) - 1)] += 1
        digit = len(counts) - 1
        while counts[digit] < room:
            room -= counts[digit]
            digit -= 1
        smallest = smallest << width | digit
    k = 0
    for j in range(len(v)):
        if bits[j] > smallest or (bits[j] == smallest and room > 0):
            room -= bits[j] == smallest
            S[k] = j
            k += 1
