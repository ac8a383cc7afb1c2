"""From data with chosen options to a solution: of more rows while there is time, and as good as the search expects.

A time budget may leave some rows out at first. The fit of these shows how long one of more rows takes, so fits follow
each other, from few rows to all, until the time is up; the last one that ended is the model. And a model that scores
lower, on rows that the search held out, than the search expects of new rows is not the one that was chosen: the data
are prepared and trained again from the chosen options alone if that makes a difference, and there is a warning.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from streamsvm.choosing.time_budget import choice_of, with_more_rows
from streamsvm.config import SearchConfig
from streamsvm.errors import ConfigError, StreamSVMError
from streamsvm.fits.base import Fit, FitContext, PathFit, Solution
from streamsvm.fits.divided import STREAMED_SHARE
from streamsvm.fits.drafts import ModelDraft
from streamsvm.fits.prepare import TrainingData, prepare
from streamsvm.judging.expected import of_model
from streamsvm.parallel.machine import allowed_bytes
from streamsvm.solvers.catalogue import fit_class

COMPARED_ROWS = 1000  # whose bounds show whether rows were prepared alike
FAILURES = (StreamSVMError, MemoryError, ArithmeticError, OSError)  # of a further fit: the one before stays


def fit_of(data: TrainingData, context: FitContext) -> Fit:
    """The fit of prepared data, whose checkpoints know what was chosen for it. Raises MemoryLimitError."""
    if data.requested is not None:
        context.checkpoints.choice = choice_of(data)
    return fit_class(data.config.solver)(data, context)


def solve(fit: Fit, draft: ModelDraft, Cs: Sequence[float]) -> tuple[Fit, list[Solution]]:
    """The fit whose model is taken, and its solution, or one for each of Cs. Raises what solvers raise."""
    if _may_extend(fit):
        fit, solutions = _with_more_rows(fit, draft)
    elif not Cs:
        solutions = [fit.solve(draft)]
    elif isinstance(fit, PathFit):
        solutions = fit.path(Cs)
    else:
        raise ConfigError(f"solver {fit.config.solver} learns one C at a time, found {len(Cs)}")
    if fit.prepared.expectation is None:  # without a search
        return fit, solutions
    return _as_expected(fit, solutions, draft)


def _may_extend(fit: Fit) -> bool:
    """Whether the time left has cut the rows, and whether a model of those that are left may wait in memory."""
    limit = allowed_bytes(fit.config.memory_limit)
    return fit.prepared.all_rows is not None and fit.store.nbytes < limit / STREAMED_SHARE


def _with_more_rows(fit: Fit, draft: ModelDraft) -> tuple[Fit, list[Solution]]:
    """The last fit that ended in time, each of more rows than the one before, and its solution."""
    began, last = time.perf_counter(), fit.solve(ModelDraft())
    while not last.late:
        took_s = None if fit.checkpoints.is_loaded else time.perf_counter() - began
        data = with_more_rows(fit.prepared, took_s, fit.context)
        if data is None:
            break
        try:
            fit.context.begin_again(f"of {data.store.n} rows")
            more, began = fit_of(data, fit.context), time.perf_counter()
            draft.discard()
            solution = more.solve(draft if not _may_extend(more) else ModelDraft())
        except FAILURES as error:
            what = f"a fit of {data.store.n:,} rows failed ({_message(error)})"
            fit.events.warn(f"{what}: the model is that of {fit.store.n:,} rows")
            draft.discard()
            break
        if solution.late:
            draft.discard()
            break
        fit, last = more, solution
        if not _may_extend(fit):
            break
    return fit, [last]


def _as_expected(fit: Fit, solutions: list[Solution], draft: ModelDraft) -> tuple[Fit, list[Solution]]:
    """A fit, and its solution, that scores at least as high as the search expects, or the best that there is, and a
    warning. The model may have learned from the rows that it is scored on, so a lower score is a fault."""
    losses, expectation = _losses(fit, solutions[0]), fit.prepared.expectation
    assert expectation is not None
    expected, score = expectation.expected, 1 - float(losses.mean())
    least = expected.low
    if not solutions[0].exact:  # another order of the rows would give another model, too
        least -= 0.5 * (expected.high - expected.low)
    if score >= least:
        return fit, solutions
    what = (
        f"the model has a score of {score:.3f} on rows that it could learn from, where the search expects "
        f"{expected.low:.3f} to {expected.high:.3f} on new rows"
    )
    data = None if solutions[0].late else _prepared_again(fit)
    if data is not None:
        again = _trained_again(data, fit.context, draft)
        if isinstance(again, str):
            what += f"; it could not be trained again ({again})"
        else:
            fit, solutions = again
            losses = _losses(fit, solutions[0])
            what += f"; prepared and trained again it has {1 - losses.mean():.3f}"
    if 1 - float(losses.mean()) < least:
        fit.prepared = replace(fit.prepared, expected=of_model(expected.scoring, losses))
        what += ": do not rely on the choice; --no-search or options that you give train another model"
    fit.events.warn(what)
    return fit, solutions


def _losses(fit: Fit, solution: Solution) -> np.ndarray:
    expectation = fit.prepared.expectation
    assert expectation is not None  # there was a search
    return expectation.losses(solution.model, fit.prepared.no_targets.units, solution.search_decisions)


def _prepared_again(fit: Fit) -> TrainingData | None:
    """The data as the chosen options alone make them; None if that makes no difference."""
    before = fit.prepared
    config = before.config.model_copy(update={"search": SearchConfig(options=())})
    data = prepare(fit.checkpoints.store, config, fit.engine, phase=fit.phase)
    some = np.arange(min(COMPARED_ROWS, data.store.n))
    first, second = (
        {"upper": each.target_source.take(some).upper, **each.scaling.to_arrays()} for each in (before, data)
    )
    is_alike = first.keys() == second.keys() and all(
        np.allclose(first[name], second[name], equal_nan=True) for name in first
    )
    if is_alike and data.kernel == before.kernel:
        return None
    return replace(
        data,
        config=before.config,
        choices=before.choices,
        expected=before.expected,
        requested=before.requested,
        expectation=before.expectation,
        all_rows=before.all_rows,
    )


def _trained_again(data: TrainingData, context: FitContext, draft: ModelDraft) -> tuple[Fit, list[Solution]] | str:
    """Another fit, which replaces the model so far; or why it failed, which leaves that one, unless it is in a file."""
    context.begin_again("again")
    try:
        fit = fit_of(data, context)
    except FAILURES as error:
        return _message(error)
    is_in_file = draft.has_begun
    draft.discard()
    try:
        return fit, [fit.solve(draft)]
    except FAILURES as error:
        if is_in_file:
            raise
        draft.discard()
        return _message(error)


def _message(error: BaseException) -> str:
    return str(error) or type(error).__name__
