"""`streamsvm check`: reads everything of a store."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from streamsvm.cli.given import LEARNT, RowsIn, StoreToLookAt, reads, rows_against, rows_to_look_at
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
)
from streamsvm.cli.output import emit, progress


@reads(*LEARNT)
def check(
    rows: RowsIn = None,
    store: StoreToLookAt = None,
    against: Annotated[
        str | None,
        typer.Option(
            "--against", help="Tell whether its rows are alike, as those to test on.", metavar="STORE|FILE"
        ),
    ] = None,
    read: Mapping[str, Any] = {},
    x: XName = None,
    y: YName = None,
    workers: Workers = None,
    scheduler: Scheduler = None,
    wait_for_scheduler: WaitForScheduler = None,
    performance_report: PerformanceReport = None,
    as_json: AsJson = False,
) -> None:
    """Read every chunk: checksums, NaN and infinity, labels, odd columns. Exits 2 at the first thing wrong.

    \b
    streamsvm check train.zarr
    streamsvm check sales.csv --label returned --against later.csv
    """
    with importing():
        from streamsvm.data.verify import check as check_store

    with (
        progress() as events,
        rows_to_look_at(rows, store, read, events, x, y) as given,
        rows_against(against, given.store, read, events, x, y) as other,
        engine(workers, scheduler, wait_for_scheduler, performance_report, events) as tasks,
    ):
        found = check_store(given.store, tasks, events) | {"store": given.name}
        if other is not None:
            from streamsvm.explain.drift import drift, remarks

            found["against"] = drift(given.store, other.store, tasks) | {"store": other.name}
            found["warnings"] += remarks(found["against"])
    warnings = found["warnings"]
    title = f"{given.name}: all in order" if not warnings else f"{given.name}: whole, with warnings"
    emit(found, as_json=as_json, title=title, rows={**found, "warnings": len(warnings)})
    if warnings and not as_json:
        typer.echo("\n".join([*warnings, ""]))
    if other is not None and not as_json:
        emit(found["against"], as_json=False, title=f"Against {against}")
