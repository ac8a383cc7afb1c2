"""A part of the rows, solved as a task."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from streamsvm.data.regroup import PartReader
from streamsvm.data.rows import Rows
from streamsvm.events import Approaches
from streamsvm.kernels.base import Kernel
from streamsvm.progress import advance
from streamsvm.solvers.dcsvm import PartSolution, support_of
from streamsvm.solvers.in_turn import InTurn, InTurnState
from streamsvm.solvers.loop import is_late, run
from streamsvm.training.part_metric import PartMetric
from streamsvm.training.subproblems import Asked, TaskDuals, in_memory

HASTY_ROWS, HASTY_TOL = 500, 0.1  # of a part that is begun when time is up


@dataclass(frozen=True)
class KeptPart(PartSolution):
    """A part's solution with its support rows, where they are wanted."""

    rows: Rows | None = None


@dataclass(frozen=True)
class PartSolver:
    """What all parts are solved with. single: subproblems of one class, too.

    refits: of the metric of each part of an early model, whose support rows are wanted; None: of another part. until:
    time.time() from which on problems end as they are.
    """

    kernel: Kernel
    tol: float
    threads: int
    cache_bytes: int
    single: bool
    refits: int | None = None
    until: float | None = None

    def __call__(
        self, reader: PartReader, part: int, ids: np.ndarray, asked: Asked, alpha: np.ndarray
    ) -> KeptPart:
        """The solution of a part, from alpha of its rows."""
        rows, weights = reader.rows(part), None
        if is_late(self.until):
            return self._hasty(rows, ids, asked)
        if self.refits:
            metric = PartMetric(self.kernel, self.refits, self.threads, self._trial)
            weights, alpha = metric(rows, asked, alpha)
        state = self._solved(rows if weights is None else rows.times(weights), asked, alpha, self.tol)
        support = support_of(state.solved)
        kept = None if self.refits is None else rows.take(support)
        numbers = state.objective, state.gap
        return KeptPart(ids[support], state.solved[support], *numbers, weights, state.late, kept)

    def _hasty(self, rows: Rows, ids: np.ndarray, asked: Asked) -> KeptPart:
        """The solution of a part where time is up: of few of its rows, so that they decide at all."""
        few = np.linspace(0, len(ids) - 1, min(len(ids), HASTY_ROWS)).astype(np.intp)
        solver = replace(self, until=None, refits=self.refits and 0, tol=max(self.tol, HASTY_TOL))
        own = solver._solved(
            rows.take(few), asked.take(few), np.zeros((len(few), asked.shape[1])), solver.tol
        )
        support = support_of(own.solved)
        kept = None if self.refits is None else rows.take(few[support])
        found = ids[few[support]], own.solved[support], own.objective, own.gap
        return KeptPart(*found, np.ones(rows.d) if self.refits else None, True, kept)

    def _trial(self, number: int, rows: Rows, asked: Asked, alpha: np.ndarray, tol: float) -> np.ndarray:
        """Coefficients of one of the fits that come before the last one."""
        share = 1.0 / ((self.refits or 0) + 2)
        return self._solved(rows, asked, alpha, max(tol, self.tol), (number * share, share)).solved

    def _solved(
        self,
        rows: Rows,
        asked: Asked,
        alpha: np.ndarray,
        tol: float,
        shares: tuple[float, float] | None = None,
    ) -> InTurnState:
        """shares: of the task that are done before, and that this is."""
        make = in_memory(self.kernel, rows, self.threads, self.cache_bytes)
        duals, solver = TaskDuals(asked, make, single=self.single), InTurn(tol, self.until)
        total, done = asked.count, Approaches(tol)
        before, own = shares or (0.0, 1.0)

        def on_step(state: InTurnState) -> None:
            if state.running is not None:
                advance(before + own * done(state.done, state.running.violation) / total)

        return run(solver, duals, solver.init(duals, alpha), stop=solver.is_solved, on_step=on_step)
