"""Subproblems solved one after the other by the block solver: those of a task, over the same rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from streamsvm.problems.dual import DualQP
from streamsvm.solvers import blockws
from streamsvm.solvers.loop import is_late


class Duals(Protocol):
    """The oracle. shape (m, columns): of the coefficients of all subproblems, each of which has places of its own."""

    shape: tuple[int, int]

    def places(self, number: int) -> tuple[np.ndarray, np.ndarray] | None:
        """Where the variables of a subproblem are among the coefficients; None beyond the last one."""

    def dual(self, number: int) -> DualQP:
        """A subproblem; the one before it is not asked for again."""


@dataclass
class InTurnState:
    """start (m, columns): what subproblems begin with. solved: of those that are done, how many; and the one at hand.

    solved is filled in place: with hundreds of pairs of classes copies would take longer than the smallest ones.
    """

    start: np.ndarray
    solved: np.ndarray
    done: int = 0
    objective: float = 0.0
    gap: float = 0.0
    running: blockws.BlockState | None = None
    ended: bool = False
    late: bool = False  # whether any was ended before it was solved

    def to_arrays(self) -> dict[str, Any]:
        """All of it under names, for a checkpoint, but for the start."""
        running = self.running.to_arrays() if self.running is not None else {}
        numbers = {name: getattr(self, name) for name in ("done", "objective", "gap", "ended", "late")}
        return numbers | packed("solved", self.solved) | prefixed("running_", running)

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Any], start: np.ndarray) -> InTurnState:
        running = unprefixed("running_", arrays)
        return cls(
            start,
            unpacked("solved", arrays, start.shape),
            int(arrays["done"]),
            float(arrays["objective"]),
            float(arrays["gap"]),
            blockws.BlockState.from_arrays(running) if running else None,
            bool(arrays["ended"]),
            bool(arrays.get("late", False)),
        )


@dataclass(frozen=True)
class InTurn:
    """The solver: a step is a round of the subproblem at hand, or the end of one that is solved.

    until: time.time() from which on subproblems end as they are.
    """

    tol: float
    until: float | None = None

    def init(self, problem: Duals, alpha: np.ndarray | None = None) -> InTurnState:
        zeros = np.zeros(problem.shape)
        return InTurnState(zeros if alpha is None else alpha, np.zeros_like(zeros))

    def step(self, problem: Duals, state: InTurnState) -> InTurnState:
        solver, places = blockws.BlockSolver(self.tol), problem.places(state.done)
        if places is None:
            return replace(state, ended=True)
        dual = problem.dual(state.done)
        running = state.running or solver.init(dual, state.start[places])
        unsolved = not solver.is_solved(running)
        if unsolved and not is_late(self.until):
            solver.out_of_rounds(running, blockws.MOST_ROUNDS)
            return replace(state, running=solver.step(dual, running))
        if unsolved:
            running = solver.unshrunk(dual, running)
        state.solved[places] = running.alpha
        return replace(
            state,
            done=state.done + 1,
            objective=state.objective + blockws.objective(dual, running),
            gap=state.gap + blockws.duality_gap(dual, running),
            running=None,
            late=state.late or unsolved,
        )

    @staticmethod
    def is_solved(state: InTurnState) -> bool:
        return state.ended


def packed(name: str, alpha: np.ndarray) -> dict[str, np.ndarray]:
    """The rows of alpha (n, c) that are not 0, and which they are."""
    ids = np.flatnonzero(alpha.any(axis=1))
    return {f"{name}_ids": ids, f"{name}_values": alpha[ids]}


def unpacked(name: str, arrays: Mapping[str, Any], shape: tuple[int, ...]) -> np.ndarray:
    alpha = np.zeros(shape)
    alpha[arrays[f"{name}_ids"]] = arrays[f"{name}_values"]
    return alpha


def prefixed(prefix: str, arrays: Mapping[str, Any]) -> dict[str, Any]:
    return {prefix + name: value for name, value in arrays.items()}


def unprefixed(prefix: str, arrays: Mapping[str, Any]) -> dict[str, Any]:
    """The arrays whose names begin so, without that beginning."""
    return {name.removeprefix(prefix): value for name, value in arrays.items() if name.startswith(prefix)}
