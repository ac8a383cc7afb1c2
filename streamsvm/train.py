"""From a store and a configuration to a model: prepare, plan, solve, certify, save. Read this page first.

`training.prepare` makes what all solvers are given, a file of `training` what one of them makes of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import Any

from streamsvm.config import FitConfig, ProbabilityConfig
from streamsvm.data.store import Store
from streamsvm.errors import ConfigError
from streamsvm.events import Event, Events, Planned, Progress, Record, heard, ignore
from streamsvm.models.calibration import Calibration, require_classes
from streamsvm.models.files import load_model, read_attrs
from streamsvm.parallel.compiling import compiling_told
from streamsvm.parallel.memory import free_bytes
from streamsvm.parallel.open import open_engine
from streamsvm.runs.checkpoints import EXECUTION, Checkpoints
from streamsvm.runs.directory import end_with, recorded
from streamsvm.runs.phases import Phases, used_s, whole_command
from streamsvm.solvers.catalogue import fit_class, renamed
from streamsvm.tasks import default_task
from streamsvm.training.base import Context, Fit, Learned, PathFit, Report, Solution
from streamsvm.training.drafts import Draft, opened_draft
from streamsvm.training.metric import with_metric
from streamsvm.training.prepare import prepare


@dataclass(frozen=True)
class Run:
    """How a model is learned, and where it goes; what it becomes, the configuration says.

    model_path: None where it stays in memory. Cs: a model for each, of a solver that shares its work among them; else
    one, of the configuration's C.
    """

    events: Events = ignore
    model_path: Path | None = None
    run_dir: Path | None = None
    resume: bool = False
    performance_report: Path | None = None
    Cs: tuple[float, ...] = ()


def train(
    store: Store,
    config: FitConfig,
    *,
    model_path: Path,
    run_dir: Path | None = None,
    resume: bool = False,
    performance_report: Path | None = None,
    events: Events = heard,
) -> Report:
    """Trains, writes the model, returns the report that `fit --json` prints. Raises StreamSVMError."""
    config, start = with_task(config, store), used_s()
    with ExitStack() as stack:
        if run_dir is not None:
            events = stack.enter_context(recorded(run_dir, events, resume, **run_facts(store, config)))
        run = Run(events, model_path, run_dir, resume, performance_report)
        [(_, report)] = learned(store, config, run)
        report = whole_command(report | {"model": str(model_path)}, start)
        if run_dir is not None:
            end_with(run_dir, events, report)
        return report


def train_in_memory(store: Store, config: FitConfig, events: Events = heard) -> tuple[Any, Report]:
    """Trains and returns the model itself, and the report."""
    [found] = learned(store, with_task(config, store), Run(events))
    return found


def train_path(
    store: Store, config: FitConfig, Cs: Sequence[float], events: Events = heard
) -> list[tuple[Any, Report]]:
    """A model and a report for each C, of a solver that shares its work among them."""
    return learned(store, with_task(config, store), Run(events, Cs=tuple(Cs)))


def plan(store: Store, config: FitConfig) -> dict[str, Any]:
    """What a fit would do: memory, and what tells its time. Nothing is trained."""
    config = with_task(config, store)
    with planned(store, config, learns=False) as fit:
        return fit.plan() | ({"folds": config.probability.folds} if config.probability.method else {})


def learned(store: Store, config: FitConfig, run: Run) -> list[tuple[Learned, Report]]:
    """The recipe: prepare and plan, solve, certify, save. Models, of which a file has the parts where there is one; and
    reports. config: with its task; probabilities are of fits by the same recipe, on folds.
    """
    phase = Phases()
    with compiling_told(run.events):
        calibrations = _calibrations(store, config, run, phase)
        with planned(store, config, run, phase) as fit, opened_draft(run.model_path, phase) as draft:
            if run.run_dir is not None:
                run.events(Planned(fit.kernel.to_attrs(), fit.scaling.kind, fit.plan()))
            solutions = _solved(fit, draft, run.Cs)
            found = [fit.certified(*pair) for pair in zip_longest(solutions, calibrations)]
            for model, _ in found:
                draft.save(model)
            return [(model, report | phase.report()) for model, report in found]


@contextmanager
def planned(
    store: Store,
    config: FitConfig,
    run: Run | None = None,
    phase: Phases | None = None,
    *,
    learns: bool = True,
) -> Iterator[Fit]:
    """A fit of prepared data, whose memory is planned; not begun yet. learns: a metric too, where one is asked for."""
    run, phase = run or Run(), phase or Phases()
    checkpoints = Checkpoints(run.run_dir, store, config, run.resume, run.events)
    where = config.threads, config.workers, config.scheduler, config.memory_limit
    engine = open_engine(*where, run.events, run.performance_report)
    with closing(Context(engine, checkpoints, run.events, phase)) as context:
        prepared = prepare(store, config, engine, run.events, phase=phase)
        if learns and config.metric.kind != "none":
            with phase("metric"):
                prepared = with_metric(prepared, context)
        yield fit_class(config.solver)(prepared, context)


def _solved(fit: Fit, draft: Draft, Cs: Sequence[float]) -> list[Solution]:
    if not Cs:
        return [fit.solve(draft)]
    if not isinstance(fit, PathFit):
        raise ConfigError(f"solver {fit.config.solver} learns one C at a time, found {len(Cs)}")
    return fit.path(Cs)


def _calibrations(store: Store, config: FitConfig, run: Run, phase: Phases) -> list[Calibration]:
    """Of each model that is to come, from folds that are learned by the same recipe; none where nobody asks."""
    if config.probability.method is None:
        return []
    from streamsvm.training.probabilities import cross_validated

    learn = partial(_of_fold, run, without_probabilities(config))
    with phase("folds"):
        return cross_validated(
            store, config, learn, run_dir=run.run_dir, resume=run.resume, events=run.events
        )


def _of_fold(run: Run, config: FitConfig, rows: Store, folder: Path) -> list[Learned]:
    """The models of a fold's rows, kept where those of the run are, and so is what is needed to go on."""
    events = progress_of(run.events)
    if run.model_path is None:
        return [model for model, _ in learned(rows, config, Run(events, Cs=run.Cs))]
    train(
        rows,
        config,
        model_path=folder / "model",
        run_dir=folder if run.run_dir else None,
        resume=run.resume and any(folder.iterdir()),
        events=events,
    )
    return [load_model(folder / "model")]


def run_facts(store: Store, config: FitConfig) -> dict[str, Any]:
    """What a run is about, for its first record."""
    return {
        "store": store.url,
        "n": store.n,
        "d": store.d,
        "limit_bytes": config.memory_limit or free_bytes(),
        "config": config.model_dump(mode="json"),
    }


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
    own = (asked | _searched_in(options) for asked in own)
    return options in own and model.get("fingerprint") == store.fingerprint()


def _searched_in(options: Mapping[str, Any]) -> dict[str, Any]:
    """What the configuration of a model has in place of the one that was asked for: chosen along with a metric."""
    kind = (options.get("metric") or {}).get("kind", "none")
    return {} if kind == "none" else {name: options[name] for name in ("C", "kernel")}


def without_probabilities(config: FitConfig) -> FitConfig:
    """The configuration without probabilities, of the fits that make them."""
    return config.model_copy(update={"probability": ProbabilityConfig()})


def progress_of(events: Events) -> Events:
    """Events of which progress alone is passed on."""

    def progress(record: Record[Event]) -> None:
        if isinstance(record.event, Progress):
            events.progress(record.event.phase, record.event.done, record.event.total)

    return Events(progress)
