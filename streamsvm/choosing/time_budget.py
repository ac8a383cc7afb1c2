"""Estimates of the time of a search and a fit, from the steps of the search, and what fits into the time left.

Without a time budget no clock decides, so that the same command chooses the same again: seconds are then estimated
from counts.
"""

from __future__ import annotations

import math
import time
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from streamsvm.choosing.against_rest import PAIR_S as FIT_PROBLEM_S
from streamsvm.choosing.metric_search import MetricState, facts
from streamsvm.config import FitConfig
from streamsvm.fits.base import FitContext
from streamsvm.fits.prepare import TrainingData
from streamsvm.runs.checkpoints import digest
from streamsvm.solvers.catalogue import fit_class

EXACT_S, EXACT_SHARE = 30.0, 0.6  # seconds that an exact fit may take; share of the time left with a time budget
TIMES = {"exact": 2.0, "early": 1.0}  # of a trial of as many rows, for the smaller tolerance of a fit
LEAST_POWER, TYPICAL_POWER = 0.4, 0.8  # of the rows, by which support vectors grow
MOST_LEVELS = 12  # of partitions
ALIKE = 3  # last steps on as many rows, of which the fastest counts
FIT_SHARE = 0.6  # of a time budget that a fit may claim before the search starts
PROBLEM_S, MOST_CONSTANT = 2e-4, 0.8  # seconds of a pair of classes, whatever its rows; at most this share of a trial
PASSES = 6.0  # over the store, of the fit of partitions
END_S = 1.5  # to write the model, and to end
ROOM = 0.8  # of the time left, for a fit on fewer rows
FEWEST, HURRY_S = 3000, 10.0  # rows that a fit learns from in any case; seconds that these may take beyond the budget
FOLD_TIMES = 0.25  # of the estimated time of a fit, that one of four fifths of the rows takes at least
MORE = 1.5  # times the rows, or all: a fit that ended early is repeated for so many
SAMPLE_S, MOST_SAMPLE = 60.0, 60_000  # budget of the usual sample; rows of the largest one
REGION_STEPS = 3.0  # times the last step, that the search in regions takes

# Without a time budget:
SEARCH_S = 10.0  # of a search without regions, or as long as the fit where that is longer
VALUE_S = 5e-9  # of a row and a support vector
COLUMN_S, PAIR_S = 1e-10, 2.5e-11  # more seconds for each column and each pair of classes in a trial
SPARSE = 5  # columns that take as long as an entry of a sparse row
CORES = 2  # that trials share

Step = Mapping[str, Any]  # a record of `metric_search.facts`


@dataclass(frozen=True)
class FitTimes:
    """Estimated seconds of fits, by the steps of a search with the kernel that is best on the most rows: steps with
    other kernels do not count. problems: pairs of classes of each fit."""

    steps: Sequence[Step]
    problems: int

    @classmethod
    def of(cls, steps: Sequence[Step], prepared: TrainingData, *, counted: bool = False) -> FitTimes:
        """counted: seconds are estimated from counts, so that no clock decides."""
        best = max(steps, key=lambda step: (step["rows"], step["score"]))
        alike, way = ("kernel", "multiclass"), best.get("multiclass") or "pairs"
        of_kernel = [s for s in steps if s["rows"] <= best["rows"] and all(s.get(x) == best.get(x) for x in alike)]
        if counted:
            return cls([{**step, "seconds": VALUE_S * step["rows"] * step["support"]} for step in of_kernel], 0)
        return cls(of_kernel, prepared.task.by(way).n_subproblems(len(prepared.classes)))

    @property
    def last_s(self) -> float:
        """Seconds of a trial of the last step. Slower steps on as many rows may have compiled, or shared the cores."""
        last = self.steps[-1]
        return float(min(step["seconds"] for step in self.steps[-ALIKE:] if step["rows"] == last["rows"]))

    @property
    def value_s(self) -> float:
        """Seconds of a row and a support vector."""
        return self.last_s / max(1, self.steps[-1]["rows"] * self.steps[-1]["support"])

    def fit_s(self, n: int, part_rows: int) -> float:
        """Seconds of a fit of n rows, in partitions of `part_rows` or in one. They grow with the kernel values of all
        rows and the support vectors of their partitions. These are fewer where rows are as dense as in the whole
        store."""
        last = self.steps[-1]
        before = [step for step in self.steps if step["rows"] < last["rows"]]
        power = TYPICAL_POWER
        if before:
            ratios = {name: max(1, last[name]) / max(1, before[-1][name]) for name in ("support", "rows")}
            power = min(max(math.log(ratios["support"]) / math.log(ratios["rows"]), LEAST_POWER), 1.0)
        values = n / last["rows"] * part_rows / last["rows"]
        times = TIMES["exact" if part_rows == n else "early"]
        constant = min(PROBLEM_S * self.problems, MOST_CONSTANT * self.last_s)
        growing = (self.last_s - constant) * values * (n / last["rows"]) ** (power - 1)
        return times * (constant * n / part_rows + growing) + FIT_PROBLEM_S * self.problems * n / part_rows

    def least_fit_s(self, n: int, config: FitConfig, pass_s: float) -> float:
        """Seconds of the fastest fit of n rows that the options allow: of partitions, if early prediction may be
        chosen. pass_s: of a pass over the store."""
        growth, fits = fit_class(config.solver).growth, 1 + config.n_folds
        seconds = growth.own_fit_s(n, config, pass_s, self.value_s)
        if seconds is None:
            if "early" in config.search.chosen:
                config = _early(config)
            part_rows = growth.part_rows(n, config)
            seconds = self.fit_s(n, part_rows) + (1.0 if part_rows == n else PASSES) * pass_s
        return fits * seconds + END_S


def rows_in_time(prepared: TrainingData, state: MetricState, ahead: Sequence[tuple[int, int]]) -> int:
    """The number of rows for the rest of a search without a time budget, by counts: all of the search, or fewer, so
    that it takes about as long as the fit. ahead: rows and trials of its phases to come."""
    steps, pairs, store = facts(state), prepared.task.n_subproblems(len(prepared.classes)), prepared.store
    times = FitTimes.of(steps, prepared, counted=True)
    columns = SPARSE * store.row_entries if store.is_sparse else store.d  # that take as long as the entries of a row
    value_s = (VALUE_S + COLUMN_S * columns + PAIR_S * pairs) / CORES
    constant_s = PROBLEM_S * pairs / CORES

    def values(step: Step) -> float:
        return float(step["rows"] * step["support"])

    spent_s = sum(step["trials"] * (value_s * values(step) + constant_s) for step in steps)
    most_s = max(SEARCH_S, min(EXACT_S, times.least_fit_s(store.n, prepared.config, 0.0)))
    left_s = max(0.0, most_s - spent_s - sum(trials for _, trials in ahead) * constant_s)
    last, power = times.steps[-1], 1 + TYPICAL_POWER
    needed = sum(trials * (rows / last["rows"]) ** power for rows, trials in ahead) * value_s * values(last)
    return state.n if needed <= left_s else int(state.n * (left_s / needed) ** (1 / power))


class Deadline:
    """Decides when a search must end, so that the fit after it ends in time."""

    def __init__(self, context: FitContext, prepared: TrainingData) -> None:
        self._context, self._prepared = context, prepared
        self._began = time.perf_counter()
        self._cost, self._cost_s = 0.0, 0.0  # of a step; seconds of such a one
        self._claim_s = FIT_SHARE * context.left()

    def stepped(self) -> None:
        now = time.perf_counter()
        if self._cost:  # else it had nothing to try
            self._cost_s = (now - self._began) / self._cost
        self._began = now

    def is_late(self, state: MetricState, cost: float) -> bool:
        """Whether the next step, of this cost, and the fit would take longer than the time left."""
        self._cost = cost
        if not state.records or math.isinf(self._context.left()):
            return False
        needed = _least_fit_s(self._prepared, FitTimes.of(facts(state), self._prepared), self._context)
        return cost * self._cost_s + min(needed, self._claim_s) > self._context.left()


def _least_fit_s(prepared: TrainingData, times: FitTimes, context: FitContext) -> float:
    return times.least_fit_s(prepared.store.n, prepared.config, context.phase.seconds.get("scale", 0.0))


def with_sample(prepared: TrainingData, left_s: float) -> TrainingData:
    """With a larger sample, if there is time for one and the options do not name its size."""
    search = prepared.config.search
    if math.isinf(left_s) or "sample" in search.model_fields_set:
        return prepared
    times = max(1.0, left_s / SAMPLE_S) ** 0.5  # a trial takes as the square of its rows
    search = search.model_copy(update={"sample": min(MOST_SAMPLE, int(search.sample * times))})
    return replace(prepared, config=prepared.config.model_copy(update={"search": search}))


def has_time_for_regions(state: MetricState, prepared: TrainingData, context: FitContext) -> bool:
    """Whether the search may continue in regions before the fit."""
    times = FitTimes.of(facts(state), prepared)
    regions_s = REGION_STEPS * times.steps[-1]["seconds"] + context.phase.seconds.get("scale", 0.0)
    return regions_s + _least_fit_s(prepared, times, context) < context.left()


def has_time_for_fits(prepared: TrainingData, context: FitContext, fits: int, other_s: float) -> bool:
    """Whether the time left may be enough for so many fits of folds like that of what was chosen, and for other work of
    so many seconds: the first of these fits shows whether it is. Without a time budget there is none."""
    steps, pass_s = prepared.choices.get("rungs"), context.phase.seconds.get("scale", 0.0)
    if math.isinf(context.left()) or prepared.all_rows is not None or not steps:
        return False
    fit_s = _configured_fit_s(FitTimes.of(steps, prepared), prepared.store.n, prepared.config, pass_s) - END_S
    return FOLD_TIMES * fits * fit_s + other_s + END_S < context.left()


def in_time(prepared: TrainingData, steps: Sequence[Step], context: FitContext, pace: float = 1.0) -> TrainingData:
    """The fit that the time left allows: exact, else early, else of fewer rows. pace: seconds that a fit took, over
    those estimated from the steps of the search."""
    left_s, pass_s = context.left(), context.phase.seconds.get("scale", 0.0)
    steps = steps if pace == 1.0 else [{**step, "seconds": pace * step["seconds"]} for step in steps]
    times = FitTimes.of(steps, prepared, counted=math.isinf(left_s))
    least_s = _least_s(prepared, times, pass_s)
    if left_s < least_s:  # a model of what time is left would be none
        context.allow(least_s)
        excess = f"{least_s - left_s:.1f} s more than the time budget"
        context.events.warn(f"the search took longer than planned, so that the fit may take {excess}")
        left_s = least_s
    config, rows = _decided(prepared, times, left_s, pass_s)
    chosen = replace(prepared, config=config)
    return chosen if rows == prepared.store.n else replace(chosen.of_rows(rows), all_rows=prepared)


def planned_in_time(
    prepared: TrainingData, steps: Sequence[Step], left_s: float, pass_s: float
) -> tuple[FitConfig, float]:
    """The configuration that `in_time` would choose with this much time left, and the seconds of its fit."""
    times = FitTimes.of(steps, prepared, counted=math.isinf(left_s))
    left_s = max(left_s, _least_s(prepared, times, pass_s))
    config, rows = _decided(prepared, times, left_s, pass_s)
    if rows < prepared.store.n:
        config = config.model_copy(update={"rows": rows})
    return config, min(left_s, _configured_fit_s(times, rows, config, pass_s))


def choice_of(prepared: TrainingData) -> dict[str, Any]:
    """The choice of a fit for its checkpoints: its rows and partitions, and a digest of all options."""
    options = prepared.config.dcsvm
    config = prepared.config.model_copy(update={"tol": 0.0})  # a run may continue to another one
    choice = {"rows": prepared.store.n, "early": options.early, "levels": options.levels}
    return choice | {"options": digest(config)}


def as_before(prepared: TrainingData, choice: Mapping[str, Any]) -> TrainingData:
    """The fit that the resumed run had chosen, see `choice_of`, whatever time is left now."""
    update = {name: choice[name] for name in ("early", "levels")}
    config = prepared.config.model_copy(update={"dcsvm": prepared.config.dcsvm.model_copy(update=update)})
    as_chosen = replace(prepared, config=config)
    rows = int(choice["rows"])
    return as_chosen if rows == prepared.store.n else replace(as_chosen.of_rows(rows), all_rows=prepared)


def with_more_rows(prepared: TrainingData, took_s: float | None, context: FitContext) -> TrainingData | None:
    """The fit that the time left allows after one on fewer rows took took_s; None if it would have about as many rows,
    or all were used. took_s None: that fit was resumed, and its time is unknown. The steps of a search may have been
    slow, for example because they shared the cores."""
    steps, complete, rows = prepared.choices.get("rungs"), prepared.all_rows, prepared.store.n
    if complete is None or not steps:
        return None
    pass_s = context.phase.seconds.get("scale", 0.0)
    expected_s = _configured_fit_s(FitTimes.of(steps, prepared), rows, prepared.config, pass_s)
    took_s = expected_s if took_s is None else took_s
    if context.left() < MORE * took_s + END_S:
        return None
    larger = in_time(complete, steps, context, took_s / expected_s)
    return larger if larger.all_rows is None or larger.store.n >= MORE * rows else None


def _least_s(prepared: TrainingData, times: FitTimes, pass_s: float) -> float:
    """Seconds of a fit as long as the last trial, or of the fewest rows, if that is fast."""
    hurry_s = min(times.least_fit_s(_fewest(prepared, times), prepared.config, pass_s), HURRY_S)
    return max((1 + prepared.config.n_folds) * times.last_s + END_S, hurry_s)


def _fewest(prepared: TrainingData, times: FitTimes) -> int:
    return min(prepared.store.n, max(FEWEST, times.steps[-1]["rows"]))


def _decided(prepared: TrainingData, times: FitTimes, left_s: float, pass_s: float) -> tuple[FitConfig, int]:
    config, rows = prepared.config, prepared.store.n

    def needed_s(rows: int) -> float:
        return times.least_fit_s(max(1, rows), config, pass_s)

    if needed_s(rows) > left_s:
        most = bisect_right(range(rows), ROOM * left_s, key=needed_s) - 1
        rows = max(_fewest(prepared, times), most)
    if "early" not in config.search.chosen:
        return config, rows
    fit_s, most_s = partial(times.fit_s, rows), EXACT_SHARE * left_s
    is_long = fit_s(rows) > (EXACT_S if math.isinf(left_s) else most_s)
    early = _coarsest(_early(config), fit_s, rows, most_s)
    has_parts = fit_class(config.solver).growth.part_rows(rows, early) < rows
    return (early if is_long and has_parts else _early(config, early=False)), rows


def _configured_fit_s(times: FitTimes, rows: int, config: FitConfig, pass_s: float) -> float:
    """Seconds of a fit of these rows, early or not as the configuration says."""
    options = tuple(name for name in config.search.chosen if name != "early")
    search = config.search.model_copy(update={"options": options})
    return times.least_fit_s(rows, config.model_copy(update={"search": search}), pass_s)


def _coarsest(config: FitConfig, fit_s: Callable[[int], float], n: int, most_s: float) -> FitConfig:
    """The configuration with partitions as large as time allows: they decide better. fit_s: of a fit, by their rows."""
    options, growth = config.dcsvm, fit_class(config.solver).growth
    if math.isinf(most_s) or options.levels or options.early_level or options.part_rows:
        return config
    usual = growth.part_rows(n, config)
    for levels in range(1, MOST_LEVELS):
        coarser = config.model_copy(update={"dcsvm": options.model_copy(update={"levels": levels})})
        part_rows = growth.part_rows(n, coarser)
        if part_rows <= usual:
            break
        if fit_s(part_rows) < most_s:
            return coarser
    return config


def _early(config: FitConfig, *, early: bool = True) -> FitConfig:
    return config.model_copy(update={"dcsvm": config.dcsvm.model_copy(update={"early": early})})
