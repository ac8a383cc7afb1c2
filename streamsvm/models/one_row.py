"""Compiled decisions and steps of a whole pool for one row, as calls are most of the cost of an event; and of one
expert for several rows.

All arrays go to compiled code as one object, `CompiledPool`, made once: unpacking its 47 arrays at each call would take
ten times as long as the call."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types
from numba.experimental import structref

from streamsvm.data import running
from streamsvm.data.running import scale_row, see_row
from streamsvm.private.numba import borrowed, njit, njit_inner
from streamsvm.solvers import additive, pooling
from streamsvm.solvers.additive import AdditiveRow, decide_row, learn_row
from streamsvm.solvers.budget import losses, merge, state, values
from streamsvm.solvers.budget import steps as steps_of
from streamsvm.solvers.budget.losses import LOGISTIC, chance_of, pull
from streamsvm.solvers.budget.state import STEPS, SUPPORTS, StepOptions, Supports
from streamsvm.solvers.budget.steps import steps
from streamsvm.solvers.budget.values import exponents_of_row

FIELDS = ("scaling", "coefficients", "row", "pool", "kernels", "maintenance", "buffers")


@structref.register
class _CompiledPoolType(types.StructRef):
    def preprocess_fields(self, fields: Any) -> Any:
        return tuple((name, types.unliteral(kind)) for name, kind in fields)


class CompiledPool(structref.StructRefProxy):
    """scaling, coefficients, pool: arrays of `RunningScaling`, `AdditiveLearner` and `Pool`. row: `AdditiveRow`.
    kernels: of each rbf learner `Supports`, `StepOptions`, and buffers for its values (slots, 1) and decisions
    (columns, 1); those beyond the rows of D are padding. maintenance: tables, together and projects of `steps`.
    buffers: Z (1, d), the scaled row, D (experts, 1, columns), decisions of each expert, what `pooling.decide_row`
    fills for `pooling.learn_row`, weight (1,), and `one_row_block`."""


structref.define_proxy(CompiledPool, _CompiledPoolType, FIELDS)


@njit(cache=True, uses=(running, additive, pooling, losses, merge, state, values, steps_of))
def bind(scaling, coefficients, row, pool, kernels, maintenance, buffers):
    """A `CompiledPool`. The caller keeps these arrays alive; they stay what their learners change."""
    return CompiledPool(
        borrowed(scaling),
        borrowed(coefficients),
        borrowed(row),
        borrowed(pool),
        borrowed(kernels),
        borrowed(maintenance),
        borrowed(buffers),
    )


def buffers_for(d: int, experts: int, columns: int) -> tuple[Any, ...]:
    """The buffers of a `CompiledPool`."""
    Z, D, classes = np.empty((1, d), np.float32), np.empty((experts, 1, columns)), max(2, columns)
    return Z, D, (np.empty((experts, classes)), np.empty(classes)), np.empty(1), one_row_block()


def one_row_block() -> tuple[np.ndarray, np.ndarray]:
    """`BlockValues.entries` and V of a block of one row: its value with itself is 0."""
    return np.zeros(1, np.int64), np.zeros((1, 1), np.float32)


@njit(cache=True, uses=(running, additive, pooling, losses, state, values, steps_of))
def decide_pooled(x, compiled, out):
    """Fills out (columns,) with the pooled decision for row x (d,)."""
    _decide_experts(x, compiled)
    _, D, pooled, _, _ = compiled.buffers
    pooling.decide_row(D, np.int64(0), len(compiled.coefficients[0]), compiled.pool[0], pooled, out)


@njit(cache=True, uses=(running, additive, pooling, losses, merge, state, values, steps_of))
def learn_pooled(x, y, weight, compiled):
    """One step of all for the row x (d,) of the last `decide_pooled`. y (columns,): -1 or +1."""
    code = np.int64(y[0] > 0) if len(y) == 1 else np.int64(np.argmax(y))
    _learn_experts(x, y.reshape(1, -1), code, weight, compiled)


@njit(cache=True, uses=(running, additive, losses, merge, state, values, steps_of))
def learn_kernel(Z, Y, weight, kernel, maintenance, block, D):
    """One step of one kernel for each scaled row Z (m, d), in order. D (m, columns): its decisions before its steps."""
    Z, Y, weight, D = borrowed(Z), borrowed(Y), borrowed(weight), borrowed(D)
    kernel, maintenance, block = borrowed(kernel), borrowed(maintenance), borrowed(block)
    for i in range(len(Z)):
        row = slice(i, i + 1)
        _decide_kernel(Z[i], kernel, D[i])
        _step_kernel(Z[row], Y[row], weight[row], kernel, maintenance, block, D[row])


@njit_inner(inline="always")
def _decide_experts(x, compiled):
    counts, born, means, variances, n = compiled.scaling
    Z, D, _, _, _ = compiled.buffers
    scale_row(x, counts, born, means, variances, n[0], Z[0])
    decide_row(Z[0], compiled.coefficients, compiled.row)
    f = AdditiveRow(*compiled.row).f
    for i in range(len(f)):
        values.copy(D[i, 0], f[i])
    e = len(f)
    for kernel in compiled.kernels:
        if e == len(D):
            break
        _decide_kernel(Z[0], kernel, D[e, 0])
        e += 1


@njit_inner(inline="always")
def _decide_kernel(z, kernel, f):
    supports, options, W, F = kernel
    s, o = Supports(*supports), StepOptions(*options)
    exponents_of_row(s.X, s.T, s.norms, s.counts[SUPPORTS], z, o.gamma, W)
    values.decide(W, s.counts[SUPPORTS], s.A, F, True)
    factor = 1 / (o.lam * (s.counts[STEPS] + o.first)) if s.counts[STEPS] else 0.0
    for c in range(len(F)):
        f[c] = factor * (F[c, 0] + s.bias[c])


# inlined functions are not compiled separately
@njit_inner(inline="always")
def _learn_experts(x, Y, code, weight, compiled):
    counts, born, means, variances, n = compiled.scaling
    Z, D, pooled, weights, block = compiled.buffers
    see_row(x, counts, born, means, variances, n)
    pooling.learn_row(pooled, compiled.pool, code, weight)
    e, weights[0] = len(compiled.coefficients[0]), weight
    for kernel in compiled.kernels:
        if e == len(D):
            break
        _step_kernel(Z, Y, weights, kernel, compiled.maintenance, block, D[e])
        e += 1
    learn_row(compiled.coefficients, compiled.row, code, weight)


@njit_inner(inline="always")
def _step_kernel(Z, Y, weight, kernel, maintenance, block, D):
    supports, options, W, F = kernel
    entries, V = block
    tables, together, projects = maintenance
    s = Supports(*supports)
    chance, is_pulled = chance_of(s.counts[STEPS]), len(s.used) > 0  # every row is a use
    for c in range(len(F)):
        is_pulled |= weight[0] * pull(LOGISTIC, Y[0, c], D[0, c], 0.0, 0.0, chance) != 0
    if is_pulled:
        steps(supports, (Z, W, V[:0], entries, V, F, Y, weight, D), options, tables, together, projects)
    else:
        s.counts[STEPS] += 1
