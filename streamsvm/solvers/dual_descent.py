"""Dual coordinate descent for linear problems (Hsieh, Chang, Lin, Keerthi and Sundararajan, ICML 2008; for regression
Ho and Lin 2012): over all rows, which are in memory, or over one block of rows after the other.

A sweep visits the variables of `problems.linear_dual` in random order and gives each its best value; w follows.
Variables at a bound that point outward by more than any did in the sweep before are left out of the next.

Block minimisation (Yu, Hsieh, Chang and Lin, KDD 2010) makes a few sweeps over the rows of a block, and reads the next
one. Rows with a variable between its bounds stay for the next block, up to half of its room (Chang and Roth, KDD 2011):
most of the work is theirs, and the variables of rows that never meet would have to agree through w, pass by pass.

A column is solved if the gap between the objectives of primal and dual, both in float64, is at most tol times the
primal one; or if it is at most epsilon times sum_i C_i, the rule of Joachims (2006) for the mean loss."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar

import numpy as np

from streamsvm.problems.linear_dual import LinearDual, LinearDualBlock, LinearDualInBlocks, LinearDualInMemory
from streamsvm.solvers.columns import Column, ColumnSolver, ColumnsState

SWEEPS = 20  # over all variables, or as many visits, between two looks at the gap
FALL = 0.03  # of the largest violation, after which the gap is looked at
BLOCK_FALL = 0.4  # the same, after which the next block is read
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
class _Descent(ColumnSolver[DualColumn]):
    tol: float = 1e-3
    epsilon: float | None = None
    seed: int = 0
    most_still: ClassVar[int] = MOST_STILL

    def init(self, problem: LinearDual) -> DualState:
        """a = 0."""
        columns, w = [], np.zeros(problem.d)
        for c in range(problem.columns):
            losses, weight = problem.loss(c, np.zeros(problem.n)), problem.weight(c)
            columns.append(DualColumn(w, w, problem.zeros(c), objective=losses, bound=0.0, weight=weight))
        return DualState(columns)


class DualDescent(_Descent):
    """A step is up to SWEEPS sweeps over the variables of each column that is not solved, and a look at its gap."""

    def step(self, problem: LinearDualInMemory, state: DualState) -> DualState:
        open_columns = self.improvable(state)
        made = problem.side_by_side(lambda c: self._stepped(problem, state.columns[c], c, state.steps), open_columns)
        columns, most = list(state.columns), 0
        for c, (column, visits) in zip(open_columns, made, strict=True):
            columns[c], most = column, max(most, visits)
        problem.count += -(-most // max(problem.n, 1)) + 2
        return DualState(columns, state.steps + 1)

    def _stepped(self, problem: LinearDualInMemory, before: DualColumn, c: int, step: int) -> tuple[DualColumn, int]:
        alpha = before.alpha.copy()
        visits = problem.descend(c, alpha, before.w.copy(), SWEEPS * problem.n, FALL, [self.seed, step, c])
        w, objective, bound = problem.evaluated(c, alpha)
        after = replace(before, w=w, alpha=alpha, bound=max(before.bound, bound))
        if objective < before.objective:
            after.point, after.objective = w, objective
        after.note_gap()
        return after, visits


@dataclass
class _ColumnPass:
    """A column in a pass over blocks. w follows alpha; of the rows that no later block has, new_w is w(alpha), and
    losses are those at the w before the pass, of the rows so far."""

    before: DualColumn
    alpha: np.ndarray = field(init=False)
    w: np.ndarray = field(init=False)
    new_w: np.ndarray = field(init=False)
    losses: float = 0.0

    def __post_init__(self) -> None:
        self.alpha, self.w = self.before.alpha.copy(), self.before.w.copy()
        self.new_w = np.zeros_like(self.w)

    def ended(self, problem: LinearDualInBlocks, c: int) -> DualColumn:
        before, w = self.before, self.before.w
        bound = max(before.bound, problem.dual(c, self.alpha, self.new_w))
        after = replace(before, w=self.new_w, alpha=self.alpha, bound=bound)
        objective = 0.5 * float(w @ w) + self.losses
        if objective < before.objective:
            after.point, after.objective = w, objective
        after.note_gap()
        return after


class BlockDescent(_Descent):
    """A step is a pass over the blocks. The objective that it looks at is that of the w before it, whose losses the
    same pass adds up, so that each row is read once; the value of the dual is that of the variables after it."""

    def step(self, problem: LinearDualInBlocks, state: DualState) -> DualState:
        passes = {c: _ColumnPass(state.columns[c]) for c in self.improvable(state)}
        problem.over(partial(self._visit, passes, state.steps), [self.seed, state.steps])
        ended = {c: column_pass.ended(problem, c) for c, column_pass in passes.items()}
        return DualState([ended.get(c, column) for c, column in enumerate(state.columns)], state.steps + 1)

    def _visit(self, passes: Mapping[int, _ColumnPass], step: int, block: LinearDualBlock) -> np.ndarray:
        """The rows that stay for the next block."""
        free = np.zeros(block.n, bool)
        for is_free in block.side_by_side(lambda c: self._descended(passes[c], c, step, block), list(passes)):
            free |= is_free
        stays = np.zeros(block.n, bool)
        if not block.is_last:
            rows, most = np.flatnonzero(free), block.n // 2
            rng = np.random.default_rng([self.seed, step, block.number])
            stays[rows if len(rows) <= most else rng.choice(rows, most, replace=False)] = True
        for _ in block.side_by_side(lambda c: _add_leaving(passes[c], c, block, ~stays), list(passes)):
            pass
        return stays

    def _descended(self, column_pass: _ColumnPass, c: int, step: int, block: LinearDualBlock) -> np.ndarray:
        """Which rows have a free variable after some sweeps over those of the block."""
        products = block.products(column_pass.before.w, block.kept)
        column_pass.losses += block.loss(c, products, block.kept)
        fall = FALL if block.is_last else BLOCK_FALL
        alpha, seed = np.ascontiguousarray(column_pass.alpha[:, block.ids]), [self.seed, step, c, block.number]
        block.descend(c, alpha, column_pass.w, SWEEPS * block.n, fall, seed)
        column_pass.alpha[:, block.ids] = alpha
        return block.free(alpha)


def _add_leaving(column_pass: _ColumnPass, c: int, block: LinearDualBlock, leaves: np.ndarray) -> None:
    column_pass.new_w += block.combined(c, np.where(leaves, column_pass.alpha[:, block.ids], 0.0))
