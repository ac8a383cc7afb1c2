"""From a store and a configuration to a model: prepare, plan, solve, certify, save. Read this page first.

`fits.prepare` makes the input of all solvers, and each solver has a file in `training`.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from streamsvm.choosing.choices import as_chosen, with_choices, write_config
from streamsvm.choosing.time_budget import choice_of, with_more_rows
from streamsvm.config import FitConfig, ProbabilityConfig, SearchConfig, build_config
from streamsvm.data.labels import like_ids
from streamsvm.data.sketch import sketched
from streamsvm.data.store import Store
from streamsvm.errors import ConfigError, DataError, StreamSVMError
from streamsvm.events import Event, Events, Planned, Progress, Record, Warned, heard, ignore
from streamsvm.fits.base import Fit, FitContext, FittedModel, PathFit, Report, Solution
from streamsvm.fits.drafts import DraftInMemory, ModelDraft, opened_draft
from streamsvm.fits.memory_plan import STREAMED_SHARE
from streamsvm.fits.prepare import TrainingData, prepare
from streamsvm.judging.expected import of_model
from streamsvm.judging.held_out import require_holdout, rows_of_intervals
from streamsvm.judging.thresholds import FoldDecisions
from streamsvm.models.calibration import are_odds
from streamsvm.models.files import is_model, load_model, read_attrs
from streamsvm.options.costs import Costs
from streamsvm.parallel.compiling import compiling_told
from streamsvm.parallel.memory import free_bytes
from streamsvm.parallel.open import open_engine
from streamsvm.runs.checkpoints import EXECUTION, ROWS, Checkpoints, by_path, digest
from streamsvm.runs.directory import end_with, last_start, read_result, recorded
from streamsvm.runs.phases import Phases, used_s, whole_command
from streamsvm.solvers.catalogue import fit_class, renamed
from streamsvm.storage.paths import Place, place_of, remove_tree
from streamsvm.storage.place import is_same
from streamsvm.tasks import default_task, task_of
from streamsvm.tasks.base import Task
from streamsvm.texts.documented import described

if TYPE_CHECKING:
    from dask.delayed import Delayed

COMPARED_ROWS = 1000  # whose bounds show whether rows were prepared alike
MOST_FRACTIONS = 20  # different numbers that are not whole, among labels of classes
FAILS = (
    StreamSVMError,
    MemoryError,
    ArithmeticError,
    OSError,
)  # what a further fit may end with: the one before stays


@dataclass(frozen=True)
class Run:
    """How a model is trained, and where it is saved. The configuration defines the model itself.

    model_path: None if it stays in memory. Cs: a model for each, of a solver that shares its work among them; else
    one, of the configuration's C. until: time.time() at which a fit within a time budget has to end.
    """

    events: Events = ignore
    model_path: Place | None = None
    run_dir: Place | None = None
    resume: bool = False
    performance_report: Path | None = None
    Cs: tuple[float, ...] = ()
    until: float | None = None

    def share_of_time(self, fits: int) -> float | None:
        """`until` for the next of so many fits that share the time left."""
        return self.until and (now := time.time()) + max(0.0, self.until - now) / fits


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
    config, start = with_task(config, store), used_s()
    with recorded(run_dir, events, resume, **run_facts(store, config)) as events:
        until = end_of(config, start[0])
        run = Run(events, model_path, run_dir, resume, performance_report, until=until)
        [(model, report)] = learned(store, config, run)
        if run_dir is not None:
            remove_tree(run_dir / ROWS)
        report |= {"model": str(model_path)}
        if config.search.chosen:
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
    [found] = learned(store, with_task(config, store), Run(events, until=end_of(config)))
    return found


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
    for option, value in (("workers", config.workers), ("scheduler", config.scheduler)):
        if value is not None:
            raise ConfigError(f"{option} is {value}: a graph is computed where you send it; leave it out")
    if config.n_folds:
        raise ConfigError(
            "probability: a graph is one fit, and probabilities or a threshold from folds need several"
        )
    with planned(store, with_task(config, store)) as fit:
        return early_graph(fit, None if folder is None else place_of(folder))


def train_path(
    store: Store, config: FitConfig, Cs: Sequence[float], events: Events = heard
) -> list[tuple[Any, Report]]:
    """A model and a report for each C, of a solver that shares its work among them."""
    return learned(store, with_task(config, store), Run(events, Cs=tuple(Cs), until=end_of(config)))


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
    require_holdout(store, config.holdout if config.interval is None else rows_of_intervals(store, config))
    folds = {"folds": config.n_folds} if config.n_folds else {}
    in_place = {"holdout": 0, "interval": None}  # rows here and there, of all chunks
    config = with_task(config, store).model_copy(update=in_place)
    with planned(store, config, chooses=False) as fit:
        return fit.plan() | folds | ({"guessed": "; ".join(store.guessed)} if store.guessed else {})


def learned(store: Store, config: FitConfig, run: Run) -> list[tuple[FittedModel, Report]]:
    """The recipe: prepare and plan, solve, certify, save. Returns models, whose partitions are in a file if there is
    one, and reports. config: with its task; probabilities are of fits by the same recipe, on folds.
    """
    phase = Phases()
    with compiling_told(run.events):
        chooses = bool(config.search.chosen)
        by_folds = [] if chooses else _by_folds(store, _asking_folds(config), run, phase)
        with planned(store, config, run, phase) as fit, opened_draft(run.model_path, phase) as draft:
            if chooses:  # once for all folds, as what is chosen costs more than a fit
                own = replace(run, until=fit.context.until)
                by_folds = _by_folds(fit.store, as_chosen(_asking_folds(fit.config)), own, phase)
            if run.run_dir is not None:
                settled = {"solver": fit.config.solver, "C": fit.config.C}  # maybe by a search
                run.events(Planned(fit.kernel.to_attrs(), fit.scaling.kind, fit.plan() | settled))
            if _may_extend(fit):
                fit, solutions = _extended(fit, draft)
            else:
                solutions = _solved(fit, draft, run.Cs)
            if chooses:
                fit, solutions = _as_promised(store, fit, solutions, draft)
            told = store if not chooses else fit.store
            found = [
                fit.certified(solution, _of_parts(decided, solution.model, told, fit))
                for solution, decided in zip_longest(solutions, by_folds)
            ]
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
    chooses: bool = True,
) -> Iterator[Fit]:
    """A fit of prepared data, whose memory is planned; not begun yet. chooses: what its options ask to be chosen."""
    run, phase = run or Run(), phase or Phases()
    checkpoints = Checkpoints(run.run_dir, store, config, run.resume, run.events)
    where = config.threads, config.workers, config.scheduler, config.memory_limit
    engine = open_engine(*where, run.events, run.performance_report, config.wait_for_scheduler)
    with closing(FitContext(engine, checkpoints, run.events, phase, run.until)) as context:
        prepared = prepare(store, config, engine, run.events, phase=phase)
        if chooses and config.search.chosen:
            with phase("search"):
                prepared = with_choices(prepared, context)
        fit = _fit_of(prepared, context)
        yield fit
        fit.ended()


def _fit_of(prepared: TrainingData, context: FitContext) -> Fit:
    """The fit of prepared data, whose checkpoints know what was chosen for it. Raises MemoryLimitError."""
    if prepared.asked is not None:
        context.checkpoints.choice = choice_of(prepared)
    return fit_class(prepared.config.solver)(prepared, context)


def _solved(fit: Fit, draft: ModelDraft, Cs: Sequence[float]) -> list[Solution]:
    if not Cs:
        return [fit.solve(draft)]
    if not isinstance(fit, PathFit):
        raise ConfigError(f"solver {fit.config.solver} learns one C at a time, found {len(Cs)}")
    return fit.path(Cs)


def _may_extend(fit: Fit) -> bool:
    """Whether the time left has cut the rows, and whether a model of those that are left may wait in memory."""
    limit = fit.config.memory_limit or free_bytes()
    return fit.prepared.complete is not None and fit.store.nbytes < limit / STREAMED_SHARE


def _extended(fit: Fit, draft: ModelDraft) -> tuple[Fit, list[Solution]]:
    """A fit of the rows for which there was time, and its solution: of more rows while there is time left, as that
    for one fit shows how long the next one takes. A fit that does not end in time, or fails, leaves the one before."""
    began, last = time.perf_counter(), fit.solve(DraftInMemory())
    while not last.late:
        took_s = None if fit.checkpoints.is_loaded else time.perf_counter() - began
        prepared = with_more_rows(fit.prepared, took_s, fit.context)
        if prepared is None:
            break
        try:
            fit.context.begin_again(f"of {prepared.store.n} rows")
            more, began = _fit_of(prepared, fit.context), time.perf_counter()
            draft.discard()
            solution = more.solve(draft if not _may_extend(more) else DraftInMemory())
        except FAILS as error:
            what = f"a fit of {prepared.store.n:,} rows failed ({_told(error)})"
            fit.events(Warned(f"{what}: the model is that of {fit.store.n:,} rows"))
            draft.discard()
            break
        if solution.late:
            draft.discard()
            break
        fit, last = more, solution
        if not _may_extend(fit):
            break
    return fit, [last]


def _as_promised(
    store: Store, fit: Fit, solutions: list[Solution], draft: ModelDraft
) -> tuple[Fit, list[Solution]]:
    """The fit of a choice, and its solution, which decides the rows that the search held out as well as the search
    expects of new rows, or better, because it may have learned from them.

    Else the choice is not what was trained: there is a warning, and another fit, if preparing the rows again by the
    chosen options alone makes something else of them.
    """
    losses = _losses_of_search(fit, solutions[0])
    if losses is None:
        return fit, solutions
    promised, score = fit.prepared.promised, 1 - float(losses.mean())
    assert promised is not None  # else there were no losses
    least = promised.expected.low
    if not solutions[0].exact:  # another order of the rows would give another model, too
        least -= 0.5 * (promised.expected.high - promised.expected.low)
    if score >= least:
        return fit, solutions
    what = f"the model has a score of {score:.3f} on rows that it could learn from, where the search expects "
    what += f"{promised.expected.low:.3f} to {promised.expected.high:.3f} on new rows"
    again = None if solutions[0].late else _prepared_again(store, fit)
    if again is not None:
        found = _trained_again(again, fit.context, draft)
        if isinstance(found, str):
            what += f"; it could not be trained again ({found})"
        else:
            fit, solutions = found
            losses = _losses_of_search(fit, solutions[0])
            assert losses is not None  # as before
            what += f"; prepared and trained again it has {1 - losses.mean():.3f}"
    if 1 - float(losses.mean()) < least:
        fit.prepared = replace(fit.prepared, expected=of_model(promised.expected.scoring, losses))
        what += ": do not rely on the choice; --no-search or options that you give train another model"
    fit.events(Warned(what))
    return fit, solutions


def _trained_again(
    again: TrainingData, context: FitContext, draft: ModelDraft
) -> tuple[Fit, list[Solution]] | str:
    """Another fit, which replaces the model so far; or why it failed, which leaves that one, unless it is in a file."""
    context.begin_again("again")
    try:
        fit = _fit_of(again, context)
    except FAILS as error:
        return _told(error)
    is_in_file = draft.has_begun
    draft.discard()
    try:
        return fit, [fit.solve(draft)]
    except FAILS as error:
        if is_in_file:
            raise
        draft.discard()
        return _told(error)


def _told(error: BaseException) -> str:
    return str(error) or type(error).__name__


def _losses_of_search(fit: Fit, solution: Solution) -> np.ndarray | None:
    """Of the model, on the rows that the search held out; None without a search."""
    promised = fit.prepared.promised
    if promised is None:
        return None
    return promised.losses(solution.model, fit.prepared.no_targets.units, solution.promised)


def _prepared_again(store: Store, fit: Fit) -> TrainingData | None:
    """The rows as the chosen options alone prepare them; None if they are prepared like this already."""
    prepared = fit.prepared
    config = prepared.config.model_copy(update={"search": SearchConfig(options=())})
    again = prepare(store, config, fit.engine, phase=fit.phase)
    some = np.arange(min(COMPARED_ROWS, again.store.n))

    def arrays(own: TrainingData) -> dict[str, np.ndarray]:
        return {"upper": own.answers.take(some).upper, **own.scaling.to_arrays()}

    first, second = arrays(prepared), arrays(again)
    is_alike = first.keys() == second.keys() and all(
        np.allclose(first[name], second[name], equal_nan=True) for name in first
    )
    if is_alike and again.kernel == prepared.kernel:
        return None
    own = {name: getattr(prepared, name) for name in ("learned", "expected", "asked", "promised", "complete")}
    return replace(again, config=prepared.config, **own)


def _asking_folds(config: FitConfig) -> FitConfig:
    """The configuration without a threshold if held-out rows choose it."""
    if not config.holdout:
        return config
    return config.model_copy(
        update={"probability": config.probability.model_copy(update={"threshold": None})}
    )


def _by_folds(store: Store, config: FitConfig, run: Run, phase: Phases) -> list[FoldDecisions]:
    """Held-out decisions for each model, from folds that the same recipe trains; empty if not needed."""
    if not config.probability.is_asked:
        return []
    from streamsvm.judging.probabilities import cross_validated

    learn = partial(_of_fold, run, without_probabilities(config))
    own: dict[str, Any] = {"run_dir": run.run_dir, "resume": run.resume, "events": run.events}
    with phase("folds"):
        return cross_validated(store, config, learn, **own)


def _of_parts(
    decided: FoldDecisions | None, model: FittedModel, store: Store, fit: Fit
) -> FoldDecisions | None:
    """What folds of a store decided, for the partitions of a model if it has any."""
    if decided is None:
        return None
    from streamsvm.judging.probabilities import by_parts

    with fit.phase("folds"):
        return by_parts(decided, model, store, fit.engine, seed=fit.config.seed)


def _of_fold(run: Run, config: FitConfig, rows: Store, folder: Place, fits: int) -> list[FittedModel]:
    """The models of a fold's rows, saved next to those of the run, with what is needed to resume. fits: how many are
    still to come with this one, each with its share of the time left."""
    own = Run(progress_of(run.events), Cs=run.Cs, until=run.share_of_time(fits))
    if run.model_path is not None:
        run_dir, resume = (folder if run.run_dir else None), run.resume and any(folder.iterdir())
        own = replace(own, model_path=folder / "model", run_dir=run_dir, resume=resume)
    found = [model for model, _ in learned(rows, config, own)]
    return found if own.model_path is None else [load_model(own.model_path)]


def run_facts(store: Store, config: FitConfig) -> dict[str, Any]:
    """A description of the run, for its first record."""
    return {
        "store": store.url,
        "n": store.n,
        "d": store.d,
        "limit_bytes": config.memory_limit or free_bytes(),
        "config": config.model_dump(mode="json"),
    }


def with_task(config: FitConfig, store: Store) -> FitConfig:
    """The configuration with its task set: if it names none, the solver and query ids determine it."""
    task = config.task or default_task(config.solver, has_queries=store.has_qid)
    if config.task is None and not config.positive and task_of(task).has_classes and store.has_y:
        _require_labels(store, task_of(task))
    if config.probability.is_asked or config.probability.costs is not None:
        from streamsvm.judging.probabilities import require_asked

        known = config.probability.threshold is None or config.positive or not store.has_y
        require_asked(config.probability, task, 2 if known else len(store.classes.values))
    if (costs := config.probability.costs) is not None:
        _require_costs(costs, config, task_of(task), store)
    return config.model_copy(update={"task": task})


def _require_costs(costs: Costs, config: FitConfig, task: Task, store: Store) -> None:
    """Raises ConfigError if costs have no probabilities to weigh, or name unknown labels."""
    if config.probability.method is None and not are_odds(getattr(config.own, "loss", None)):
        raise ConfigError(
            "costs weigh probabilities, and the fit makes none: give --probability sigmoid, too"
        )
    if store.has_y:
        known = np.array([0, 1]) if config.positive else task.classes_of(store.classes.values)
        task.costs(costs, known)


def _require_labels(store: Store, task: Task) -> None:
    """Raises DataError if labels are many numbers that are not whole, as those of a regression, or texts that look like
    ids."""
    different = store.classes.values
    k, where = len(different), store.url or "y"
    if task.in_sets:
        return
    if different.dtype.kind == "f" and k > MOST_FRACTIONS and np.any(different != np.round(different)):
        raise DataError(
            f"{where} holds {k:,} different numbers, as {different[0]:.6g}; expected labels of "
            "classes: give --task regress to predict numbers, or --task classify where they are labels"
        )
    if different.dtype.kind == "U" and (found := like_ids(store.classes)):
        raise DataError(
            f"{where} holds {found}; expected labels of classes, each of several rows: name their column "
            f"{'with --label, ' * (store.url is not None)}or give --task classify where they are labels"
        )


def is_made_by(model_path: Place, store: Store, configs: Iterable[FitConfig]) -> bool:
    """Whether one of these configurations made the model at `model_path` from this store, wherever it ran, to whatever
    tolerance.

    So a run that was killed between its model and its end resumes, and does not replace another's model.
    """
    model = read_attrs(model_path)
    own = [with_task(config, store) for config in configs]
    if store.matches(str(model.get("fingerprint"))) is False:
        return False
    certificate = model.get("certificate") or {}
    asked = certificate.get("asked")
    if asked is not None:  # its configuration is what was chosen
        tol = certificate.get("tol")
        return asked in (digest(config.model_copy(update={"tol": tol})) for config in own)
    free = {*EXECUTION, "tol"}
    options = {name: v for name, v in renamed(model.get("config") or {}).items() if name not in free}
    return options in (config.model_dump(mode="json", exclude=free) for config in own)


def ended(run_dir: Place, model_path: Place, store: Store, config: FitConfig) -> Report | None:
    """The report of a run that has ended, whose model is in place: nothing is left to resume. Else None, also of a fit
    that ended before it had converged, or to another tolerance.

    Raises ConfigError if it ended with other options.
    """
    report, config = read_result(run_dir), with_task(config, store)
    if (
        report is None
        or not is_model(model_path)
        or not is_same(place_of(str(report.get("model"))), model_path)
    ):
        return None
    if is_made_by(model_path, store, [config]):
        tol = (read_attrs(model_path).get("certificate") or {}).get("tol", config.tol)
        return report if report.get("converged") is not False and tol == config.tol else None
    start = last_start(run_dir)
    before = by_path(renamed((start and start.config) or {}))
    now = by_path(config.model_dump(mode="json", exclude=set(EXECUTION)))
    differ = [name for name, value in now.items() if name in before and before[name] != value]
    if differ and differ != ["tol"]:
        told = ", ".join(f"{name} was {before[name]}, is {now[name]}" for name in differ)
        raise ConfigError(
            f"--resume: the run in {run_dir} has ended, with other options ({told}); to train again, drop --resume "
            "and give --force, or another --model"
        )
    return None


def without_probabilities(config: FitConfig) -> FitConfig:
    """The configuration without probabilities and intervals, for the fits that make them and for those of folds."""
    return config.model_copy(update={"probability": ProbabilityConfig(), "interval": None})


def progress_of(events: Events) -> Events:
    """Events that pass on progress only."""

    def progress(record: Record[Event]) -> None:
        if isinstance(record.event, Progress):
            events.progress(record.event.phase, record.event.done, record.event.total)

    return Events(progress)
