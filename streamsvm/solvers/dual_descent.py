"""Dual coordinate descent for linear problems whose rows are in memory (Hsieh, Chang, Lin, Keerthi and Sundararajan,
ICML 2008; for regression Ho and Lin 2012).

A sweep visits the variables of `problems.linear_dual` in random order and gives each its best value; w follows.
Variables at a bound that point outward by more than any did in the sweep before are left out of the next.

A column is solved if the gap between the objectives of primal and dual, both in float64, is at most tol times the
primal one; or if it is at most epsilon times sum_i C_i, the rule of Joachims (2006) for the mean loss."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from streamsvm.problems.linear_dual import LinearDual
from streamsvm.solvers.columns import Column, ColumnSolver, ColumnsState

SWEEPS = 20  # over all variables, or as many visits, between two looks at the gap
FALL = 0.03  # of the largest violation, after which the gap is looked at
MOST_STILL = 5  # steps in which the gap of a column does not fall: rounding has ended it
NUMBERS = ("objective", "bound", "weight", "least_gap", "still")
ARRAYS = ("w", "point", "alpha")


@dataclass
class DualColumn(Column):
    """alpha (p, n): the dual variables, w (d,) that follows from them; point (d,): the best w so far."""

    w: np.ndarray
    point: np.ndarray
    alpha: np.ndarray


class DualState(ColumnsState[DualColumn]):
    """The variables of all columns."""

    @property
    def n_support(self) -> int:
        """Rows with a dual variable above 0 in any column."""
        return int(np.any([(column.alpha > 0).any(axis=0) for column in self.columns], axis=0).sum())

    @property
    def planes(self) -> int:
        return 0

    @property
    def points(self) -> tuple[np.ndarray, list[np.ndarray]]:
        """The best w, (d, columns)."""
        return np.stack([c.point for c in self.columns], axis=1), []

    def to_arrays(self) -> dict[str, np.ndarray]:
        numbers = np.array([[getattr(c, name) for name in NUMBERS] for c in self.columns])
        joined = {name: np.stack([getattr(c, name) for c in self.columns]) for name in ARRAYS}
        return joined | {"numbers": numbers, "steps": np.array(self.steps)}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> DualState:
        columns = []
        for c, numbers in enumerate(arrays["numbers"].tolist()):
            values: dict[str, Any] = {name: np.array(arrays[name][c]) for name in ARRAYS}
            columns.append(DualColumn(**values | dict(zip(NUMBERS, numbers, strict=True))))
        return cls(columns, int(arrays["steps"]))


@dataclass(frozen=True)
class DualDescent(ColumnSolver[DualColumn]):
    """A step is up to SWEEPS sweeps over the variables of each column that is not solved, and a look at its gap."""

    tol: float = 1e-3
    epsilon: float | None = None
    seed: int = 0
    most_still: ClassVar[int] = MOST_STILL

    def init(self, problem: LinearDual) -> DualState:
        """a = 0."""
        columns = []
        for c in range(problem.columns):
            alpha, w = problem.zeros(c), np.zeros(problem.d)
            _, objective, bound = problem.evaluated(c, alpha)
            weight = problem.weight(c)
            columns.append(DualColumn(w, w.copy(), alpha, objective=objective, bound=bound, weight=weight))
        return DualState(columns)

    def step(self, problem: LinearDual, state: DualState) -> DualState:
        open_columns = self.improvable(state)
        made = problem.side_by_side(lambda c: self._stepped(problem, state.columns[c], c, state.steps), open_columns)
        columns, most = list(state.columns), 0
        for c, (column, visits) in zip(open_columns, made, strict=True):
            columns[c], most = column, max(most, visits)
        problem.count += -(-most // max(problem.n, 1)) + 2
        return DualState(columns, state.steps + 1)

    def _stepped(self, problem: LinearDual, before: DualColumn, c: int, step: int) -> tuple[DualColumn, int]:
        alpha = before.alpha.copy()
        visits = problem.descend(c, alpha, before.w.copy(), SWEEPS * problem.n, FALL, [self.seed, step, c])
        w, objective, bound = problem.evaluated(c, alpha)
        after = replace(before, w=w, alpha=alpha, bound=max(before.bound, bound))
        if objective < before.objective:
            after.point, after.objective = w, objective
        after.note_gap()
        return after, visits
