"""Samples regrouped by partition, in memory or in scratch files that all workers can read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from threading import Lock
from typing import IO, Any, Protocol
from weakref import finalize

import numpy as np
from scipy import sparse

from streamsvm.data.rows import Rows
from streamsvm.data.samples import Block, Samples, SamplesInMemory, read_blocks, windows
from streamsvm.data.scratch import ArrayPlace, RowsPlace, put_array, put_rows, raw, read_into
from streamsvm.errors import StorageError
from streamsvm.events import Events, ignore
from streamsvm.parallel.engine import Engine
from streamsvm.parallel.sizes import SizedInBytes, aligned
from streamsvm.storage.atomic import storage_errors, whole_file
from streamsvm.storage.paths import Place, URLPath

SPOOL_BYTES = 32 << 20  # in one file, sorted by partition
COLUMN_BYTES = 48  # per row, for its columns and its partition
INDEX_BYTES = 64 << 20  # for the offsets of partitions in files; files become larger if these need more

Arrays = dict[str, np.ndarray]


def _most_open() -> int:
    """The number of files to keep open. Opening one for each stretch takes three times as long as reading it."""
    try:
        from resource import RLIMIT_NOFILE, getrlimit
    except ImportError:  # not on Windows
        return 512
    return min(max(512, getrlimit(RLIMIT_NOFILE)[0] // 4), 8192)


MOST_OPEN = _most_open()


class PartitionReader(Protocol):
    """Reads the partitions of samples, in any process."""

    def rows(self, part: int) -> Rows: ...

    def columns(self, part: int) -> Arrays:
        """The columns of its rows."""


class RowColumns(Protocol):
    """Columns that go with rows into their partitions: arrays with an entry for each row."""

    def read(self, start: int, stop: int) -> Arrays:
        """The entries of rows start..stop."""

    def take(self, ids: np.ndarray) -> Arrays:
        """The entries of the rows with these sorted ids."""


class PartitionLabels(Protocol):
    """The partitions of rows: a `Vector`, or a function of the rows themselves."""

    def of(self, rows: Rows, start: int) -> np.ndarray:
        """(m,) the partitions of these rows, from row number start on."""


@dataclass(frozen=True)
class IdColumn(SizedInBytes):
    """Only the ids go with the rows."""

    def read(self, start: int, stop: int) -> Arrays:
        return {"ids": np.arange(start, stop)}

    def take(self, ids: np.ndarray) -> Arrays:
        return {"ids": ids}


def order_by_part(parts: np.ndarray, n_parts: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """(n,) rows in the order of their partitions, and n_parts + 1 bounds or more of the partitions."""
    bounds = np.append(0, np.cumsum(np.bincount(parts, minlength=n_parts)))
    narrow = parts.astype(np.uint16) if len(bounds) <= 1 << 16 else parts  # radix sort: nine times as fast
    return np.argsort(narrow, kind="stable"), bounds


def rows_by_part(parts: np.ndarray) -> tuple[list[int], list[np.ndarray]]:
    """The partitions that have some of the rows, and which rows each has."""
    order, bounds = order_by_part(parts)
    numbers = np.flatnonzero(np.diff(bounds)).tolist()
    return numbers, [order[bounds[number] : bounds[number + 1]] for number in numbers]


class PartitionsInMemory:
    """Partitions of samples in memory."""

    def __init__(
        self, samples: SamplesInMemory, parts: np.ndarray, n_parts: int, columns: RowColumns | None = None
    ) -> None:
        self.n_parts, self.nbytes = n_parts, samples.nbytes
        self._order, self._bounds = order_by_part(parts, n_parts)
        self._samples, self._columns = samples, columns or IdColumn()
        self.reader = self

    def ids(self, part: int) -> np.ndarray:
        return self._order[self._bounds[part] : self._bounds[part + 1]]

    def rows(self, part: int) -> Rows:
        return self._samples.take(self.ids(part))

    def columns(self, part: int) -> Arrays:
        return self._columns.take(self.ids(part))


class PartitionsOnDisk:
    """Partitions in scratch files, written in one pass over the samples. A partition is a stretch of each file.

    Rows of a partition keep the order of the store. Raises StorageError if the disk is full.
    """

    def __init__(
        self,
        samples: Samples,
        labels: PartitionLabels,
        n_parts: int,
        folder: Place,
        engine: Engine,
        columns: RowColumns | None = None,
        events: Events = ignore,
    ) -> None:
        self.n_parts, self.nbytes = n_parts, samples.nbytes
        with storage_errors(str(folder)):
            folder.mkdir(parents=True)
        groups, write = list(windows(samples, file_bytes(samples, n_parts))), partial(write_file, folder, n_parts)
        shared = (engine.share((samples, labels, columns or IdColumn())),)
        files, bounds = zip(*engine.map(write, groups, shared=shared, phase="regroup", events=events), strict=True)
        self.reader = Spool(files, np.stack(bounds, axis=1))

    def ids(self, part: int) -> np.ndarray:
        return self.reader.columns(part)["ids"].astype(np.int64)


def file_bytes(samples: Samples, n_parts: int) -> int:
    """Bytes of the rows in one file."""
    row = samples.nbytes / samples.n
    return int(max(SPOOL_BYTES * row / (row + COLUMN_BYTES), 4 * samples.nbytes * n_parts / INDEX_BYTES))


class NeighbourPartitions(SizedInBytes):
    """Partitions of neighbouring rows, of at most part_bytes if blocks are smaller, read from the samples.

    They depend only on the samples.
    """

    def __init__(self, samples: Samples, part_bytes: int) -> None:
        self._samples, self._parts = samples, list(windows(samples, part_bytes))
        self.n_parts, self.nbytes = len(self._parts), samples.nbytes

    @property
    def reader(self) -> NeighbourPartitions:
        return self

    def ids(self, part: int) -> np.ndarray:
        return np.arange(self._parts[part][0][0], self._parts[part][-1][1])

    def rows(self, part: int) -> Rows:
        return read_blocks(self._samples, self._parts[part])

    def columns(self, part: int) -> Arrays:
        return {"ids": self.ids(part)}


RowPartitions = PartitionsInMemory | PartitionsOnDisk | NeighbourPartitions  # by partition, in the order of ids


@dataclass(frozen=True)
class SpoolFile(SizedInBytes):
    """A file of rows by partition, with records of their columns."""

    path: Place
    rows: RowsPlace
    columns: ArrayPlace


class Spool(SizedInBytes):
    """Reads the files of `PartitionsOnDisk`: partition p is bounds[p, f]..bounds[p + 1, f] of file f.

    Files stay open while a process reads them. Opening one takes as long as reading about 64 KiB.
    """

    def __init__(self, files: Sequence[SpoolFile], bounds: np.ndarray) -> None:
        self._files, self._bounds = files, aligned(bounds)
        self._open: dict[int, tuple[IO[bytes], Lock]] = {}
        self._lock = Lock()
        finalize(self, _close, self._open)

    def __reduce__(self) -> tuple[object, ...]:
        return Spool, (self._files, self._bounds)

    @property
    def sizes(self) -> np.ndarray:
        """(n_parts,) the numbers of their rows."""
        return np.diff(self._bounds.sum(axis=1, dtype=np.int64))

    def rows(self, part: int, start: int = 0, stop: int | None = None) -> Rows:
        """Rows start..stop of a partition."""
        stretches, first = self._stretches(part, start, stop), self._files[0].rows
        if not first.is_sparse:
            return Rows(self._read(_rows_array(0), stretches))
        ends = [self._read(_rows_array(0), [(f, lo, hi + 1)]) for f, lo, hi in stretches]
        entries = [(f, int(end[0]), int(end[-1])) for (f, _, _), end in zip(stretches, ends, strict=True)]
        indptr = np.cumsum(np.concatenate([[0], *map(np.diff, ends)]), dtype=first.arrays[0].dtype)
        csr = self._read(_rows_array(2), entries), self._read(_rows_array(1), entries), indptr
        return Rows(sparse.csr_array(csr, shape=(len(indptr) - 1, first.d)))

    def columns(self, part: int, start: int = 0, stop: int | None = None) -> Arrays:
        """The columns of rows start..stop of a partition."""
        records = self._read(lambda file: file.columns, self._stretches(part, start, stop))
        return {name: np.ascontiguousarray(records[name]) for name in records.dtype.names or ()}

    def _stretches(self, part: int, start: int, stop: int | None) -> list[tuple[int, int, int]]:
        """(file, from, to) of rows start..stop of a partition."""
        bounds = self._bounds[part : part + 2].astype(np.int64)
        if (start, stop) == (0, None):
            los, his = bounds
        else:
            ends = np.cumsum(bounds[1] - bounds[0])
            before = ends - (bounds[1] - bounds[0])
            los = bounds[0] + np.clip(start - before, 0, bounds[1] - bounds[0])
            his = bounds[0] + np.clip((int(ends[-1]) if stop is None else stop) - before, 0, bounds[1] - bounds[0])
        return [(f, int(los[f]), int(his[f])) for f in np.flatnonzero(los < his).tolist()]

    def _read(self, place_in: Callable[[SpoolFile], ArrayPlace], stretches: list[tuple[int, int, int]]) -> np.ndarray:
        """The entries of one array in these stretches of files, joined."""
        first = place_in(self._files[0])
        entries = sum(stop - start for _, start, stop in stretches)
        ranges: list[Any] = [
            (self._files[f].path, *place_in(self._files[f]).span(start, stop)) for f, start, stop in stretches
        ]
        if isinstance(self._files[0].path, URLPath):  # in parallel: many requests take as long as one
            data = b"".join(self._files[0].path.read_ranges(ranges)) if ranges else b""
            if len(data) != entries * first.entry_bytes:
                raise StorageError(f"{self._files[0].path.parent}: scratch files were cut while in use")
            return np.frombuffer(bytearray(data), first.dtype).reshape(entries, *first.shape[1:])
        out = np.empty((entries, *first.shape[1:]), first.dtype)
        rest = raw(out)
        for (f, _, _), (_, start, stop) in zip(stretches, ranges, strict=True):
            self._read_into(rest[: stop - start], f, start)
            rest = rest[stop - start :]
        return out

    def _read_into(self, out: memoryview, f: int, offset: int) -> None:
        if f not in self._open and len(self._open) < MOST_OPEN:
            with self._lock:
                if f not in self._open:
                    self._open[f] = self._opened(f), Lock()
        if f in self._open:
            file, lock = self._open[f]
            with lock:
                read_into(file, offset, out)
        else:
            with self._opened(f) as file:
                read_into(file, offset, out)

    def _opened(self, f: int) -> IO[bytes]:
        path = self._files[f].path
        assert isinstance(path, Path)
        return path.open("rb", buffering=0)


def _rows_array(number: int) -> Callable[[SpoolFile], ArrayPlace]:
    return lambda file: file.rows.arrays[number]


def _close(opened: dict[int, tuple[IO[bytes], Lock]]) -> None:
    for file, _ in opened.values():
        file.close()


def write_file(
    folder: Place, n_parts: int, source: tuple[Samples, PartitionLabels, RowColumns], blocks: list[Block]
) -> tuple[SpoolFile, np.ndarray]:
    """Writes a file of some blocks' rows by partition. Returns it with the start of each partition."""
    samples, labels, columns = source
    start, stop = blocks[0][0], blocks[-1][1]
    rows = read_blocks(samples, blocks)
    order, bounds = order_by_part(labels.of(rows, start), n_parts)
    path = folder / f"{start:012d}.X"
    written = whole_file(path) if isinstance(path, URLPath) else path.open("wb")
    with storage_errors(str(folder)), written as file:
        place = put_rows(file, rows, order)
        records = put_array(file, _records(columns.read(start, stop))[order])
    return SpoolFile(path, place, records), bounds.astype(np.uint32)


def _records(arrays: Arrays) -> np.ndarray:
    """(m,) the entries of several arrays as records, so that one read gets all of a partition."""
    form = [(name, array.dtype, array.shape[1:]) for name, array in arrays.items()]
    records = np.empty(len(next(iter(arrays.values()))), form)
    for name, array in arrays.items():
        records[name] = array
    return records
