"""`streamsvm ingest`: files in, a store out."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from streamsvm.cli.flags import section_flag, section_layers
from streamsvm.cli.imports import importing
from streamsvm.cli.options import AsJson
from streamsvm.cli.output import emit, progress
from streamsvm.config import validated
from streamsvm.data.ingest.options import IngestOptions
from streamsvm.runs.phases import usage_so_far


def flag(name: str, **more: Any) -> Any:
    return section_flag(IngestOptions, name, **more)


def ingest(
    context: typer.Context,
    sources: Annotated[
        list[str], typer.Argument(help="Files, plain or .gz, .bz2, .xz; folders, patterns.", metavar="SRC")
    ],
    store: Annotated[str, typer.Option("--store", help="Where the store goes.", metavar="STORE")],
    format: Annotated[Any, flag("--format")] = None,
    query: Annotated[Any, flag("--query", metavar="TABLE|SELECT", parser=str)] = None,
    label: Annotated[Any, flag("--label", metavar="COL[,COL...]|first|last|none", parser=str)] = None,
    multilabel: Annotated[bool | None, flag("--multilabel")] = None,
    delimiter: Annotated[Any, flag("--delimiter", metavar="CHARACTER", parser=str)] = None,
    header: Annotated[bool | None, flag("--header/--no-header")] = None,
    labels: Annotated[Any, flag("--labels", metavar="FILE", parser=str)] = None,
    qid: Annotated[Any, flag("--qid", metavar="COL", parser=str)] = None,
    group: Annotated[Any, flag("--group", metavar="COL", parser=str)] = None,
    ignore: Annotated[Any, flag("--ignore", metavar="COL[,COL...]", parser=str)] = None,
    hash: Annotated[Any, flag("--hash", metavar="COL=WIDTH[,COL=WIDTH...]", parser=str)] = None,
    min_frequency: Annotated[Any, flag("--min-frequency")] = None,
    dense: Annotated[bool | None, flag("--dense/--sparse")] = None,
    dtype: Annotated[Any, flag("--dtype")] = None,
    rows_per_chunk: Annotated[Any, flag("--rows-per-chunk")] = None,
    split: Annotated[Any, flag("--split", metavar="FRACTION")] = None,
    split_by: Annotated[Any, flag("--split-by", metavar="COL", parser=str)] = None,
    test_store: Annotated[Any, flag("--test-store", metavar="STORE", parser=str)] = None,
    shuffle: Annotated[bool | None, flag("--shuffle")] = None,
    seed: Annotated[Any, flag("--seed")] = None,
    like: Annotated[Any, flag("--like", metavar="STORE", parser=str)] = None,
    memory_limit: Annotated[Any, flag("--memory-limit", metavar="SIZE", parser=str)] = None,
    force: Annotated[bool | None, flag("--force")] = None,
    as_json: AsJson = False,
) -> None:
    """Read files into a store, streamed in bounded memory, written whole or not at all.

    \b
    streamsvm ingest sales.csv --store train.zarr --label returned
    """
    options = validated(IngestOptions, *section_layers(IngestOptions, context.params))
    with importing():
        from streamsvm.data.ingest.files import ingest as ingest_files

    with progress() as events:
        summary = ingest_files(sources, store, options, events)
    emit({**summary, **usage_so_far()}, as_json=as_json, title=f"Ingested into {store}")
