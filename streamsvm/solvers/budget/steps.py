"""The loop of budgeted SGD: one row after the other, with maintenance of the budget."""

from __future__ import annotations

import numpy as np

from streamsvm.private.numba import borrowed, njit, njit_inner
from streamsvm.solvers.budget import losses, merge, state, values
from streamsvm.solvers.budget.losses import EPSILON, LOGISTIC, SUPPORT, chance_of, pull
from streamsvm.solvers.budget.merge import STRIP, partners, project_on_others, unite, values_between
from streamsvm.solvers.budget.state import (
    BORN,
    DEGRADATION,
    EVENTS,
    FREE,
    GRADIENT_ERROR,
    STEPS,
    SUPPORTS,
    BlockValues,
    StepOptions,
    Supports,
)
from streamsvm.solvers.budget.values import add_scaled, add_to, copy, dot, exponents_after, mirror, refresh

EQUAL = 1e-4  # values of nearest supports that differ by less are equal
LARGEST = int(np.float64(np.inf).view(np.int64))  # bits of infinity


@njit(cache=True, uses=(losses, merge, state, values))
def steps(supports, block, options, tables, together, projects):
    """One SGD step for each row of a block, in order. supports, block, options: `Supports`, `BlockValues` and
    `StepOptions` as plain tuples.

    tables: `merge_tables` if supports are merged, else None. together: True if all merge at once, else None. projects:
    True if the weakest is projected on the others, else None. Branches of arguments that are None are not compiled."""
    s, m, o = Supports(*borrowed(supports)), BlockValues(*borrowed(block)), StepOptions(*options)
    born, counts, F, W = s.born, s.counts, m.F, m.W
    b, k = m.Y.shape
    delta = np.empty(k)
    top = counts[SUPPORTS]  # slots in use, or free again in this block
    since = counts[BORN]
    for i in range(b):
        t = counts[STEPS]
        _mark_used(s, W[:top, i], t, o.is_rbf)
        violated = _decide(s, m, i, o, delta)
        counts[STEPS] = t + 1
        if violated:
            if o.bias:
                _add_to_bias(s, delta, t)
            slot = top
            if counts[SUPPORTS] < top:
                slot = _next_free(born, 0, top)
            else:
                top += 1
            if m.entries[i] < 0:
                exponents_after(m.rows, i, o.gamma, W[slot])
            else:
                copy(W[slot, i:], m.V[m.entries[i], i:])
            counts[SUPPORTS] += 1
            counts[BORN] += 1
            born[slot] = counts[BORN]
            _insert(s, m, i, delta, (t, slot, top, since))
            add_to(F, s.A[slot], W[slot], i + 1, o.is_rbf, 1.0)
            if counts[SUPPORTS] > o.budget:
                lost = _maintain(s, m, (i + 1, since), o, tables, together, projects)
                counts[EVENTS] += 1
                s.sums[DEGRADATION] += lost / (o.lam * (t + o.first + 1)) ** 2
                s.sums[GRADIENT_ERROR] += np.sqrt(lost)
    if len(s.values):
        mirror(s.values, born, top, since)
    if counts[SUPPORTS] < top:
        _fill_gaps(s, top)


@njit_inner(inline="always")
def _decide(s, m, i, o, delta):
    """Decides row i before its step, and fills delta (k,), its addition to coefficients; returns whether any is not
    0."""
    bias, weight, passed = s.bias, m.weight[i], s.counts[STEPS] + o.first
    scale = 1 / (o.lam * passed) if passed > 0 else 0.0
    violated, reach = False, 0.0
    chance = chance_of(s.counts[STEPS]) if o.loss == LOGISTIC else 0.0
    if o.loss == EPSILON and weight > 0:
        K_ii = 1.0 if o.is_rbf else max(np.float64(m.V[m.entries[i], i]), 1e-12)
        reach = o.lam * (passed + 1) / (weight * (K_ii + o.bias))
    for c in range(len(delta)):
        f = scale * (m.F[c, i] + bias[c])
        m.decisions[i, c] = f
        delta[c] = weight * pull(o.loss, m.Y[i, c], f, o.epsilon, reach, chance)
        if o.loss == SUPPORT:
            if passed == 0:
                delta[c] = weight  # the first row is always outside
            before = bias[c]
            bias[c] = min(before * (passed + 1) / max(passed, 1) + delta[c] - weight * o.nu, 0.0)
            if s.U.shape[1]:
                s.U[len(s.U) - 1, c] += (bias[c] - before) * s.counts[STEPS]
        violated |= delta[c] != 0
    return violated


@njit_inner(inline="always")
def _add_to_bias(s, delta, t):
    add_scaled(s.bias, 1.0, delta)
    if s.U.shape[1]:
        add_scaled(s.U[len(s.U) - 1], t, delta)


@njit_inner(inline="always")
def _mark_used(s, values, t, is_rbf):
    """Sets step t as the last use of the nearest supports, by values (top,) with the row: of all that are equal up to
    rounding."""
    best, sign = -np.inf, -1.0 if is_rbf else 1.0
    if len(s.used):
        for j in range(len(values)):
            if s.born[j] != FREE:
                best = max(best, sign * values[j])
        for j in range(len(values)):
            if s.born[j] != FREE and sign * values[j] >= best - EQUAL * (1 + abs(best)):
                s.used[j] = t


@njit_inner(inline="always")
def _insert(s, m, i, delta, place):  # row i of the block becomes a support
    t, slot, top, since = place
    copy(s.X[slot], m.rows[i])
    s.norms[slot] = dot(m.rows[i], m.rows[i])
    if len(s.T):
        copy(s.T[:, slot], m.rows[i])
    elif len(m.N) and m.entries[i] >= 0:
        first = m.N[m.entries[i]]
        for j in range(top):
            s.values[slot, j] = first[j] if s.born[j] <= since else m.W[j, i]
    else:
        for j in range(top):
            s.values[slot, j] = m.W[j, i]
    copy(s.A[slot], delta)
    for c in range(s.U.shape[1]):
        s.U[slot, c] = delta[c] * t
    if len(s.used):
        s.used[slot] = t


@njit_inner(inline="always")
def _maintain(s, m, place, o, tables, together, projects):
    """Brings the supports back to the budget; returns the squared norm of what w lost, in units of A. All slots are in
    use before. The oldest of equals goes first, so that the result does not depend on the order of slots. place: the
    first of the rows whose values and F are still needed, and the age of the last support before the block."""
    (first, since), born, counts = place, s.born, s.counts
    n = counts[SUPPORTS]
    weakest, second = _weakest(s, n, o)
    if projects is not None:
        refresh(s.values, born, weakest, n, since)
        lost = project_on_others(s, m, first, weakest, o.is_rbf)
    elif tables is not None:
        ids = partners(s, weakest, o.gamma, tables, o.merge - 1, since)
        if len(ids) > 1:
            mates = ids, values_between(s, ids, o.gamma, since)
            bearable = np.inf if o.merges_all else second
            lost, size = unite(s, m, first, mates, bearable, tables[0], together)
            counts[BORN] += 1
            born[weakest] = counts[BORN]
            for q in ids[1:size]:
                born[q] = FREE
            counts[SUPPORTS] -= size - 1
            return lost
        lost = _remove(s, m, first, weakest, o.is_rbf)  # no other points in its direction
    else:
        lost = _remove(s, m, first, weakest, o.is_rbf)
    born[weakest] = FREE
    counts[SUPPORTS] -= 1
    return lost


@njit_inner()
def _weakest(s, n, o):
    """The support to give up, the oldest of equals, and the size of the next: squared norms of coefficients, or last
    uses. Numbers from 0 on are in the order of their bits, and minima of integers are vectorised."""
    sizes = np.empty(n)
    if o.forgets:
        copy(sizes, s.used[:n] if len(s.used) else s.born[:n])
    elif s.A.shape[1] == 1:
        for j in range(n):
            sizes[j] = s.A[j, 0] * s.A[j, 0]
    else:
        for j in range(n):
            sizes[j] = dot(s.A[j], s.A[j])
    bits = sizes.view(np.int64)
    least = second = oldest = LARGEST
    equals, weakest = 0, n
    for j in range(n):
        least = min(least, bits[j])
    for j in range(n):
        is_least = bits[j] == least
        equals += is_least
        oldest = min(oldest, s.born[j] if is_least else oldest)
        second = min(second, second if is_least else bits[j])
    for j in range(n):
        weakest = min(weakest, j if s.born[j] == oldest else n)
    bits[0] = least if equals > 1 else second
    return weakest % n, sizes[0]  # the first one, if none is a number


@njit_inner(inline="always")
def _remove(s, m, first, p, is_rbf):
    add_to(m.F, s.A[p], m.W[p], first, is_rbf, -1.0)
    return dot(s.A[p], s.A[p]) * (1.0 if is_rbf else max(np.float64(s.values[p, p]), 0.0))


@njit_inner()
def _next_free(born, slot, top):
    """The first free slot from this one on; top if none is."""
    while slot + STRIP <= top:
        n_free = 0
        for j in range(STRIP):  # without an exit, so that it is vectorised
            n_free += born[slot + j] == FREE
        if n_free:
            break
        slot += STRIP
    while slot < top and born[slot] != FREE:
        slot += 1
    return slot


@njit_inner(inline="always")
def _fill_gaps(s, top):  # the last supports move to the free slots
    D, born = s.values, s.born
    slot = 0
    for _ in range(top):
        while top > 0 and born[top - 1] == FREE:
            top -= 1
        slot = _next_free(born, slot, top)
        if slot >= top:
            return
        last = top - 1
        born[slot], born[last] = born[last], FREE
        s.norms[slot] = s.norms[last]
        if len(s.used):
            s.used[slot] = s.used[last]
        copy(s.X[slot], s.X[last])
        copy(s.A[slot], s.A[last])
        copy(s.U[slot], s.U[last])
        if len(s.T):
            copy(s.T[:, slot], s.X[slot])
            continue
        diagonal = D[last, last]
        for j in range(last):
            D[slot, j] = D[last, j]
            D[j, slot] = D[j, last]
        D[slot, slot] = diagonal
