"""Subproblems solved one after the other by the block solver: those of a task, over the same rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Protocol, TypeVar

import numpy as np

from streamsvm.problems.dual import DualQP
from streamsvm.solvers import blockws
from streamsvm.solvers.loop import is_late
from streamsvm.solvers.sum_constraints import ROUNDING, SAMPLE, keeps_signs
from streamsvm.solvers.threshold import Thresholds, ThresholdSolver, thresholds_from

SLACK = 2e-6  # of decision values, which are sums of float32
LEAST = 0.01  # of one row's: float32 kernel values resolve no less


class Duals(Protocol):
    """The oracle. shape (m, columns): of the coefficients of all subproblems, each of which has places among them.
    count: of subproblems, also those that are left out as none of these rows are theirs."""

    shape: tuple[int, int]

    @property
    def count(self) -> int: ...

    def places(self, number: int) -> tuple[np.ndarray, np.ndarray] | None:
        """Places of the variables of a subproblem among the coefficients; None beyond the last one."""

    def which(self, number: int) -> int:
        """Of all subproblems, the one that has this number among those with rows."""

    def dual(self, number: int) -> DualQP:
        """A subproblem; the one before it is not needed again."""


@dataclass
class InTurnState:
    """start (m, columns): starting coefficients of subproblems. solved, bias and margin (count,): of the `done`
    finished ones. running: the state of the next one. thresholds: starting biases, if they are given at first.

    These three are filled in place: with hundreds of pairs of classes copies would take longer than the smallest ones.
    """

    start: np.ndarray
    solved: np.ndarray
    bias: np.ndarray
    margin: np.ndarray
    done: int = 0
    objective: float = 0.0
    gap: float = 0.0
    running: blockws.BlockState | None = None
    ended: bool = False
    late: bool = False  # whether any was ended before it was solved
    thresholds: Thresholds | None = None
    violation: float = 0.0  # the largest of finished ones, comparable with tol

    def to_arrays(self) -> dict[str, object]:
        """All fields but the start as named arrays, for a checkpoint."""
        running = self.running.to_arrays() if self.running is not None else {}
        names = ("done", "objective", "gap", "ended", "late", "violation", "bias", "margin")
        arrays = {name: getattr(self, name) for name in names}
        arrays |= {} if self.thresholds is None else {"thresholds": self.thresholds.to_array()}
        return arrays | packed("solved", self.solved) | prefixed("running_", running)

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray], start: np.ndarray) -> InTurnState:
        running = unprefixed("running_", arrays)
        return cls(
            start,
            unpacked("solved", arrays, start.shape),
            np.array(arrays["bias"]),
            np.array(arrays.get("margin", np.zeros_like(arrays["bias"]))),
            int(arrays["done"]),
            float(arrays["objective"]),
            float(arrays["gap"]),
            blockws.BlockState.from_arrays(running) if running else None,
            bool(arrays["ended"]),
            bool(arrays.get("late", False)),
            thresholds_from(arrays),
            float(arrays.get("violation", 0.0)),
        )


@dataclass(frozen=True)
class InTurn:
    """The solver: a step is a round of the subproblem at hand, or the end of one that is solved.

    tol: that of `BlockSolver`; of duals that keep their sums, whose decision values grow with them, over `unit`.
    until: time.time() from which on subproblems end as they are. has_bias: each with the constraint y'a = 0; without
    it thresholds are biases that stay as they are given.
    """

    tol: float
    until: float | None = None
    has_bias: bool = False

    def init(
        self, problem: Duals, alpha: np.ndarray | None = None, thresholds: Thresholds | None = None
    ) -> InTurnState:
        zeros = np.zeros(problem.shape)
        start, none_yet = zeros if alpha is None else alpha, np.zeros(problem.count)
        return InTurnState(start, np.zeros_like(zeros), none_yet, none_yet.copy(), thresholds=thresholds)

    def step(self, problem: Duals, state: InTurnState) -> InTurnState:
        places = problem.places(state.done)
        if places is None:
            return replace(state, ended=True)
        dual = problem.dual(state.done)
        solver = self._solver(dual, state)
        running = state.running or self._started(solver, problem, dual, state, state.start[places])
        if dual.nu is not None:
            solver = replace(solver, tol=self.tol * unit(dual, running))
        is_late_now = running.alpha.any() and is_late(self.until)  # zeros decide nothing
        if not solver.has_ended(running) and not is_late_now:
            return replace(state, running=solver.step(dual, running))
        unsolved = not solver.is_solved(running)
        if unsolved:
            running = solver.unshrunk(dual, running)
        running = replace(running, bias=best_bias(dual, running))
        state.solved[places] = running.alpha
        objective, gap = blockws.certificate(dual, running)
        number = problem.which(state.done)
        state.bias[number], state.margin[number] = running.bias, running.margin
        return replace(
            state,
            done=state.done + 1,
            objective=state.objective + objective,
            gap=state.gap + gap,
            running=None,
            late=state.late or unsolved,
            violation=max(state.violation, running.violation * self.tol / solver.tol),
        )

    def _solver(self, dual: DualQP, state: InTurnState) -> blockws.BlockSolver:
        if self.has_bias and state.thresholds is not None:
            return ThresholdSolver(self.tol, bias=True)
        if keeps_signs(dual):
            return blockws.SignsSolver(self.tol)
        return blockws.BlockSolver(self.tol, bias=self.has_bias)

    @staticmethod
    def _started(
        solver: blockws.BlockSolver, problem: Duals, dual: DualQP, state: InTurnState, start: np.ndarray
    ) -> blockws.BlockState:
        if state.thresholds is None:
            return solver.init(dual, start)
        threshold = state.thresholds.at(problem.which(state.done))
        if isinstance(solver, ThresholdSolver):
            return solver.start(dual, start, threshold)
        return solver.at_bias(dual, start, float(threshold.bias[0]))

    @staticmethod
    def is_solved(state: InTurnState) -> bool:
        return state.ended


def packed(name: str, alpha: np.ndarray) -> dict[str, np.ndarray]:
    """The rows of alpha (n, c) that are not 0, and which they are."""
    ids = np.flatnonzero(alpha.any(axis=1))
    return {f"{name}_ids": ids, f"{name}_values": alpha[ids]}


def unpacked(name: str, arrays: Mapping[str, np.ndarray], shape: tuple[int, ...]) -> np.ndarray:
    """The array of `packed`."""
    alpha = np.zeros(shape)
    alpha[arrays[f"{name}_ids"]] = arrays[f"{name}_values"]
    return alpha


Value = TypeVar("Value")


def prefixed(prefix: str, arrays: Mapping[str, Value]) -> dict[str, Value]:
    return {prefix + name: value for name, value in arrays.items()}


def unprefixed(prefix: str, arrays: Mapping[str, Value]) -> dict[str, Value]:
    """The arrays whose names have this prefix, without it."""
    return {name.removeprefix(prefix): value for name, value in arrays.items() if name.startswith(prefix)}


def best_bias(problem: DualQP, state: blockws.BlockState) -> float:
    """b = -rho of one class with the least primal objective, -rho nu sum_i upper_i + sum_i upper_i max(0, rho - f_i):
    rho is the share nu of all f, so that as much is outside. Of other duals, whose y are not all 1, that of the state.
    Many rows may be at the margin, where all lie far apart: LIBSVM's rho, their mean, has half of them outside."""
    if problem.nu is None or np.any(problem.y < 0):
        return state.bias
    counted = np.flatnonzero(problem.upper > 0)
    if not len(counted):
        return state.bias
    order = counted[np.argsort(state.gradient[counted], kind="stable")]
    f, weight = state.gradient[order], np.cumsum(problem.upper[order])
    outside, rounding = problem.nu * weight[-1], ROUNDING * weight[-1]
    first = min(int(np.searchsorted(weight, outside + rounding, side="right")), len(f) - 1)  # that is inside
    below = f[first] - f[first - 1] if first else np.inf
    if first and abs(weight[first - 1] - outside) <= rounding:  # any rho between the two is best
        return -float(f[first] - 0.5 * below)
    return -float(f[first] - min(0.5 * below, SLACK * abs(f[first])))


def unit(problem: DualQP, state: blockws.BlockState) -> float:
    """The unit of decision values, which tol is multiplied by: the larger of rho = -b or the margin r, and LEAST of the
    most that one row adds; 1 in regression, where it is that of the targets.

    Decision values add up over nu n rows and more, so that a difference of one size does not mean the same for few and
    many. rho is about 0 where rows lie all around the origin, as of a linear kernel.
    """
    if isinstance(problem.linear, np.ndarray):
        return 1.0
    first = np.arange(min(len(problem.upper), SAMPLE))
    of_one_row = float(problem.upper.max(initial=0.0)) * float(np.abs(problem.diagonal(first)).max(initial=0.0))
    threshold = abs(state.margin if problem.over_margin else state.bias)
    return max(threshold, LEAST * of_one_row, float(np.finfo(np.float32).tiny))
