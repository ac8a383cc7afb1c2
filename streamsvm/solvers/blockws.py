"""The exact dual solver: block working sets with or without a bias, shrinking, and warm start.

Each round takes a block B of the worst violators, solves the dual restricted to B, and streams one product
Q[active, B] @ delta. The block problem is solved the same way once more, over sub-blocks that fit in L1 and L2,
by greedy coordinate descent. Without a bias every step moves all decision values, so a block mixes the classes and
keeps half of the block before; the plain top violators stall.

With a bias, the constraint y'a = 0 has the multiplier b, and the KKT conditions hold for the shifted gradient
g + y b = y (f + b) - 1. Then blocks mix rows that may rise (I_up) with rows that may fall (I_low) in y a, and steps
move two coefficients, one of each (Fan, Chen and Lin 2005, as in LIBSVM).

A row stays in the block for what it has violated lately, too: of two rows that are nearly the same, what one gains the
other may undo, and only a block of both solves them. If most free rows violate, as after a threshold has moved,
neighbours are solved together, in sweeps over all of them: the worst ones lie anywhere, and what a block of them gains
is undone by near rows that it leaves out.

Working sets: which rows move in a round."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import Any, ClassVar, NamedTuple

import numpy as np

from streamsvm.parallel.strips import evenly
from streamsvm.problems.dual import BlockProblem, DualQP
from streamsvm.solvers.descent import FALLS, LEAST_GAIN, block_descent
from streamsvm.solvers.loop import run
from streamsvm.solvers.sum_constraints import LevelRange, balanced, feasible

# rows of a working set: on ijcnn1 and a9a half and 3/2 of it take as long or longer. No power of 2, see `kernels.tiles`
BLOCK = 2032
SUBBLOCK = 512  # rows of a sub-block: its Gram matrix (1 MiB) stays in L2
MOST_ROUNDS = 100_000
MOST_VISITS = 250  # sub-blocks of a block for each that it holds
MOST_IDLE = 100  # sweeps, see `BlockSolver.is_idle`
MOST_UNSOLVED = 50  # sweeps, see `BlockSolver.is_idle`
SMALL = 128  # rows: fewer may have more unsolved blocks, as a block takes time by the rows squared
SWEPT_BLOCKS = 4  # of free violators from which sweeps pay
SWEEPS = 2  # one leaves 2,400 violators of 41,000 and long tails: covtype, after its threshold has moved by 10 tol
FADES = 0.5  # of what a row of the block has violated lately, in a round
CHECKED = 64  # rows at which float32 products are compared with float64
EXACT_VALUES = 1 << 17  # of the kernel, at most, to certify a solution by float64
CHECK_IDLE = 10  # idle sweeps between such comparisons
REFRESH_ERROR = 0.25  # of the violation, or tol: from this error of the gradient on, it is computed in float64


@dataclass(frozen=True)
class ShrunkRows:
    """Rows taken out of the active set: their gradients are those of the coefficients at that time."""

    ids: np.ndarray
    alpha: np.ndarray


class GivenBias(NamedTuple):
    """A bias that `threshold` sets while y'a is not 0 yet: a row of its `Thresholds`, and how often it has moved."""

    bias: float
    slope: float
    step: float
    excess: float
    moves: float = 0.0


@dataclass(frozen=True)
class BlockState:
    """alpha (n,), gradient Qa + p (n,; stale on shrunk rows), the last block, what is shrunk, and the violation.

    recent: what each row of the last block has violated lately: the largest violation that it entered a round with,
    which halves in each round after. Empty in a state that was saved without it.
    queue: rows that the next blocks take in turn, neighbours together, before the worst violators come first again.
    bias: b of f(x) = sum_i y_i a_i K(x_i, x) + b; 0 without. Then violation is LIBSVM's m - M. margin: r, where the
    variables of each sign keep their sum, and y (f + b) is to reach r; of regression minus epsilon. given: the bias
    that `threshold` has set, while y'a is not 0 yet; else None. is_rounded: above tol, and for rounding no step
    improves it. shrinks_below: the violation from which rows may be taken out. least, idle, gained: the least
    violation, the rounds since it last fell by much, and how far the objective has fallen in these. unsolved: blocks
    whose own violation hardly fell. refreshed: rows whose gradient was computed in float64, as float32 products
    had added up to an error near tol. error: of the gradients of such rows, when they were computed again. in_float64:
    coefficients of blocks are float64, and products too, if the problem has such: float32 was not enough."""

    alpha: np.ndarray
    gradient: np.ndarray
    active: np.ndarray | None = None  # None: all rows
    block: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))
    recent: np.ndarray = field(default_factory=lambda: np.empty(0))
    queue: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))
    shrunk: tuple[ShrunkRows, ...] = ()
    violation: float = np.inf
    rounds: int = 0
    bias: float = 0.0
    margin: float = 0.0
    given: GivenBias | None = None
    is_rounded: bool = False
    shrinks_below: float = np.inf
    least: float = np.inf
    idle: int = 0
    gained: float = 0.0
    unsolved: int = 0
    refreshed: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))
    error: float = np.inf
    in_float64: bool = False

    def to_arrays(self) -> dict[str, object]:
        """All fields as named arrays, for a checkpoint."""
        arrays: dict[str, object] = {
            name: value for name, value in vars(self).items() if name in _SAVED and value is not None
        }
        if self.given is not None:
            arrays["given"] = np.array(self.given)
        for number, group in enumerate(self.shrunk):
            arrays |= {f"shrunk{number}_ids": group.ids, f"shrunk{number}_alpha": group.alpha}
        return arrays

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> BlockState:
        numbers = range(sum(name.endswith("_ids") for name in arrays))
        shrunk = (ShrunkRows(arrays[f"shrunk{i}_ids"], arrays[f"shrunk{i}_alpha"]) for i in numbers)
        saved = {name: np.asarray(arrays[name]) for name in _SAVED if name in arrays}
        values: dict[str, Any] = {name: v if v.ndim else v.item() for name, v in saved.items()}
        if "given" in values:
            values["given"] = GivenBias(*values["given"])
        return BlockState(**values, shrunk=tuple(shrunk))


# fields of a state whose progress is counted from here on
NO_PROGRESS: dict[str, Any] = {"least": np.inf, "idle": 0, "gained": 0.0, "unsolved": 0}
_SAVED = tuple(each.name for each in fields(BlockState) if each.name != "shrunk")


def objective(problem: DualQP, state: BlockState) -> float:
    """1/2 a'Qa + p'a, over r^2 if f is reported over its margin; exact if nothing is shrunk. At a given bias b it
    includes b y'a, which is 0 elsewhere, and is below the minimum of the problem that keeps y'a."""
    value = float(0.5 * state.alpha @ (state.gradient + problem.linear))
    if problem.nu is None:
        value += state.bias * float(problem.y @ state.alpha)
    return value / _report_unit(problem, state) ** 2


def duality_gap(problem: DualQP, state: BlockState) -> float:
    """Primal minus dual objective; exact if nothing is shrunk."""
    gap = problem.gap(state.alpha, _shifted(problem, state, slice(None)))
    return gap / _report_unit(problem, state) ** 2


def _rough_objective(problem: BlockProblem, state: BlockState) -> float:
    """1/2 a'Qa + p'a; only about that if rows are shrunk, as their gradients are stale."""
    return 0.5 * float(state.alpha @ (state.gradient + problem.linear))


def _report_unit(problem: DualQP, state: BlockState) -> float:
    """What f is divided by when it is reported: the margin, or 1."""
    return state.margin if problem.over_margin and state.margin > 0 else 1.0


def facts(problem: DualQP, state: BlockState) -> dict[str, float]:
    """What an event reports of a round. Objective and gap only if nothing is shrunk: else they are not exact."""
    report = {"round": state.rounds, "violation": state.violation}
    if state.active is not None:
        return report
    return report | {"objective": objective(problem, state), "gap": duality_gap(problem, state)}


def certificate(problem: DualQP, state: BlockState) -> tuple[float, float]:
    """Objective and gap of a solution; of few rows from a gradient in float64, as a gap multiplies what float32 rounds
    by all bounds: of many rows it averages out."""
    support = np.flatnonzero(state.alpha)
    if not state.in_float64 and len(state.alpha) * len(support) <= EXACT_VALUES:
        gradient = problem.in_float64().apply(support, state.alpha[support]) + problem.linear
        state = replace(state, gradient=gradient)
    return objective(problem, state), duality_gap(problem, state)


def solve(
    problem: DualQP, alpha: np.ndarray | None = None, *, tol: float, bias: bool = False, max_rounds: int = MOST_ROUNDS
) -> BlockState:
    """The dual solved to a largest KKT violation of at most tol, from alpha or from zero; or, where rounding or
    max_rounds ends it before that, the last state, whose violation says how near it is. bias: with the constraint y'a =
    0; tol then bounds m - M, as LIBSVM's does."""
    solver = BlockSolver(tol, bias=bias)
    return solver.solve(problem, solver.init(problem, alpha), max_rounds=max_rounds)


@dataclass(frozen=True)
class BlockSolver:
    """Minimises 1/2 a'Qa + p'a over 0 <= a <= upper, with y'a = 0 if `bias`; a, p, upper and y in {-1, 1} are (n,).

    tol: the largest KKT violation of a solution: of the projected gradient without a bias, and with one LIBSVM's
    m - M, the largest level -y g of rows whose y a may rise, less the smallest of rows whose y a may fall. block_rows:
    of a working set.

    Working sets and shrinking follow Joachims (1999), pairs inside a block Fan, Chen and Lin (2005, WSS 2)."""

    tol: float
    block_rows: int = BLOCK
    bias: bool = False
    _keeps_each_sign: ClassVar[bool] = False  # with a bias: the sum of the variables of each sign of y

    @property
    def row_tol(self) -> float:
        """The violation of a row that tol allows: with the best b, m - M is twice the largest violation."""
        return 0.5 * self.tol if self.bias else self.tol

    def solve(
        self,
        problem: DualQP,
        state: BlockState,
        *,
        max_rounds: int = MOST_ROUNDS,
        on_step: Callable[[BlockState], None] = lambda state: None,
    ) -> BlockState:
        """Steps from `state` until the problem is solved, or no step improves it, or for so many rounds."""
        state = run(self, problem, state, stop=lambda state: self.has_ended(state, max_rounds), on_step=on_step)
        return self.unshrunk(problem, state) if state.shrunk else state

    def init(self, problem: DualQP, alpha: np.ndarray | None = None) -> BlockState:
        return self._begun(problem, self._start(problem, alpha), is_warm=alpha is not None and bool(alpha.any()))

    def at_bias(self, problem: DualQP, alpha: np.ndarray, bias: float) -> BlockState:
        """As `init`, of a solver without a bias, at a given one."""
        return self._begun(problem, replace(self._start(problem, alpha), bias=bias), is_warm=bool(alpha.any()))

    def _begun(self, problem: DualQP, start: BlockState, *, is_warm: bool) -> BlockState:
        state = self._checked(problem, self.measured(problem, start), is_due=is_warm)
        return self.queued(problem, state) if is_warm else state

    def queued(self, problem: DualQP, state: BlockState) -> BlockState:
        """The state with sweeps over its free rows and violators, if most free rows violate, and they are many."""
        state, least = replace(state, queue=np.empty(0, np.int64)), SWEPT_BLOCKS * self.block_rows
        if self.is_solved(state) or len(problem.y) < least:
            return state
        violates = row_violations(problem, state, slice(None)) > self.row_tol
        free = free_rows(problem, state, slice(None))
        if np.count_nonzero(violates & free) < max(least, 0.5 * np.count_nonzero(free)):
            return state
        order = problem.order()
        return state if order is None else replace(state, queue=np.tile(order[(violates | free)[order]], SWEEPS))

    def _start(self, problem: DualQP, alpha: np.ndarray | None) -> BlockState:
        n = len(problem.y)
        if alpha is not None:
            alpha = np.clip(alpha.astype(np.float64), 0.0, problem.upper)
            alpha = balanced(alpha, problem.y) if self.bias and problem.nu is None else alpha
        if problem.nu is not None:
            alpha = feasible(problem, np.zeros(n) if alpha is None else alpha)
        if alpha is None or not alpha.any():
            return BlockState(np.zeros(n), np.zeros(n) + problem.linear)
        support = np.flatnonzero(alpha)
        gradient = problem.apply(support, alpha[support]) + problem.linear
        return BlockState(alpha, gradient)

    def is_solved(self, state: BlockState) -> bool:
        return state.violation <= self.tol and not state.shrunk

    def has_ended(self, state: BlockState, max_rounds: float = MOST_ROUNDS) -> bool:
        """Whether no step follows: it is solved, or no step improves it, or it has taken so many rounds."""
        return self.is_solved(state) or state.is_rounded or state.rounds >= max_rounds

    def rounded(self, problem: DualQP, state: BlockState) -> BlockState:
        """The state after a block that cannot improve. If rows were left out, which may violate: with all rows active,
        and half the violation from which some may be left out again, so that this happens a few times only. Else with
        products and coefficients in float64; and if they are already, at the end."""
        whole = self.unshrunk(problem, state)
        if self.leaves_out(state):
            return replace(whole, shrinks_below=0.5 * min(state.shrinks_below, whole.violation))
        if not state.in_float64 and not (self.bias and problem.in_float64() is problem):
            return self._in_float64(problem, whole)
        return replace(whole, is_rounded=not self.is_solved(whole))

    def leaves_out(self, state: BlockState) -> bool:
        """Whether some rows are in no block."""
        return bool(state.shrunk)

    def step(self, problem: DualQP, state: BlockState) -> BlockState:
        problem = at_precision(problem, state)
        if state.violation <= self.tol:
            return self._checked(problem, self.unshrunk(problem, state))
        state, block, recent = self._next(problem, state)
        new, moved = self.solve_block(problem, state, block)
        if not moved.any():
            return self._stuck(problem, state)
        alpha, gradient = state.alpha.copy(), state.gradient.copy()
        delta = new[moved] - alpha[block[moved]]
        alpha[block] = new
        active = slice(None) if state.active is None else state.active
        gradient[active] += problem.apply(block[moved], delta, state.active)
        gain = -0.5 * float(delta @ (state.gradient + gradient)[block[moved]])
        if self.bias and gain <= 0:  # nothing, but for rounding
            return self._stuck(problem, state)
        queue, rounds = self._rest(state), state.rounds + 1
        after = replace(state, alpha=alpha, gradient=gradient, block=block, recent=recent, queue=queue, rounds=rounds)
        after = self.with_progress(problem, self.measured(problem, self._moved(problem, state, after)), gain)
        before, left = (float(row_violations(problem, each, block).max()) for each in (state, after))
        if left > max(0.5 * before, self.row_tol):
            after = replace(after, unsolved=after.unsolved + 1)
        if self.is_idle(after):
            return self.rounded(problem, after)
        is_due = after.idle > 0 and after.idle % int(CHECK_IDLE * self._sweep(after)) == 0
        return self._checked(problem, after, is_due=is_due)

    def with_progress(self, problem: BlockProblem, state: BlockState, gain: float) -> BlockState:
        """A measured state with its progress counted. gain: by how much the objective has fallen in the last round."""
        if state.violation <= (1 - FALLS) * state.least:
            return replace(state, least=state.violation, idle=0, gained=0.0)
        state = replace(state, idle=state.idle + 1, gained=state.gained + gain)
        if not self.is_idle(state):
            return state
        size = abs(_rough_objective(problem, state))
        return replace(state, idle=0, gained=0.0) if state.gained > LEAST_GAIN * size else state

    def is_idle(self, state: BlockState) -> bool:
        """Whether rounds no longer help. Two rules say so, in sweeps over the active rows: for MOST_IDLE the violation
        has not fallen by FALLS and the objective by LEAST_GAIN, each of itself; or in MOST_UNSOLVED the violation of
        the block itself stayed above half, so that the problem is too ill-conditioned for descent."""
        sweep, rows = self._sweep(state), max(1, len(active_rows(state)))
        most_unsolved = MOST_UNSOLVED * max(sweep, (SMALL / rows) ** 2)
        return state.idle >= MOST_IDLE * sweep or state.unsolved >= most_unsolved

    def _sweep(self, state: BlockState) -> float:
        """Blocks in which each active row has its turn."""
        return max(1.0, len(active_rows(state)) / self.block_rows)

    def _checked(self, problem: DualQP, state: BlockState, *, is_due: bool = False) -> BlockState:
        """Compares the gradient with float64 at samples of rows if the state seems solved, or is_due; the same state if
        the error is small.

        Else the gradient is computed in float64 where its error matters. The error of steps from there on grows with
        the steps, which are small, so that this happens a few times at most. If the error does not halve each time,
        all products are float64 from here on."""
        if state.in_float64 or not (is_due or self.is_solved(state)):
            return state
        # all steps would follow the error of a warm start
        allowed = REFRESH_ERROR * (max(self.tol, state.violation) if state.rounds else self.tol)
        expected = problem.value_error * float(np.linalg.norm(state.alpha))
        if expected < allowed:
            return state
        # rows whose gradient counts: not those that stay at 0 whatever its error is
        rows = np.flatnonzero((state.alpha > 0) | (_shifted(problem, state, slice(None)) < self.tol + expected))
        is_refreshed = np.isin(rows, state.refreshed)
        error = self._sampled_error(problem, state, rows[is_refreshed])
        new_error = self._sampled_error(problem, state, rows[~is_refreshed])
        if max(error, new_error) <= allowed:
            return state
        if error > max(allowed, 0.5 * state.error):
            return self._in_float64(problem, state)
        if error > allowed:
            state = replace(state, error=error)
        else:
            rows = rows[~is_refreshed]
        return self.measured(problem, self._refreshed(problem, state, rows if new_error <= expected else None))

    def _sampled_error(self, problem: DualQP, state: BlockState, rows: np.ndarray) -> float:
        """The largest error of the gradient at some of these rows; 0 if there are none."""
        if not len(rows):
            return 0.0
        rows, support = rows[evenly(len(rows), CHECKED)], np.flatnonzero(state.alpha)
        exact = problem.in_float64().apply(support, state.alpha[support], rows)
        return float(np.abs((state.gradient - problem.linear)[rows] - exact).max())

    def _in_float64(self, problem: DualQP, state: BlockState) -> BlockState:
        """The state with its gradient in float64, as all products and coefficients are from here on; at zero, if
        float32 steps have led to worse."""
        state = self._refreshed(problem, state)
        if problem.nu is None and _rough_objective(problem, state) > 0:
            zeros = np.zeros(len(state.alpha))
            state = replace(state, alpha=zeros, gradient=zeros + problem.linear)
        return self.measured(problem, replace(state, in_float64=True))

    def _refreshed(self, problem: DualQP, state: BlockState, rows: np.ndarray | None = None) -> BlockState:
        """The state with its gradient at some rows, None: at all, computed in float64, and all rows active."""
        state = self.unshrunk(problem, state) if state.shrunk and rows is not None else state
        support, gradient = np.flatnonzero(state.alpha), state.gradient.copy()
        some = slice(None) if rows is None else rows
        gradient[some] = problem.in_float64().apply(support, state.alpha[support], rows)
        gradient[some] += np.broadcast_to(problem.linear, gradient.shape)[some]
        refreshed = np.arange(len(gradient)) if rows is None else np.union1d(state.refreshed, rows)
        whole = {"active": None, "shrunk": (), **NO_PROGRESS}
        return replace(state, gradient=gradient, refreshed=refreshed, **whole)

    def unshrunk(self, problem: DualQP, state: BlockState) -> BlockState:
        """All rows active again, and measured: for a run that stops before its tolerance."""
        problem = at_precision(problem, state)
        states = [replace(state, **NO_PROGRESS)]
        [whole] = reactivated(states, lambda ids, deltas, rows: [problem.apply(ids, deltas[0], rows)])
        return self.measured(problem, whole)

    def _candidates(self, state: BlockState) -> np.ndarray | slice:
        """The rows that may move."""
        return slice(None) if state.active is None else state.active

    def _moved(self, problem: DualQP, before: BlockState, after: BlockState) -> BlockState:
        """Called after a block has moved."""
        return after

    def measured(self, problem: BlockProblem, state: BlockState) -> BlockState:
        """The state with its violation, and with a bias its threshold."""
        rows = self._candidates(state)
        if not self.bias:
            return replace(state, is_rounded=False, violation=float(row_violations(problem, state, rows).max()))
        ends = LevelRange.of(*levels(problem, state, rows))
        state = replace(state, is_rounded=False, violation=ends.violation)
        return replace(state, bias=ends.threshold(self.is_solved(state)))

    def shrinkable(self, problem: BlockProblem, state: BlockState, rows: np.ndarray, least: float) -> np.ndarray:
        """Which of some rows the gradient holds at a bound by more than `least`."""
        a, g = state.alpha[rows], _shifted(problem, state, rows)
        return ((a <= 0) & (g > least)) | ((a >= problem.upper[rows]) & (g < -least))

    def sides(self, problem: BlockProblem, state: BlockState, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Of some rows: which are on the first side, of those that a block mixes, and their violations."""
        y = problem.y[rows]
        first = y * _shifted(problem, state, rows) < 0 if self.bias else y > 0
        return first, row_violations(problem, state, rows)

    def _shrink(self, problem: DualQP, state: BlockState) -> BlockState:
        """Drops rows at a bound whose gradient holds them there by more than the largest violation."""
        if state.violation > state.shrinks_below:
            return state
        shrinkable = partial(self.shrinkable, problem, state, least=state.violation)
        return shrunk([state], self.block_rows, shrinkable)[0]

    def _next(self, problem: DualQP, state: BlockState) -> tuple[BlockState, np.ndarray, np.ndarray]:
        """The state to step from, the next block, and what its rows have violated lately. In a sweep the block is the
        first of the queue: blocks that violate nothing are left out of it."""
        while len(state.queue):
            block = np.sort(state.queue[: self.block_rows])
            violates = row_violations(problem, state, block)
            if violates.max() > self.row_tol:
                return state, block, violates
            state = replace(state, queue=self._rest(state))
        state = self._shrink(problem, state)
        return state, *self._select(problem, state)

    def _rest(self, state: BlockState) -> np.ndarray:
        """The queue without its first block."""
        return state.queue[self.block_rows :]

    def _stuck(self, problem: DualQP, state: BlockState) -> BlockState:
        """The state after a block that gains nothing: in a sweep the next block follows, else see `rounded`."""
        return replace(state, queue=self._rest(state)) if len(state.queue) else self.rounded(problem, state)

    def _select(self, problem: DualQP, state: BlockState) -> tuple[np.ndarray, np.ndarray]:
        """Half of the previous block and, from each side, a quarter of worst violators; and what these rows have
        violated lately. All rows that may move, if they fit in a block.

        The sides are the classes; with a bias, the rows whose y a should rise and those where it should fall."""
        if self._is_whole(problem, state, self.block_rows):
            return np.flatnonzero(problem.upper) if state.active is None else state.active, np.empty(0)
        active = self._candidates(state)
        v = np.zeros(len(state.alpha))
        v[active] = row_violations(problem, state, active)
        recent = recent_violations(state, v)
        sides = -np.sign(problem.y * _shifted(problem, state, slice(None))) if self.bias else problem.y
        previous = state.block
        if state.active is not None:  # a row shrunk since then has no gradient to go by
            previous = previous[np.isin(previous, state.active)]
        block = mixed_block(previous, recent, [(v, sides == 1.0), (v, sides == -1.0)], self.block_rows)
        return block, recent[block]

    def _is_whole(self, problem: BlockProblem, state: BlockState, rows: int) -> bool:
        """Whether a block of so many rows has all that may move."""
        movable = np.count_nonzero(problem.upper) if state.active is None else len(state.active)
        return rows >= int(movable)

    def solve_block(self, problem: BlockProblem, state: BlockState, block: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """New coefficients of the block, and which of them moved."""
        Q = _as_float32(problem.gram(block), problem.y[block] if self.bias else None)
        dtype = np.float64 if self.bias or state.in_float64 else np.float32  # y'a must not drift from 0
        a, upper = state.alpha[block].astype(dtype), problem.upper[block].astype(dtype)
        before = a.copy()
        # a tenth of the block's violation is enough: more would be undone by the next block, unless this has all rows
        is_whole = self._is_whole(problem, state, len(block))
        worst = 0.0 if is_whole else row_violations(problem, state, block).max()
        tol = np.float32(max(0.1 * worst, 0.5 * self.row_tol))
        size = min(SUBBLOCK, len(block))
        g, y = _shifted(problem, state, block).astype(np.float32), problem.y[block].astype(np.float32)
        limits = tol, size, MOST_VISITS * -(-len(block) // size), _rough_objective(problem, state)
        block_descent(Q, g, a, upper, y if self.bias else None, y if self._keeps_each_sign else None, limits)
        moved = a != before
        new = np.where(moved, np.clip(a.astype(np.float64), 0.0, problem.upper[block]), state.alpha[block])
        at_upper = a >= upper  # rows that were a hair below their bound, too: float32 cannot move them there
        new[at_upper] = problem.upper[block][at_upper]
        return new, new != state.alpha[block]


@dataclass(frozen=True)
class SignsSolver(BlockSolver):
    """As `BlockSolver`, where the variables of each sign of y keep their own sum, as of nu-SVC and nu-SVR: with a
    threshold for each sign, whose mean is the bias and half of whose difference is the margin."""

    bias: bool = True
    _keeps_each_sign: ClassVar[bool] = True

    def measured(self, problem: BlockProblem, state: BlockState) -> BlockState:
        """The state with its violation, bias and margin."""
        rows = self._candidates(state)
        row_levels = levels(problem, state, rows)
        positive, negative = (LevelRange.of(*row_levels, problem.y[rows] == sign) for sign in (1.0, -1.0))
        state = replace(state, is_rounded=False, violation=max(positive.violation, negative.violation))
        solved = self.is_solved(state)
        at_positive = positive.threshold(solved, state.bias - state.margin)
        at_negative = negative.threshold(solved, state.bias + state.margin)
        middle, half = 0.5 * (at_positive + at_negative), 0.5 * (at_negative - at_positive)
        return replace(state, bias=middle, margin=half)


def at_precision(problem: DualQP, state: BlockState) -> DualQP:
    """The problem with products of the state's precision."""
    return problem.in_float64() if state.in_float64 else problem


def _as_float32(Q: np.ndarray, y: np.ndarray | None) -> np.ndarray:
    """Q (q, q) as compiled code takes it: float32 does not distinguish rows far from the origin, unless they are
    centred first, which a block with y'a = 0 allows."""
    if Q.dtype == np.float32:
        return Q
    if y is not None:
        K = Q * y * y[:, None]
        K -= K.mean(axis=0)
        K -= K.mean(axis=1)[:, None]
        Q = K * y * y[:, None]
    return Q.astype(np.float32)


def violations(alpha: np.ndarray, gradient: np.ndarray, upper: np.ndarray) -> np.ndarray:
    """(n,) absolute projected gradients: 0 where the KKT conditions hold."""
    down = np.where(alpha > 0, np.maximum(gradient, 0.0), 0.0)
    up = np.where(alpha < upper, np.maximum(-gradient, 0.0), 0.0)
    return np.maximum(down, up)


def _shifted(problem: BlockProblem, state: BlockState, rows: np.ndarray | slice) -> np.ndarray:
    """g + y b - r of some rows."""
    g = state.gradient[rows]
    g = g + state.bias * problem.y[rows] if state.bias else g
    return g - state.margin if state.margin else g


def row_violations(problem: BlockProblem, state: BlockState, rows: np.ndarray | slice) -> np.ndarray:
    """`violations` of some rows, of the shifted gradient."""
    return violations(state.alpha[rows], _shifted(problem, state, rows), problem.upper[rows])


def free_rows(problem: BlockProblem, state: BlockState, rows: np.ndarray | slice) -> np.ndarray:
    """Which of some rows have coefficients away from both bounds."""
    a = state.alpha[rows]
    return (a > 0) & (a < problem.upper[rows])


def levels(
    problem: BlockProblem, state: BlockState, rows: np.ndarray | slice
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """-y g of some rows, the b with which each has y (f + b) = 1; in I_up: may y a rise; in I_low: may it fall."""
    a, y = state.alpha[rows], problem.y[rows]
    above, below = a > 0, a < problem.upper[rows]
    return -y * state.gradient[rows], np.where(y > 0, below, above), np.where(y > 0, above, below)


def active_rows(state: BlockState) -> np.ndarray:
    return np.arange(len(state.alpha)) if state.active is None else state.active


def shrunk(
    states: Sequence[BlockState], block_rows: int, shrinkable: Callable[[np.ndarray], np.ndarray]
) -> list[BlockState]:
    """States of the same active rows without those that are held at a bound, if leaving them out pays."""
    first, active = states[0], active_rows(states[0])
    if first.rounds < 3 or len(active) <= 2 * block_rows:
        return list(states)
    settled = shrinkable(active)
    if settled.mean() < 0.3:  # gathering the active rows again has to pay
        return list(states)
    left, gone = active[~settled], active[settled]
    return [replace(s, active=left, shrunk=(*s.shrunk, ShrunkRows(gone, s.alpha))) for s in states]


def reactivated(
    states: Sequence[BlockState], apply: Callable[[np.ndarray, np.ndarray, np.ndarray], Iterable[np.ndarray]]
) -> list[BlockState]:
    """The same states with all rows active again: gradients of shrunk rows catch up with what has moved since.
    apply(ids, deltas (columns, len(ids)), rows): Q[rows, ids] @ delta of each column."""
    gradients = [state.gradient.copy() for state in states]
    for number, group in enumerate(states[0].shrunk):
        change = np.stack([state.alpha - state.shrunk[number].alpha for state in states])
        moved = np.flatnonzero(change.any(axis=0))
        for gradient, product in zip(gradients, apply(moved, change[:, moved], group.ids), strict=True):
            gradient[group.ids] += product
    return [
        replace(state, gradient=gradient, active=None, shrunk=())
        for state, gradient in zip(states, gradients, strict=True)
    ]


def recent_violations(state: BlockState, v: np.ndarray) -> np.ndarray:
    """v (n,), what rows violate now, and for rows of the last block at least what is left of `BlockState.recent`."""
    recent, rows = v.copy(), state.block[: len(state.recent)]
    recent[rows] = np.maximum(recent[rows], FADES * state.recent)
    return recent


def mixed_block(
    previous: np.ndarray, recent: np.ndarray, sides: Sequence[tuple[np.ndarray, np.ndarray | bool]], rows: int
) -> np.ndarray:
    """A working set, rising: half of it the worst of the previous one's ids, by what they have violated lately, recent
    (n,), and from each side a quarter of its worst. sides: violations (n,), changed in place, and which rows are of the
    side."""
    previous = largest(previous, recent, rows // 2)
    quarter = (rows - len(previous)) // 2
    for side_v, _ in sides:
        side_v[previous] = 0.0
    fresh = [largest(np.flatnonzero(members & (side_v > 0)), side_v, quarter) for side_v, members in sides]
    return np.union1d(previous, np.concatenate(fresh))


def largest(ids: np.ndarray, v: np.ndarray, k: int) -> np.ndarray:
    """The k of ids with the largest v."""
    return ids if len(ids) <= k else ids[np.argpartition(-v[ids], k)[:k]]
