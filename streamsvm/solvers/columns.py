"""What the solvers of several linear problems share, one for each column of w: how near each is to its minimum, and
which of them a step still improves."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Generic, TypeVar

import numpy as np

TINY = float(np.finfo(np.float64).tiny)


def relative(gap: float, objective: float, least: float = 0.0) -> float:
    """A gap over an objective, or over `least` where that is larger; infinite if the gap is."""
    return gap / max(abs(objective), least, TINY) if math.isfinite(gap) else math.inf


@dataclass(kw_only=True)
class Column:
    """One problem. objective: of the best w so far; bound: the largest value that is known to be below the minimum.
    least_fall: share of the least gap by which a step has to make it fall."""

    objective: float = math.inf
    bound: float = -math.inf
    weight: float = 1.0  # sum of the weights of all losses: the C of Joachims (2006)
    least_gap: float = math.inf  # at the last step that made it fall by least_fall of itself
    still: int = 0  # steps since then

    least_fall: ClassVar[float] = 0.0

    @property
    def gap(self) -> float:
        return self.objective - self.bound

    @property
    def least(self) -> float:
        """The minimum at which an objective is distinguishable from 0."""
        return 0.0

    @property
    def relative_gap(self) -> float:
        return relative(self.gap, self.objective, self.least)

    @property
    def excess(self) -> float:
        """The largest that the mean loss can be above that of the solution, which the paper's epsilon limits."""
        return self.gap / self.weight

    def note_gap(self) -> None:
        """Counts steps that do not improve the gap."""
        if self.gap < (1 - self.least_fall) * self.least_gap:
            self.least_gap, self.still = self.gap, 0
        else:
            self.still += 1


AnyColumn = TypeVar("AnyColumn", bound=Column)


@dataclass
class ColumnsState(Generic[AnyColumn]):
    """All columns, and how many steps were taken."""

    columns: list[AnyColumn]
    steps: int = 0

    @property
    def objective(self) -> float:
        return sum(column.objective for column in self.columns)

    @property
    def bound(self) -> float:
        return sum(column.bound for column in self.columns)

    @property
    def gap(self) -> float:
        return self.objective - self.bound

    @property
    def relative_gap(self) -> float:
        """Of all columns together."""
        return relative(self.gap, self.objective)

    @property
    def largest_relative_gap(self) -> float:
        """Of any column."""
        return max(column.relative_gap for column in self.columns)

    @property
    def largest_excess(self) -> float:
        """Of any column."""
        return max(column.excess for column in self.columns)


class ColumnSolver(Generic[AnyColumn]):
    """When columns are solved: at a relative gap of tol, or if epsilon is given, at an excess of epsilon. most_still:
    steps without progress after which rounding has ended a column."""

    tol: float
    epsilon: float | None
    most_still: ClassVar[int]

    def is_open(self, column: AnyColumn) -> bool:
        return column.excess > self.epsilon if self.epsilon is not None else column.relative_gap > self.tol

    def may_improve(self, column: AnyColumn) -> bool:
        return self.is_open(column) and column.still < self.most_still

    def improvable(self, state: ColumnsState[AnyColumn]) -> list[int]:
        """The columns of the next step."""
        return [c for c, column in enumerate(state.columns) if self.may_improve(column)]

    def done(self, state: ColumnsState[AnyColumn]) -> bool:
        return not any(map(self.is_open, state.columns))

    def has_ended(self, state: ColumnsState[AnyColumn]) -> bool:
        """Whether no step follows: all columns are solved, or rounding has ended those that are not."""
        return not self.improvable(state)
