"""DC-SVM: multilevel divide and conquer (Hsieh, Si and Dhillon 2014, algorithm 1).

Level l divides the rows into about children^l parts by two-step kernel k-means and solves the dual on each part;
the solutions together start the level above. Level 0 is the whole problem.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import numpy as np

from streamsvm.data.rows import Rows
from streamsvm.events import Approaches, Events, LevelSolved
from streamsvm.graph import Engine
from streamsvm.groups import Groups, PartReader
from streamsvm.kernels.base import Kernel
from streamsvm.kmeans import Partition
from streamsvm.problems import DualQP, KernelDual, dual_of
from streamsvm.progress import advance
from streamsvm.sizes import Weighed
from streamsvm.solvers import blockws
from streamsvm.tasks.base import Subproblem, Targets, Task

PART_ROWS = (
    8192  # average rows of a part at the bottom: on covtype larger parts score no better in their time
)
DIRECT_ROWS = 8 * PART_ROWS  # exact solutions of fewer rows take longer with a level than without


def default_levels(n: int, children: int, *, early: bool) -> int:
    """Levels whose bottom parts have about PART_ROWS rows; 0 where the whole problem is small."""
    if not early and n < DIRECT_ROWS:
        return 0
    return max(0, round(math.log(n / PART_ROWS, children)))


@dataclass(frozen=True)
class Bounded(Weighed):
    """What is asked of rows: the task and their targets, and bounds upper (n,) of their duals, C times the weights.

    parts (n,) tells rows that are close to each other; the first division fills it in.
    """

    task: Task
    targets: Targets
    upper: np.ndarray
    parts: np.ndarray

    def take(self, ids: np.ndarray) -> Bounded:
        return Bounded(self.task, self.targets.take(ids), self.upper[ids], self.parts[ids])

    @property
    def count(self) -> int:
        """Subproblems, where rows of all classes are here."""
        return self.task.n_subproblems(len(self.targets.classes))

    @property
    def columns(self) -> int:
        """Coefficients of a row."""
        return self.task.coefficients(len(self.targets.classes))


@dataclass(frozen=True)
class PartSolution(Weighed):
    """A part's support rows: ids, coefficients alpha (s, columns); objective and duality gap of its subproblems; the
    rows, where they are wanted."""

    ids: np.ndarray
    alpha: np.ndarray
    objective: float
    gap: float
    rows: Rows | None = None


@dataclass
class Level:
    """One level: alpha (n, columns) that it starts from, its division of the rows, what its first parts came to.

    solved (n, columns): of the parts that are done. objectives, gaps: of each of them. clustering_s: of the division.
    """

    number: int
    start: np.ndarray
    partition: Partition
    parts: np.ndarray
    solved: np.ndarray
    clustering_s: float = 0.0
    objectives: list[float] = field(default_factory=list)
    gaps: list[float] = field(default_factory=list)

    @property
    def n_parts(self) -> int:
        return int(self.parts.max()) + 1

    def add(self, part: PartSolution) -> None:
        self.solved[part.ids] = part.alpha
        self.objectives.append(part.objective)
        self.gaps.append(part.gap)


Dual = Callable[[Subproblem], DualQP]


@dataclass
class SolvedState:
    """Subproblems solved one after the other: how many, their coefficients (m, columns), and the one under way."""

    solved: np.ndarray
    done: int = 0
    objective: float = 0.0
    gap: float = 0.0
    running: blockws.BlockState | None = None

    def to_arrays(self) -> dict[str, Any]:
        """All of it under names, for a checkpoint."""
        running = self.running.to_arrays() if self.running is not None else {}
        numbers = {"done": self.done, "objective": self.objective, "gap": self.gap}
        return numbers | packed("solved", self.solved) | {f"running_{name}": v for name, v in running.items()}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Any], shape: tuple[int, ...]) -> SolvedState:
        running = {name[8:]: value for name, value in arrays.items() if name.startswith("running_")}
        return cls(
            unpacked("solved", arrays, shape),
            int(arrays["done"]),
            float(arrays["objective"]),
            float(arrays["gap"]),
            blockws.BlockState.from_arrays(running) if running else None,
        )


def packed(name: str, alpha: np.ndarray) -> dict[str, np.ndarray]:
    """The rows of alpha (n, c) that are not 0, and which they are."""
    ids = np.flatnonzero(alpha.any(axis=1))
    return {f"{name}_ids": ids, f"{name}_values": alpha[ids]}


def unpacked(name: str, arrays: Mapping[str, Any], shape: tuple[int, ...]) -> np.ndarray:
    alpha = np.zeros(shape)
    alpha[arrays[f"{name}_ids"]] = arrays[f"{name}_values"]
    return alpha


def solve_all(
    dual: Dual,
    rows: Bounded,
    alpha: np.ndarray,
    tol: float,
    *,
    single: bool = True,
    state: SolvedState | None = None,
    on_step: Callable[[SolvedState, DualQP], None] = lambda state, problem: None,
) -> SolvedState:
    """All subproblems solved, each from its coefficients in alpha (m, columns); from `state` on, where there is one."""
    state = state or SolvedState(np.zeros_like(alpha))
    solver = blockws.BlockSolver(tol)
    for part in islice(rows.task.subproblems(rows.targets, single=single), state.done, None):
        problem = dual(part)

        def step(running: blockws.BlockState, state: SolvedState = state, problem: DualQP = problem) -> None:
            state.running = running
            on_step(state, problem)

        start = state.running or solver.init(problem, alpha[part.places])
        solved = solver.solve(problem, start, on_step=step)
        state.solved[part.places] = solved.alpha
        state.objective += blockws.objective(problem, solved)
        state.gap += blockws.duality_gap(problem, solved)
        state.done, state.running = state.done + 1, None
    return state


def in_memory(kernel: Kernel, rows: Rows, bounded: Bounded, threads: int = 1, cache_bytes: int = 0) -> Dual:
    """Duals over rows in memory."""

    def dual(part: Subproblem) -> DualQP:
        own = rows if len(part.ids) == len(rows) else rows.take(part.ids)
        upper, parts = bounded.upper[part.ids], several(bounded.parts[part.ids])
        return dual_of(part, lambda y: KernelDual(kernel, own, y, upper, threads, parts, cache_bytes))

    return dual


def several(parts: np.ndarray) -> np.ndarray | None:
    """The parts, if there is more than one."""
    return parts if len(parts) and np.any(parts != parts[0]) else None


@dataclass(frozen=True)
class PartSolver:
    """What all parts are solved with. single: subproblems of one class, too. keep_rows: support rows are wanted."""

    kernel: Kernel
    tol: float
    threads: int
    cache_bytes: int
    single: bool
    keep_rows: bool

    def __call__(
        self, reader: PartReader, part: int, ids: np.ndarray, bounded: Bounded, alpha: np.ndarray
    ) -> PartSolution:
        """The solution of a part, from alpha of its rows."""
        rows = reader.rows(part)
        dual = in_memory(self.kernel, rows, bounded, self.threads, self.cache_bytes)
        total, done = bounded.count, Approaches(self.tol)

        def on_step(state: SolvedState, _: DualQP) -> None:
            assert state.running is not None  # it has made a step
            advance(done(state.done, state.running.violation) / total)

        state = solve_all(dual, bounded, alpha, self.tol, single=self.single, on_step=on_step)
        support = np.flatnonzero(state.solved.any(axis=1))
        kept = rows.take(support) if self.keep_rows else None
        return PartSolution(ids[support], state.solved[support], state.objective, state.gap, kept)


@dataclass(frozen=True)
class Levels:
    """How the parts of a level are solved."""

    kernel: Kernel
    bounded: Bounded
    tol: float
    cache_bytes: int
    engine: Engine
    events: Events

    def solve(
        self, level: Level, groups: Groups, *, single: bool = True, keep_rows: bool = False
    ) -> Iterator[PartSolution]:
        """The solution of each part, lazily and in order; those that are known already first.

        Records the level at its end.
        """
        began, known = time.perf_counter(), len(level.objectives)
        if keep_rows:
            yield from (self._known(level, groups, part) for part in range(known))
        for part in self._solutions(level, groups, range(known, groups.n_parts), single, keep_rows):
            level.add(part)
            yield part
        self.events(
            LevelSolved(
                level=level.number,
                parts=groups.n_parts,
                max_rows=int(np.bincount(level.parts).max()),
                seconds_clustering=round(level.clustering_s, 3),
                seconds_training=round(time.perf_counter() - began, 3),
                objective=sum(level.objectives),
                n_support=int(np.count_nonzero(level.solved.any(axis=1))),
            )
        )

    def _solutions(
        self, level: Level, groups: Groups, todo: range, single: bool, keep_rows: bool
    ) -> Iterator[PartSolution]:
        threads, window = self.engine.wide(groups.n_parts)
        cache_bytes = self.cache_bytes * threads // self.engine.worker_memory()[1]
        solver = PartSolver(self.kernel, self.tol, threads, cache_bytes, single, keep_rows)
        ids = [groups.ids(part) for part in todo]
        return self.engine.map(
            solver,
            todo,
            ids,
            (self.bounded.take(here) for here in ids),
            (level.start[here] for here in ids),
            shared=(self.engine.share(groups.reader),),
            phase=f"level {level.number}",
            events=self.events,
            window=window,  # parts come largest first: few cores wait at a window's end
        )

    @staticmethod
    def _known(level: Level, groups: Groups, part: int) -> PartSolution:
        ids = groups.ids(part)
        support = np.flatnonzero(level.solved[ids].any(axis=1))
        rows = groups.reader.rows(part).take(support)
        found = level.solved[ids[support]], level.objectives[part], level.gaps[part]
        return PartSolution(ids[support], *found, rows)
