"""Rows that a command is given: a store, or files that are read into one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from streamsvm.cli.flags import section_flag, section_layers
from streamsvm.cli.imports import importing
from streamsvm.cli.options import DATA, FILES, open_store, option, with_flags
from streamsvm.cli.output import progress
from streamsvm.config import validated
from streamsvm.errors import ConfigError
from streamsvm.events import Events
from streamsvm.ingest.options import DIALECT, IngestOptions
from streamsvm.ingest.streams import is_server, without_password
from streamsvm.storage.paths import Place, is_same
from streamsvm.storage.text import names_in, number_or_text

if TYPE_CHECKING:
    from streamsvm.data.layout import Layout
    from streamsvm.data.store import Store
    from streamsvm.ingest.tables import OtherColumns

SAME = ("header", *DIALECT)  # shared by the files that a model was trained on and those that it predicts
ROWS = ("format", "query", *DIALECT, "header")  # options of a file with rows like a model's
LABELLED = ("label", *ROWS)  # with labels
ENCODED = ("hash", "target_encode", "min_frequency")
LEARNT = (
    "label",
    "ignore",
    "text",
    "category",
    *ENCODED,
    "dtype",
    *ROWS,
    "qid",
    "group",
)  # of a file to train on
TEXTS = {
    "query": "TABLE|SELECT",
    "delimiter": "CHARACTER",
    "label": "COL[,COL...]|first|last|none",
    "labels": "FILE",
    "qid": "COL",
    "group": "COL",
    "ignore": "COL[,COL...]",
    "text": "COL[,COL...]",
    "category": "COL[,COL...]",
    "decimal": "CHARACTER",
    "thousands": "CHARACTER",
    "missing": "VALUE[,VALUE...]",
    "comment": "TEXT",
    "hash": "COL=WIDTH[,COL=WIDTH...]",
    "target_encode": "COL[=SMOOTH][,COL...]",
    "split_by": "COL",
    "test_store": "STORE",
    "like": "STORE",
    "memory_limit": "SIZE",
}
SWITCHES = {"header": "--header/--no-header", "dense": "--dense/--sparse"}

Read = Mapping[str, Any]  # flags about reading a file, by option name; None: not given
SOURCES = "CSV, parquet, databases and all else that ingest reads, folders, patterns such as 'data/*.csv'; - is stdin"


def plain_sources(sources: list[str] | None) -> list[str] | None:
    """Sources as all that is written and shown has them: without passwords."""
    return sources and [*map(without_password, sources)]


FilesIn = Annotated[
    list[str] | None,
    typer.Argument(
        help=f"Rows in files, instead of a store: {SOURCES}.",
        metavar="[FILE]",
        rich_help_panel=DATA,
        callback=plain_sources,
    ),
]
FilesToLearnIn = Annotated[
    list[str] | None,
    typer.Argument(
        help=f"Rows in files, instead of a store: {SOURCES}. They are read into a store, next to them or at --store, "
        "which is used again until they change.",
        metavar="[FILE]",
        rich_help_panel=DATA,
        callback=plain_sources,
    ),
]
RowsIn = Annotated[
    list[str] | None,
    typer.Argument(
        help=f"Path or URL of a store, or files: {SOURCES}.",
        metavar="[STORE|FILE]",
        rich_help_panel=DATA,
        callback=plain_sources,
    ),
]
StoreToLookAt = Annotated[str | None, option("--store", "The store, by name.", "STORE", DATA)]
StoreToLearnFrom = Annotated[str | None, option("--store", "Rows and labels to train on.", "STORE", DATA)]


USUAL = ("label", "ignore")  # flags of files that --help shows, too


def reads(*names: str, group: str = FILES) -> Callable:
    """Replaces a command's parameter `read` by flags for these options of files, and passes their values as `read`.

    group: that of the flags in the help, but for the usual ones.
    """
    return with_flags("read", {name: _flag(name, DATA if name in USUAL else group) for name in names}, dict)


def _flag(name: str, group: str) -> Any:
    more: dict[str, Any] = {"metavar": TEXTS[name], "parser": str} if name in TEXTS else {}
    more |= {"metavar": "FRACTION", "parser": number_or_text} if name == "split" else {}
    is_switch = IngestOptions.model_fields[name].annotation in (bool, bool | None)
    flag = SWITCHES.get(name, f"--{name.replace('_', '-')}")
    kind: Any = bool | None if is_switch else Any
    return Annotated[kind, section_flag(IngestOptions, flag, rich_help_panel=group, **more)]


class InputRows(NamedTuple):
    """The rows that a command was given: their store, their name, and for files the paths and options to read them
    again."""

    store: Store
    name: str
    files: tuple[list[str], IngestOptions] | None = None


@contextmanager
def given_rows(
    files: Sequence[str] | None,
    store: str | None,
    read: Read,
    layout: Layout | None,
    events: Events,
    x: str | None = None,
    y: str | None = None,
    *,
    label: str | None = None,
    category: Sequence[str] = (),
) -> Iterator[InputRows]:
    """Rows of files, laid out like a model's, or of a store. label: the label column if no flag names one. category:
    columns of number codes."""
    if not files:
        store = required_store(store, read)
        yield InputRows(open_store(store, x, y), store)
        return
    if store is not None:
        raise ConfigError(f"found {files[0]} and --store {store}, expected one of them")
    for name, value in (("--x", x), ("--y", y)):
        if value is not None:
            raise ConfigError(f"{name} applies to a store, found a file; leave it out")
    with importing():
        from streamsvm.ingest.inputs import opened

    options = file_options({"label": label, **read, "category": tuple(category) or None}, layout)
    with opened(files, options, layout, events) as (rows, paths):
        yield InputRows(rows, ", ".join(files), (paths, options))


@contextmanager
def rows_to_look_at(
    rows: Sequence[str] | None,
    store: str | None,
    read: Read,
    events: Events,
    x: str | None,
    y: str | None,
) -> Iterator[InputRows]:
    """Rows of a store, given as an argument or by `--store`, or of files."""
    rows = rows or []
    if rows and store is not None:
        raise ConfigError(f"found {rows[0]} and --store {store}, expected one of them")
    stores = [source for source in rows if not _are_files(source)]
    if stores and len(rows) > 1:
        raise ConfigError(f"found {stores[0]} among {len(rows)} sources, expected one store, or files alone")
    with given_rows([] if stores else rows, store or next(iter(stores), None), read, None, events, x, y) as opened:
        yield opened


@contextmanager
def rows_against(
    against: str | None, first: Store, read: Read, events: Events, x: str | None, y: str | None
) -> Iterator[InputRows | None]:
    """Rows to compare with the first ones, if any: of a store, or of files that are laid out like the first."""
    against = against and without_password(against)
    if against is None:
        yield None
    elif not _are_files(against):
        yield InputRows(open_store(against, x, y), against)
    else:
        options = {name: read[name] for name in LABELLED}
        with given_rows([against], None, options, first.layout, events) as opened:
            yield opened


def _are_files(rows: str) -> bool:
    """Whether these are rows in files: stdin, the name of a data file, a pattern, a file, or a folder with data files
    that is not a store."""
    with importing():
        from streamsvm.ingest.inputs import STDIN
        from streamsvm.ingest.paths import has_files, is_pattern
        from streamsvm.ingest.streams import is_data_name
        from streamsvm.storage.paths import kind_at

    if rows == STDIN or is_server(rows) or is_data_name(rows) or is_pattern(rows):
        return True
    content = kind_at(rows)
    return content == "a file" or (content == "a folder of other things" and has_files(rows))


def require_other_than_store(files: list[str] | None, store: str | None, **others: Place | None) -> None:
    """Raises ConfigError, before any row is read, if the command would write something to the place of the store that
    files are read into. others: places of what it writes, by option."""
    if not files:
        return
    with importing():
        from streamsvm.ingest.inputs import STDIN, default_store

    if store is None and STDIN in files:
        return
    place = store or str(default_store(files[0]))
    for name, other in others.items():
        if other is not None and is_same(other, place):
            option = f"--{name.replace('_', '-')}"
            raise ConfigError(
                f"{option} {other}: found the place of the store that {files[0]} is read into; take another {option}, "
                "or give the store another path with --store"
            )


def store_to_learn_from(files: list[str] | None, store: str | None, read: Read) -> str:
    """The given store, or the store that files are read into, or were read into earlier."""
    if not files:
        return required_store(store, read)
    with importing():
        from streamsvm.ingest.inputs import store_of

    with progress() as events:
        place, was_there = store_of(files, store, file_options(read), events)
    how = "using the store of an earlier read," if was_there else "read into the store"
    typer.echo(f"{files[0]}: {how} {place}", err=True)
    return place


def require_other(out: Place | None, files: Sequence[str] | None) -> None:
    """Raises ConfigError if the output of a command would replace a file of its rows."""
    if out is None or not files:
        return
    from streamsvm.ingest.paths import paths_of

    if any(is_same(path, out) for _, path in paths_of(files)):
        raise ConfigError(f"--out {out}: found a file of the rows, which it would replace; take another name")


def required_store(store: str | None, read: Read) -> str:
    """The store of a command that was given no file. Raises ConfigError if there is none, and for flags of files."""
    if store is None:
        raise ConfigError("found no rows, expected a FILE, or --store STORE")
    for name, value in read.items():
        if value is not None:
            raise ConfigError(f"--{name.replace('_', '-')} applies to a file, found a store; leave it out")
    return store


@contextmanager
def kept_columns(files: tuple[list[str], IngestOptions] | None, keep: str | None) -> Iterator[OtherColumns | None]:
    """Columns of files, to write next to the predictions of their rows."""
    if keep is None or files is None:
        yield None
        return
    from streamsvm.ingest.tables import OtherColumns

    paths, options = files
    with closing(OtherColumns(paths, names_in(keep), options)) as columns:
        yield columns


def file_options(read: Read, layout: Layout | None = None) -> IngestOptions:
    """How to read a file: as flags say, else as the files that the model was trained on."""
    learned = {} if layout is None else {name: layout.attrs[name] for name in SAME if name in layout.attrs}
    return validated(IngestOptions, ("the model", learned), *section_layers(IngestOptions, dict(read)))
