"""A search without a table of points: the options that a fit would choose, and what it compared."""

from __future__ import annotations

import time
from operator import attrgetter

from streamsvm.choosing.choices import FREE
from streamsvm.config import FitConfig, build_config
from streamsvm.data.store import Store
from streamsvm.errors import ConfigError
from streamsvm.events import Events, heard
from streamsvm.fits.earlier import run_facts
from streamsvm.fits.task import with_task
from streamsvm.models.files import read_attrs
from streamsvm.parallel.compiling import compile_notices
from streamsvm.runs.directory import TUNE, end_with, recorded, write_result
from streamsvm.runs.phases import Phases, searched_s, usage_so_far, used_s
from streamsvm.search.result import identity_of, save_result
from streamsvm.storage.jsonable import JsonObject
from streamsvm.storage.paths import Place
from streamsvm.tasks import is_searched
from streamsvm.train import Run, end_of, planned_fit, train

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

    With model_path the model is that of the fit. Raises StreamSVMError.
    """
    began, start = time.perf_counter(), used_s()
    config = with_task(config, store)
    if not is_searched(str(config.task)):
        raise ConfigError(f"nothing is chosen for task {config.task}: give a table [tune] of what to try")
    if not config.search.chosen:
        raise ConfigError("nothing is left out: give fewer options, or a table [tune] of those to try")
    if model_path is not None:
        report = train(store, config, model_path=model_path, run_dir=run_dir, resume=resume, events=events)
        chosen = build_config((str(model_path), read_attrs(model_path)["config"]))
        result = _result(chosen, report["metric"])
        result |= {"refit": report, "seconds_search": searched_s(report["seconds_by_phase"])}
        result |= usage_so_far()
        if run_dir is not None:
            save_result(run_dir, identity_of(store, config, None), result, events)
        return result
    with recorded(run_dir, events, resume, **run_facts(store, config)) as run_events, compile_notices(run_events):
        run, phase = Run(run_events, None, run_dir, resume, until=end_of(config, start[0])), Phases()
        with planned_fit(store, config, run, phase) as fit:
            choices = dict(fit.prepared.choices)
            result = _result(fit.config, choices)
        result |= {"seconds_search": time.perf_counter() - began} | usage_so_far()
        if run_dir is not None:
            write_result(run_dir, TUNE, result["results"])
            end_with(run_dir, run_events, {"solver": config.solver, "metric": choices} | phase.report())
            save_result(run_dir, identity_of(store, config, None), result, run_events)
    return result


def _result(config: FitConfig, choices: JsonObject) -> JsonObject:
    """The best options, and all steps: those with the most rows first, of these the best first."""
    if "score" not in choices:
        raise ConfigError(f"nothing can be chosen: {choices['reason']}")
    steps = sorted(choices["rungs"], key=lambda step: (-step["rows"], -step["score"]))
    params = {name: attrgetter(name)(config) for name in PARAMS}
    return {
        "best": {"params": params, "score": choices["score"]},
        "scoring": choices["scoring"],
        "failed": choices.get("failed", 0),
        "results": [_record(step, rank) for rank, step in enumerate(steps, 1)],
    }


def _record(step: JsonObject, rank: int) -> JsonObject:
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
