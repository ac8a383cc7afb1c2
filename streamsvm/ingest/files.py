"""Reads files into a store: one after the other, split or shuffled, and written."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from datetime import UTC, datetime
from functools import partial
from itertools import chain
from pathlib import PurePath
from typing import Any

import numpy as np
from scipy import sparse

from streamsvm.config import validated
from streamsvm.data.layout import Layout
from streamsvm.data.rows import Rows
from streamsvm.data.statistics import NeedsFloat64, merge, moments_of
from streamsvm.data.store import Store
from streamsvm.data.writer import StoreWriter
from streamsvm.errors import ConfigError, DataError
from streamsvm.events import Events, Warned, ignore
from streamsvm.ingest.block import Block, OpenStream, Reader
from streamsvm.ingest.options import DIALECT, IngestOptions
from streamsvm.ingest.paths import DataFile, files_of
from streamsvm.ingest.split import Shuffler, Split, Spool, split_of
from streamsvm.ingest.streams import CSV, DATABASES, TABLES, Stream, detect_format, source_bytes
from streamsvm.parallel.prefetch import on_thread
from streamsvm.storage.atomic import storage_errors
from streamsvm.storage.paths import is_same, local_path, require_place
from streamsvm.tables.schema import KindChanged, UnknownText
from streamsvm.texts.documented import described

# options
TABLE_OPTIONS = ("qid", "group", "ignore", "split_by", "text", "category", "hash", "target_encode", "min_frequency")
SHUFFLE = 0x5F1E  # a separate random stream, independent of labels that a user drew with the plain seed


@described
def ingest(
    sources: Sequence[str | os.PathLike[str]],
    store_url: str | os.PathLike[str],
    options: IngestOptions | None = None,
    events: Events = ignore,
    *,
    like: Layout | None = None,
    attrs: Mapping[str, object] | None = None,
) -> dict[str, Any]:
    """Reads data files, one after the other, into a new store (with `split`, two). Returns a summary.

    If the first block determines the layout, rows are written as they are read. If it does not, or a later block has
    something new, rows wait in an unnamed temporary file next to the store until all are read. After an error no store
    is left behind.

    Parameters
    ----------
    sources : sequence of str or Path
        Files or URLs. A pattern, such as `data/*.csv`, or a folder stands for its files, in the order of their names.
    store_url : str or Path
        Folder or URL of the new store.
    options : IngestOptions or None
        Format, columns and blocks, as the options of `streamsvm ingest`. None: the defaults.
    events : Events
        Gets what happens, as `Record`. ignore: nothing is reported.
    like : Layout or None
        Layout of the rows, instead of that of the store that the options name. None: as the options say.
    attrs : mapping or None
        Further attributes of the store. None: none.

    Returns
    -------
    dict
        The summary that `ingest --json` prints: rows, columns, classes, bytes, and more.

    Raises
    ------
    DataError, NotFoundError, ConfigError, StorageError
    """
    start = time.perf_counter()
    files = files_of([os.fspath(s) for s in sources])
    attrs = {"sources": [PurePath(s).name for s in sources], **(attrs or {})}
    options, like = _with_like(options or IngestOptions(), like, [file.path for file in files])
    if options.test_store is not None and is_same(store_url, options.test_store):
        raise ConfigError(f"--test-store {options.test_store}: found the place of --store, expected another one")
    for option, url in (("--store", os.fspath(store_url)), ("--test-store", options.test_store)):
        if url is not None:
            require_place(option, url, "a store", force=options.force)
    summary, guesses, whole, why = None, True, dict[str, str](), None
    while summary is None:
        try:
            summary = _ingested(files, os.fspath(store_url), options, events, like, attrs, guesses=guesses, whole=whole)
        except UnknownText:
            guesses = False
        except NeedsFloat64 as error:
            options, why = options.model_copy(update={"dtype": "float64"}), error
        except KindChanged as late:
            events(Warned(f"{late}; all rows are read again to find its type"))
            whole[late.column] = late.marker
    if why is not None:
        events(Warned(f"{files[0].path}: {why}"))
    return summary | {"seconds": round(time.perf_counter() - start, 3)}


def _ingested(
    files: list[DataFile],
    url: str,
    options: IngestOptions,
    events: Events,
    like: Layout | None,
    attrs: Mapping[str, object],
    *,
    guesses: bool,
    whole: Mapping[str, str],
) -> dict[str, object]:
    """Reads and writes all files. guesses: relies on the first block; raises UnknownText if a later one differs.
    whole: columns whose type follows from all rows, with the value that showed it. In any other column, a value unlike
    its type raises KindChanged."""
    paths = [file.path for file in files]
    format_ = format_of(paths, options)
    open_stream = partial(stream_of, events, sum(map(source_bytes, paths)), "ingest")
    reader = _reader(format_, options, like, open_stream, files, whole)
    with ExitStack() as stack:
        if format_ == "svmlight":
            from streamsvm.parallel.compiling import compile_notices  # imports numba, only needed here

            stack.enter_context(compile_notices(events))
        split = split_of(options)
        blocks = _arrange(reader, paths, options, split, url, stack, guesses=guesses)
        layout = _layout(reader, options, like)
        split_facts = {} if split is None else split.settle()
        store_attrs = {**reader.attrs(), "format": format_, **split_facts, **attrs}
        writers = _writers(url, options, layout, store_attrs, stack)
        _fill(reader, blocks, split, writers, layout)
        reader.finish()
        for writer in writers:  # target-encoded texts are known now
            writer.attrs = {**writer.attrs, **reader.attrs()}
    for remark in reader.remarks():
        events(Warned(f"{paths[0]}: {remark}"))
    summary = {"store": url, "rows": writers[0].n, "features": layout.d}
    if options.test_store is not None:
        summary |= {"test_store": options.test_store, "test_rows": writers[1].n}
    layout_name = "csr" if layout.is_sparse else "dense"
    return summary | split_facts | {"layout": layout_name, "dtype": str(layout.dtype), "format": format_}


def _with_like(options: IngestOptions, like: Layout | None, paths: list[str]) -> tuple[IngestOptions, Layout | None]:
    if options.like is not None:
        store = Store.open(options.like)
        like = store.layout or Layout(store.d, store.dtype, store.is_sparse)
        options = written_as(options, dialect_of(like), paths, options.like)
    return (options if like is None else options.model_copy(update={"dtype": options.dtype or like.dtype.name})), like


def dialect_of(like: Layout) -> dict[str, Any]:
    """How the CSV files that rows came from are written, as far as options said so."""
    return {name: like.attrs[name] for name in ("header", *DIALECT) if name in like.attrs}


def written_as(options: IngestOptions, written: Mapping[str, Any], paths: list[str], origin: str) -> IngestOptions:
    """Options of CSV files that say how these are written, where they left it out: as others are (see `dialect_of`).

    origin: of these options. Options of other formats, which do not need them, stay. Raises ConfigError.
    """
    if not written or not {options.format or detect_format(path) for path in paths} <= {*CSV}:
        return options
    return validated(IngestOptions, (origin, written), ("the options", options.model_dump(exclude_unset=True)))


def format_of(paths: list[str], options: IngestOptions) -> str:
    """The format of all files. Raises ConfigError if they have several, or if the options belong to another format."""
    if not paths:
        raise ConfigError("no source was given; expected at least one file")
    formats = {options.format or detect_format(p) for p in paths}
    if len(formats) > 1:
        problem = f"the sources have different formats ({', '.join(sorted(formats))})"
        raise ConfigError(f"{problem}; give those of one format at a time")
    format_ = formats.pop()
    is_table = format_ in TABLES
    options_given = [name for name in TABLE_OPTIONS if getattr(options, name)]
    options_given += ["label"] if options.label not in (None, "none") else []
    has_label_files = format_ in ("npy", "npz", "idx")
    if not is_table and options_given:
        hint = ": give a file of labels by --labels" if has_label_files and "label" in options_given else ""
        raise ConfigError(f"--{options_given[0].replace('_', '-')} names columns of a table; {format_} has none{hint}")
    dialect = [name for name in DIALECT if getattr(options, name)]
    if dialect and format_ not in CSV:
        raise ConfigError(f"--{dialect[0].replace('_', '-')} applies to CSV and TSV, found {format_}; leave it out")
    if options.query is not None and format_ not in DATABASES:
        raise ConfigError(f"--query applies to databases, found {format_}; leave it out")
    if options.multilabel and not (is_table or format_ == "svmlight"):
        raise ConfigError(f"--multilabel is for svmlight files and tables; {format_} has none of their labels")
    if options.labels and not has_label_files:
        inside = f"name their column of {format_} by --label" if is_table else f"{format_} has its labels inside"
        raise ConfigError(f"--labels is a file for npy, npz and idx sources; {inside}")
    return format_


def stream_of(events: Events, total: int, phase: str, path: str) -> Stream:
    """A source that reports its bytes as they are read, of a total for all sources."""
    return Stream(path, lambda done: events.progress(phase, min(done, total), total, source=path))


def _reader(
    format_: str,
    options: IngestOptions,
    like: Layout | None,
    open_stream: OpenStream,
    files: list[DataFile],
    whole: Mapping[str, str],
) -> Reader:
    if format_ == "svmlight":
        from streamsvm.ingest.svmlight import SvmlightReader

        return SvmlightReader(options, like, open_stream)
    if format_ in TABLES:
        from streamsvm.ingest.tables import TableReader

        return TableReader(options, like, format_, open_stream, dict(files), whole)
    from streamsvm.ingest.arrays import ArrayReader

    return ArrayReader(options, like, format_, open_stream)


def _arrange(
    reader: Reader,
    paths: list[str],
    options: IngestOptions,
    split: Split | None,
    url: str,
    stack: ExitStack,
    *,
    guesses: bool,
) -> Iterator[Block]:
    """The blocks in storage order, after the split has seen all of them."""
    blocks = chain.from_iterable(reader.blocks(p) for p in paths)
    first = next(blocks, None)
    if first is None:
        raise DataError(f"{paths[0]} has no samples; expected at least one")
    blocks = chain([first], on_thread(blocks))
    is_plain = split is None and not options.shuffle
    if is_plain and (reader.is_final() or (guesses and reader.assume_complete())):
        return blocks
    path = local_path(url)
    with storage_errors(url):
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
    folder = None if path is None else str(path.parent)
    rng = np.random.default_rng([options.seed, SHUFFLE])
    spool = Shuffler(folder, options.memory_limit // 8, rng) if options.reorders else Spool(folder)
    stack.enter_context(closing(spool))
    for block in blocks:
        spool.append(block)
        if split is not None:
            split.see(block)
    reader.finish()
    return iter(spool)


def _layout(reader: Reader, options: IngestOptions, like: Layout | None) -> Layout:
    """The layout of the store to write."""
    if options.dense is not None:
        is_sparse = not options.dense
    elif like is not None:
        is_sparse = like.is_sparse
    else:
        is_sparse = not reader.is_final() and reader.density() < reader.dense_below
    return Layout(reader.width(), reader.dtype, is_sparse)


def _writers(
    url: str, options: IngestOptions, layout: Layout, attrs: dict[str, object], stack: ExitStack
) -> list[StoreWriter]:
    """The stores to fill: one, or those of a split."""
    if options.split is not None:
        attrs = {**attrs, "split": options.split}
    if options.reorders:
        attrs = {**attrs, "seed": options.seed}
    attrs["created"] = datetime.now(UTC).isoformat(timespec="seconds")
    form: dict[str, Any] = {"d": layout.d, "dtype": layout.dtype, "is_sparse": layout.is_sparse}
    writers = []
    for place in filter(None, (url, options.test_store)):
        writer = StoreWriter(place, **form, chunk_rows=options.rows_per_chunk, attrs=attrs, overwrite=options.force)
        writer.integral_labels = True
        writers.append(stack.enter_context(writer))
    return writers


def _fill(
    reader: Reader, blocks: Iterator[Block], split: Split | None, writers: list[StoreWriter], layout: Layout
) -> None:
    for block in blocks:
        blocks_by_store = [block] if split is None else split.parts(block)
        for writer, rest in zip(writers, blocks_by_store, strict=True):
            # 16 MiB of dense rows at a time; sparse rows as they were read
            dense_bytes = layout.d * layout.dtype.itemsize
            row_bytes = rest.rows.nbytes / max(1, len(rest.rows)) if layout.is_sparse else dense_bytes
            step = max(1, int((16 << 20) / max(1, row_bytes)))  # there may be no rows
            for start in range(0, len(rest.rows), step):
                piece = rest.take(slice(start, start + step))
                rows = as_layout(reader.encode(piece.rows), layout.is_sparse)
                writer.append(rows, piece.y, qid=piece.qid, group=piece.group)
                with np.errstate(over="ignore"):  # squares of huge numbers
                    moments = moments_of(rows)
                    before = writer.statistics
                    writer.statistics = moments if before is None else merge(before, moments)


def as_layout(rows: Rows, is_sparse: bool) -> Rows:
    """The rows as CSR or dense."""
    if is_sparse and not rows.is_sparse:
        return Rows(sparse.csr_array(rows.X))
    return rows if is_sparse else Rows(rows.dense())
