"""`streamsvm fit`: trains a model on a store."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from streamsvm.cli.app import ANSWERS, CLUSTER, DATA, MODEL, PAPERS, RUN, RUNS, TUNING, VALUES, importing
from streamsvm.cli.choices import print_fit
from streamsvm.cli.inputs import (
    LEARNT,
    TO_LEARN,
    GivenRows,
    MemoryLimit,
    SetOption,
    WorkersFlag,
    configured,
    given_layers,
    takes_rows,
)
from streamsvm.cli.options import (
    AsJson,
    ForceModel,
    PerformanceReport,
    PlaceFlag,
    default_model,
    open_store,
    option,
    place_option,
    require_model_place,
)
from streamsvm.cli.output import emit, is_plain, print_table, progress
from streamsvm.config import FitConfig
from streamsvm.errors import ConfigError, CorruptDataError
from streamsvm.runs.phases import usage_so_far
from streamsvm.search.options import completed
from streamsvm.storage.paths import Place, is_same
from streamsvm.storage.text import heading, human

if TYPE_CHECKING:
    from streamsvm.data.store import Store

KEPT = (".", "search", "regions", "folds", "ensemble")  # folders of a run directory that hold checkpoints


FLAGS = {
    DATA: ("scale", "class_weight"),
    VALUES: ("gaps", "mark_gaps", "positive"),
    MODEL: ("solver", "task", "C", "early", "probability", "kernel", "gamma", "metric"),
    PAPERS: ("nu", "budget", "merge", "epochs"),
    TUNING: ("tol", "seed", "degree", "coef0", "trials", "scoring"),
    ANSWERS: ("interval", "quantile", "threshold", "costs", "must_export"),
    RUN: ("time_budget", "ensemble"),
    RUNS: ("checkpoint_every",),
    CLUSTER: ("scheduler", "wait_for_scheduler", "device", "device_memory"),
}
PLAN = {  # facts of a plan in words, the most important ones first
    "n": "rows",
    "d": "columns",
    "classes": "classes",
    "chosen": "would be chosen",
    "seconds_estimated": "time of the fit",
    "n_support_estimated": "support vectors",
    "peak_rss_bytes_estimated": "peak memory, without a limit",
    "least_bytes_estimated": "smallest memory limit",
    "limit_bytes": "memory limit",
    "device": "device",
    "device_memory_bytes": "memory of the device, at most",
    "fits": "fits in the limit",
    "store_read_bytes_estimated": "read from the store",
    "scratch_bytes_estimated": "written to scratch files",
    "network_bytes_estimated": "sent between processes",
    "process_bytes": "memory of the process now",
    "rows_bytes": "memory for rows",
    "vector_bytes": "memory for numbers of each row",
    "supports_bytes": "memory for support vectors",
    "window_bytes": "memory for a window of rows",
    "plane_bytes": "memory for planes",
    "task_bytes": "memory of a task",
    "held_bytes": "memory for rows of several passes",
    "pass_bytes": "rows of a pass",
    "least_hss_bytes": "memory for the compressed matrix, at least",
    "cache_bytes": "cache of kernel rows",
    "in_memory": "rows stay in memory",
    "max_part_rows": "rows of a partition, at most",
    "early": "early prediction",
}
MODEL_TEXT = "Model to write. Default: STORE.model.zarr, next to the store."
PILOT_TEXT = "With --dry-run: seconds for small fits that estimate the time; 0 for none."


@takes_rows(*LEARNT, files=TO_LEARN, store="Rows and labels to train on.", group=DATA)
@configured(FLAGS)
def fit(
    given: GivenRows,
    flags: Mapping[str, Any],
    no_search: Annotated[
        bool, option("--no-search", "Use defaults for options that you leave out.", group=RUN)
    ] = False,
    model: Annotated[PlaceFlag | None, place_option("--model", MODEL_TEXT, "MODEL", RUN)] = None,
    config: Annotated[
        PlaceFlag | None, place_option("--config", "A TOML file, or a model to repeat.", "FILE", RUN)
    ] = None,
    set_: SetOption = None,
    memory_limit: MemoryLimit = None,
    run_dir: Annotated[
        PlaceFlag | None, place_option("--run-dir", "Folder for events and checkpoints.", "DIR", RUN)
    ] = None,
    resume: Annotated[bool, option("--resume", "Resume from the checkpoint in --run-dir.", group=RUN)] = False,
    dry_run: Annotated[bool, option("--dry-run", "Print the memory and time plan only.", group=RUN)] = False,
    pilot: Annotated[float, option("--pilot", PILOT_TEXT, "SECONDS", RUNS, min=0)] = 15.0,
    graph: Annotated[
        Path | None, option("--graph", "Draw the task graph of an early fit.", "FILE.svg|.png", RUNS)
    ] = None,
    workers: WorkersFlag = None,
    performance_report: PerformanceReport = None,
    force: ForceModel = False,
    as_json: AsJson = False,
) -> None:
    """Train a model. Options that you leave out are chosen from the data.

    \b
    streamsvm fit sales.csv --label returned
    streamsvm fit --store train.zarr --time-budget 2m --kernel rbf
    streamsvm fit --store train.zarr --no-search --scale minmax --C 10 --early
    """
    layers = given_layers({**flags, "memory_limit": memory_limit, "workers": workers}, config, set_)
    resolved = completed(layers, searches=not no_search)
    if resume and run_dir is None:
        raise ConfigError("--resume needs the --run-dir of the interrupted run")
    given.require_other_than_store(model=model, run_dir=run_dir, graph=graph)
    if given.files and model is not None and not (dry_run or resume):
        require_model_place(model, force=force)
    store = given.to_learn_from()
    if dry_run:
        _print_plan(open_store(store, given.x, given.y), resolved, pilot, as_json)
        return
    model = model or default_model(store)
    if run_dir is not None and is_same(run_dir, model):
        raise ConfigError(f"--run-dir {run_dir}: found the place of --model, expected another one")
    rows = open_store(store, given.x, given.y)
    if resume and run_dir is not None and not force and (report := _ended(run_dir, model, rows, resolved)) is not None:
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

    with hint_to_resume(run_dir, lambda run: any(has_state(run / name) for name in KEPT)), progress() as events:
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
    places = [("--store", store), ("--x", given.x), ("--y", given.y), ("--model", str(model))]
    words = [word for name, value in places if value for word in (name, value)]  # of a fit of the same model
    print_fit(report, resolved, ["streamsvm", "fit", *words])
    command, of = ("predict", "FILE") if given.files else ("evaluate", "--store TEST_STORE")
    typer.echo(f"next: streamsvm {command} --model {shlex.quote(str(model))} {of}")


def _ended(run_dir: Place, model: Place, rows: Store, config: FitConfig) -> dict[str, Any] | None:
    """The report of a run that has ended; None of one to resume. Raises ConfigError."""
    with importing():
        from streamsvm.fits.earlier import ended

    return ended(run_dir, model, rows, config)


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
    if as_json:
        emit(memory_plan, as_json=True, title="Plan")
        return
    print_table("Plan (the model was not trained)", [], _in_words(memory_plan))


def _in_words(facts: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The facts of a plan, but for memory that is not needed, and for tables."""
    for name in sorted(facts, key=[*PLAN, *facts].index):
        value = facts[name]
        if name == "chosen":
            options = {option: chosen for option, chosen in value.items() if option not in ("score", "early")}
            value = [f"{heading(option)} {human(option, chosen)}" for option, chosen in options.items()]
        if is_plain(value) and (text := human(name, value)) and text != "0 B":
            yield PLAN.get(name, heading(name)), text
