"""Duals over the same rows that differ in their bounds alone, solved side by side: the folds of a cross-validation.

A fold is the whole problem with bounds of 0 on its held-out rows. All columns then want nearly the same kernel values:
each round takes one working set for all, solves every column's dual restricted to it, and streams one product
Q[active, B] @ deltas. The gradient is known on held-out rows, too, so their decision values cost no prediction.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np

from streamsvm.data.rows import Rows
from streamsvm.kernels.base import Kernel
from streamsvm.latest import Latest
from streamsvm.problems import signed
from streamsvm.solvers.blockws import MOST_ROUNDS, BlockSolver, BlockState, Shrunk, largest
from streamsvm.strips import strips

BLOCK = 3072  # rows of a working set: what several columns want; on ijcnn1 2048 takes longer, and 4096
WHOLE = 8192  # rows whose Q is kept (256 MiB): on ijcnn1 6144 takes longer, and 12288
HELD = 0.5  # of the largest violation: by as much must a row be held at a bound to be dropped


class KeptGram:
    """The Gram matrix of the last rows that were asked for; problems that take turns can share its memory."""

    def __init__(self) -> None:
        self._space = np.empty(0, np.float32)  # used again and again: fresh pages cost more than values
        self._owner: Columns | None = None
        self._latest: Latest[np.ndarray] = Latest()

    def of(self, owner: Columns, ids: np.ndarray, make: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
        """make(out (q, q) float32) of q ids of a problem, or what it made of them the time before."""
        if owner is not self._owner:  # the same ids are other rows there
            self._owner, self._latest = owner, Latest()
        return self._latest.of(ids, lambda ids: make(self._room(len(ids))))

    def _room(self, q: int) -> np.ndarray:
        if len(self._space) < q * q:
            self._space = np.empty(max(q, BLOCK) ** 2, np.float32)
        return self._space[: q * q].reshape(q, q)


@dataclass
class Columns:
    """min over a of 1/2 a'Qa - e'a, 0 <= a <= upper_c, for each column c; rows in memory.

    y: (n,) float64, -1 or +1. upper: (columns, n) float64.
    """

    kernel: Kernel
    rows: Rows
    y: np.ndarray
    upper: np.ndarray
    threads: int = 1
    kept: KeptGram = field(default_factory=KeptGram, repr=False)
    _ids: np.ndarray = field(init=False, repr=False)
    _active: Latest[Rows] = field(default_factory=Latest, repr=False)

    def __post_init__(self) -> None:
        self._ids = np.arange(len(self.y))

    def gram(self, ids: np.ndarray) -> np.ndarray:
        """Q[ids, ids], (q, q) float32, in memory that the next call uses again."""

        def make(out: np.ndarray) -> np.ndarray:
            some = self.rows.take(ids)
            return signed(self.kernel.block(some, some, self.threads, out), self.y[ids])

        return self.kept.of(self, ids, make)

    def active(self, state: LockstepState) -> np.ndarray:
        """The rows that may move."""
        return self._ids if state.first.active is None else state.first.active

    def apply(self, ids: np.ndarray, deltas: np.ndarray, rows: np.ndarray | None = None) -> np.ndarray:
        """deltas @ Q[ids, rows], (columns, len(rows)) float64, for deltas (columns, len(ids)); rows None: all."""
        coef = np.ascontiguousarray((deltas * self.y[ids]).T)
        product = self.kernel.apply(self._taken(rows), self.rows.take(ids), coef, self.threads)
        return np.ascontiguousarray(product.T) * (self.y if rows is None else self.y[rows])

    def _taken(self, ids: np.ndarray | None) -> Rows:
        """The rows of an active set, gathered once for the rounds that share it."""
        return self.rows if ids is None else self._active.of(ids, self.rows.take)


@dataclass
class _Column:
    """One of them, for the block solver: its Gram matrix is made already, and its products are the caller's."""

    y: np.ndarray
    upper: np.ndarray
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


@dataclass(frozen=True)
class Lockstep:
    """The block solver for many columns at once: each reaches `solver.tol`.

    whole: active rows from which on all of them are the working set, round after round, and Q of them is kept.
    """

    solver: BlockSolver
    threads: int = 1
    whole: int = WHOLE

    def init(self, problem: Columns) -> LockstepState:
        """From zero."""
        zero = BlockState(np.zeros(len(problem.y)), np.full(len(problem.y), -1.0))
        return self._measured(problem, LockstepState((zero,) * len(problem.upper)))

    def again(self, problem: Columns, solved: LockstepState) -> LockstepState:
        """A start from a solution under lower bounds: of its multiples, each column's with the least objective.

        The gradient Qa - e is known for all of them: no product is needed. Bounds grow by one factor for all rows.
        """
        columns = []
        for upper, column in zip(problem.upper, solved.columns, strict=True):
            a, Qa = column.alpha, column.gradient + 1.0
            reach = float(np.min(upper[a > 0] / a[a > 0], initial=np.inf))
            scale = float(np.clip(a.sum() / max(a @ Qa, 1e-300), 1.0, max(reach, 1.0)))
            # a hair below its bound a row would count as free to rise, and float32 steps could not tell
            scaled = np.where(scale * a > (1 - 1e-12) * upper, upper, scale * a)
            columns.append(BlockState(scaled, scale * Qa - 1.0))
        return self._measured(problem, LockstepState(tuple(columns)))

    def solve(self, problem: Columns, state: LockstepState) -> LockstepState:
        """Steps from `state` until all columns are solved. Raises ConfigError where tol is out of reach."""
        while state.violation > self.solver.tol or state.first.shrunk:
            if state.violation <= self.solver.tol:
                state = self._unshrunk(problem, state)
            else:
                self.solver.out_of_rounds(state.first, MOST_ROUNDS)
                state = self.step(problem, state)
        return state

    def step(self, problem: Columns, state: LockstepState) -> LockstepState:
        """One working set for the columns that are not solved yet; those that are wait."""
        todo = [c for c, column in enumerate(state.columns) if column.violation > self.solver.tol]
        state = self._shrunk(problem, state, todo)
        block, active = self._block(problem, state, todo), state.first.active
        Q, columns = problem.gram(block), list(state.columns)
        deltas = np.zeros((len(todo), len(block)))

        def solve(start: int, stop: int) -> None:
            for place in range(start, stop):
                column, upper = columns[todo[place]], problem.upper[todo[place]]
                new, _ = self.solver.solve_block(_Column(problem.y, upper, Q), column, block)
                deltas[place] = new - column.alpha[block]

        strips(solve, len(todo), 1, self.threads)
        moved = np.flatnonzero(deltas.any(axis=0))
        if not len(moved):
            raise self.solver.stuck(columns[todo[0]])
        products = problem.apply(block[moved], deltas[:, moved], active)
        for c, delta, product in zip(todo, deltas, products, strict=True):
            alpha, gradient = columns[c].alpha.copy(), columns[c].gradient.copy()
            alpha[block] = np.clip(alpha[block] + delta, 0.0, problem.upper[c][block])
            gradient[slice(None) if active is None else active] += product
            columns[c] = replace(columns[c], alpha=alpha, gradient=gradient)
        rounds = state.first.rounds + 1
        after = tuple(replace(column, block=block, rounds=rounds) for column in columns)
        return self._measured(problem, LockstepState(after))

    def _measured(self, problem: Columns, state: LockstepState) -> LockstepState:
        pairs = zip(problem.upper, state.columns, strict=True)
        return LockstepState(
            tuple(self.solver.measured(_Column(problem.y, upper), column) for upper, column in pairs)
        )

    def _shrunk(self, problem: Columns, state: LockstepState, todo: list[int]) -> LockstepState:
        """Drops rows that every column would drop."""
        first, active = state.first, problem.active(state)
        if first.rounds < 3 or len(active) <= 2 * self.solver.block_rows:
            return state
        settled = np.ones(len(active), bool)
        for c in todo:
            column, least = _Column(problem.y, problem.upper[c]), HELD * state.columns[c].violation
            settled &= self.solver.held(column, state.columns[c], active, least)
        if settled.mean() < 0.3:
            return state
        left, gone = active[~settled], active[settled]
        columns = (replace(c, active=left, shrunk=(*c.shrunk, Shrunk(gone, c.alpha))) for c in state.columns)
        return LockstepState(tuple(columns))

    def _unshrunk(self, problem: Columns, state: LockstepState) -> LockstepState:
        """All rows active again, and measured: shrunk gradients catch up with what has moved since."""
        gradients = [column.gradient.copy() for column in state.columns]
        for number, group in enumerate(state.first.shrunk):
            change = np.stack([c.alpha - c.shrunk[number].alpha for c in state.columns])
            moved = np.flatnonzero(change.any(axis=0))
            products = problem.apply(moved, change[:, moved], group.ids)
            for gradient, product in zip(gradients, products, strict=True):
                gradient[group.ids] += product
        columns = zip(state.columns, gradients, strict=True)
        whole = tuple(replace(c, gradient=g, active=None, shrunk=()) for c, g in columns)
        return self._measured(problem, LockstepState(whole))

    def _block(self, problem: Columns, state: LockstepState, todo: list[int]) -> np.ndarray:
        """As the block solver selects it, by each row's largest violation over those of its column."""
        first, rows, ids = state.first, self.solver.block_rows, problem.active(state)
        if len(ids) <= self.whole:
            return ids
        v = np.zeros((2, len(ids)))
        for c in todo:
            rises, violation = self.solver.sides(_Column(problem.y, problem.upper[c]), state.columns[c], ids)
            share = violation / state.columns[c].violation
            np.maximum(v, np.where([rises, ~rises], share, 0.0), out=v)
        kept = largest(np.flatnonzero(np.isin(ids, first.block)), v.max(axis=0), rows // 2)
        v[:, kept] = 0.0
        quarter = (rows - len(kept)) // 2
        fresh = [largest(np.flatnonzero(side > 0), side, quarter) for side in v]
        return ids[np.unique(np.concatenate([kept, *fresh]))]
