"""`streamsvm ingest`, `info` and `check`: files become stores, and what is in these."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from streamsvm.cli.app import DATA, importing
from streamsvm.cli.inputs import LEARNT, TO_LOOK_AT, GivenRows, file_options, plain_sources, reads, takes_rows
from streamsvm.cli.options import THREADS, AsJson, Cluster, PlaceFlag, on_cluster, option, place_option
from streamsvm.cli.output import MOST_CLASSES_IN_A_TABLE, emit, emit_table, progress
from streamsvm.errors import ConfigError
from streamsvm.ingest.options import IngestOptions
from streamsvm.runs.phases import usage_so_far
from streamsvm.storage.paths import Place

USUAL = ("label", "ignore", "text", "category", "split", "split_by", "test_store", "like", "memory_limit", "force")
takes_rows_to_look_at = takes_rows(*LEARNT, files=TO_LOOK_AT, store="The store, by name.", group=DATA)


@reads(*IngestOptions.model_fields, usual=USUAL)
def ingest(
    sources: Annotated[
        list[str],
        typer.Argument(
            help="Files, plain or .gz, .bz2, .xz; folders, patterns, postgresql://HOST/NAME.",
            metavar="SRC",
            callback=plain_sources,
        ),
    ],
    store: Annotated[str, option("--store", "Store to write.", "STORE")],
    read: Mapping[str, Any] = {},
    as_json: AsJson = False,
) -> None:
    """Read files into a store in bounded memory. The store is written whole or not at all.

    \b
    streamsvm ingest sales.csv --store train.zarr --label returned
    """
    options = file_options(read)
    with importing():
        from streamsvm.ingest.files import ingest as ingest_files

    with progress() as events:
        summary = ingest_files(sources, store, options, events)
    emit({**summary, **usage_so_far()}, as_json=as_json, title=f"Ingested into {store}")


AGAINST = "Like --duplicates, and also count the rows of this other store that are in the first one."


@takes_rows_to_look_at
def info(
    given: GivenRows,
    duplicates: Annotated[bool, option("--duplicates", "Read all rows and count those equal to earlier ones.")] = False,
    against: Annotated[str | None, option("--against", AGAINST, "STORE|FILE")] = None,
    as_json: AsJson = False,
) -> None:
    """Show shape, type, chunks, classes and their counts.

    \b
    streamsvm info train.zarr
    streamsvm info sales.csv --label returned --against later.csv
    """
    with importing():
        from streamsvm.data.layout import listed
        from streamsvm.tables.info import describe

    with (
        progress() as events,
        given.to_look_at().opened(events) as described,
        given.against(against, described.store, events) as other,
    ):
        facts = describe(described.store) | {"store": described.name}
        if duplicates or other is not None:
            from streamsvm.tables.info import duplicates as count

            facts |= count(described.store, other and other.store, events)
            if other is not None:
                facts["against"] |= {"store": other.name}
    names = facts["feature_names"]
    shown = facts if names is None else facts | {"feature_names": listed(names, most=5, of=facts["features"])}
    emit(facts, as_json=as_json, title=described.name, rows=shown)
    if not as_json:
        _print_more(facts)


def _print_more(facts: dict[str, Any]) -> None:
    labels = facts["labels"]
    if labels and len(labels.get("classes", [])) > MOST_CLASSES_IN_A_TABLE:
        emit_table("Labels", [{"dtype": labels["dtype"], "classes": len(labels["classes"])}])
    elif labels and "classes" in labels:
        pairs = zip(labels["classes"], labels["counts"], strict=True)
        emit_table("Labels", [{"label": str(label), "rows": count} for label, count in pairs])
    elif labels:
        emit_table("Labels", [labels])
    if "duplicates" in facts:
        counted = [{"duplicates": f"rows of {facts['store']} equal to earlier ones", **facts["duplicates"]}]
        if other := facts.get("against"):
            counted += [{"duplicates": f"rows of {other['store']} that are in {facts['store']}", **other["duplicates"]}]
        emit_table("Duplicates", counted)
    if "statistics" in facts:
        emit_table("Features", [{k: v for k, v in facts["statistics"].items() if not isinstance(v, list)}])


MODEL_TO_CHECK = "Check a model instead of rows: list its contents and make sure that none of them is code."


@on_cluster
@takes_rows_to_look_at
def check(
    given: GivenRows,
    against: Annotated[
        str | None, option("--against", "Compare with these rows, such as test rows.", "STORE|FILE")
    ] = None,
    model: Annotated[PlaceFlag | None, place_option("--model", MODEL_TO_CHECK, "MODEL")] = None,
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
        if given.files or given.store is not None or against is not None:
            raise ConfigError(f"found rows and --model {model}, expected one of them")
        _check_model(model, as_json)
        return
    with importing():
        from streamsvm.tables.checks import check as check_store

    with (
        progress() as events,
        given.to_look_at().opened(events) as checked,
        given.against(against, checked.store, events) as other,
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
