"""The columns of ADMM for a task: one for each of its decision values and each value of C."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from streamsvm.solvers.admm import Columns
from streamsvm.tasks.base import Subproblem, Targets, Task
from streamsvm.tasks.pairs import signs


def duals(task: Task, targets: Targets) -> Iterator[Subproblem]:
    """A dual of all rows for each decision value: each class against the rest where the task's own are of pairs."""
    if not task.in_pairs:
        yield from task.subproblems(targets, single=True)
        return
    ids = np.arange(len(targets.codes))
    for column, y in enumerate(signs(targets.codes, len(targets.classes)).T):
        yield Subproblem(ids, y, np.full(len(ids), column), number=column)


def columns_of(task: Task, targets: Targets, bounds: np.ndarray) -> Columns:
    """The duals, for each column of bounds (n, m), C times the weights, one after the other: m times as many."""
    target, rises, falls, epsilon = zip(*map(_in_coefficients, duals(task, targets)), strict=True)
    shape = len(bounds), -1
    upper = (np.stack(rises, axis=1)[:, None] * bounds[:, :, None]).reshape(shape)
    lower = (np.stack(falls, axis=1)[:, None] * -bounds[:, :, None]).reshape(shape)
    return Columns(np.tile(np.stack(target, axis=1), bounds.shape[1]), lower, upper, max(epsilon))


def _in_coefficients(dual: Subproblem) -> tuple[np.ndarray, np.ndarray, np.ndarray, float]:
    """t, factors on the bounds of coefficients above 0 and below it, and epsilon, which all rows have in common."""
    linear = np.broadcast_to(dual.linear, dual.y.shape)
    if dual.copies == 1:
        weight = np.ones(len(dual.y)) if dual.weight is None else dual.weight
        return -dual.y * linear, weight * (dual.y > 0), weight * (dual.y < 0), 0.0
    above, below = linear.reshape(2, -1)  # epsilon - t and epsilon + t
    both = np.ones(len(above))
    return (below - above) / 2, both, both, float((above + below).mean() / 2)
