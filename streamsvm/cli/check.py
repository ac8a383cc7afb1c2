"""`streamsvm check`: reads everything of a store."""

from __future__ import annotations

from typing import Annotated

import typer

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
    x: XName = None,
    y: YName = None,
    workers: Workers = None,
    scheduler: Scheduler = None,
    wait_for_scheduler: WaitForScheduler = None,
    performance_report: PerformanceReport = None,
    as_json: AsJson = False,
) -> None:
    """Read every chunk: checksums, NaN and infinity, labels. Exits 2 at the first thing wrong."""
    from streamsvm.data.verify import check as check_store

    opened = open_store(store, x, y)
    with (
        progress() as events,
        engine(workers, scheduler, wait_for_scheduler, performance_report, events) as tasks,
    ):
        found = check_store(opened, tasks, events)
    warnings = found["warnings"]
    title = f"{store}: all in order" if not warnings else f"{store}: whole, with warnings"
    emit(found, as_json=as_json, title=title, rows={**found, "warnings": len(warnings)})
    if warnings and not as_json:
        typer.echo("\n".join(warnings))
