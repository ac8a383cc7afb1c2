"""DC-SVM: multilevel divide and conquer (Hsieh, Si and Dhillon 2014, algorithm 1).

Level l divides the rows into about children^l parts by two-step kernel k-means and solves the dual on each part;
the solutions together start the level above. Level 0 is the whole problem.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from streamsvm.data.rows import Rows
from streamsvm.data.samples import Groups
from streamsvm.events import Events
from streamsvm.graph import Engine
from streamsvm.kernels import Kernel
from streamsvm.kmeans import Partition
from streamsvm.problems import DualQP, KernelDual
from streamsvm.solvers import blockws
from streamsvm.solvers.pairs import Pair, Targets, pairs

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
class PartSolution:
    """A part's support rows: ids, rows and coefficients alpha (s, k - 1); objective and duality gap of its pairs."""

    ids: np.ndarray
    rows: Rows
    alpha: np.ndarray
    objective: float
    gap: float


@dataclass(frozen=True)
class Level:
    """One level's division of the rows."""

    number: int
    partition: Partition
    groups: Groups


Dual = Callable[[Pair], DualQP]


def solve_pairs(
    dual: Dual,
    targets: Targets,
    alpha: np.ndarray,
    tol: float,
    *,
    single: bool = True,
    on_step: Callable[[float, int], None] = lambda violation, rounds: None,
) -> tuple[np.ndarray, float, float]:
    """(alpha, objective, gap) of all pairs, each from its given coefficients. alpha: (m, k - 1)."""
    solved, objective, gap = np.zeros_like(alpha), 0.0, 0.0
    for pair in pairs(targets, single=single):
        problem = dual(pair)
        state = blockws.solve(problem, alpha[pair.ids, pair.columns], tol=tol, on_step=on_step)
        solved[pair.ids, pair.columns] = state.alpha
        objective += blockws.objective(problem, state)
        gap += blockws.duality_gap(problem, state)
    return solved, objective, gap


def in_memory(kernel: Kernel, rows: Rows, targets: Targets, threads: int = 1, cache_bytes: int = 0) -> Dual:
    """Duals over rows in memory."""

    def dual(pair: Pair) -> KernelDual:
        part = rows if len(pair.ids) == len(rows) else rows.take(pair.ids)
        parts = several(targets.parts[pair.ids])
        return KernelDual(kernel, part, pair.y, targets.upper[pair.ids], threads, parts, cache_bytes)

    return dual


def several(parts: np.ndarray) -> np.ndarray | None:
    """The parts, if there is more than one."""
    return parts if len(parts) and np.any(parts != parts[0]) else None


Divide = Callable[[int, np.ndarray | None], Level]  # level number, row ids to sample from (None: all)


@dataclass(frozen=True)
class Climb:
    """The multilevel loop: from a level up to another, each started from the one below."""

    divide: Divide
    kernel: Kernel
    targets: Targets
    tol: float
    adaptive: bool
    cache_bytes: int
    engine: Engine
    events: Events

    def run(self, numbers: range, alpha: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
        """(level number, coefficients (n, k - 1) of all rows) after each level."""
        for number in numbers:
            start = time.perf_counter()
            level = self.divide(number, self.candidates(alpha))
            updated = np.zeros_like(alpha)
            single = self.targets.n_classes == 2
            for part in self.reported(level, start, self.parts(level, alpha, single=single)):
                updated[part.ids] = part.alpha
            alpha = updated
            yield number, alpha

    def reported(self, level: Level, start: float, parts: Iterator[PartSolution]) -> Iterator[PartSolution]:
        """The parts as they come, and at their end one record of the level; start: when its clustering began."""
        divided = time.perf_counter()
        objective, n_support = 0.0, 0
        for part in parts:
            objective, n_support = objective + part.objective, n_support + len(part.ids)
            yield part
        self.events(
            "level",
            level=level.number,
            parts=level.groups.n_parts,
            seconds_clustering=round(divided - start, 3),
            seconds_training=round(time.perf_counter() - divided, 3),
            objective=objective,
            n_support=n_support,
        )

    def candidates(self, alpha: np.ndarray) -> np.ndarray | None:
        """Support vectors, to sample the next clustering from (section 4, adaptive clustering)."""
        return np.flatnonzero(alpha.any(axis=1)) if self.adaptive and alpha.any() else None

    def parts(self, level: Level, alpha: np.ndarray, *, single: bool) -> Iterator[PartSolution]:
        """The solution of each part, lazily and in order, from alpha (n, k - 1)."""
        groups, targets = level.groups, self.targets

        few = groups.n_parts < 4 * self.engine.threads  # then one after the other, each on all threads
        threads = self.engine.threads if few else 1

        def solve_part(part: int) -> PartSolution:
            ids, rows = groups.ids(part), groups.rows(part)
            here = targets.take(ids)
            dual = in_memory(
                self.kernel, rows, here, threads, self.cache_bytes * threads // self.engine.threads
            )
            solved, objective, gap = solve_pairs(dual, here, alpha[ids], self.tol, single=single)
            support = np.flatnonzero(solved.any(axis=1))
            return PartSolution(ids[support], rows.take(support), solved[support], objective, gap)

        return self.engine.map(
            solve_part,
            range(groups.n_parts),
            phase=f"level {level.number}",
            events=self.events,
            # parts come largest first: few cores wait at a window's end
            window=1 if few else 16 * self.engine.threads,
        )
