"""From a store and a configuration to a model: prepare, plan, solve, certify, save. Read this page first.

`fits.prepare` makes the input of all solvers, and each solver has a file in `fits`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import zip_longest
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from streamsvm.choosing.choices import as_chosen, with_choices, write_config
from streamsvm.choosing.ensemble import (
    FOLDER,
    OutOfTime,
    best_with_and_without_metric,
    combined_fits,
    in_ranks,
    may_combine,
    with_other_loss,
)
from streamsvm.choosing.solve import FAILURES, fit_of, solve
from streamsvm.config import FitConfig, ProbabilityConfig, build_config
from streamsvm.data.sketch import sketched
from streamsvm.data.store import Store
from streamsvm.errors import ConfigError
from streamsvm.events import Event, Events, Planned, Progress, Record, heard, ignore
from streamsvm.fits.base import END_S, Fit, FitContext, FittedModel, Report
from streamsvm.fits.devices import device_of
from streamsvm.fits.drafts import opened_draft
from streamsvm.fits.earlier import run_facts
from streamsvm.fits.prepare import prepare, with_task
from streamsvm.judging.held_out import interval_rows, require_holdout
from streamsvm.judging.thresholds import FoldDecisions
from streamsvm.models.files import load_model, save_model
from streamsvm.options.search import LOG_LOSS
from streamsvm.parallel.compiling import compile_notices
from streamsvm.parallel.devices import computing_on, device_facts
from streamsvm.parallel.machine import excess
from streamsvm.parallel.open import on_client, open_engine
from streamsvm.runs.checkpoints import ROWS, Checkpoints
from streamsvm.runs.directory import end_with, recorded
from streamsvm.runs.phases import Phases, used_s, whole_command
from streamsvm.storage.paths import Place, place_of, remove_tree
from streamsvm.texts.documented import described

if TYPE_CHECKING:
    from dask.delayed import Delayed


@dataclass(frozen=True)
class Run:
    """How a model is trained, and where it is saved. The configuration defines the model itself. model_path: None if it
    stays in memory. Cs: a model for each, of a solver that shares its work among them; else one, of the configuration's
    C. until: time.time() at which a fit within a time budget has to end."""

    events: Events = ignore
    model_path: Place | None = None
    run_dir: Place | None = None
    resume: bool = False
    performance_report: Path | None = None
    Cs: tuple[float, ...] = ()
    until: float | None = None


@described
def train(
    store: Store,
    config: FitConfig,
    *,
    model_path: Place,
    run_dir: Place | None = None,
    resume: bool = False,
    performance_report: Path | None = None,
    events: Events = heard,
) -> Report:
    """Trains a model and writes it.

    Parameters
    ----------
    model_path : Path
        Folder or URL of the model to write. A model there is replaced.

    Returns
    -------
    dict
        The report that `fit --json` prints: solver, sizes, objective, seconds by phase, peak memory, and more.

    Raises
    ------
    ConfigError, DataError, MemoryLimitError, StreamSVMError
    """
    config, start = with_task(config, store, events), used_s()
    with recorded(run_dir, events, resume, **run_facts(store, config)) as events:
        until = end_of(config, start[0])
        run = Run(events, model_path, run_dir, resume, performance_report, until=until)
        [(model, report)] = fit_models(store, config, run)
        if run_dir is not None:
            remove_tree(run_dir / ROWS)
        report |= {"model": str(model_path)}
        if config.search.chosen and "ensemble" not in report:  # whose members no configuration repeats
            report["config"] = write_config(model, model_path, events)
        report = whole_command(report, start)
        if run_dir is not None:
            end_with(run_dir, events, report)
        return report


@described
def train_in_memory(store: Store, config: FitConfig, events: Events = heard) -> tuple[Any, Report]:
    """Trains a model without writing it.

    Returns
    -------
    (Model, dict)
        The model, and the report as of `train`.

    Raises
    ------
    ConfigError, DataError, MemoryLimitError, StreamSVMError
    """
    [(model, report)] = fit_models(store, with_task(config, store, events), Run(events, until=end_of(config)))
    return model, report


def end_of(config: FitConfig, used_s: float = 0.0) -> float | None:
    """The time at which a fit that has taken so many seconds must end; None: no limit."""
    budget = config.search.time_budget
    return None if budget is None else time.time() - used_s + budget


@described
def graph_of(
    store: Store | str | Place, config: FitConfig | Mapping[str, Any], folder: str | Place | None = None
) -> Delayed:
    """The model of an early fit as a lazy dask graph: for `dask.compute`, `dask.visualize` and `client.compute`.

    It equals, to the last bit, the `LocalModel` that `fit` makes with the same configuration. Scaling, gamma and values
    that are searched are computed now, the rest by the graph. Memory is planned for this process and its threads: if
    workers compute, give memory_limit and threads of one worker. Keys are named after their phase: `sample-0`,
    `centres-0`, `(assign-0, block)`, `number`, `(regroup, file)`, `parts`, `(solve, part)` and `model`.

    Parameters
    ----------
    store : Store, str or Path
        The rows, or the folder or URL of their store.
    config : FitConfig or dict
        Options, or their values as in a configuration file: {"C": 10, "dcsvm": {"early": True}}.
    folder : str, Path or None
        For files of the tasks, which are removed with the model. Workers on other machines need access to it. None:
        a temporary folder on this machine.

    Returns
    -------
    dask.delayed.Delayed
        The graph. Its result is the model.

    Raises
    ------
    ConfigError, DataError, MemoryLimitError

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from streamsvm import Store, graph_of
    >>> digits = Store.from_arrays(*load_digits(return_X_y=True))
    >>> graph = graph_of(digits, {"C": 10, "dcsvm": {"early": True, "levels": 1}})
    >>> model = graph.compute()
    >>> len(model.bounds) - 1
    4
    """
    from streamsvm.fits.graph import early_graph  # dask

    if not isinstance(config, FitConfig):
        config = build_config(("graph_of", config))
    if not isinstance(store, Store):
        store = Store.open(str(store))
    placed = {name: getattr(config, name) for name in ("workers", "scheduler", "device")}
    for option, value in placed.items():
        if value != FitConfig.model_fields[option].default:
            raise ConfigError(f"{option} is {value}: a graph is computed where you send it; leave it out")
    if config.search.has_ensemble:
        raise ConfigError(f"search.ensemble is {config.search.ensemble}: a graph is one fit; leave it out")
    if config.n_folds:
        raise ConfigError("probability: a graph is one fit, and probabilities or a threshold from folds need several")
    with planned_fit(store, with_task(config, store)) as fit:
        return early_graph(fit, None if folder is None else place_of(folder))


def train_path(
    store: Store, config: FitConfig, Cs: Sequence[float], events: Events = heard
) -> list[tuple[Any, Report]]:
    """A model and a report for each C, of a solver that shares its work among them."""
    return fit_models(store, with_task(config, store, events), Run(events, Cs=tuple(Cs), until=end_of(config)))


@described
def plan(store: Store, config: FitConfig) -> dict[str, Any]:
    """What a fit would do: memory, and what determines its time. It trains nothing and makes no pass over the store.

    Returns
    -------
    dict
        What `fit --dry-run --json` prints. `guessed`: the values estimated from some rows or none, if there are any.

    Raises
    ------
    ConfigError, DataError, MemoryLimitError
    """
    store = sketched(store)
    require_holdout(store, config.holdout if config.interval is None else interval_rows(store, config))
    folds = {"folds": config.n_folds} if config.n_folds else {}
    in_place = {"holdout": 0, "interval": None}  # rows here and there, of all chunks
    config = with_task(config, store).model_copy(update=in_place)
    with planned_fit(store, config, chooses=False) as fit:
        return fit.plan() | folds | device_facts() | ({"guessed": "; ".join(store.guessed)} if store.guessed else {})


def fit_models(store: Store, config: FitConfig, run: Run) -> list[tuple[FittedModel, Report]]:
    """The recipe: prepare, choose, judge, fit, save. A model for each of run.Cs, else one; and their reports. config:
    with its task. Partitions of models are in the file at run.model_path, if there is one. Decisions of folds come
    before the fit, and after what is chosen, as choosing costs more than a fit."""
    phase, chooses = Phases(), bool(config.search.chosen)
    with compile_notices(run.events):
        decisions = [] if chooses else decided_by_folds(store, config, run, phase)
        with planned_fit(store, config, run, phase) as fit, opened_draft(run.model_path, phase) as draft:
            if chooses:
                run = replace(run, until=fit.context.until)
                if (ensemble := ensemble_of(fit, config, run, phase)) is not None:
                    return [ensemble]
                decisions = decided_by_folds(fit.store, fit.config, run, phase)
            if run.run_dir is not None:
                chosen = {"solver": fit.config.solver, "C": fit.config.C}
                run.events(Planned(fit.kernel.to_attrs(), fit.scaling.kind, fit.plan() | chosen))
            judged = fit.store if chooses else store
            fit, solutions = solve(fit, draft, run.Cs)
            models = [
                fit.certified(solution, of_partitions(fold_decisions, solution.model, judged, fit))
                for solution, fold_decisions in zip_longest(solutions, decisions)
            ]
            for model, _ in models:
                draft.save(model)
            return [(model, report | phase.report()) for model, report in models]


def ensemble_of(fit: Fit, config: FitConfig, run: Run, phase: Phases) -> tuple[FittedModel, Report] | None:
    """The model that combines the chosen one with others, saved, if the options ask for it or a time budget has room
    for it, and there are others. fit: of what the search of config has chosen; it is not solved."""
    if not config.search.has_ensemble and (run.Cs or not may_combine(fit, config)):
        return None
    with _folder_of_ensemble(run) as folder:
        candidates = [*fit.prepared.candidates, *_more_candidates(fit, config, run, phase, folder)]
        if len(candidates) < 2:
            if config.search.has_ensemble:
                run.events.warn("the search tried no two models that can be combined: the model is a single one")
            return None
        checkpoints, events = fit.checkpoints.inside(FOLDER), run.events
        learn = partial(_fit_of_member, run, on_workers=not fit.engine.is_local)
        combine = partial(combined_fits, fit.store, candidates, learn, fit.prepared.header, fit.engine)
        try:
            with phase("ensemble"), on_client(fit.engine.client):
                made = combine(folder, checkpoints, events, None if config.search.has_ensemble else run.until)
        except OutOfTime:
            return None
        except FAILURES as error:
            if config.search.has_ensemble:
                raise
            run.events.warn(f"other models could not be combined with the chosen one, which is fitted alone ({error})")
            return None
        model, report = made.certified(fit)
        if run.model_path is not None:
            with phase("save"):
                save_model(model, run.model_path)
        return model, report | phase.report()


@contextmanager
def _folder_of_ensemble(run: Run) -> Iterator[Place]:
    """A folder for the fits of an ensemble, in the run directory if there is one. It goes when the model is saved."""
    with ExitStack() as stack:
        if run.run_dir is None:
            yield Path(stack.enter_context(TemporaryDirectory(prefix="streamsvm-ensemble-")))
            return
        folder = run.run_dir / FOLDER
        folder.mkdir(exist_ok=True)
        yield folder
        remove_tree(folder)


def _more_candidates(fit: Fit, config: FitConfig, run: Run, phase: Phases, folder: Place) -> list[FitConfig]:
    """The chosen options with another loss, and the best of a short search in columns that are scaled by their ranks,
    with a metric and without."""
    other = with_other_loss(fit.config)
    more = [] if other is None else [other]
    if "scale" in config.search.chosen and not (fit.store.is_sparse or fit.kernel.is_linear):
        place = folder / "ranks"
        place.mkdir(exist_ok=True)
        resume = run.resume and any(place.iterdir())
        inside = replace(run, events=progress_of(run.events), run_dir=place if run.run_dir else None, resume=resume)
        with planned_fit(fit.store, in_ranks(config), inside, phase) as of_ranks:
            more += best_with_and_without_metric(of_ranks.prepared.candidates)
    return more


def _fit_of_member(
    run: Run, config: FitConfig, rows: Store, folder: Place, fits: int, *, on_workers: bool
) -> FittedModel:
    """on_workers: those of the client at hand, instead of more that the options name. Of many fits, the share of each
    may be shorter than END_S, which every fit leaves for its model to be written."""
    config = without_probabilities(as_chosen(config))
    if on_workers:
        config = config.model_copy(update=dict.fromkeys(("workers", "scheduler", "wait_for_scheduler")))
    [model] = _fit_of_fold(run, config, rows, folder, fits, END_S)
    return model


@contextmanager
def planned_fit(
    store: Store, config: FitConfig, run: Run | None = None, phase: Phases | None = None, *, chooses: bool = True
) -> Iterator[Fit]:
    """A fit of prepared data, whose memory is planned; not begun yet. chooses: what its options ask to be chosen."""
    run, phase = run or Run(), phase or Phases()
    if message := excess(config.memory_limit):
        run.events.warn(message)
    checkpoints = Checkpoints(run.run_dir, store, config, run.resume, run.events)
    device = device_of(config, store, run.events)  # may raise: before there is an engine to close
    engine = open_engine(
        config.threads,
        config.workers,
        config.scheduler,
        config.memory_limit,
        run.events,
        run.performance_report,
        config.wait_for_scheduler,
    )
    with closing(FitContext(engine, checkpoints, run.events, phase, run.until)) as context, computing_on(device):
        if device is not None:
            engine.check_device(device, run.events)
        data = prepare(store, config, engine, run.events, phase=phase)
        if chooses and config.search.chosen:
            with phase("search"):
                data = with_choices(data, context)
        fit = fit_of(data, context)
        yield fit
        fit.ended()


def decided_by_folds(store: Store, config: FitConfig, run: Run, phase: Phases) -> list[FoldDecisions]:
    """What fits on folds decide for each model: probabilities, a threshold; empty if config asks for neither."""
    if config.holdout:  # these rows choose the threshold
        probability = config.probability.model_copy(update={"threshold": None})
        config = config.model_copy(update={"probability": probability})
    if not config.probability.is_requested:
        return []
    whole = config.probability.costs is not None or config.search.scoring == LOG_LOSS
    if config.search.chosen:
        config = as_chosen(config)
    from streamsvm.judging.probabilities import cross_validated

    fit = partial(_fit_of_fold, run, without_probabilities(config))
    with phase("folds"):
        return cross_validated(
            store, config, fit, whole=whole, run_dir=run.run_dir, resume=run.resume, events=run.events
        )


def _fit_of_fold(
    run: Run, config: FitConfig, rows: Store, folder: Place, fits: int, more_s: float = 0.0
) -> list[FittedModel]:
    """The models of a fold's rows, saved next to those of the run, with what is needed to resume. fits: how many are
    still to come with this one, each with its share of the time left; more_s: seconds that this one may take besides.
    """
    until = run.until and min(run.until, (now := time.time()) + max(0.0, run.until - now) / fits + more_s)
    of_fold = Run(progress_of(run.events), Cs=run.Cs, until=until)
    if run.model_path is None:
        return [model for model, _ in fit_models(rows, config, of_fold)]
    run_dir, resume = (folder if run.run_dir else None), run.resume and any(folder.iterdir())
    of_fold = replace(of_fold, model_path=folder / "model", run_dir=run_dir, resume=resume)
    fit_models(rows, config, of_fold)
    return [load_model(folder / "model")]


def of_partitions(decisions: FoldDecisions | None, model: FittedModel, store: Store, fit: Fit) -> FoldDecisions | None:
    """What folds of a store decided, with a sigmoid for each partition of the model where that is surely better."""
    if decisions is None:
        return None
    from streamsvm.judging.probabilities import by_parts

    with fit.phase("folds"):
        return by_parts(decisions, model, store, fit.engine, seed=fit.config.seed)


def without_probabilities(config: FitConfig) -> FitConfig:
    """The configuration without probabilities and intervals, for the fits that make them and for those of folds."""
    return config.model_copy(update={"probability": ProbabilityConfig(), "interval": None})


def progress_of(events: Events) -> Events:
    """Events that pass on progress only."""

    def progress(record: Record[Event]) -> None:
        if isinstance(record.event, Progress):
            events.progress(record.event.phase, record.event.done, record.event.total)

    return Events(progress)
