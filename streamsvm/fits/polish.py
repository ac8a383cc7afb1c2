"""The exact block solver, started from an approximate solution."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from streamsvm.data.rows import Rows
from streamsvm.events import Phase
from streamsvm.fits.base import Fit
from streamsvm.problems.dual import DualQP, KernelDual, dual_of
from streamsvm.progress.approach import Rounds
from streamsvm.solvers import blockws
from streamsvm.solvers.loop import run
from streamsvm.tasks.base import Subproblem


@dataclass(frozen=True)
class Solved:
    """Coefficients coef (n, columns), bias (columns,), and their dual objective and gap, summed over columns.

    converged, violation: what the exact solver reports, if it continued from ADMM; is_rounded: no step of it improved a
    column any more. late: time ended one of them.
    """

    coef: np.ndarray
    bias: np.ndarray
    objective: float
    gap: float
    converged: bool | None = None
    late: bool = False
    violation: float | None = None
    is_rounded: bool = False


def polished(
    fit: Fit, rows: Rows, duals: Iterable[Subproblem], bounds: np.ndarray, start: np.ndarray, most_rounds: int
) -> tuple[Solved, dict[str, Any]]:
    """Each dual of all rows, with bounds (n,), from its coefficients start (n, columns); and facts for the report."""
    coef, bias = np.empty_like(start), np.empty(start.shape[1])
    before = after = objective = 0.0
    rounds, converged, late, worst, is_rounded = 0, True, False, 0.0, False
    solver = blockws.BlockSolver(fit.config.tol, bias=True)

    def stop(state: blockws.BlockState) -> bool:
        return solver.has_ended(state, most_rounds)

    tell = Rounds(fit.events, Phase.POLISH, start.shape[1], fit.config.tol)

    with fit.phase("polish"), fit.engine.serial_blas():
        for c, part in enumerate(duals):
            make = partial(
                KernelDual, fit.kernel, rows, upper=part.bounds(bounds), threads=fit.engine.threads
            )
            dual = dual_of(part, make)
            first = solver.init(dual, np.maximum(part.y * np.tile(start[:, c], part.copies), 0.0))

            def on_step(state: blockws.BlockState, c: int = c, dual: DualQP = dual) -> None:
                tell(c, blockws.facts(dual, state))

            state = run(solver, dual, first, stop=stop, on_step=on_step, until=fit.until)
            late, is_rounded = late or not stop(state), is_rounded or state.is_rounded
            state = solver.unshrunk(dual, state)
            worst = max(worst, state.violation)
            before += blockws.duality_gap(dual, first)
            part_objective, part_gap = blockws.certificate(dual, state)
            objective, after = objective + part_objective, after + part_gap
            rounds += state.rounds
            converged = converged and solver.is_solved(state)
            coef[:, c], bias[c] = part.coefficients(state.alpha), state.bias
    tell.end()
    return (
        Solved(coef, bias, objective, after, converged, late, worst, is_rounded),
        {"gap_before_polish": before, "polish_rounds": rounds},
    )
