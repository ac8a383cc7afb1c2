"""`streamsvm check`: reads all of a store or a model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from streamsvm.cli.imports import importing
from streamsvm.cli.inputs import LEARNT, RowsIn, StoreToLookAt, reads, rows_against, rows_to_look_at
from streamsvm.cli.options import THREADS, AsJson, Cluster, XName, YName, on_cluster, option, place_option
from streamsvm.cli.output import emit, emit_table, progress
from streamsvm.errors import ConfigError
from streamsvm.storage.paths import Place


@on_cluster
@reads(*LEARNT)
def check(
    rows: RowsIn = None,
    store: StoreToLookAt = None,
    against: Annotated[
        str | None, option("--against", "Compare with these rows, such as test rows.", "STORE|FILE")
    ] = None,
    read: Mapping[str, Any] = {},
    model: Annotated[
        Any,
        place_option(
            "--model",
            "Check a model instead of rows: list its contents and make sure that none of them is code.",
            "MODEL",
        ),
    ] = None,
    x: XName = None,
    y: YName = None,
    cluster: Cluster = THREADS,
    as_json: AsJson = False,
) -> None:
    """Read all of a store or model: checksums, NaN and infinity, labels, odd columns. Exits 2 on a fault.

    \b
    streamsvm check train.zarr
    streamsvm check sales.csv --label returned --against later.csv
    streamsvm check --model train.model.zarr
    """
    if model is not None:
        if rows or store is not None or against is not None:
            raise ConfigError(f"found rows and --model {model}, expected one of them")
        _check_model(model, as_json)
        return
    with importing():
        from streamsvm.tables.checks import check as check_store

    with (
        progress() as events,
        rows_to_look_at(rows, store, read, events, x, y) as checked,
        rows_against(against, checked.store, read, events, x, y) as other,
        cluster.engine(events) as tasks,
    ):
        result = check_store(checked.store, tasks, events) | {"store": checked.name}
        if other is not None:
            from streamsvm.explain.drift import drift, remarks

            result["against"] = drift(checked.store, other.store, tasks) | {"store": other.name}
            result["warnings"] += remarks(result["against"])
    warnings = result["warnings"]
    title = f"{checked.name}: all in order" if not warnings else f"{checked.name}: whole, with warnings"
    emit(result, as_json=as_json, title=title, rows={**result, "warnings": len(warnings)})
    if warnings and not as_json:
        typer.echo("\n".join([*warnings, ""]))
    if other is not None and not as_json:
        emit(result["against"], as_json=False, title=f"Against {against}")


def _check_model(model: Place, as_json: bool) -> None:
    with importing():
        from streamsvm.models.audit import audit

    contents = audit(model)
    emit(contents, as_json=as_json, title=f"{model}: all in order; JSON and numbers, nothing that is run")
    if not as_json:
        emit_table("Arrays", [{**one, "shape": " x ".join(map(str, one["shape"]))} for one in contents["arrays"]])
