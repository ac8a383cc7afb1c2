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


FilesIn = Annotated[
    list[str] | None,
    typer.Argument(
        help="Rows in files, in place of a store: CSV, parquet, databases and what else ingest reads, folders, "
        "patterns such as 'data/*.csv'; - for stdin.",
        metavar="[FILE]...",
        rich_help_panel=DATA,
    ),
]
FormatFlag = Annotated[Any, _flag("--format")]
QueryFlag = Annotated[Any, _flag("--query", metavar="TABLE|SELECT", parser=str)]
DelimiterFlag = Annotated[Any, _flag("--delimiter", metavar="CHARACTER", parser=str)]
HeaderFlag = Annotated[bool | None, _flag("--header/--no-header")]
IgnoreFlag = Annotated[Any, _flag("--ignore", metavar="COL[,COL...]", parser=str)]
HashFlag = Annotated[Any, _flag("--hash", metavar="COL=WIDTH[,COL=WIDTH...]", parser=str)]
MinFrequencyFlag = Annotated[Any, _flag("--min-frequency")]
QidFlag = Annotated[Any, _flag("--qid", metavar="COL", parser=str)]
GroupFlag = Annotated[Any, _flag("--group", metavar="COL", parser=str)]
LabelFlag = Annotated[Any, _flag("--label", metavar="COL|first|last|none", parser=str)]


class Given(NamedTuple):
    """The rows that a command was given: their store, what they are called, and the paths of files to read again."""

    store: Store
    name: str
    paths: list[str] | None = None


@contextmanager
def given_rows(
    files: list[str] | None,
    store: str | None,
    asked: Mapping[str, Any],
    layout: Layout | None,
    events: Events,
    x: str | None = None,
    y: str | None = None,
    *,
    label: str | None = None,
) -> Iterator[Given]:
    """Rows of files, laid out like a model's, or of a store. asked: what flags say of reading the files; label: what
    is read as the label where none does."""
    if not files:
        store = required_store(store, asked)
        yield Given(open_store(store, x, y), store)
        return
    if store is not None:
        raise ConfigError(f"found {files[0]} and --store {store}, expected one of them")
    for name, value in (("--x", x), ("--y", y)):
        if value is not None:
            raise ConfigError(f"{name} is of a store, found a file; leave it out")
    with importing():
        from streamsvm.data.ingest.given import opened

    with opened(files, file_options({"label": label, **asked}, layout), layout, events) as (rows, paths):
        yield Given(rows, ", ".join(files), paths)


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
    paths: list[str] | None, keep: str | None, asked: Mapping[str, Any], layout: Layout | None
) -> Iterator[KeptColumns | None]:
    """Columns of files, to go beside the answers to their rows."""
    if keep is None or paths is None:
        yield None
        return
    from streamsvm.data.ingest.tables import KeptColumns

    with closing(KeptColumns(paths, keep.split(","), file_options(asked, layout))) as found:
        yield found


def file_options(asked: Mapping[str, Any], layout: Layout | None = None) -> IngestOptions:
    """How a file is read: as flags say, else as those that a model was made of."""
    known = {} if layout is None else {name: layout.attrs[name] for name in SAME if name in layout.attrs}
    return validated(IngestOptions, ("the model", known), *section_layers(IngestOptions, dict(asked)))
