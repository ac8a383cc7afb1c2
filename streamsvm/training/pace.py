"""What a fit will take, by the trials of the search before it; and what can be done in the time that is left."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from streamsvm.config import FitConfig
from streamsvm.events import Warned
from streamsvm.solvers.catalogue import fit_class
from streamsvm.solvers.metric import MetricState, facts
from streamsvm.training.base import Context
from streamsvm.training.prepare import Prepared

EXACT_S, EXACT_SHARE = 30.0, 0.6  # that an exact fit may take; or of what is left of a budget
TIMES = {"exact": 2.0, "early": 1.0}  # as long as a trial of as many rows, with a smaller tolerance
LEAST_POWER, TYPICAL_POWER = 0.4, 0.8  # of the rows, by which support vectors grow
MOST_LEVELS = 12  # of parts
ALIKE = 3  # last steps on as many rows, the fastest of which counts
FIT_SHARE = 0.6  # of a time budget that a fit may claim before the search has begun
PROBLEM_S, MOST_CONSTANT = 2e-4, 0.8  # of a trial, whatever its rows: a pair of classes; share of it all
PASSES = 6.0  # over the store, of the fit of parts
END_S = 1.5  # to write the model, and to end
ROOM = 0.8  # of the time left that a fit on fewer rows is to take
SAMPLE_S, MOST_SAMPLE = 60.0, 60_000  # budget of the usual sample; rows of the largest one
VALUE_S = 5e-9  # of a row and a support vector in a trial, where no time is given and none decides
REGION_STEPS = 3.0  # times the last step, that the search in regions takes


def fit_s(steps: Sequence[dict[str, Any]], n: int, part_rows: int, problems: int = 0) -> float:
    """Seconds of a fit of n rows in parts of so many, or in one, by the last trials, of as many problems each.

    They go with the kernel values of all rows with the support vectors of their part: as dense as all rows are, which
    have fewer of them than the sample.
    """
    last, before = steps[-1], [step for step in steps if step["rows"] < steps[-1]["rows"]]
    power = TYPICAL_POWER
    if before:
        ratios = {name: max(1, last[name]) / max(1, before[-1][name]) for name in ("support", "rows")}
        power = min(max(math.log(ratios["support"]) / math.log(ratios["rows"]), LEAST_POWER), 1.0)
    # others may have compiled, or had the cores to share
    seconds = min(step["seconds"] for step in steps[-ALIKE:] if step["rows"] == last["rows"])
    values = n / last["rows"] * part_rows / last["rows"]
    times = TIMES["exact" if part_rows == n else "early"]
    constant = min(PROBLEM_S * problems, MOST_CONSTANT * seconds)
    growing = (seconds - constant) * values * (n / last["rows"]) ** (power - 1)
    return float(times * (constant * n / part_rows + growing))


def of_best(steps: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The steps of the kernel that is best on the most rows: others tell nothing of its fit."""
    best = max(steps, key=lambda step: (step["rows"], step["score"]))
    return [step for step in steps if step["kernel"] == best["kernel"] and step["rows"] <= best["rows"]]


def least_fit_s(prepared: Prepared, steps: Sequence[dict[str, Any]], context: Context) -> float:
    """Seconds of the fastest fit that the options leave: of parts, where early prediction may be chosen."""
    config, n, pass_s = prepared.config, prepared.store.n, context.phase.seconds.get("scale", 0.0)
    problems = prepared.task.n_subproblems(len(prepared.targets.classes))
    growth, own = fit_class(config.solver).growth, config.search.options or ()
    fits = 1 + (config.probability.folds if config.probability.method else 0)
    last = steps[-1]
    value_s = last["seconds"] / max(1, last["rows"] * last["support"])
    seconds = growth.own_fit_s(n, config, pass_s, value_s)
    if seconds is None:
        if "early" in own:
            config = _early(config)
        part_rows = growth.part_rows(n, config)
        seconds = fit_s(steps, n, part_rows, problems) + (1.0 if part_rows == n else PASSES) * pass_s
    return fits * seconds + END_S


class Clock:
    """Tells when a search has to end, so that the fit after it ends in time."""

    def __init__(self, context: Context, prepared: Prepared) -> None:
        self._context, self._prepared = context, prepared
        self._began, self._cost, self._cost_s = (
            time.perf_counter(),
            0.0,
            0.0,
        )  # of a step; seconds of such a one
        self._claim_s = FIT_SHARE * context.left()

    def stepped(self) -> None:
        now = time.perf_counter()
        if self._cost:  # else it had nothing to try
            self._cost_s = (now - self._began) / self._cost
        self._began = now

    def is_late(self, state: MetricState, cost: float) -> bool:
        """Whether the next step, of this cost, and the fit would take longer than what is left."""
        self._cost = cost
        if not state.told:
            return False
        needed = least_fit_s(self._prepared, of_best(facts(state)), self._context)
        return cost * self._cost_s + min(needed, self._claim_s) > self._context.left()


def with_sample(prepared: Prepared, left_s: float) -> Prepared:
    """A larger sample where there is time for one, and nobody said how large."""
    search = prepared.config.search
    if math.isinf(left_s) or "sample" in search.model_fields_set:
        return prepared
    times = max(1.0, left_s / SAMPLE_S) ** 0.5  # a trial takes as the square of its rows
    search = search.model_copy(update={"sample": min(MOST_SAMPLE, int(search.sample * times))})
    return replace(prepared, config=prepared.config.model_copy(update={"search": search}))


def has_time_for_regions(state: MetricState, prepared: Prepared, context: Context) -> bool:
    """Whether the search may go on in regions before the fit."""
    steps = of_best(facts(state))
    own = REGION_STEPS * steps[-1]["seconds"] + context.phase.seconds.get("scale", 0.0)
    return own + least_fit_s(prepared, steps, context) < context.left()


def in_time(prepared: Prepared, steps: Sequence[dict[str, Any]], context: Context) -> Prepared:
    """The fit that the time left allows: exact, else early, else of fewer rows."""
    config, n, left, steps = prepared.config, prepared.store.n, context.left(), of_best(steps)
    problems = prepared.task.n_subproblems(len(prepared.targets.classes))
    if math.isinf(left):  # so that the same command chooses the same again
        problems = 0
        steps = [step | {"seconds": VALUE_S * step["rows"] * step["support"]} for step in steps]
    needed, rows = least_fit_s(prepared, steps, context), n
    if needed > left:
        rows = min(n, max(steps[-1]["rows"], int(n * ROOM * left / needed)))
    if "early" in (config.search.options or ()):
        took_s, most_s = partial(fit_s, steps, rows, problems=problems), EXACT_SHARE * left
        is_long = took_s(rows) > (EXACT_S if math.isinf(left) else most_s)
        config = _coarsest(_early(config), took_s, rows, most_s)
        has_parts = fit_class(config.solver).growth.part_rows(rows, config) < rows
        prepared = replace(prepared, config=config if is_long and has_parts else _early(config, early=False))
    if rows == n:
        return prepared
    context.events(Warned(f"the time left allows {rows:,} of {n:,} rows to be learned from"))
    return prepared.of_rows(rows)


def _coarsest(config: FitConfig, took_s: Callable[[int], float], n: int, most_s: float) -> FitConfig:
    """The configuration with parts as large as a time budget allows: larger ones decide a little better.

    took_s: seconds of a fit by the rows of its parts.
    """
    options, growth = config.dcsvm, fit_class(config.solver).growth
    if math.isinf(most_s) or options.levels or options.early_level or options.part_rows:
        return config
    usual = growth.part_rows(n, config)
    for levels in range(1, MOST_LEVELS):
        own = config.model_copy(update={"dcsvm": options.model_copy(update={"levels": levels})})
        part_rows = growth.part_rows(n, own)
        if part_rows <= usual:
            break
        if took_s(part_rows) < most_s:
            return own
    return config


def _early(config: FitConfig, *, early: bool = True) -> FitConfig:
    """The configuration with early prediction, or without."""
    return config.model_copy(update={"dcsvm": config.dcsvm.model_copy(update={"early": early})})
