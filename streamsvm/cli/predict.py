"""`streamsvm predict`: labels of the rows of a store."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from streamsvm.cli.imports import importing
from streamsvm.cli.options import (
    AsJson,
    ModelIn,
    PerformanceReport,
    Scheduler,
    WaitForScheduler,
    Workers,
    XName,
    engine,
    open_store,
)
from streamsvm.cli.output import emit, progress
from streamsvm.runs.phases import usage_so_far
from streamsvm.storage.paths import place_of


def predict(
    model: ModelIn,
    store: Annotated[str, typer.Option("--store", help="Rows to predict, as they are.", metavar="STORE")],
    out: Annotated[
        Any,
        typer.Option("--out", parser=place_of, help="Name ending in .csv, .npy or .zarr.", metavar="FILE"),
    ],
    decision: Annotated[
        bool, typer.Option("--decision", help="Decision values too (.npy: instead).")
    ] = False,
    proba: Annotated[bool, typer.Option("--proba", help="Probabilities too (.npy: instead).")] = False,
    interval: Annotated[
        float | None,
        typer.Option(
            "--interval",
            help="Chance of intervals, else the fit's, if it made any (.npy: instead).",
            metavar="LEVEL",
        ),
    ] = None,
    x: XName = None,
    workers: Workers = None,
    scheduler: Scheduler = None,
    wait_for_scheduler: WaitForScheduler = None,
    performance_report: PerformanceReport = None,
    as_json: AsJson = False,
) -> None:
    """Write the predicted label of every row, block by block."""
    with importing():
        from streamsvm.models.files import load_model
        from streamsvm.predict import Wanted, write_predictions

    rows = open_store(store, x)
    with (
        progress() as events,
        engine(workers, scheduler, wait_for_scheduler, performance_report, events) as tasks,
    ):
        also = Wanted(decision, proba, interval)
        write_predictions(load_model(model), rows, out, also, engine=tasks, events=events)
    emit({"out": str(out), "n": rows.n, **usage_so_far()}, as_json=as_json, title="Predictions")
