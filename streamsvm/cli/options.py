"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from streamsvm.errors import DataError
from streamsvm.events import Events

if TYPE_CHECKING:
    from streamsvm.data.store import Store
    from streamsvm.graph import Engine

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout.")]
ModelIn = Annotated[Path, typer.Option("--model", help="A model written by fit.", metavar="MODEL")]
XName = Annotated[
    str | None, typer.Option("--x", help="Array or CSR group that holds the rows, in a foreign store.")
]
YName = Annotated[str | None, typer.Option("--y", help="Array that holds the labels, in a foreign store.")]

Workers = Annotated[
    int | None, typer.Option("--workers", min=1, help="Processes on this machine that do the work, if any.")
]
Scheduler = Annotated[
    str | None,
    typer.Option("--scheduler", help="Address of a dask.distributed scheduler.", metavar="tcp://HOST:PORT"),
]
PerformanceReport = Annotated[
    Path | None,
    typer.Option(help="Where dask's page of what the workers did goes (HTML).", metavar="FILE"),
]


@contextmanager
def engine(
    workers: int | None, scheduler: str | None, performance_report: Path | None, events: Events
) -> Iterator[Engine]:
    """Threads, processes or a cluster, for as long as the command needs them."""
    from streamsvm.graph import open_engine

    opened = open_engine(
        workers=workers, scheduler=scheduler, events=events, performance_report=performance_report
    )
    with closing(opened):
        yield opened


def open_store(url: str, x: str | None = None, y: str | None = None) -> Store:
    """The store at `url`, its arrays by other names where they are given."""
    from streamsvm.data.store import Store
    from streamsvm.persist import is_model

    if is_model(Path(url)):
        raise DataError(f"{url}: found a model, expected a store of rows; a model is given by --model")
    names: dict[str, Any] = {name: value for name, value in (("x", x), ("y", y)) if value is not None}
    return Store.open(url, **names)
