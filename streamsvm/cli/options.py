"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from streamsvm.errors import DataError

if TYPE_CHECKING:
    from streamsvm.data.store import Store

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout.")]
ModelIn = Annotated[Path, typer.Option("--model", help="A model written by fit.", metavar="MODEL")]
XName = Annotated[
    str | None, typer.Option("--x", help="Array or CSR group that holds the rows, in a foreign store.")
]
YName = Annotated[str | None, typer.Option("--y", help="Array that holds the labels, in a foreign store.")]


def open_store(url: str, x: str | None = None, y: str | None = None) -> Store:
    """The store at `url`, its arrays by other names where they are given."""
    from streamsvm.data.store import Store
    from streamsvm.persist import is_model

    if is_model(Path(url)):
        raise DataError(f"{url}: found a model, expected a store of rows; a model is given by --model")
    names: dict[str, Any] = {name: value for name, value in (("x", x), ("y", y)) if value is not None}
    return Store.open(url, **names)
