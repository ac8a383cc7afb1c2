"""DC-SVM: multilevel divide and conquer (Hsieh, Si and Dhillon 2014, algorithm 1).

Level l divides the rows into about children^l partitions and solves the dual on each; the solutions together start
the level above. Level 0 is the whole problem, before which that of level 1's support vectors alone is solved. Early
prediction ends at a level, whose partitions are the model."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, Protocol

import numpy as np

from streamsvm.parallel.sizes import SizedInBytes
from streamsvm.solvers.in_turn import (
    Duals,
    InTurn,
    InTurnState,
    Thresholds,
    packed,
    prefixed,
    thresholds_from,
    unpacked,
    unprefixed,
)

PART_ROWS = 8192  # average rows of a partition at the bottom: on covtype larger ones score no better in their time
NUMBERS = ("level", "objective", "gap", "late", "violation")  # of a state
DIRECT_ROWS = 8 * PART_ROWS  # exact solutions of fewer rows take longer with a level than without


def default_levels(n: int, children: int, *, early: bool) -> int:
    """Levels whose bottom partitions have about PART_ROWS rows; 0 if the whole problem is small."""
    if not early and n < DIRECT_ROWS:
        return 0
    return max(0, round(math.log(n / PART_ROWS, children)))


@dataclass(frozen=True)
class Division:
    """A level's partitions, numbered from 0. sizes (partitions,): of their rows, none 0. The oracle knows which rows
    are in which. bound: D(pi) / sum |K|, the share of the kernel's mass between partitions. routes: what assigns new
    rows to partitions, as named arrays; the problem's own."""

    level: int
    sizes: np.ndarray
    bound: float = 0.0
    routes: Mapping[str, Any] = field(default_factory=dict)

    @property
    def n_parts(self) -> int:
        return len(self.sizes)

    def to_arrays(self) -> dict[str, object]:
        arrays: dict[str, object] = {"level": self.level, "sizes": self.sizes, "bound": self.bound}
        return arrays | prefixed("routes_", self.routes)

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> Division:
        routes = unprefixed("routes_", arrays)
        return cls(int(arrays["level"]), arrays["sizes"], float(arrays["bound"]), routes)


@dataclass(frozen=True)
class PartSolution(SizedInBytes):
    """A partition's n_support support rows: ids, coefficients alpha (s, columns), none of both where the oracle keeps
    them for a model; objective and duality gap of its subproblems. late: ended before it was solved. is_capped: nu is
    less than was asked for in a partition of a model, whose classes allow no more. violation: the largest at its end.
    """

    ids: np.ndarray
    alpha: np.ndarray
    n_support: int
    objective: float
    gap: float
    late: bool = False
    is_capped: bool = False
    violation: float = 0.0


class Divisible(Protocol):
    """The oracle: `count` subproblems over n rows, whose coefficients have this shape (n, columns), and how to divide
    them. It knows the partitions of the level that was divided last."""

    shape: tuple[int, int]
    count: int

    def divide(self, level: int, start: np.ndarray | None) -> Division:
        """A level's partitions; start: the coefficients so far, whose support vectors show where to divide."""

    def parts(
        self, first: int, division: Division, start: np.ndarray | None, thresholds: Thresholds | None
    ) -> Sequence[PartSolution]:
        """Solutions of a partition and of some after it, from these coefficients of all rows (None: 0). thresholds:
        with these biases, which all partitions share; None: each has its own, or none has one."""

    def excess(self, alpha: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(count,) y'a of each subproblem, and how many of its variables are not 0."""

    def among(self, ids: np.ndarray) -> Duals | None:
        """The subproblems over these rows; None if they do not fit in memory."""

    def whole(self, division: Division | None) -> Duals:
        """The subproblems over all rows, which were divided like this last, if at all."""


class Stage(Enum):
    """What a step does: some of the partitions, a round on the support vectors, a round on all rows, or nothing
    more."""

    PARTS = "parts"
    REFINE = "refine"
    TOP = "top"
    END = "end"


@dataclass(frozen=True)
class DCSVMState:
    """The state of the solver. start: coefficients (n, columns) that it began with, None: 0; at the end, the solution.

    level: whose partitions are solved. division: the latest. solutions: of its first partitions. turns: of the last two
    stages. support: rows of the refinement, which follow from its start. level_support: support vectors of each level,
    as bits. bias, margin (subproblems,): at the end. late: whether something was ended before it was solved.
    thresholds: biases that partitions share, from level to level. violation: the largest of what the solution is made
    of."""

    stage: Stage
    level: int
    start: np.ndarray | None = None
    division: Division | None = None
    solutions: tuple[PartSolution, ...] = ()
    support: np.ndarray | None = None
    turns: InTurnState | None = None
    level_support: Mapping[int, np.ndarray] = field(default_factory=dict)
    objective: float = 0.0
    gap: float = 0.0
    bias: np.ndarray | None = None
    margin: np.ndarray | None = None
    late: bool = False
    thresholds: Thresholds | None = None
    violation: float = 0.0

    @property
    def divided(self) -> Division | None:
        """The division of the level under way, once it is made."""
        division = self.division
        return division if division is not None and division.level == self.level else None

    @property
    def is_level_solved(self) -> bool:
        """Whether all partitions of the level under way have been solved."""
        return self.divided is not None and len(self.solutions) == self.divided.n_parts

    def together(self, shape: tuple[int, int]) -> np.ndarray:
        """(n, columns): the solutions of all partitions."""
        alpha = np.zeros(shape)
        for part in self.solutions:
            alpha[part.ids] = part.alpha
        return alpha

    def totals(self) -> tuple[float, float]:
        """Objective and gap, summed over the solved partitions."""
        return sum(part.objective for part in self.solutions), sum(part.gap for part in self.solutions)

    def to_arrays(self) -> dict[str, object]:
        """All fields as named arrays, for a checkpoint."""
        arrays: dict[str, object] = {"stage": self.stage.value} | {name: getattr(self, name) for name in NUMBERS}
        arrays |= {f"found{level}": bits for level, bits in self.level_support.items()}
        if self.start is not None:
            arrays |= packed("start", self.start) | {"shape": np.array(self.start.shape)}
        if self.bias is not None and self.margin is not None:
            arrays |= {"bias": self.bias, "margin": self.margin}
        if self.thresholds is not None:
            arrays["thresholds"] = self.thresholds.to_array()
        if self.division is not None:
            arrays |= prefixed("division_", self.division.to_arrays())
        if self.turns is not None:
            arrays |= prefixed("turns_", self.turns.to_arrays())
        return arrays | (_joined(self.solutions) if self.solutions else {})

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> DCSVMState:
        start = unpacked("start", arrays, tuple(arrays["shape"])) if "shape" in arrays else None
        division, turns = unprefixed("division_", arrays), unprefixed("turns_", arrays)
        stage = Stage(str(arrays["stage"]))
        support, turns_start = None, start
        if stage is Stage.REFINE and start is not None:
            support = support_of(start)
            turns_start = start[support]
        numbers: dict[str, Any] = {name: np.asarray(arrays[name]).item() for name in NUMBERS if name in arrays}
        return cls(
            stage,
            start=start,
            division=Division.from_arrays(division) if division else None,
            solutions=_separated(arrays) if "part_sizes" in arrays else (),
            support=support,
            turns=InTurnState.from_arrays(turns, turns_start) if turns and turns_start is not None else None,
            level_support={int(level): bits for level, bits in unprefixed("found", arrays).items()},
            bias=arrays.get("bias"),
            margin=arrays.get("margin"),
            thresholds=thresholds_from(arrays),
            **numbers,
        )


@dataclass(frozen=True)
class DCSVM:
    """The solver. levels: of partitions, 0 for none. early: the level at which it ends; None: at the whole problem.

    until: time.time() from which on problems end as they are. has_bias: with the constraint y'a = 0, which the
    solutions of partitions have together, too. shares_bias: partitions are solved at biases that all of them share, and
    that move from level to level, instead of that constraint."""

    tol: float
    levels: int
    early: int | None = None
    refine: bool = True
    until: float | None = None
    has_bias: bool = False
    shares_bias: bool = False

    def init(self, problem: Divisible) -> DCSVMState:
        thresholds = Thresholds.start(problem.count) if self.shares_bias and self.levels else None
        return DCSVMState(Stage.PARTS if self.levels else Stage.TOP, self.levels, thresholds=thresholds)

    def step(self, problem: Divisible, state: DCSVMState) -> DCSVMState:
        steps = {Stage.PARTS: self._part, Stage.REFINE: self._refined, Stage.TOP: self._top}
        return steps[state.stage](problem, state)

    @staticmethod
    def is_solved(state: DCSVMState) -> bool:
        return state.stage is Stage.END

    def again(self, state: DCSVMState) -> DCSVMState:
        """The state for this solver's tol, if another one led to it: solved to that, or to be solved from there."""
        if state.violation <= self.tol:
            return replace(state, late=state.late and not self.is_solved(state))
        if self.early is not None:
            return replace(state, solutions=(), violation=0.0, late=False)
        return replace(state, stage=Stage.TOP) if self.is_solved(state) else state

    def _part(self, problem: Divisible, state: DCSVMState) -> DCSVMState:
        """Divides, solves the next partitions, or goes up from the last one."""
        division = state.divided
        if division is None:
            return replace(state, division=problem.divide(state.level, state.start))
        if state.is_level_solved:
            return self._above(problem, state)
        solved = problem.parts(len(state.solutions), division, state.start, state.thresholds)
        late = state.late or any(part.late for part in solved)
        worst = max((state.violation, *(part.violation for part in solved)))
        return replace(state, solutions=(*state.solutions, *solved), late=late, violation=worst)

    def _above(self, problem: Divisible, state: DCSVMState) -> DCSVMState:
        if state.level == self.early:
            objective, gap = state.totals()
            return replace(state, stage=Stage.END, objective=objective, gap=gap)
        solved = state.together(problem.shape)
        level_support = {**state.level_support, state.level: np.packbits(solved.any(axis=1))}
        state = replace(state, start=solved, solutions=(), level_support=level_support)
        if state.thresholds is not None:
            is_rough = not state.thresholds.are_known
            state = replace(state, thresholds=state.thresholds.after(*problem.excess(solved)))
            if is_rough:  # its partitions were solved roughly
                return replace(state, division=None)
        state = replace(state, level=state.level - 1)
        if state.level > 0:
            return state
        return replace(state, stage=Stage.REFINE if self.refine else Stage.TOP)

    def _refined(self, problem: Divisible, state: DCSVMState) -> DCSVMState:
        """A round on the support vectors alone."""
        assert state.start is not None  # of the lowest level
        support = support_of(state.start) if state.support is None else state.support
        duals = problem.among(support)
        if duals is None:
            return replace(state, stage=Stage.TOP)
        turns = self._turned(duals, state, state.start[support])
        if not turns.ended:
            return replace(state, turns=turns, support=support)
        start = state.start.copy()
        start[support] = turns.solved
        late = state.late or turns.late
        thresholds = state.thresholds and state.thresholds.at_other(turns.bias)
        state = replace(state, stage=Stage.TOP, start=start, thresholds=thresholds)
        return replace(state, turns=None, support=None, late=late)

    def _top(self, problem: Divisible, state: DCSVMState) -> DCSVMState:
        start = np.zeros(problem.shape) if state.start is None else state.start
        turns = self._turned(problem.whole(state.division), state, start)
        if not turns.ended:
            return replace(state, start=start, turns=turns)
        ended = replace(state, stage=Stage.END, start=turns.solved, turns=None)
        certificate = {name: getattr(turns, name) for name in ("objective", "gap", "violation", "late")}
        return replace(ended, bias=turns.bias, margin=turns.margin, **certificate)

    def _turned(self, duals: Duals, state: DCSVMState, start: np.ndarray) -> InTurnState:
        solver = InTurn(self.tol, self.until, self.has_bias)
        return solver.step(duals, state.turns or solver.init(duals, start, state.thresholds))


def support_of(alpha: np.ndarray) -> np.ndarray:
    """Rows (s,) with a coefficient that is not 0."""
    return np.flatnonzero(alpha.any(axis=1))


def _joined(solutions: tuple[PartSolution, ...]) -> dict[str, np.ndarray]:
    """The arrays of several partitions, one after another."""
    names = ("n_support", "objective", "gap")
    return {f"part_{name}": np.array([getattr(part, name) for part in solutions]) for name in names} | {
        "part_sizes": np.array([len(part.ids) for part in solutions]),
        "part_ids": np.concatenate([part.ids for part in solutions]),
        "part_alpha": np.concatenate([part.alpha for part in solutions]),
    }


def _separated(arrays: Mapping[str, np.ndarray]) -> tuple[PartSolution, ...]:
    ends = np.cumsum(arrays["part_sizes"])[:-1]
    ids, alpha = np.split(arrays["part_ids"], ends), np.split(arrays["part_alpha"], ends)
    numbers = (arrays[f"part_{name}"].tolist() for name in ("n_support", "objective", "gap"))
    return tuple(PartSolution(*part) for part in zip(ids, alpha, *numbers, strict=True))
