"""Dual coordinate descent for linear problems whose rows are in memory (Hsieh, Chang, Lin, Keerthi and Sundararajan,
ICML 2008; for regression Ho and Lin 2012).

A sweep visits the variables of `problems.linear_dual` in random order and gives each its best value; w follows.
Variables at a bound that point outward by more than any did in the sweep before are left out of the next.

A column is solved if the gap between the objectives of primal and dual, both in float64, is at most tol times the
primal one; or if it is at most epsilon times sum_i C_i, the rule of Joachims (2006) for the mean loss."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from streamsvm.problems.linear_dual import LinearDual

SWEEPS = 20  # over all variables, or as many visits, between two looks at the gap
FALL = 0.03  # of the largest violation, after which the gap is looked at
MOST_STILL = 5  # steps in which the gap of a column does not fall: rounding has ended it
TINY = float(np.finfo(np.float64).tiny)
NUMBERS = ("objective", "bound", "weight", "least_gap", "still")
ARRAYS = ("w", "point", "alpha")


@dataclass
class DualColumn:
    """alpha (p, n): the dual variables, w (d,) that follows from them; point (d,): the best w so far, with its
    objective. bound: the largest value of the dual."""

    w: np.ndarray
    point: np.ndarray
    alpha: np.ndarray
    objective: float = np.inf
    bound: float = -np.inf
    weight: float = 1.0  # sum of the weights of all losses
    least_gap: float = np.inf
    still: int = 0  # steps in which the gap did not fall

    @property
    def gap(self) -> float:
        return self.objective - self.bound

    @property
    def relative_gap(self) -> float:
        return self.gap / max(abs(self.objective), TINY)

    @property
    def excess(self) -> float:
        """The largest that the mean loss can be above that of the solution."""
        return self.gap / self.weight


@dataclass
class DualState:
    columns: list[DualColumn]
    steps: int = 0

    @property
    def objective(self) -> float:
        return sum(column.objective for column in self.columns)

    @property
    def bound(self) -> float:
        return sum(column.bound for column in self.columns)

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
class DualDescent:
    """A step is up to SWEEPS sweeps over the variables of each column that is not solved, and a look at its gap."""

    tol: float = 1e-3
    epsilon: float | None = None
    seed: int = 0

    def init(self, problem: LinearDual) -> DualState:
        """a = 0."""
        columns = []
        for c in range(problem.columns):
            alpha, w = problem.zeros(c), np.zeros(problem.d)
            _, objective, bound = problem.evaluated(c, alpha)
            columns.append(DualColumn(w, w.copy(), alpha, objective, bound, problem.weight(c)))
        return DualState(columns)

    def step(self, problem: LinearDual, state: DualState) -> DualState:
        open_columns = [c for c, column in enumerate(state.columns) if self.may_improve(column)]
        made = problem.side_by_side(lambda c: self._stepped(problem, state.columns[c], c, state.steps), open_columns)
        columns, most = list(state.columns), 0
        for c, (column, visits) in zip(open_columns, made, strict=True):
            columns[c], most = column, max(most, visits)
        problem.count += -(-most // max(problem.n, 1)) + 2
        return replace(state, columns=columns, steps=state.steps + 1)

    def _stepped(self, problem: LinearDual, before: DualColumn, c: int, step: int) -> tuple[DualColumn, int]:
        alpha = before.alpha.copy()
        visits = problem.descend(c, alpha, before.w.copy(), SWEEPS * problem.n, FALL, [self.seed, step, c])
        w, objective, bound = problem.evaluated(c, alpha)
        after = replace(before, w=w, alpha=alpha, bound=max(before.bound, bound))
        if objective < before.objective:
            after.point, after.objective = w, objective
        after.still = 0 if after.gap < before.least_gap else before.still + 1
        after.least_gap = min(after.gap, before.least_gap)
        return after, visits

    def is_open(self, column: DualColumn) -> bool:
        return column.excess > self.epsilon if self.epsilon is not None else column.relative_gap > self.tol

    def may_improve(self, column: DualColumn) -> bool:
        return self.is_open(column) and column.still < MOST_STILL

    def done(self, state: DualState) -> bool:
        return not any(map(self.is_open, state.columns))

    def has_ended(self, state: DualState) -> bool:
        """Whether no step follows: all columns are solved, or rounding has ended those that are not."""
        return not any(map(self.may_improve, state.columns))
