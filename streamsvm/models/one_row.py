"""One row through all experts of a pool, compiled as a whole: calls are most of the cost of an event. And rows through
one expert of it.

What is read and changed goes to compiled code as one object, `CompiledPool`, made once: unpacking its 47 arrays at each
call would take ten times as long as the call.
"""

from __future__ import annotations

from typing import Any

import numba as nb
import numpy as np
from numba import types
from numba.experimental import structref

from streamsvm.data import running
from streamsvm.data.running import scale_row, see_row
from streamsvm.private.numba import borrowed, stale_with
from streamsvm.solvers import additive, pooling
from streamsvm.solvers.additive import AdditiveRow, decide_row, learn_row
from streamsvm.solvers.budget import losses, merge, project, state, values
from streamsvm.solvers.budget import steps as steps_of
from streamsvm.solvers.budget.losses import LOGISTIC, chance_of, pull
from streamsvm.solvers.budget.state import STEPS, SUPPORTS, StepOptions, Supports
from streamsvm.solvers.budget.steps import steps
from streamsvm.solvers.budget.values import exponents_of_row

FIELDS = ("scaling", "coefficients", "row", "pool", "kernels", "ways", "room")


@structref.register
class _CompiledPoolType(types.StructRef):
    def preprocess_fields(self, fields: Any) -> Any:
        return tuple((name, types.unliteral(found)) for name, found in fields)


class CompiledPool(structref.StructRefProxy):
    """scaling, coefficients, pool: arrays of `RunningScaling`, `AdditiveLearner` and `Pool`. row: `AdditiveRow`.
    kernels: of each rbf learner Supports, Options, and room for its values (slots, 1) and decisions (columns, 1); as
    many as D has rows for count. ways: tables, together and projects of `steps`. room: Z (1, d), the row scaled, D
    (experts, 1, columns), what each says, out (1, columns), what they say together, and what a block of one row needs.
    """


structref.define_proxy(CompiledPool, _CompiledPoolType, FIELDS)


@stale_with(running, additive, pooling, losses, merge, project, state, values, steps_of)
@nb.njit(cache=True)
def bind(scaling, coefficients, row, pool, kernels, ways, room):
    """A `CompiledPool`. The caller keeps these arrays alive; they stay what their learners change."""
    return CompiledPool(
        borrowed(scaling),
        borrowed(coefficients),
        borrowed(row),
        borrowed(pool),
        borrowed(kernels),
        borrowed(ways),
        borrowed(room),
    )


def room_for(d: int, experts: int, columns: int) -> tuple[np.ndarray, ...]:
    """The room of a `CompiledPool`."""
    Z, D, out = np.empty((1, d), np.float32), np.empty((experts, 1, columns)), np.empty((1, columns))
    return Z, D, out, *block_of_one()


def block_of_one() -> tuple[np.ndarray, np.ndarray]:
    """What `steps` need of a block of one row: where its values are, and those with itself, which are known, and 0."""
    return np.zeros(1, np.int64), np.zeros((1, 1), np.float32)


@stale_with(running, additive, pooling, losses, state, values, steps_of)
@nb.njit(nogil=True, cache=True)
def meet(x, bound, out):
    """Fills out (columns,) with the pooled decision for row x (d,)."""
    _meet(x, bound)
    pooling.decide(bound.room[1], len(bound.coefficients[0]), bound.pool[0], out.reshape(1, -1))


@stale_with(running, additive, pooling, losses, merge, project, state, values, steps_of)
@nb.njit(nogil=True, cache=True)
def learn(x, y, weight, bound):
    """One step of all for the row x (d,) that has just been met. y (columns,): -1 or +1."""
    code = np.int64(y[0] > 0) if len(y) == 1 else np.int64(np.argmax(y))
    _learn(x, y.reshape(1, -1), np.full(1, code), np.full(1, weight), bound)


@stale_with(running, additive, losses, merge, project, state, values, steps_of)
@nb.njit(nogil=True, cache=True)
def kernel_learns(Z, Y, weight, kernel, ways, room, D):
    """One step of one kernel for each scaled row Z (m, d), in order. D (m, columns): its decisions before its steps."""
    kernel, ways, room = borrowed(kernel), borrowed(ways), borrowed(room)
    for i in range(len(Z)):
        here = slice(i, i + 1)
        _meet_kernel(Z[i], kernel, D[i])
        _step_kernel(Z[here], Y[here], weight[here], kernel, ways, room, D[here])


@nb.njit(nogil=True, inline="always")
def _meet(x, bound):
    counts, born, means, variances, n = bound.scaling
    Z, D, _, _, _ = bound.room
    scale_row(x, counts, born, means, variances, n[0], Z[0])
    decide_row(Z[0], bound.coefficients, bound.row)
    f = AdditiveRow(*bound.row).f
    for i in range(len(f)):
        values.copy(D[i, 0], f[i])
    e = len(f)
    for kernel in bound.kernels:
        if e == len(D):
            break
        _meet_kernel(Z[0], kernel, D[e, 0])
        e += 1


@nb.njit(nogil=True, inline="always")
def _meet_kernel(z, kernel, f):
    supports, options, W, F = kernel
    s, o = Supports(*supports), StepOptions(*options)
    exponents_of_row(s.X, s.T, s.norms, s.counts[SUPPORTS], z, o.gamma, W)
    values.decide(W, s.counts[SUPPORTS], s.A, F, True)
    factor = 1 / (o.lam * (s.counts[STEPS] + o.first)) if s.counts[STEPS] else 0.0
    for c in range(len(F)):
        f[c] = factor * (F[c, 0] + s.bias[c])


# what is inlined before it is compiled is not compiled by itself, too
@nb.njit(nogil=True, inline="always")
def _learn(x, Y, code, weight, bound):
    counts, born, means, variances, n = bound.scaling
    Z, D, out, entries, own = bound.room
    see_row(x, counts, born, means, variances, n)
    e = len(bound.coefficients[0])
    pooling.learn(D, e, bound.pool, code, weight, out)
    for kernel in bound.kernels:
        if e == len(D):
            break
        _step_kernel(Z, Y, weight, kernel, bound.ways, (entries, own), D[e])
        e += 1
    learn_row(bound.coefficients, bound.row, code[0], weight[0])


@nb.njit(nogil=True, inline="always")
def _step_kernel(Z, Y, weight, kernel, ways, room, D):
    supports, options, W, F = kernel
    entries, own = room
    tables, together, projects = ways
    s = Supports(*supports)
    chance, is_pulled = chance_of(s.counts[STEPS]), len(s.used) > 0  # every row is a use
    for c in range(len(F)):
        is_pulled |= weight[0] * pull(LOGISTIC, Y[0, c], D[0, c], 0.0, 0.0, chance) != 0
    if is_pulled:
        steps(supports, (Z, W, own[:0], entries, own, F, Y, weight, D), options, tables, together, projects)
    else:
        s.counts[STEPS] += 1
