"""A search without a table: what a fit would choose, and what it compared."""

from __future__ import annotations

import time
from operator import attrgetter
from typing import Any

from streamsvm.choosing.choices import FREE
from streamsvm.config import FitConfig, build_config
from streamsvm.data.store import Store
from streamsvm.errors import ConfigError
from streamsvm.events import Events, heard
from streamsvm.fits.earlier import run_facts
from streamsvm.fits.task import with_task
from streamsvm.models.files import read_attrs
from streamsvm.parallel.compiling import compiling_told
from streamsvm.runs.directory import TUNE, end_with, recorded, write_result
from streamsvm.runs.phases import Phases, searched_s, usage_so_far, used_s
from streamsvm.search.ended import identity_of, note_end
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
) -> dict[str, Any]:
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
        found = _found(chosen, report["metric"])
        found |= {"refit": report, "seconds_search": searched_s(report["seconds_by_phase"])}
        found |= usage_so_far()
        if run_dir is not None:
            note_end(run_dir, identity_of(store, config, None), found, events)
        return found
    with recorded(run_dir, events, resume, **run_facts(store, config)) as told, compiling_told(told):
        run, phase = Run(told, None, run_dir, resume, until=end_of(config, start[0])), Phases()
        with planned_fit(store, config, run, phase) as fit:
            learned = dict(fit.prepared.choices)
            found = _found(fit.config, learned)
        found |= {"seconds_search": time.perf_counter() - began} | usage_so_far()
        if run_dir is not None:
            write_result(run_dir, TUNE, found["results"])
            end_with(run_dir, told, {"solver": config.solver, "metric": learned} | phase.report())
            note_end(run_dir, identity_of(store, config, None), found, told)
    return found


def _found(config: FitConfig, chose: dict[str, Any]) -> dict[str, Any]:
    """Best, and all steps: those with the most rows first, of these the best first."""
    if "score" not in chose:
        raise ConfigError(f"nothing can be chosen: {chose['reason']}")
    steps = sorted(chose["rungs"], key=lambda step: (-step["rows"], -step["score"]))
    params = {name: attrgetter(name)(config) for name in PARAMS}
    return {
        "best": {"params": params, "score": chose["score"]},
        "scoring": chose["scoring"],
        "failed": chose.get("failed", 0),
        "results": [_record(step, rank) for rank, step in enumerate(steps, 1)],
    }


def _record(step: dict[str, Any], rank: int) -> dict[str, Any]:
    """gamma is in units of the one at which half of all kernel values are above 1/e."""
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
