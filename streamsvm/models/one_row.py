"""One row past all experts of a pool in two calls: what compiled code costs to call is most of what an event costs."""

from __future__ import annotations

import numba as nb

from streamsvm.data import running
from streamsvm.data.running import scale_row, see_row
from streamsvm.private.numba import stale_with
from streamsvm.solvers import additive, pooling
from streamsvm.solvers.additive import decide_row, learn_row
from streamsvm.solvers.budget import losses, merge, project, state, values
from streamsvm.solvers.budget import steps as steps_of
from streamsvm.solvers.budget.losses import LOGISTIC, chance_of, pull
from streamsvm.solvers.budget.state import STEPS, SUPPORTS, Options, Supports
from streamsvm.solvers.budget.steps import steps
from streamsvm.solvers.budget.values import exponents_of_row


@stale_with(running, additive, pooling, losses, state, values, steps_of)
@nb.njit(nogil=True, cache=True)
def meet(x, scaling, coefficients, pool, kernels, room):
    """What all say of row x (d,), and what they say together, into the room: Z (1, d), the row scaled, D (experts, 1,
    columns), what each says, out (1, columns), and what the additive functions met.

    scaling, coefficients, pool: arrays of `RunningScaling`, `AdditiveLearner` and `Pool`. kernels: of each rbf learner
    Supports, Options, and room for its values (slots, 1) and decisions (columns, 1).
    """
    counts, born, means, variances, n = scaling
    Z, D, out, at, share, f, known, _, _ = room
    scale_row(x, counts, born, means, variances, n[0], Z[0])
    known[0] = decide_row(Z[0], coefficients[0], coefficients[2], at, share, f)
    D[: len(f), 0] = f
    e = len(f)
    for supports, options, W, F in kernels:
        s, o = Supports(*supports), Options(*options)
        exponents_of_row(s.X, s.norms, s.counts[SUPPORTS], Z[0], o.gamma, W)
        values.decide(W, s.counts[SUPPORTS], s.A, F, True)
        factor = 1 / (o.lam * (s.counts[STEPS] + o.first)) if s.counts[STEPS] else 0.0
        for c in range(len(F)):
            D[e, 0, c] = factor * (F[c, 0] + s.bias[c])
        e += 1
    pooling.decide(D, len(f), pool[0], out)


@stale_with(running, additive, pooling, losses, merge, project, state, values, steps_of)
@nb.njit(nogil=True, cache=True)
def learn(row, parts, ways):
    """One step of all for the row that has just been met.

    row: x (d,), Y (1, columns) of -1 or +1, its class and weight (1,). parts: what follows x in `meet`. ways: tables,
    together and projects of `steps`.
    """
    x, Y, code, weight = row
    scaling, coefficients, pool, kernels, room = parts
    counts, born, means, variances, n = scaling
    Z, D, out, at, share, f, known, entries, own = room
    tables, together, projects = ways
    see_row(x, counts, born, means, variances, n)
    pooling.learn(D, len(f), pool, code, weight, out)
    e = len(f)
    for supports, options, W, F in kernels:
        steps_taken = Supports(*supports).counts
        chance, is_pulled = chance_of(steps_taken[STEPS]), False
        for c in range(len(F)):
            is_pulled |= weight[0] * pull(LOGISTIC, Y[0, c], D[e, 0, c], 0.0, 0.0, chance) != 0
        if is_pulled:
            met = (Z, W, entries, own, F, Y, weight, D[e])
            steps(supports, met, options, tables, together, projects)
        else:
            steps_taken[STEPS] += 1
        e += 1
    learn_row(Z[0], coefficients, code[0], weight[0], at[: known[0]], share[: known[0]], f)
