"""Duals over the same rows that differ only in their bounds, solved in parallel: the folds of a cross-validation.

A fold is the whole problem with bounds of 0 on its held-out rows. All columns then want nearly the same kernel values:
each round takes one working set for all, solves every column's dual restricted to it, and streams one product
Q[active, B] @ deltas. The gradient is known on held-out rows, too, so their decision values cost no prediction."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from streamsvm.parallel.strips import strips
from streamsvm.problems.dual import ColumnsQP
from streamsvm.solvers.blockws import (
    NO_PROGRESS,
    BlockSolver,
    BlockState,
    active_rows,
    mixed_block,
    reactivated,
    recent_violations,
    shrunk,
)
from streamsvm.solvers.in_turn import prefixed, unprefixed
from streamsvm.solvers.loop import run

BLOCK = 3056  # rows of a working set: what several columns want; on ijcnn1 2/3 of it takes longer, and 4/3
WHOLE = 8192  # rows whose Q is kept (256 MiB): on ijcnn1 6144 takes longer, and 12288
SHRINKS = 0.5  # of the largest violation: the gradient must hold a row at a bound by as much for it to be dropped


@dataclass
class _Column:
    """A column as a problem of the block solver: its Gram matrix is made already, and its products are the caller's."""

    y: np.ndarray
    upper: np.ndarray
    linear: np.ndarray | float = 0.0
    Q: np.ndarray = field(default_factory=lambda: np.empty((0, 0), np.float32))

    def gram(self, ids: np.ndarray) -> np.ndarray:
        return self.Q


@dataclass(frozen=True)
class LockstepState:
    """A state of each column; the active rows, the last block and what is shrunk are the same in all of them."""

    columns: tuple[BlockState, ...]

    @property
    def first(self) -> BlockState:
        return self.columns[0]

    @property
    def violation(self) -> float:
        """The largest of all columns'."""
        return max(column.violation for column in self.columns)

    @property
    def alpha(self) -> np.ndarray:
        """(columns, n)"""
        return np.stack([column.alpha for column in self.columns])

    def with_all(self, change: Callable[[BlockState], dict[str, Any]]) -> LockstepState:
        """With fields of each column changed."""
        return LockstepState(tuple(replace(column, **change(column)) for column in self.columns))

    def to_arrays(self) -> dict[str, object]:
        """All fields as named arrays, for a checkpoint."""
        arrays: dict[str, object] = {"columns": len(self.columns)}
        for c, column in enumerate(self.columns):
            arrays |= prefixed(f"{c}_", column.to_arrays())
        return arrays

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> LockstepState:
        columns = range(int(arrays["columns"]))
        return cls(tuple(BlockState.from_arrays(unprefixed(f"{c}_", arrays)) for c in columns))


@dataclass(frozen=True)
class Lockstep:
    """The block solver for many columns at once: each reaches `solver.tol`. whole: active rows from which on all of
    them are the working set, round after round, and Q of them is kept."""

    solver: BlockSolver
    threads: int = 1
    whole: int = WHOLE

    def init(self, problem: ColumnsQP) -> LockstepState:
        """From zero."""
        n = len(problem.y)
        zero = BlockState(np.zeros(n), np.zeros(n) + problem.linear)
        return self._measured(problem, [zero] * len(problem.upper))

    def again(self, problem: ColumnsQP, solved: LockstepState) -> LockstepState:
        """A start from a solution under lower bounds: of its multiples, each column's with the least objective. The
        gradient Qa + p is known for all of them: no product is needed. Bounds grow by one factor for all rows."""
        columns = []
        for upper, column in zip(problem.upper, solved.columns, strict=True):
            a, Qa = column.alpha, column.gradient - problem.linear
            reach = float(np.min(upper[a > 0] / a[a > 0], initial=np.inf))
            best = -float(np.sum(problem.linear * a)) / max(float(a @ Qa), 1e-300)
            scale = float(np.clip(best, 1.0, max(reach, 1.0)))
            # a hair below its bound a row would count as free to rise, and float32 steps could not resolve that
            scaled = np.where(scale * a > (1 - 1e-12) * upper, upper, scale * a)
            columns.append(BlockState(scaled, scale * Qa + problem.linear))
        return self._measured(problem, columns)

    def solve(self, problem: ColumnsQP, state: LockstepState) -> LockstepState:
        """Steps from `state` until all columns are solved, or no step improves those that are not."""
        state = run(self, problem, state, stop=self.has_ended)
        return self._whole(problem, state.columns) if state.first.shrunk else state

    def has_ended(self, state: LockstepState) -> bool:
        """Whether no step follows, as `BlockSolver.has_ended`."""
        return self.is_solved(state) or all(map(self.solver.has_ended, state.columns))

    def is_solved(self, state: LockstepState) -> bool:
        return all(map(self.solver.is_solved, state.columns))

    def step(self, problem: ColumnsQP, state: LockstepState) -> LockstepState:
        """One working set for the columns that are not solved yet; solved ones wait."""
        tol = self.solver.tol
        todo = [c for c, column in enumerate(state.columns) if column.violation > tol]
        if not todo:
            return self._whole(problem, state.columns)
        columns = self._shrunk(problem, state, todo)
        block, recent = self._block(problem, columns, todo)
        deltas = self._deltas(problem, columns, todo, block)
        moved = np.flatnonzero(deltas.any(axis=0))
        if not len(moved):
            return self._rounded(problem, columns)
        active = columns[0].active
        products = problem.apply(block[moved], deltas[:, moved], active)
        gains = np.zeros(len(columns))
        for c, delta, product in zip(todo, deltas, products, strict=True):
            alpha, gradient = columns[c].alpha.copy(), columns[c].gradient.copy()
            alpha[block] = np.clip(alpha[block] + delta, 0.0, problem.upper[c][block])
            gradient[slice(None) if active is None else active] += product
            gains[c] = -0.5 * float(delta @ (columns[c].gradient + gradient)[block])
            columns[c] = replace(columns[c], alpha=alpha, gradient=gradient)
        rounds = state.first.rounds + 1
        after = self._measured(problem, [replace(c, block=block, recent=recent, rounds=rounds) for c in columns])
        return self._with_progress(problem, after, todo, gains)

    def _with_progress(
        self, problem: ColumnsQP, state: LockstepState, todo: list[int], gains: np.ndarray
    ) -> LockstepState:
        """With the progress of columns that are not solved counted; or `_rounded`, if none makes any."""
        columns = list(state.columns)
        for c in todo:
            column = _Column(problem.y, problem.upper[c], problem.linear)
            columns[c] = self.solver.with_progress(column, columns[c], gains[c])
        if all(self.solver.is_idle(columns[c]) for c in todo):
            return self._rounded(problem, columns)
        return LockstepState(tuple(columns))

    def _rounded(self, problem: ColumnsQP, columns: Sequence[BlockState]) -> LockstepState:
        """As `BlockSolver.rounded`."""
        first, whole = columns[0], self._whole(problem, columns)
        if first.shrunk:
            below = 0.5 * min(first.shrinks_below, whole.violation)
            return whole.with_all(lambda _: {"shrinks_below": below})
        if not (self.solver.bias or first.in_float64):  # its coefficients: products of columns are float32
            return whole.with_all(lambda _: {"in_float64": True})
        return whole.with_all(lambda column: {"is_rounded": not self.solver.is_solved(column)})

    def _whole(self, problem: ColumnsQP, columns: Sequence[BlockState]) -> LockstepState:
        """With all rows active again."""
        return self._measured(problem, reactivated([replace(c, **NO_PROGRESS) for c in columns], problem.apply))

    def _deltas(self, problem: ColumnsQP, columns: list[BlockState], todo: list[int], block: np.ndarray) -> np.ndarray:
        """(len(todo), len(block)): the step of each column in the working set."""
        Q, deltas = problem.gram(block), np.zeros((len(todo), len(block)))

        def solve(start: int, stop: int) -> None:
            for place in range(start, stop):
                column, upper = columns[todo[place]], problem.upper[todo[place]]
                new, _ = self.solver.solve_block(_Column(problem.y, upper, problem.linear, Q), column, block)
                deltas[place] = new - column.alpha[block]

        strips(solve, len(todo), 1, self.threads)
        return deltas

    def _measured(self, problem: ColumnsQP, columns: Sequence[BlockState]) -> LockstepState:
        pairs = zip(problem.upper, columns, strict=True)
        return LockstepState(tuple(self.solver.measured(_Column(problem.y, u), c) for u, c in pairs))

    def _shrunk(self, problem: ColumnsQP, state: LockstepState, todo: list[int]) -> list[BlockState]:
        """Drops rows that every column would drop."""
        if state.violation > state.first.shrinks_below:
            return list(state.columns)

        def by_column(c: int, rows: np.ndarray) -> np.ndarray:
            column, state_c = _Column(problem.y, problem.upper[c]), state.columns[c]
            return self.solver.shrinkable(column, state_c, rows, SHRINKS * state_c.violation)

        def by_all(rows: np.ndarray) -> np.ndarray:
            return np.logical_and.reduce([by_column(c, rows) for c in todo])

        return shrunk(state.columns, self.solver.block_rows, by_all)

    def _block(self, problem: ColumnsQP, columns: list[BlockState], todo: list[int]) -> tuple[np.ndarray, np.ndarray]:
        """As the block solver selects it, by each row's largest violation over those of its column; and those that are
        recent."""
        ids = active_rows(columns[0])
        if len(ids) <= self.whole:
            return ids, np.empty(0)
        v = np.zeros((2, len(problem.y)))
        for c in todo:
            rises, violation = self.solver.sides(_Column(problem.y, problem.upper[c]), columns[c], ids)
            share = violation / columns[c].violation
            v[:, ids] = np.maximum(v[:, ids], np.where([rises, ~rises], share, 0.0))
        recent = recent_violations(columns[0], v.max(axis=0))
        previous = np.intersect1d(columns[0].block, ids)
        block = mixed_block(previous, recent, [(v[0], True), (v[1], True)], self.solver.block_rows)
        return block, recent[block]
