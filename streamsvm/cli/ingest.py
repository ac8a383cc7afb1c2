"""`streamsvm ingest`: files in, a store out."""

from __future__ import annotations

from dataclasses import fields
from typing import Annotated, Any, Literal

import typer

from streamsvm.cli.imports import importing
from streamsvm.cli.options import AsJson
from streamsvm.cli.output import emit, progress
from streamsvm.errors import ConfigError
from streamsvm.phases import usage_so_far


def ingest(
    context: typer.Context,
    sources: Annotated[list[str], typer.Argument(help="Files, plain or .gz, .bz2, .xz.", metavar="SRC")],
    store: Annotated[str, typer.Option("--store", help="Where the store goes.", metavar="STORE")],
    format: Annotated[
        Literal["svmlight", "csv", "tsv", "parquet", "npy", "npz", "idx"] | None,
        typer.Option("--format", help="Of the files; by name and content where not given."),
    ] = None,
    label: Annotated[
        str | None,
        typer.Option(
            "--label", help="Label column of a table; the last by default.", metavar="COL|first|last|none"
        ),
    ] = None,
    header: Annotated[
        bool, typer.Option("--header/--no-header", help="Whether a table's first line is names.")
    ] = True,
    labels: Annotated[
        str | None, typer.Option("--labels", help="File of labels, for idx and npy.", metavar="FILE")
    ] = None,
    qid: Annotated[
        str | None, typer.Option("--qid", help="Query id column of a table.", metavar="COL")
    ] = None,
    dense: Annotated[
        bool | None, typer.Option("--dense/--sparse", help="Layout; by density where not given.")
    ] = None,
    dtype: Annotated[
        Literal["uint8", "float32", "float64"] | None,
        typer.Option("--dtype", help="float32 where not given, uint8 for files of bytes."),
    ] = None,
    rows_per_chunk: Annotated[
        int | None,
        typer.Option(
            "--rows-per-chunk", help="Of the store; by the size of a row where not given.", metavar="N"
        ),
    ] = None,
    split: Annotated[
        float | None,
        typer.Option("--split", help="Fraction of the rows for the store, shuffled.", metavar="FRACTION"),
    ] = None,
    test_store: Annotated[
        str | None,
        typer.Option("--test-store", help="Where the other rows of --split go.", metavar="STORE"),
    ] = None,
    shuffle: Annotated[bool, typer.Option("--shuffle", help="Rows in random order.")] = False,
    seed: Annotated[int, typer.Option("--seed", help="Of split and shuffle.", metavar="N")] = 0,
    like: Annotated[
        str | None, typer.Option("--like", help="Columns as in this store.", metavar="STORE")
    ] = None,
    memory_limit: Annotated[
        str | None,
        typer.Option("--memory-limit", help="For all that is in flight (default 512MiB).", metavar="SIZE"),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace stores that are there already.")] = False,
    as_json: AsJson = False,
) -> None:
    """Read files into a store, streamed in bounded memory, written whole or not at all.

    \b
    streamsvm ingest sales.csv --store train.zarr --label returned
    """
    with importing():
        from streamsvm.data.ingest import IngestOptions
        from streamsvm.data.ingest import ingest as ingest_files

    names = {field.name for field in fields(IngestOptions)}
    given: dict[str, Any] = {k: v for k, v in context.params.items() if k in names and v is not None}
    if memory_limit is not None:
        given["memory_limit"] = _size(memory_limit)
    with progress() as events:
        summary = ingest_files(sources, store, IngestOptions(**given), events)
    emit({**summary, **usage_so_far()}, as_json=as_json, title=f"Ingested into {store}")


def _size(text: str) -> int:
    from streamsvm.options import parse_size

    try:
        return parse_size(text)
    except ValueError as error:
        raise ConfigError(f"--memory-limit {text}: {error}") from None
