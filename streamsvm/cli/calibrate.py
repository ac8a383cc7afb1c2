"""`streamsvm calibrate`: probabilities for a model, from rows that it was not trained on."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from streamsvm.cli.imports import importing
from streamsvm.cli.options import (
    AsJson,
    ForceModel,
    ModelIn,
    PerformanceReport,
    Scheduler,
    WaitForScheduler,
    Workers,
    XName,
    YName,
    engine,
    open_store,
    require_model_place,
)
from streamsvm.cli.output import emit, progress
from streamsvm.runs.phases import usage_so_far


def calibrate(
    model: ModelIn,
    store: Annotated[
        str,
        typer.Option("--store", help="Rows and labels that the model was not trained on.", metavar="STORE"),
    ],
    method: Annotated[
        Literal["sigmoid", "isotonic"], typer.Option("--method", help="Isotonic needs many rows.")
    ] = "sigmoid",
    out: Annotated[
        Path | None, typer.Option("--out", help="Where the model with probabilities goes; else in its place.")
    ] = None,
    force: ForceModel = False,
    x: XName = None,
    y: YName = None,
    workers: Workers = None,
    scheduler: Scheduler = None,
    wait_for_scheduler: WaitForScheduler = None,
    performance_report: PerformanceReport = None,
    as_json: AsJson = False,
) -> None:
    """Add probabilities to a model, in place of those it may have."""
    with importing():
        from streamsvm.models.files import load_model, save_model
        from streamsvm.training.probabilities import held_out

    rows, target = open_store(store, x, y), out or model
    if target != model:  # in its place, a model loses nothing but probabilities
        require_model_place(target, force=force, option="--out")
    with (
        progress() as events,
        engine(workers, scheduler, wait_for_scheduler, performance_report, events) as tasks,
    ):
        calibrated, n = held_out(load_model(model), rows, method, engine=tasks, events=events)
        save_model(calibrated, target)
    facts = {"model": str(target), "method": method, "n": n}
    emit(facts | usage_so_far(), as_json=as_json, title="Calibrated")
