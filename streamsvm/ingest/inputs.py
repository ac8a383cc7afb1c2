"""Files instead of a store: they are read into a store next to them, to be used again, or into a temporary one."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import chain
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory

import numpy as np

from streamsvm.data.layout import Layout
from streamsvm.data.rows import Rows
from streamsvm.data.store import Store
from streamsvm.errors import ConfigError, DataError, StorageError, StreamSVMError
from streamsvm.events import Events, Warned, ignore
from streamsvm.ingest.files import as_layout, format_of, ingest, stream_of
from streamsvm.ingest.options import IngestOptions
from streamsvm.ingest.paths import files_of, is_pattern, paths_of, root_of
from streamsvm.ingest.streams import TABLES, detect_format, is_data_name, is_server, source_bytes
from streamsvm.ingest.tables import TableReader
from streamsvm.parallel.prefetch import on_thread
from streamsvm.storage.paths import Place, kind_at, local_path, place_of

STDIN = "-"
MADE_OF = "made_of"  # attribute of a store: its files, and how they were read
LOGS = ("-wal", ".wal")  # of SQLite and DuckDB
ELSEWHERE = ("force", "like", "memory_limit")  # options that do not change the result


def default_store(source: str) -> Place:
    """The store's path for a file, folder or pattern: `sales.csv.gz`, `sales`, `sales/*.csv` -> `sales.zarr`. Raises
    ConfigError if the folder of a pattern has no name, and for a server."""
    if is_server(source):
        raise ConfigError(f"{source}: rows of a server have no path for their store; give one with --store")
    path = place_of(root_of(source) if is_pattern(source) else source)
    if path.name in ("", "..") or str(path).endswith(f"://{path.name}"):
        if local_path(source) is not None:
            paths_of([source])  # raises if there is no file either
        raise ConfigError(f"{source}: found no folder name for the store of its rows; give a path with --store")
    stem = path.name
    while is_data_name(stem):
        stem = PurePosixPath(stem).stem
    return path.with_name(f"{stem}.zarr")


def store_of(
    sources: Sequence[str], store: str | None, options: IngestOptions, events: Events = ignore
) -> tuple[str, bool]:
    """The store that files are read into, and whether it existed: at `store`, else next to the first file.

    It is made again if a file or an option has changed. Raises StorageError if the existing store was not made from
    files in this way, DataError as `ingest`.
    """
    if STDIN in sources:
        if store is None:
            raise ConfigError("-: rows from stdin have no path for their store; give one with --store")
        with _in_files(sources) as paths:
            ingest(paths, store, options, events)
        return store, False
    url = str(default_store(sources[0])) if store is None else store
    origin = _origin(sources, options)
    existing = kind_at(url)
    if existing == "a store":
        made_of = Store.open(url).attrs.get(MADE_OF)
        if made_of == origin:
            return url, True
        # older stores list only the files
        before = made_of and (made_of.get("sources") or [name for name, *_ in made_of["files"]])
        if before is None or before != origin["sources"]:
            problem = f"{url}: found a store that was not made from {sources[0]} by this command"
            raise StorageError(f"{problem}; give another path with --store, or use that store without files")
        options = options.model_copy(update={"force": True})
    ingest(sources, url, options, events, attrs={MADE_OF: origin})
    return url, False


def _origin(sources: Sequence[str], options: IngestOptions) -> dict[str, object]:
    """The origin of a store, in the form in which JSON returns it."""
    changed = options.model_dump(mode="json", exclude_defaults=True, exclude=set(ELSEWHERE))
    files = [_facts(path, root_of(source)) for source, path in paths_of(sources)]
    places = [(source, local_path(source)) for source in sources]
    names = [source if path is None else path.name for source, path in places]
    return {"sources": names, "files": files, "options": changed}


def _facts(source: str, root: str) -> list[object]:
    """Name below a folder, bytes and time of change, also of a database's log; of an object what the service says."""
    path = local_path(source)
    if is_server(source):
        return [source, time.time_ns()]  # nothing shows whether its rows have changed: they are read again
    if path is None:
        from streamsvm.storage.paths import filesystem

        fs, remote_path = filesystem(source)
        info = fs.info(remote_path) if fs.exists(remote_path) else {}
        return [source, *(str(info.get(name)) for name in ("size", "ETag", "LastModified"))]
    facts: list[object] = [os.path.relpath(path, root or ".")]
    for file in (path, *(path.with_name(path.name + log) for log in LOGS)):
        if file.exists() and (status := file.stat()).st_size:  # the reader reports a missing file
            facts += [status.st_size, status.st_mtime_ns]
    return facts


@contextmanager
def opened(
    sources: Sequence[str], options: IngestOptions, like: Layout | None, events: Events = ignore
) -> Iterator[tuple[Store, list[str]]]:
    """A temporary store of files, with rows in this layout, and the paths of the files. Errors of the store name the
    files.

    like None: the existing store of the files, if there is one.
    """
    existing = _made_of(sources, options) if like is None else None
    if existing is not None:
        yield existing, list(sources)
        return
    with TemporaryDirectory(prefix="streamsvm-") as folder, _in_files(sources, folder) as paths:
        url = os.path.join(folder, "rows.zarr")
        names = {url: ", ".join(sources), **dict(zip(paths, sources, strict=True))}
        try:
            ingest(paths, url, options, events, like=like)
            yield Store.open(url), paths
        except StreamSVMError as error:
            for path, name in names.items():
                error.args = tuple(str(message).replace(path, name) for message in error.args)
            raise


def _made_of(sources: Sequence[str], options: IngestOptions) -> Store | None:
    """The store next to files, if it has their present rows, read with these options."""
    if STDIN in sources:
        return None
    try:
        url = str(default_store(sources[0]))
    except ConfigError:  # no path
        return None
    store = Store.open(url) if kind_at(url) == "a store" else None
    return store if store is not None and store.attrs.get(MADE_OF) == _origin(sources, options) else None


def known_tables(sources: Sequence[str], options: IngestOptions, like: Layout | None) -> IngestOptions | None:
    """The options, with the format, if files are tables with known columns. Their rows can be predicted while they are
    read. None for others, and for stdin."""
    if like is None or "columns" not in like.attrs or STDIN in sources:
        return None
    format_ = format_of([file.path for file in files_of(sources)], options)
    return options.model_copy(update={"format": format_}) if format_ in TABLES else None


def rows_as_read(
    sources: Sequence[str], options: IngestOptions, like: Layout, events: Events = ignore
) -> Iterator[Rows]:
    """The rows of tables in this layout, piece by piece, at least one without rows. Raises DataError as `ingest`."""
    files, has_rows = files_of(sources), False
    paths = [file.path for file in files]
    options = options.model_copy(update={"dtype": like.dtype.name})
    open_stream = partial(stream_of, events, sum(map(source_bytes, paths)), "predict")
    reader = TableReader(options, like, format_of(paths, options), open_stream, dict(files))
    for block in on_thread(chain.from_iterable(map(reader.blocks, paths))):
        has_rows = True
        yield as_layout(reader.encode(block.rows), like.is_sparse)
    if not has_rows:
        yield as_layout(Rows(np.empty((0, like.d), like.dtype)), like.is_sparse)
    for remark in reader.remarks():
        events(Warned(f"{paths[0]}: {remark}"))


@contextmanager
def _in_files(sources: Sequence[str], folder: str | None = None) -> Iterator[list[str]]:
    """Paths that can be read twice. stdin is copied to a file, as CSV unless its first bytes show another format."""
    if STDIN not in sources:
        yield list(sources)
        return
    if sources.count(STDIN) > 1:
        raise ConfigError("-: expected stdin once, found it twice")
    with TemporaryDirectory(prefix="streamsvm-", dir=folder) as temporary:
        path = Path(temporary, "stdin")
        with path.open("wb") as file:
            shutil.copyfileobj(sys.stdin.buffer, file)
        try:
            detect_format(str(path))
        except DataError:
            path = path.rename(path.with_name("stdin.csv"))
        yield [str(path) if source == STDIN else source for source in sources]
