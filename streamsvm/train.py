"""From a store and a configuration to a model. Read this page first.

What all fits share (labels, scaling, kernel, weights) is `fits.base`; what a solver makes of it is one file beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from streamsvm.calibration import Calibration, require_classes
from streamsvm.checkpoints import EXECUTION, Checkpoints
from streamsvm.compiling import compiling_told
from streamsvm.config import FitConfig, ProbabilityConfig
from streamsvm.data.store import Store
from streamsvm.events import Events, ignore
from streamsvm.fits.base import Fit
from streamsvm.graph import open_engine
from streamsvm.memory import free_bytes
from streamsvm.persist import load_model, read_attrs
from streamsvm.phases import Phases, used_s, whole_command
from streamsvm.runs import end_with, recorded
from streamsvm.solvers.catalogue import fit_class, renamed
from streamsvm.tasks import default_task


def train(
    store: Store,
    config: FitConfig,
    *,
    model_path: Path,
    run_dir: Path | None = None,
    resume: bool = False,
    performance_report: Path | None = None,
    events: Events = ignore,
) -> dict[str, Any]:
    """Trains, writes the model, returns the report that `fit --json` prints. Raises StreamSVMError."""
    config, start = with_task(config, store), used_s()

    def learn(rows: Store, folder: Path) -> list[Any]:
        """The model of a fold, whose state is kept where that of the run is."""
        train(
            rows,
            without_probabilities(config),
            model_path=folder / "model",
            run_dir=folder if run_dir else None,
            resume=resume and any(folder.iterdir()),
            events=progress_of(events),
        )
        return [load_model(folder / "model")]

    with ExitStack() as stack:
        if run_dir is not None:
            events = stack.enter_context(recorded(run_dir, events, resume, **run_facts(store, config)))
        fitting = _fitting(store, config, learn, events, run_dir, resume, performance_report)
        with fitting as (fit, calibrations):
            fit.calibration = next(iter(calibrations), None)
            if run_dir is not None:
                events("plan", kernel=fit.kernel.to_attrs(), scaling=fit.scaling.kind, **fit.plan())
            report = fit.to_file(model_path)
        report = whole_command(report | {"model": str(model_path)}, start)
        if run_dir is not None:
            end_with(run_dir, events, report)
        return report


def train_in_memory(store: Store, config: FitConfig, events: Events = ignore) -> tuple[Any, dict[str, Any]]:
    """Trains and returns the model itself, and the report."""
    config = with_task(config, store)

    def learn(rows: Store, _: Path) -> list[Any]:
        return [train_in_memory(rows, without_probabilities(config), progress_of(events))[0]]

    with _fitting(store, config, learn, events) as (fit, calibrations):
        fit.calibration = next(iter(calibrations), None)
        return fit.model()


def train_path(
    store: Store, config: FitConfig, Cs: Sequence[float], events: Events = ignore
) -> list[tuple[Any, dict[str, Any]]]:
    """A model and a report for each C, of a solver that shares its work among them."""
    config = with_task(config, store)

    def learn(rows: Store, _: Path) -> list[Any]:
        return [
            model for model, _ in train_path(rows, without_probabilities(config), Cs, progress_of(events))
        ]

    with _fitting(store, config, learn, events) as (fit, calibrations):
        found = fit.path(Cs)
    for i, calibration in enumerate(calibrations):
        model, report = found[i]
        header = replace(model.header, calibration=calibration)
        found[i] = replace(model, header=header), report
    return found


def plan(store: Store, config: FitConfig) -> dict[str, Any]:
    """What a fit would do: memory, and what tells its time. Nothing is trained."""
    config = with_task(config, store)
    with closing(open_fit(store, config)) as fit:
        return fit.plan() | ({"folds": config.probability.folds} if config.probability.method else {})


@contextmanager
def _fitting(
    store: Store,
    config: FitConfig,
    learn: Callable[[Store, Path], list[Any]],
    events: Events,
    run_dir: Path | None = None,
    resume: bool = False,
    performance_report: Path | None = None,
) -> Iterator[tuple[Any, list[Calibration]]]:
    """A fit, and the calibrations of what it will learn; none where no probabilities are asked for."""
    before, calibrations = Phases(), list[Calibration]()
    with compiling_told(events):
        if config.probability.method is not None:
            from streamsvm.probability import cross_validated

            with before("folds"):
                calibrations = cross_validated(
                    store, config, learn, run_dir=run_dir, resume=resume, events=events
                )
        with closing(open_fit(store, config, events, run_dir, resume, performance_report)) as fit:
            fit.phase.add(before)
            yield fit, calibrations


def run_facts(store: Store, config: FitConfig) -> dict[str, Any]:
    """What a run is about, for its first record."""
    return {
        "store": store.url,
        "n": store.n,
        "d": store.d,
        "limit_bytes": config.memory_limit or free_bytes(),
        "config": config.model_dump(mode="json"),
    }


def open_fit(
    store: Store,
    config: FitConfig,
    events: Events = ignore,
    run_dir: Path | None = None,
    resume: bool = False,
    performance_report: Path | None = None,
) -> Fit:
    """What `train` does with a store, of a configuration with its task; not begun yet."""
    make = fit_class(config.solver)
    checkpoints = Checkpoints(run_dir, store, config, resume, events)
    engine = open_engine(
        config.threads, config.workers, config.scheduler, config.memory_limit, events, performance_report
    )
    try:
        return make(store, config, engine, events, checkpoints)
    except BaseException:
        engine.close()
        raise


def with_task(config: FitConfig, store: Store) -> FitConfig:
    """The configuration with its task as a fact: where it names none, the solver and query ids tell it."""
    task = config.task or default_task(config.solver, has_queries=store.qid is not None)
    if config.probability.method is not None:
        require_classes(task)
    return config.model_copy(update={"task": task})


def is_made_by(model_path: Path, store: Store, configs: Iterable[FitConfig]) -> bool:
    """Whether one of these configurations made the model at `model_path` from this store, wherever it ran.

    So a run that was killed between its model and its end goes on, and another's model is not lost to it.
    """
    model = read_attrs(model_path)
    own = (with_task(config, store).model_dump(mode="json", exclude=set(EXECUTION)) for config in configs)
    options = {
        name: value for name, value in renamed(model.get("config") or {}).items() if name not in EXECUTION
    }
    return options in own and model.get("fingerprint") == store.fingerprint()


def without_probabilities(config: FitConfig) -> FitConfig:
    """The configuration without probabilities, of the fits that make them."""
    return config.model_copy(update={"probability": ProbabilityConfig()})


def progress_of(events: Events) -> Events:
    """Events of which progress alone is passed on."""

    def progress(record: dict[str, Any]) -> None:
        if record["event"] == "progress":
            events.progress(record["phase"], record["done"], record["total"])

    return Events(progress)
