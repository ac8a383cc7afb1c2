"""Files in place of a store: one is made of them, beside them to be used again, or for as long as it is read."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import Any

from streamsvm.data.ingest.files import as_layout, ingest, stream_of
from streamsvm.data.ingest.options import IngestOptions
from streamsvm.data.ingest.streams import TABLES, detect_format, is_data_name, source_bytes
from streamsvm.data.ingest.tables import TableReader
from streamsvm.data.layout import Layout
from streamsvm.data.rows import Rows
from streamsvm.data.store import Store
from streamsvm.errors import ConfigError, DataError, StorageError, StreamSVMError
from streamsvm.events import Events, Warned, ignore
from streamsvm.parallel.prefetch import on_thread
from streamsvm.storage.paths import Place, local_path, place_of
from streamsvm.storage.place import found_at

STDIN = "-"
MADE_OF = "made_of"  # attribute of a store: the files, and how they were read
ELSEWHERE = ("force", "like", "memory_limit")  # options that do not change what comes out


def beside(source: str) -> Place:
    """Where the store of a file goes: `sales.csv.gz` -> `sales.zarr`."""
    path = place_of(source)
    stem = path.name
    while is_data_name(stem):
        stem = PurePosixPath(stem).stem
    return path.with_name(f"{stem}.zarr")


def store_of(
    sources: Sequence[str], store: str | None, options: IngestOptions, events: Events = ignore
) -> tuple[str, bool]:
    """The store that files become, and whether it was there: at `store`, else beside the first of them.

    It is made again where a file, or what is asked of it, has changed. Raises StorageError where what is there was not
    made of files like this, DataError as `ingest`.
    """
    if STDIN in sources:
        if store is None:
            raise ConfigError("-: rows from stdin have no place beside them; give one with --store")
        with _in_files(sources) as paths:
            ingest(paths, store, options, events)
        return store, False
    url = str(beside(sources[0])) if store is None else store
    asked = _asked(sources, options)
    found = found_at(url)
    if found == "a store":
        made_of = Store.open(url).attrs.get(MADE_OF)
        if made_of == asked:
            return url, True
        if made_of is None or _names(made_of) != _names(asked):
            raise StorageError(
                f"{url}: found a store that was not made of {sources[0]} by this command; take another place with "
                "--store, or name that store alone"
            )
        options = options.model_copy(update={"force": True})
    ingest(sources, url, options, events, attrs={MADE_OF: asked})
    return url, False


def _names(made_of: Mapping[str, Any]) -> list[str]:
    return [name for name, *_ in made_of["files"]]


def _asked(sources: Sequence[str], options: IngestOptions) -> dict[str, Any]:
    """What a store is made of: as JSON gives it back."""
    given = options.model_dump(mode="json", exclude_defaults=True, exclude=set(ELSEWHERE))
    return {"files": [_facts(source) for source in sources], "options": given}


def _facts(source: str) -> list[Any]:
    """Name, bytes and time of change; of an object store the service's own facts."""
    path = local_path(source)
    if path is None:
        from streamsvm.storage.paths import filesystem

        fs, there = filesystem(source)
        info = fs.info(there) if fs.exists(there) else {}
        return [source, *(str(info.get(name)) for name in ("size", "ETag", "LastModified"))]
    if not path.exists():
        return [path.name]  # what reads it says that it is not there
    found = path.stat()
    return [path.name, found.st_size, found.st_mtime_ns]


@contextmanager
def opened(
    source: str, options: IngestOptions, like: Layout | None, events: Events = ignore
) -> Iterator[tuple[Store, str]]:
    """A store of a file, its rows laid out like others, for as long as it is read; and a path of the file. Errors of
    the store are told as of the file.

    Where rows are like no others, the store that the file became before, if there is one.
    """
    if like is None and source != STDIN and _has_become(source, options):
        yield Store.open(str(beside(source))), source
        return
    with TemporaryDirectory(prefix="streamsvm-") as folder, _in_files([source], folder) as [path]:
        url = os.path.join(folder, "rows.zarr")
        try:
            ingest([path], url, options, events, like=like)
            yield Store.open(url), path
        except StreamSVMError as error:
            error.args = tuple(str(told).replace(url, source).replace(path, source) for told in error.args)
            raise


def _has_become(source: str, options: IngestOptions) -> bool:
    """Whether the store beside a file is of its rows as they are now, read in this way."""
    url = str(beside(source))
    return found_at(url) == "a store" and Store.open(url).attrs.get(MADE_OF) == _asked([source], options)


def is_known_table(options: IngestOptions, like: Layout | None) -> bool:
    """Whether a file of a known format is a table whose columns are known: rows can be answered as they are read."""
    return like is not None and "columns" in like.attrs and options.format in TABLES


def rows_as_read(
    source: str, options: IngestOptions, like: Layout, events: Events = ignore
) -> Iterator[Rows]:
    """The rows of a table, laid out like others, piece by piece. Raises DataError as `ingest`."""
    format_ = options.format
    assert format_ is not None  # that of a known table
    options = options.model_copy(update={"dtype": like.dtype.name})
    reader = TableReader(options, like, format_, partial(stream_of, events, source_bytes(source), "predict"))
    for block in on_thread(reader.blocks(source)):
        yield as_layout(reader.encode(block.rows), like.is_sparse)
    for remark in reader.remarks():
        events(Warned(f"{source}: {remark}"))


@contextmanager
def _in_files(sources: Sequence[str], folder: str | None = None) -> Iterator[list[str]]:
    """Paths that can be read twice: stdin in a file of its own, CSV unless its first bytes say otherwise."""
    if STDIN not in sources:
        yield list(sources)
        return
    with TemporaryDirectory(prefix="streamsvm-", dir=folder) as own:
        path = Path(own, "stdin")
        with path.open("wb") as file:
            shutil.copyfileobj(sys.stdin.buffer, file)
        try:
            detect_format(str(path))
        except DataError:
            path = path.rename(path.with_name("stdin.csv"))
        yield [str(path) if source == STDIN else source for source in sources]
