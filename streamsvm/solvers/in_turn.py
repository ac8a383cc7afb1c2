"""Subproblems solved one after the other by the block solver: those of a task, over the same rows; each with
y'a = 0, without it, or first at a given bias, a threshold, that moves until y'a is about 0."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, TypeVar

import numpy as np

from streamsvm.problems.dual import DualQP, PairsQP
from streamsvm.solvers.blockws import (
    MOST_ROUNDS,
    MOST_VISITS,
    NO_PROGRESS,
    SUBBLOCK,
    BlockSolver,
    BlockState,
    GivenBias,
    SignsSolver,
    at_precision,
    certificate,
    free_rows,
)
from streamsvm.solvers.descent import class_descent
from streamsvm.solvers.loop import is_late
from streamsvm.solvers.sum_constraints import ROUNDING, SAMPLE, balanced, keeps_signs

SLACK = 2e-6  # of decision values, which are sums of float32
LEAST = 0.01  # of one row's: float32 kernel values resolve no less
NUMBERS = ("done", "objective", "gap", "ended", "late", "violation")  # of a state
MOST_MOVES = 20  # of a threshold; then pairs do the rest
SLOPES = 8.0  # times that a slope is larger or smaller than the one before, at most: a short step measures it badly
SPREAD = 0.25  # of tol: what a variable may take of y'a that is left
GOLDEN = 0.5 * (5**0.5 - 1)  # the fractional parts of its multiples are spread evenly over [0, 1)


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

    def together(self, number: int) -> PairsQP | None:
        """Small pairs of classes from this subproblem on, that are best solved at once; None if it is none."""


@dataclass
class InTurnState:
    """start (m, columns): starting coefficients of subproblems. solved, bias and margin (count,): of the `done`
    finished ones. running: the state of the next one. thresholds: starting biases, if they are given at first. These
    three are filled in place: with hundreds of pairs of classes copies would take longer than the smallest ones.
    coming: the subproblems after the next one, if some of those between are finished already. latest (pairs, 4): of
    pairs that the last step has solved together, the number, violation, objective and gap."""

    start: np.ndarray
    solved: np.ndarray
    bias: np.ndarray
    margin: np.ndarray
    done: int = 0
    objective: float = 0.0
    gap: float = 0.0
    running: BlockState | None = None
    ended: bool = False
    late: bool = False  # whether any was ended before it was solved
    thresholds: Thresholds | None = None
    violation: float = 0.0  # the largest of finished ones, comparable with tol
    coming: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))
    latest: np.ndarray | None = None

    def to_arrays(self) -> dict[str, object]:
        """All fields but the start as named arrays, for a checkpoint."""
        running = self.running.to_arrays() if self.running is not None else {}
        arrays = {name: getattr(self, name) for name in (*NUMBERS, "bias", "margin", "coming")}
        arrays |= {} if self.thresholds is None else {"thresholds": self.thresholds.to_array()}
        return arrays | packed("solved", self.solved) | prefixed("running_", running)

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray], start: np.ndarray) -> InTurnState:
        running, bias = unprefixed("running_", arrays), np.array(arrays["bias"])
        margin = np.array(arrays.get("margin", np.zeros_like(bias)))
        numbers: dict[str, Any] = {name: np.asarray(arrays[name]).item() for name in NUMBERS if name in arrays}
        return cls(
            start,
            unpacked("solved", arrays, start.shape),
            bias,
            margin,
            running=BlockState.from_arrays(running) if running else None,
            thresholds=thresholds_from(arrays),
            coming=np.asarray(arrays.get("coming", np.empty(0, np.int64))),
            **numbers,
        )


@dataclass(frozen=True)
class InTurn:
    """The solver: a step is a round of the subproblem at hand, or the end of one that is solved, or solves small pairs
    of classes together, as far as it can.

    tol: that of `BlockSolver`; of duals that keep their sums, whose decision values grow with them, over `unit`.
    until: time.time() from which on subproblems end as they are. has_bias: each with the constraint y'a = 0; without
    it thresholds are biases that stay as they are given."""

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
        if state.running is None and not len(state.coming) and not self.has_bias and state.thresholds is None:
            block = problem.together(state.done)
            if block is not None:
                return self._solved_together(block, state)
        places = problem.places(state.done)
        if places is None:
            return replace(state, ended=True, latest=None)
        dual = problem.dual(state.done)
        solver = self._solver(dual, state)
        running = state.running or self._started(solver, problem, dual, state, state.start[places])
        if dual.nu is not None:
            solver = replace(solver, tol=self.tol * unit(dual, running))
        is_late_now = running.alpha.any() and is_late(self.until)  # zeros decide nothing
        if not solver.has_ended(running) and not is_late_now:
            return replace(state, running=solver.step(dual, running), latest=None)
        unsolved = not solver.is_solved(running)
        if unsolved:
            running = solver.unshrunk(dual, running)
        running = replace(running, bias=best_bias(dual, running))
        state.solved[places] = running.alpha
        objective, gap = certificate(dual, running)
        number = problem.which(state.done)
        state.bias[number], state.margin[number] = running.bias, running.margin
        return replace(
            state,
            done=int(state.coming[0]) if len(state.coming) else state.done + 1,
            coming=state.coming[1:],
            objective=state.objective + objective,
            gap=state.gap + gap,
            running=None,
            latest=None,
            late=state.late or unsolved,
            violation=max(state.violation, running.violation * self.tol / solver.tol),
        )

    def _solved_together(self, block: PairsQP, state: InTurnState) -> InTurnState:
        """What float32 does not solve comes next, one after the other, from its start."""
        a = state.start[block.first], state.start[block.later]
        most_rows = len(a[0]) + int(np.diff(block.begins).max())
        size, tol = (SUBBLOCK, MOST_VISITS * -(-most_rows // SUBBLOCK)), np.float32(0.5 * self.tol)
        certificates = class_descent(block.K, block.begins, a, block.bounds, tol, size)
        state.solved[block.first], state.solved[block.later] = a
        is_solved, numbers = certificates[:, 0] <= self.tol, state.done + np.arange(len(block.begins))
        todo = numbers[~np.append(is_solved, False)]
        violation, objective, gap = certificates[is_solved].T
        return replace(
            state,
            done=int(todo[0]),
            coming=todo[1:],
            objective=state.objective + float(objective.sum()),
            gap=state.gap + float(gap.sum()),
            violation=max(state.violation, float(violation.max(initial=0.0))),
            latest=np.column_stack([numbers[:-1], certificates])[is_solved],
        )

    def _solver(self, dual: DualQP, state: InTurnState) -> BlockSolver:
        if self.has_bias and state.thresholds is not None:
            return ThresholdSolver(self.tol, bias=True)
        if keeps_signs(dual):
            return SignsSolver(self.tol)
        return BlockSolver(self.tol, bias=self.has_bias)

    @staticmethod
    def _started(
        solver: BlockSolver, problem: Duals, dual: DualQP, state: InTurnState, start: np.ndarray
    ) -> BlockState:
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


def best_bias(problem: DualQP, state: BlockState) -> float:
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


def unit(problem: DualQP, state: BlockState) -> float:
    """The unit of decision values, which tol is multiplied by: the larger of rho = -b or the margin r, and LEAST of the
    most that one row adds; 1 in regression, where it is that of the targets.

    Decision values add up over nu n rows and more, so that a difference of one size does not mean the same for few and
    many. rho is about 0 where rows lie all around the origin, as of a linear kernel."""
    if isinstance(problem.linear, np.ndarray):
        return 1.0
    first = np.arange(min(len(problem.upper), SAMPLE))
    of_one_row = float(problem.upper.max(initial=0.0)) * float(np.abs(problem.diagonal(first)).max(initial=0.0))
    threshold = abs(state.margin if problem.over_margin else state.bias)
    return max(threshold, LEAST * of_one_row, float(np.finfo(np.float32).tiny))


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
        short. y'a of rough solutions, or of another level's, is not quite that of one problem, and after a short step
        says little of the slope: it changes by the factor SLOPES at most."""
        is_moved = self.step != 0
        secant = np.divide(self.excess - excess, self.step, out=np.zeros_like(excess), where=is_moved)
        guess = np.where(self.slope > 0, self.slope, np.maximum(0.5 * n_support, 1.0))
        slope = np.where(secant > 0, np.clip(secant, guess / SLOPES, guess * SLOPES), guess)
        step = excess / slope
        return Thresholds(self.bias + step, slope, step, excess)

    @property
    def are_known(self) -> bool:
        """Whether any y'a at them is known."""
        return bool(self.slope.any())

    def at_other(self, bias: np.ndarray) -> Thresholds:
        """These at biases (count,) that no step led to: y'a before gives no slope."""
        return replace(self, bias=bias, step=np.zeros_like(bias))

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
        return self._at_given.queued(problem, self._at_given.measured(problem, state))

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
        state = replace(state, alpha=alpha, gradient=gradient, given=None, queue=state.queue[:0])
        return self._checked(problem, self.measured(problem, state))


def thresholds_from(arrays: Mapping[str, np.ndarray]) -> Thresholds | None:
    """The thresholds of a checkpoint, if it has some."""
    return Thresholds.from_array(arrays["thresholds"]) if "thresholds" in arrays else None
