"""The search: points and folds are scored, saved as they come, and ranked at the end (`tune`).

Without a table of points, it is that of a fit for its options (`tune_as_fit`).
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from functools import partial
from operator import attrgetter

import numpy as np

from streamsvm.choosing.choices import FREE
from streamsvm.config import FitConfig, build_config
from streamsvm.data.folds import SUBSET_STREAM, default_folds, draw_groups, draw_ids, make_folds
from streamsvm.data.store import Store
from streamsvm.errors import ConfigError
from streamsvm.events import Events, heard
from streamsvm.fits.earlier import run_facts
from streamsvm.fits.prepare import first_rows, uneven_columns, with_task
from streamsvm.metrics import D2
from streamsvm.models.files import read_attrs
from streamsvm.parallel.compiling import compile_notices
from streamsvm.runs.directory import TUNE, end_with, recorded, write_result
from streamsvm.runs.phases import Phases, searched_s, usage_so_far, used_s
from streamsvm.search.folds import Failure, FoldFit, Outcome, all_along_C, can_share, one_by_one
from streamsvm.search.options import Point, TuneConfig
from streamsvm.search.score_table import ScoreTable, identity_of, save_result
from streamsvm.solvers.loop import is_late
from streamsvm.storage.paths import Place
from streamsvm.storage.text import JsonObject
from streamsvm.tasks import is_searched, task_for
from streamsvm.texts.documented import described
from streamsvm.train import Run, end_of, planned_fit, train

MOST_ROWS = 2_000_000  # that points are compared on, unless the options name a number
REFIT = ("n", "d", "n_support", "objective", "gap", "gamma", "converged", "model")  # fields of the refit's report


@described
def tune(
    store: Store,
    options: TuneConfig,
    points: list[tuple[Point, FitConfig]],
    *,
    model_path: Place | None = None,
    run_dir: Place | None = None,
    resume: bool = False,
    events: Events = heard,
) -> JsonObject:
    """Compares points by cross-validation, and trains the best one on all rows if `model_path` is given.

    Parameters
    ----------
    options : TuneConfig
        Folds, scoring, and how many rows and seconds the search may use.
    points : list of (dict, FitConfig)
        What to compare: the options by name that differ, and the whole configuration.
    run_dir : Path or None
        Folder for the scores as they come, `tune.json` with the results, and `result.json`. None: none are kept.

    Returns
    -------
    dict
        `best` (params and score), `results` (a record for each point, best first), `failed` (how many points were
        dropped as their fits failed), `not_converged` (how many fits on folds ended above their tol), `seconds` of the
        whole command, `seconds_search`, and with `model_path` also `refit`, the report of that fit.

    Raises
    ------
    StreamSVMError
    """
    began, start = time.perf_counter(), used_s()
    facts = run_facts(store, with_task(points[0][1], store))
    with ExitStack() as stack:
        run_events = stack.enter_context(recorded(run_dir, events, resume, **facts))
        table = stack.enter_context(closing(ScoreTable(run_dir, store, options, points, resume, run_events)))
        stack.enter_context(compile_notices(run_events))
        if any(config.kernel.name == "rbf" and config.scale == "none" for _, config in points):
            if message := uneven_columns(first_rows(store), store.shown_names):
                run_events.advise(message)
        until = None if options.time_budget is None else time.time() - start[0] + options.time_budget
        search = _Search(
            _compared(store, options, points[0][1].seed, run_events), options, points, table, run_events, until
        )
        order, records = search.ranked()
        if run_dir is not None:
            write_result(run_dir, TUNE, records)
    params, config = points[order[0]]
    result: JsonObject = {
        "best": {"params": params, "score": records[0]["mean_score"]},
        "scoring": search.scoring,
        "results": records,
        "failed": len(search.failed),
        "not_converged": sum(not outcome.converged for outcome in table.scores.values()),
        "seconds_search": time.perf_counter() - began,
    }
    if model_path is not None:
        result["refit"] = train(store, config, model_path=model_path, events=events)
    result |= usage_so_far()
    if run_dir is not None:
        end_with(run_dir, events, _result(result, config, start[0]))
        if search.is_whole:
            save_result(run_dir, identity_of(store, points[0][1], options), result, events)
    return result


def _compared(store: Store, options: TuneConfig, seed: int, events: Events) -> Store:
    """The rows that points are compared on, all or as many as the options allow, of whole queries and groups."""
    most = options.rows or MOST_ROWS
    if store.n <= most:
        return store
    rng = np.random.default_rng([seed, SUBSET_STREAM])
    groups = store.connected_groups
    ids = draw_ids(store.n, most, rng) if groups is None else draw_groups(groups, most, rng)
    if options.rows is None:
        events.warn(f"points are compared on {len(ids):,} random rows of {store.n:,}; tune.rows asks for more")
    return store.subset(ids)


def _result(result: JsonObject, config: FitConfig, start_s: float) -> JsonObject:
    """The result of a search in the fields of a run's result: of the model on all rows, if any, and the time."""
    refit = result.get("refit", {})
    seconds = {"start": start_s, "search": result["seconds_search"]}
    if refit:
        seconds["refit"] = result["seconds"] - sum(seconds.values())
    of_model = {name: refit[name] for name in REFIT if name in refit}
    of_search = {"solver": config.solver, "scoring": result["scoring"]}
    return {**of_search, **of_model, "seconds_by_phase": seconds, "seconds": result["seconds"]}


class _Search:
    def __init__(
        self,
        store: Store,
        options: TuneConfig,
        points: list[tuple[Point, FitConfig]],
        table: ScoreTable,
        events: Events,
        until: float | None,
    ) -> None:
        self.until = until
        self.store, self.options, self.points, self.table, self.events = store, options, points, table, events
        self.failed: dict[int, ConfigError] = {}  # by point
        self.is_whole = True  # no point was left out because time was up
        base = points[0][1]
        task = task_for(with_task(base, store))
        if not store.has_y:
            raise ConfigError(
                f"{store.url or 'the data'} has no labels, and points are compared by how they predict them"
            )
        self.scoring = options.scoring or (task.scoring if base.quantile is None else D2)
        folds = options.folds if "folds" in options.model_fields_set else default_folds(store, options.folds)
        self.folds = make_folds(store, folds, task.is_stratified, base.seed, positive=base.positive)

    def ranked(self) -> tuple[list[int], list[JsonObject]]:
        """Numbers and records of all points: those with the most rows first, of these the best first."""
        last_share: dict[int, float] = {}
        for share, alive in self._rounds():
            self._score(alive, share)
            last_share |= {point: share for point in alive if self._is_scored(point, share)}
            self.is_whole &= all(point in last_share or point in self.failed for point in alive)
        if len(self.failed) == len(self.points):
            raise self.failed[min(self.failed)]
        if self.failed:
            first = min(self.failed)
            self.events.warn(
                f"{len(self.failed)} of {len(self.points)} points failed and were dropped, the first of them "
                f"({self._named(first)}) as {self.failed[first]}"
            )
        if not last_share:
            raise ConfigError(
                f"no point was scored in {self.options.time_budget:.0f} s; give more, fewer folds, or search = halving"
            )
        self._warn_of_unconverged()
        means = {point: float(np.mean(self._scores(point, share))) for point, share in last_share.items()}
        order = sorted(last_share, key=lambda point: (-last_share[point], -means[point], point))
        return order, [self._record(point, last_share[point], rank) for rank, point in enumerate(order, 1)]

    def _warn_of_unconverged(self) -> None:
        """Warns once of all fits on folds that did not reach tol."""
        fits = self.table.scores
        points = sorted({point for (point, _, _), outcome in fits.items() if not outcome.converged})
        if not points:
            return
        count = sum(not outcome.converged for outcome in fits.values())
        self.events.warn(
            f"not converged: {count} of {len(fits)} fits on folds, the first of them at {self._named(points[0])}, so "
            "their scores may be lower than they could be; give a smaller C or a larger tol, or scale the features",
            about="convergence",
        )

    def _named(self, point: int) -> str:
        return ", ".join(f"{name} {value}" for name, value in self.points[point][0].items())

    def _rounds(self) -> Iterator[tuple[float, list[int]]]:
        """Shares of the rows, and the points that are scored on them: all on all, or by successive halving."""
        alive = list(range(len(self.points)))
        if self.options.search == "grid":
            yield 1.0, alive
            return
        for share in self._shares():
            yield share, alive
            alive = [point for point in alive if self._is_scored(point, share)]
            best = sorted(alive, key=lambda point: -np.mean(self._scores(point, share)))  # stable
            alive = best[: math.ceil(len(alive) / self.options.factor)]

    def _shares(self) -> list[float]:
        """The share of the rows in each round of halving: `factor` times as many as before, at most all."""
        n, factor, smallest = self.store.n, self.options.factor, self.options.smallest_rows
        rounds = 1 + int(math.log(len(self.points), factor) + 1e-9)
        if smallest is None:
            return [factor ** -float(rounds - number) for number in range(1, rounds + 1)]
        if smallest > n:
            raise ConfigError(f"tune.smallest_rows is {smallest}, more than the store's {n} rows")
        shares = [smallest / n * factor**number for number in range(rounds)]
        return [share for share in shares if share < 1] + [1.0][: sum(share >= 1 for share in shares)]

    def _score(self, points: list[int], share: float) -> None:
        jobs = [FoldFit(p, f, share, self.points[p][1]) for p in points for f in range(self.folds.count)]
        todo = [job for job in jobs if (job.point, job.fold, job.share) not in self.table.scores]
        done = len(jobs) - len(todo)
        for outcome in self._outcomes(todo):
            done += 1
            if isinstance(outcome, Failure):
                self.failed.setdefault(outcome.point, outcome.error)
                continue
            self.table.add(outcome, share)
            self.events.progress("tune", done, len(jobs), score=round(outcome.score, 5))
            if is_late(self.until):
                break

    def _outcomes(self, jobs: list[FoldFit]) -> Iterator[Outcome | Failure]:
        alone, together = [], dict[str, list[FoldFit]]()
        score = partial(score_of, self.scoring)
        for job in jobs:
            if self.options.share and can_share(self.store, job.config, self.folds.count):
                key = job.config.model_copy(update={"C": 1.0}).model_dump_json()
                together.setdefault(key, []).append(job)
            else:
                alone.append(job)
        if together:
            groups = list(together.values())
            yield from all_along_C(self.store, self.folds, groups, score, self.events, self.until)
        if alone:
            yield from one_by_one(self.store, self.folds, alone, score, self.events)

    def _is_scored(self, point: int, share: float) -> bool:
        """Whether the point has scores on all folds: the time may have been up before."""
        return all((point, fold, share) in self.table.scores for fold in range(self.folds.count))

    def _scores(self, point: int, share: float) -> list[float]:
        return [self.table.scores[point, fold, share].score for fold in range(self.folds.count)]

    def _record(self, point: int, share: float, rank: int) -> JsonObject:
        outcomes = [self.table.scores[point, fold, share] for fold in range(self.folds.count)]
        scores = [outcome.score for outcome in outcomes]
        return self.points[point][0] | {
            "mean_score": float(np.mean(scores)),
            "std_score": float(np.std(scores)),
            "rank": rank,
            "seconds": sum(outcome.seconds for outcome in outcomes),
            "rows": int(np.count_nonzero(self.folds.joins < share)),
            "fold_scores": scores,
        }


def score_of(scoring: str, evaluation: JsonObject) -> float:
    """A score, larger is better, from the result of `evaluate`. Raises ConfigError if that lacks it."""
    if scoring == "f1_macro" and "per_class" in evaluation:
        return float(np.mean([row["f1"] for row in evaluation["per_class"]]))
    name, sign = (scoring[4:], -1.0) if scoring.startswith("neg_") else (scoring, 1.0)
    if evaluation.get(name) is None:
        names = ", ".join(key for key in ("accuracy", "roc_auc", "r2", D2, "ndcg") if evaluation.get(key) is not None)
        raise ConfigError(f"tune.scoring is {scoring!r}, which these labels do not have; they have {names}")
    return sign * float(evaluation[name])


PARAMS = ("scale", "kernel.name", "kernel.gamma", "C", "metric.kind", "dcsvm.early")


def tune_as_fit(
    store: Store,
    config: FitConfig,
    *,
    model_path: Place | None = None,
    run_dir: Place | None = None,
    resume: bool = False,
    events: Events = heard,
) -> JsonObject:
    """The result of `search.tune` for the options that a fit of `config` chooses; `results` has a record for each step.
    With model_path the model is that of the fit. Raises StreamSVMError."""
    began, start = time.perf_counter(), used_s()
    config = with_task(config, store)
    if not is_searched(str(config.task)):
        raise ConfigError(f"nothing is chosen for task {config.task}: give a table [tune] of what to try")
    if not config.search.chosen:
        raise ConfigError("nothing is left out: give fewer options, or a table [tune] of those to try")
    if model_path is not None:
        report = train(store, config, model_path=model_path, run_dir=run_dir, resume=resume, events=events)
        chosen = build_config((str(model_path), read_attrs(model_path)["config"]))
        result = _choice_result(chosen, report["metric"])
        result |= {"refit": report, "seconds_search": searched_s(report["seconds_by_phase"])}
        result |= usage_so_far()
        if run_dir is not None:
            save_result(run_dir, identity_of(store, config, None), result, events)
        return result
    with recorded(run_dir, events, resume, **run_facts(store, config)) as run_events, compile_notices(run_events):
        run, phase = Run(run_events, None, run_dir, resume, until=end_of(config, start[0])), Phases()
        with planned_fit(store, config, run, phase) as fit:
            choices = dict(fit.prepared.choices)
            result = _choice_result(fit.config, choices)
        result |= {"seconds_search": time.perf_counter() - began} | usage_so_far()
        if run_dir is not None:
            write_result(run_dir, TUNE, result["results"])
            end_with(run_dir, run_events, {"solver": config.solver, "metric": choices} | phase.report())
            save_result(run_dir, identity_of(store, config, None), result, run_events)
    return result


def _choice_result(config: FitConfig, choices: JsonObject) -> JsonObject:
    """The best options, and all steps: those with the most rows first, of these the best first."""
    if "score" not in choices:
        raise ConfigError(f"nothing can be chosen: {choices['reason']}")
    steps = sorted(choices["rungs"], key=lambda step: (-step["rows"], -step["score"]))
    params = {name: attrgetter(name)(config) for name in PARAMS}
    return {
        "best": {"params": params, "score": choices["score"]},
        "scoring": choices["scoring"],
        "failed": choices.get("failed", 0),
        "results": [_step_record(step, rank) for rank, step in enumerate(steps, 1)],
    }


def _step_record(step: JsonObject, rank: int) -> JsonObject:
    """The record of a step. gamma is in units of the one at which half of all kernel values are above 1/e."""
    return {
        "scale": "none" if step["scale"] in FREE else step["scale"],
        "kernel.name": step["kernel"],
        "gamma_of_median": step["gamma"],
        "C": step["C"],
        "columns": step["columns"],
        "mean_score": step["score"],
        "rank": rank,
        "seconds": step["seconds"],
        "rows": step["rows"],
        "fold_scores": [step["score"]],
    }
