"""`streamsvm ingest`: reads files into a store."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from streamsvm.cli.imports import importing
from streamsvm.cli.inputs import file_options, plain_sources, reads
from streamsvm.cli.options import DATA, AsJson, option
from streamsvm.cli.output import emit, progress
from streamsvm.ingest.options import IngestOptions
from streamsvm.runs.phases import usage_so_far


@reads(*IngestOptions.model_fields, group=DATA)
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
