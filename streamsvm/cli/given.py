"""Rows that a command is given: in a store, or in a file that one is made of."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from streamsvm.cli.flags import section_flag, section_layers
from streamsvm.cli.imports import importing
from streamsvm.cli.options import DATA, open_store
from streamsvm.config import validated
from streamsvm.data.ingest.options import IngestOptions
from streamsvm.errors import ConfigError
from streamsvm.events import Events

SAME = ("header", "delimiter")  # of files that a model was trained on, and of those that it is given

if TYPE_CHECKING:
    from streamsvm.data.ingest.tables import KeptColumns
    from streamsvm.data.layout import Layout
    from streamsvm.data.store import Store


def _flag(name: str, **more: Any) -> Any:
    return section_flag(IngestOptions, name, rich_help_panel=DATA, **more)


FileIn = Annotated[
    str | None,
    typer.Argument(
        help="Rows in a file, in place of a store: CSV, parquet and what else ingest reads; - for stdin.",
        metavar="[FILE]",
        rich_help_panel=DATA,
    ),
]
FormatFlag = Annotated[Any, _flag("--format")]
DelimiterFlag = Annotated[Any, _flag("--delimiter", metavar="CHARACTER", parser=str)]
HeaderFlag = Annotated[bool | None, _flag("--header/--no-header")]
IgnoreFlag = Annotated[Any, _flag("--ignore", metavar="COL[,COL...]", parser=str)]
HashFlag = Annotated[Any, _flag("--hash", metavar="COL=WIDTH[,COL=WIDTH...]", parser=str)]
MinFrequencyFlag = Annotated[Any, _flag("--min-frequency")]
QidFlag = Annotated[Any, _flag("--qid", metavar="COL", parser=str)]
GroupFlag = Annotated[Any, _flag("--group", metavar="COL", parser=str)]
LabelFlag = Annotated[Any, _flag("--label", metavar="COL|first|last|none", parser=str)]


class Given(NamedTuple):
    """The rows that a command was given: their store, what they are called, and of a file the path to read it again."""

    store: Store
    name: str
    path: str | None = None


@contextmanager
def given_rows(
    file: str | None,
    store: str | None,
    asked: Mapping[str, Any],
    layout: Layout | None,
    events: Events,
    x: str | None = None,
    y: str | None = None,
    *,
    label: str | None = None,
) -> Iterator[Given]:
    """Rows of a file, laid out like a model's, or of a store. asked: what flags say of reading the file; label: what
    is read as the label where none does."""
    if file is None:
        store = required_store(store, asked)
        yield Given(open_store(store, x, y), store)
        return
    if store is not None:
        raise ConfigError(f"found {file} and --store {store}, expected one of them")
    for name, value in (("--x", x), ("--y", y)):
        if value is not None:
            raise ConfigError(f"{name} is of a store, found a file; leave it out")
    with importing():
        from streamsvm.data.ingest.given import opened

    with opened(file, file_options({"label": label, **asked}, layout), layout, events) as (rows, path):
        yield Given(rows, file, path)


def required_store(store: str | None, asked: Mapping[str, Any]) -> str:
    """The store of a command that was given no file. Raises ConfigError without one, and for flags of files."""
    if store is None:
        raise ConfigError("found no rows, expected a FILE, or --store STORE")
    for name, value in asked.items():
        if value is not None:
            raise ConfigError(f"--{name.replace('_', '-')} is of a file, found a store; leave it out")
    return store


@contextmanager
def kept_columns(
    path: str | None, keep: str | None, asked: Mapping[str, Any], layout: Layout | None
) -> Iterator[KeptColumns | None]:
    """Columns of a file, to go beside the answers to its rows."""
    if keep is None or path is None:
        yield None
        return
    from streamsvm.data.ingest.tables import KeptColumns

    with closing(KeptColumns(path, keep.split(","), file_options(asked, layout))) as found:
        yield found


def file_options(asked: Mapping[str, Any], layout: Layout | None = None) -> IngestOptions:
    """How a file is read: as flags say, else as those that a model was made of."""
    known = {} if layout is None else {name: layout.attrs[name] for name in SAME if name in layout.attrs}
    return validated(IngestOptions, ("the model", known), *section_layers(IngestOptions, dict(asked)))
