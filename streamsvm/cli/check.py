"""`streamsvm check`: reads everything of a store."""

from __future__ import annotations

from typing import Annotated

import typer

from streamsvm.cli.imports import importing
from streamsvm.cli.options import (
    AsJson,
    PerformanceReport,
    Scheduler,
    WaitForScheduler,
    Workers,
    XName,
    YName,
    engine,
    open_store,
)
from streamsvm.cli.output import emit, progress


def check(
    store: Annotated[str, typer.Argument(help="Path or URL of a store.", metavar="STORE")],
    against: Annotated[
        str | None,
        typer.Option(
            "--against", help="Tell whether its rows are alike, as those to test on.", metavar="STORE"
        ),
    ] = None,
    x: XName = None,
    y: YName = None,
    workers: Workers = None,
    scheduler: Scheduler = None,
    wait_for_scheduler: WaitForScheduler = None,
    performance_report: PerformanceReport = None,
    as_json: AsJson = False,
) -> None:
    """Read every chunk: checksums, NaN and infinity, labels, odd columns. Exits 2 at the first thing wrong."""
    with importing():
        from streamsvm.data.verify import check as check_store

    opened = open_store(store, x, y)
    other = None if against is None else open_store(against, x, y)
    with (
        progress() as events,
        engine(workers, scheduler, wait_for_scheduler, performance_report, events) as tasks,
    ):
        found = check_store(opened, tasks, events)
        if other is not None:
            from streamsvm.explain.drift import drift, remarks

            found["against"] = drift(opened, other, tasks)
            found["warnings"] += remarks(found["against"])
    warnings = found["warnings"]
    title = f"{store}: all in order" if not warnings else f"{store}: whole, with warnings"
    emit(found, as_json=as_json, title=title, rows={**found, "warnings": len(warnings)})
    if warnings and not as_json:
        typer.echo("\n".join([*warnings, ""]))
    if other is not None and not as_json:
        emit(found["against"], as_json=False, title=f"Against {against}")
