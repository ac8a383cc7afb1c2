"""Duals with y'a = 0, solved at given thresholds, which move until y'a is 0.

A bias ties together what is far apart: every pair of variables has to agree on it. For a given b the dual without the
constraint, min over a of 1/2 a'Qa + (p + b y)'a, is as easy as one without a bias, and y'a, which falls as b rises, is
the derivative of its minimum. So the secant method moves b to where y'a is 0, from level to level of DC-SVM and then in
the problem itself; what is left of y'a goes to many free variables, and pairs do the rest.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from streamsvm.problems.dual import DualQP
from streamsvm.solvers.blockws import (
    MOST_ROUNDS,
    NO_PROGRESS,
    BlockSolver,
    BlockState,
    GivenBias,
    at_precision,
    free_rows,
)
from streamsvm.solvers.sum_constraints import ROUNDING, balanced

MOST_MOVES = 20  # of a threshold; then pairs do the rest
SPREAD = 0.25  # of tol: what a variable may take of y'a that is left
GOLDEN = 0.5 * (5**0.5 - 1)  # the fractional parts of its multiples are spread evenly over [0, 1)


@dataclass(frozen=True)
class Thresholds:
    """Thresholds of some duals, (count,) each: the bias; slope, by how much y'a falls as the bias rises by 1 (0: not
    known); the step that led to this bias, and y'a, the excess, before that step."""

    bias: np.ndarray
    slope: np.ndarray
    step: np.ndarray
    excess: np.ndarray

    @classmethod
    def start(cls, count: int) -> Thresholds:
        return cls(*np.zeros((4, count)))

    def after(self, excess: np.ndarray, n_support: np.ndarray) -> Thresholds:
        """The next thresholds, by y'a (count,) at these and the number of variables that are not 0: half of these is
        the first slope, as if kernel values between rows were small. Wide kernels have a lower one, and the step is
        short."""
        is_moved = self.step != 0
        secant = np.divide(self.excess - excess, self.step, out=np.zeros_like(excess), where=is_moved)
        guess = np.where(self.slope > 0, self.slope, np.maximum(0.5 * n_support, 1.0))
        slope = np.where(secant > 0, secant, guess)
        step = excess / slope
        return Thresholds(self.bias + step, slope, step, excess)

    @property
    def are_known(self) -> bool:
        """Whether any y'a at them is known."""
        return bool(self.slope.any())

    def of_another_problem(self) -> Thresholds:
        """These, for duals of other rows: y'a at the bias before them was another problem's, and gives no slope."""
        return replace(self, step=np.zeros_like(self.step))

    def at(self, number: int) -> Thresholds:
        """The threshold of one dual alone."""
        return self.from_array(self.to_array()[:, number : number + 1])

    def given(self, moves: float) -> GivenBias:
        """The threshold of a single dual, after so many moves."""
        return GivenBias(*self.to_array()[:, 0])._replace(moves=moves)

    def to_array(self) -> np.ndarray:
        """(4, count), for a checkpoint."""
        return np.stack([self.bias, self.slope, self.step, self.excess])

    @classmethod
    def from_array(cls, values: np.ndarray) -> Thresholds:
        return cls(*values)


@dataclass(frozen=True)
class ThresholdSolver(BlockSolver):
    """Steps of the dual at a given bias, while `BlockState.given` is there; then those of pairs. `bias` has to be true.
    While a bias is given, it is the state's, and the violation is that of the rows at it."""

    @property
    def _at_given(self) -> BlockSolver:
        return BlockSolver(self.row_tol, self.block_rows)

    def start(self, problem: DualQP, alpha: np.ndarray, thresholds: Thresholds) -> BlockState:
        """The state at the bias of thresholds, which are of this problem alone."""
        state = self._at_given.at_bias(problem, alpha, float(thresholds.bias[0]))
        return replace(state, given=thresholds.given(0))

    def is_solved(self, state: BlockState) -> bool:
        return state.given is None and super().is_solved(state)

    def has_ended(self, state: BlockState, max_rounds: float = MOST_ROUNDS) -> bool:
        is_last = state.given is None or state.rounds >= max_rounds
        return is_last and super().has_ended(state, max_rounds)

    def step(self, problem: DualQP, state: BlockState) -> BlockState:
        if state.given is None:
            return super().step(problem, state)
        if not self._at_given.has_ended(state):
            return self._at_given.step(problem, state)
        return self._moved_threshold(problem, state, state.given)

    def unshrunk(self, problem: DualQP, state: BlockState) -> BlockState:
        if state.given is None:
            return super().unshrunk(problem, state)
        return self._settled(problem, self._at_given.unshrunk(problem, state))

    def _moved_threshold(self, problem: DualQP, state: BlockState, given: GivenBias) -> BlockState:
        """At the next threshold; or, if that is nearer than tol distinguishes, with y'a = 0."""
        excess, n_support = np.array([problem.y @ state.alpha]), np.array([np.count_nonzero(state.alpha)])
        moved = Thresholds.from_array(np.array(given[:4])[:, None]).after(excess, n_support)
        if abs(moved.step[0]) <= self.row_tol or given.moves >= MOST_MOVES:
            return self._settled(problem, state)
        bias, given = float(moved.bias[0]), moved.given(given.moves + 1)
        state = replace(state, bias=bias, given=given, shrinks_below=np.inf, **NO_PROGRESS)
        return self._at_given.measured(problem, state)

    def _settled(self, problem: DualQP, state: BlockState) -> BlockState:
        """With y'a = 0: what is left of it is spread over so many free variables that none moves by much."""
        excess = float(problem.y @ state.alpha)
        ids = np.flatnonzero(free_rows(problem, state, np.arange(len(state.alpha))))
        ids = ids[np.argsort(np.arange(len(ids)) * GOLDEN % 1.0, kind="stable")]  # far from each other
        a, falls = state.alpha[ids], problem.y[ids] * excess > 0
        room = np.minimum(np.where(falls, a, problem.upper[ids] - a), SPREAD * self.tol)
        moved = np.clip(abs(excess) - (np.cumsum(room) - room), 0.0, room)
        if abs(moved.sum() - abs(excess)) > ROUNDING * max(float(state.alpha.sum()), 1.0):
            return replace(self.init(problem, balanced(state.alpha, problem.y)), rounds=state.rounds)
        ids, delta = ids[moved > 0], np.where(falls, -moved, moved)[moved > 0]
        alpha = state.alpha.copy()
        alpha[ids] += delta
        gradient = state.gradient + at_precision(problem, state).apply(ids, delta)
        state = replace(state, alpha=alpha, gradient=gradient, given=None)
        return self._checked(problem, self.measured(problem, state))


def thresholds_from(arrays: Mapping[str, np.ndarray]) -> Thresholds | None:
    """The thresholds of a checkpoint, if it has some."""
    return Thresholds.from_array(arrays["thresholds"]) if "thresholds" in arrays else None
