"""`streamsvm fit`: trains a model on a store."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from streamsvm.cli.choices import print_fit
from streamsvm.cli.flags import (
    COSTS,
    OBJECTIVES,
    MemoryLimit,
    SchedulerFlag,
    SetOption,
    WaitFlag,
    WorkersFlag,
    class_weights,
    flag,
    flag_layers,
)
from streamsvm.cli.imports import importing
from streamsvm.cli.inputs import (
    LEARNT,
    FilesToLearnIn,
    StoreToLearnFrom,
    reads,
    require_other_than_store,
    store_to_learn_from,
)
from streamsvm.cli.options import (
    ANSWERS,
    CHOICE,
    DATA,
    MODEL,
    PAPERS,
    RUN,
    RUNS,
    TUNING,
    VALUES,
    AsJson,
    ForceModel,
    PerformanceReport,
    XName,
    YName,
    default_model,
    open_store,
    option,
    place_option,
    require_model_place,
)
from streamsvm.cli.output import emit, progress
from streamsvm.config import FitConfig
from streamsvm.errors import ConfigError, CorruptDataError
from streamsvm.options.layers import Layer, parse_set, read_layer
from streamsvm.runs.phases import usage_so_far
from streamsvm.search.options import completed
from streamsvm.storage.paths import Place, is_same
from streamsvm.storage.text import number_or_text

if TYPE_CHECKING:
    from streamsvm.data.store import Store

KEPT = (".", "search", "regions", "folds")  # folders of a run directory that hold checkpoints


@reads(*LEARNT)
def fit(
    context: typer.Context,
    files: FilesToLearnIn = None,
    store: StoreToLearnFrom = None,
    read: Mapping[str, Any] = {},
    scale: Annotated[Any, flag("--scale", "scale", DATA)] = None,
    gaps: Annotated[Any, flag("--gaps", "gaps", VALUES)] = None,
    mark_gaps: Annotated[bool | None, flag("--mark-gaps", "mark_gaps", VALUES)] = None,
    positive: Annotated[str | None, flag("--positive", "positive", VALUES, metavar="L[,L...]", parser=str)] = None,
    class_weight: Annotated[
        Any, flag("--class-weight", "class_weight", DATA, metavar="balanced|L=W[,...]", parser=class_weights)
    ] = None,
    x: XName = None,
    y: YName = None,
    solver: Annotated[Any, flag("--solver", "solver", MODEL)] = None,
    task: Annotated[Any, flag("--task", "task", MODEL)] = None,
    C: Annotated[Any, flag("--C", "C", MODEL)] = None,
    nu: Annotated[Any, flag("--nu", "nu", PAPERS)] = None,
    tol: Annotated[Any, flag("--tol", "tol", TUNING)] = None,
    interval: Annotated[Any, flag("--interval", "interval", ANSWERS)] = None,
    early: Annotated[bool | None, flag("--early", "dcsvm.early", MODEL)] = None,
    budget: Annotated[Any, flag("--budget", "bsgd.budget", PAPERS)] = None,
    merge: Annotated[Any, flag("--merge", "bsgd.merge", PAPERS)] = None,
    epochs: Annotated[Any, flag("--epochs", "bsgd.epochs", PAPERS)] = None,
    probability: Annotated[Any, flag("--probability", "probability.method", MODEL)] = None,
    threshold: Annotated[
        Any, flag("--threshold", "probability.threshold", ANSWERS, metavar=OBJECTIVES, parser=str)
    ] = None,
    costs: Annotated[Any, flag("--costs", "probability.costs", ANSWERS, metavar=COSTS, parser=str)] = None,
    seed: Annotated[Any, flag("--seed", "seed", TUNING)] = None,
    kernel: Annotated[Any, flag("--kernel", "kernel.name", MODEL)] = None,
    gamma: Annotated[Any, flag("--gamma", "kernel.gamma", MODEL, metavar="NUMBER", parser=number_or_text)] = None,
    degree: Annotated[Any, flag("--degree", "kernel.degree", TUNING)] = None,
    coef0: Annotated[Any, flag("--coef0", "kernel.coef0", TUNING)] = None,
    metric: Annotated[Any, flag("--metric", "metric.kind", MODEL)] = None,
    time_budget: Annotated[
        Any, flag("--time-budget", "search.time_budget", CHOICE, metavar="60s|10m|2h", parser=str)
    ] = None,
    trials: Annotated[Any, flag("--trials", "search.trials", TUNING)] = None,
    scoring: Annotated[Any, flag("--scoring", "search.scoring", TUNING)] = None,
    no_search: Annotated[
        bool, option("--no-search", "Use defaults for options that you leave out.", group=CHOICE)
    ] = False,
    model: Annotated[
        Any,
        place_option("--model", "Model to write. Default: STORE.model.zarr, next to the store.", "MODEL", RUN),
    ] = None,
    config: Annotated[Any, place_option("--config", "A TOML file, or a model to repeat.", "FILE", RUN)] = None,
    set_: SetOption = None,
    memory_limit: MemoryLimit = None,
    run_dir: Annotated[Any, place_option("--run-dir", "Folder for events and checkpoints.", "DIR", RUN)] = None,
    checkpoint_every: Annotated[
        Any, flag("--checkpoint-every", "checkpoint_every", RUNS, metavar="SECONDS|'N steps'", parser=str)
    ] = None,
    resume: Annotated[bool, option("--resume", "Resume from the checkpoint in --run-dir.", group=RUN)] = False,
    dry_run: Annotated[bool, option("--dry-run", "Print the memory and time plan only.", group=RUN)] = False,
    pilot: Annotated[
        float,
        option(
            "--pilot",
            "With --dry-run: seconds for small fits that estimate the time; 0 for none.",
            "SECONDS",
            RUNS,
            min=0,
        ),
    ] = 15.0,
    graph: Annotated[
        Path | None, option("--graph", "Draw the task graph of an early fit.", "FILE.svg|.png", RUNS)
    ] = None,
    workers: WorkersFlag = None,
    scheduler: SchedulerFlag = None,
    wait_for_scheduler: WaitFlag = None,
    performance_report: PerformanceReport = None,
    force: ForceModel = False,
    as_json: AsJson = False,
) -> None:
    """Train a model. Options that you leave out are chosen from the data.

    The defaults below hold with --no-search.

    \b
    streamsvm fit sales.csv --label returned
    streamsvm fit --store train.zarr
    streamsvm fit --store train.zarr --time-budget 2m --kernel rbf
    streamsvm fit --store train.zarr --no-search --scale minmax --C 10 --early
    """
    resolved = completed(given_layers(context.params, config, set_ or []), searches=not no_search)
    if resume and run_dir is None:
        raise ConfigError("--resume needs the --run-dir of the interrupted run")
    require_other_than_store(files, store, model=model, run_dir=run_dir, graph=graph)
    if files and model is not None and not (dry_run or resume):
        require_model_place(model, force=force)
    store = store_to_learn_from(files, store, read)
    if dry_run:
        _print_plan(open_store(store, x, y), resolved, pilot, as_json)
        return
    model = model or default_model(store)
    if run_dir is not None and is_same(run_dir, model):
        raise ConfigError(f"--run-dir {run_dir}: found the place of --model, expected another one")
    rows = open_store(store, x, y)
    if resume and not force and (report := _ended(run_dir, model, rows, resolved)) is not None:
        if as_json:
            emit(report, as_json=True, title="Trained")
            return
        typer.echo(f"the run in {run_dir} has ended, and {model} is its model: nothing is left to resume")
        return
    require_model_place(model, force=force, of=(rows, [resolved]) if resume else None)
    if graph is not None:
        _require_drawn(graph, resolved, rows.n)
    with importing():
        from streamsvm.runs.checkpoints import has_state
        from streamsvm.train import train

    with (
        hint_to_resume(run_dir, lambda run: any(has_state(run / name) for name in KEPT)),
        progress() as events,
    ):
        report = train(
            rows,
            resolved,
            model_path=model,
            run_dir=run_dir,
            resume=resume,
            performance_report=performance_report,
            events=events,
        )
    if graph is not None:
        _draw(graph, report, store)
    if as_json:
        emit(report, as_json=True, title="Trained")
        return
    print_fit(report, resolved, _words(store, model, x, y))
    command, of = ("predict", "FILE") if files else ("evaluate", "--store TEST_STORE")
    typer.echo(f"next: streamsvm {command} --model {shlex.quote(str(model))} {of}")


def _ended(run_dir: Place, model: Place, rows: Store, config: FitConfig) -> dict[str, Any] | None:
    """The report of a run that has ended; None of one to resume. Raises ConfigError."""
    with importing():
        from streamsvm.fits.earlier import ended

    return ended(run_dir, model, rows, config)


def _words(store: str, model: Place, x: str | None, y: str | None) -> list[str]:
    """The words of a command that fits the same model on the same store."""
    named = [("--x", x), ("--y", y), ("--model", str(model))]
    return [
        "streamsvm",
        "fit",
        "--store",
        store,
        *(word for name, value in named if value for word in (name, value)),
    ]


def _require_drawn(graph: Path, config: FitConfig, n: int) -> None:
    """Raises ConfigError or StorageError, before any work, if there will be no graph or no place for it."""
    from streamsvm.fits.dcsvm import require_graph
    from streamsvm.search.score_table import require_free, require_suffix

    require_suffix("--graph", graph, ".png", ".svg")
    require_free("--graph", graph)
    if not graph.parent.is_dir():
        raise ConfigError(f"--graph {graph}: there is no folder {graph.parent}")
    try:
        require_graph(config, n)
    except ConfigError as error:
        raise ConfigError(f"--graph: {error}") from None


def _draw(graph: Path, report: dict[str, Any], store: str) -> None:
    """Draws the graph of a finished fit."""
    from streamsvm.report.drawing import write_plot
    from streamsvm.report.graph import graph_picture

    if "graph" not in report:  # the time budget left too few rows to divide
        typer.echo(f"warning: --graph {graph}: not drawn, because the rows were not divided", err=True)
        return
    title = f"Early fit of {Path(store).name}: {report['n']:,} rows, {report['d']:,} columns"
    write_plot(graph_picture(report["graph"], report["seconds_by_phase"], title), graph)


def given_layers(flags: dict[str, Any], config: Place | None, sets: list[str]) -> list[Layer]:
    """The layers of a file, then of flags, then of `--set`. Raises ConfigError."""
    return [*([read_layer(config)] if config else []), *flag_layers(flags), *map(parse_set, sets)]


@contextmanager
def hint_to_resume(run_dir: Place | None, has_kept: Callable[[Any], bool]) -> Iterator[None]:
    """If a run is interrupted, prints how to resume it, or that it cannot be resumed yet."""
    try:
        yield
    except KeyboardInterrupt:
        if run_dir is not None and has_kept(run_dir):
            typer.echo(f"to resume from the checkpoint in {run_dir}, add --resume to the command", err=True)
        elif run_dir is not None:
            typer.echo(f"no checkpoint is in {run_dir} yet; --checkpoint-every 5 saves one every 5 seconds", err=True)
        raise


def _print_plan(rows: Store, config: FitConfig, pilot_s: float, as_json: bool) -> None:
    from streamsvm.data.sketch import sketched
    from streamsvm.train import plan

    start_s, rows = usage_so_far()["seconds"], sketched(rows)
    memory_plan = plan(rows, config)
    if pilot_s > 0:
        from streamsvm.dry_run import does_not_fit, estimate

        try:
            memory_plan |= estimate(rows, config, pilot_s, start_s)
        except CorruptDataError as error:  # a store that so far has metadata only
            typer.echo(f"warning: small fits could not estimate the time: {error}", err=True)
        if not memory_plan.get("fits", True):
            typer.echo(f"warning: {does_not_fit(memory_plan)}", err=True)
    emit(memory_plan, as_json=as_json, title="Plan (the model was not trained)")
