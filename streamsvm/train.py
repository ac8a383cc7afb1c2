"""From a store and a configuration to a model. Read this page first.

What all fits share (labels, scaling, kernel, weights) is `fits.base`; what a solver makes of it is one file beside it.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from typing import Any

from streamsvm.checkpoints import Checkpoints
from streamsvm.config import FitConfig
from streamsvm.data.store import Store
from streamsvm.events import Events, ignore
from streamsvm.fits.base import Fit
from streamsvm.memory import free_bytes
from streamsvm.runs import end_with, recorded

FITS = {
    "dcsvm": "streamsvm.fits.dcsvm:DCSVMFit",
    "bsgd": "streamsvm.fits.bsgd:BSGDFit",
    "cutting-plane": "streamsvm.fits.cutting_plane:CuttingPlaneFit",
    "admm-hss": "streamsvm.fits.admm:ADMMFit",
    "alfpgm": "streamsvm.fits.alfpgm:ALFPGMFit",
}


def train(
    store: Store,
    config: FitConfig,
    *,
    model_path: Path,
    run_dir: Path | None = None,
    resume: bool = False,
    events: Events = ignore,
) -> dict[str, Any]:
    """Trains, writes the model, returns the report that `fit --json` prints. Raises StreamSVMError."""
    if run_dir is None:
        with closing(_fit(store, config, events)) as fit:
            return fit.to_file(model_path)
    with recorded(run_dir, events, resume, **_facts(store, config)) as events:
        with closing(_fit(store, config, events, run_dir, resume)) as fit:
            events("plan", kernel=asdict(fit.kernel), scaling=fit.scaling.kind, **fit.plan())
            report = fit.to_file(model_path)
        end_with(run_dir, events, report | {"model": model_path})
        return report


def train_in_memory(store: Store, config: FitConfig, events: Events = ignore) -> tuple[Any, dict[str, Any]]:
    """Trains and returns the model itself, and the report."""
    with closing(_fit(store, config, events)) as fit:
        return fit.model()


def train_path(
    store: Store, config: FitConfig, Cs: Sequence[float], events: Events = ignore
) -> list[tuple[Any, dict[str, Any]]]:
    """A model and a report for each C, of a solver that shares its work among them."""
    fit: Any = _fit(store, config, events)
    with closing(fit):
        return fit.path(Cs)


def plan(store: Store, config: FitConfig) -> dict[str, Any]:
    """What a fit would do: memory, and what tells its time. Nothing is trained."""
    with closing(_fit(store, config, ignore)) as fit:
        return fit.plan()


def _facts(store: Store, config: FitConfig) -> dict[str, Any]:
    """What a run is about, for its first record."""
    config = with_task(config, store)
    return {
        "store": store.url,
        "n": store.n,
        "d": store.d,
        "limit_bytes": config.memory_limit or free_bytes(),
        "config": config.model_dump(mode="json"),
    }


def _fit(
    store: Store, config: FitConfig, events: Events, run_dir: Path | None = None, resume: bool = False
) -> Fit:
    config = with_task(config, store)
    module, _, name = FITS[config.solver].partition(":")
    return getattr(import_module(module), name)(
        store, config, events, Checkpoints(run_dir, store, config, resume, events)
    )


def with_task(config: FitConfig, store: Store) -> FitConfig:
    """The configuration with its task as a fact: rank where cutting planes find query ids, else classify."""
    ranks = config.solver == "cutting-plane" and store.qid is not None
    return config.model_copy(update={"task": config.task or ("rank" if ranks else "classify")})
