"""Samples regrouped by part: in memory, or in scratch files that all who work on them see."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from threading import Lock
from typing import IO, Any, Protocol
from weakref import finalize

import numpy as np
from scipy import sparse

from streamsvm.data.rows import Rows
from streamsvm.data.samples import Block, MemorySamples, Samples, read_blocks, windows
from streamsvm.data.scratch import RowsPlace, put_rows
from streamsvm.events import Events, ignore
from streamsvm.parallel.engine import Engine
from streamsvm.parallel.sizes import Weighed
from streamsvm.storage.atomic import storage_errors

SPOOL_BYTES = 32 << 20  # of rows that one file holds, sorted by part
MOST_OPEN = 512  # files of a process


class PartReader(Protocol):
    """What a task needs to read a part."""

    def rows(self, part: int) -> Rows: ...


class Groups(Protocol):
    """Samples by part: ids(p) are ascending row ids, reader.rows(p) the rows in that order; nbytes: of all rows."""

    n_parts: int
    nbytes: float

    @property
    def reader(self) -> PartReader: ...

    def ids(self, part: int) -> np.ndarray: ...


class _Ids:
    """Ascending row ids of each part."""

    def __init__(self, parts: np.ndarray, n_parts: int) -> None:
        self.n_parts = n_parts
        self._order, self._bounds = by_part(parts, n_parts)

    def ids(self, part: int) -> np.ndarray:
        return self._order[self._bounds[part] : self._bounds[part + 1]]


def by_part(parts: np.ndarray, n_parts: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """(n,) rows in the order of their parts, and where each of at least n_parts begins, and the last one ends."""
    bounds = np.append(0, np.cumsum(np.bincount(parts, minlength=n_parts)))
    short = (
        parts.astype(np.uint16) if len(bounds) <= 1 << 16 else parts
    )  # sorted by digits: nine times as fast
    return np.argsort(short, kind="stable"), bounds


class MemoryGroups(_Ids):
    """Parts of samples in memory."""

    def __init__(self, samples: MemorySamples, parts: np.ndarray, n_parts: int) -> None:
        super().__init__(parts, n_parts)
        self._samples, self.nbytes = samples, samples.nbytes
        self.reader = self

    def rows(self, part: int) -> Rows:
        return self._samples.take(self.ids(part))


class SpooledGroups(_Ids):
    """Parts in scratch files, written in one pass over the samples; a part is a stretch of each file.

    Row order inside a part is row order in the store. Raises StorageError when the disk is full.
    """

    def __init__(
        self,
        samples: Samples,
        parts: np.ndarray,
        n_parts: int,
        folder: Path,
        engine: Engine,
        events: Events = ignore,
    ) -> None:
        super().__init__(parts, n_parts)
        self.nbytes = samples.nbytes
        with storage_errors(str(folder)):
            folder.mkdir(parents=True)
        groups = list(windows(samples, SPOOL_BYTES))
        here = (parts[group[0][0] : group[-1][1]] for group in groups)
        write = partial(_write, folder, n_parts)
        shared = (engine.share(samples),)
        files = list(engine.map(write, groups, here, shared=shared, phase="regroup", events=events))
        paths, places, bounds = zip(*files, strict=True)
        self.reader = Spool(paths, places, np.stack(bounds, axis=1))


class Spool(Weighed):
    """Reads the files of `SpooledGroups`: part p is bounds[p, f]..bounds[p + 1, f] of file f.

    Files stay open while a process reads them: to open one takes as long as to read some 64 KiB.
    """

    def __init__(self, paths: Sequence[Path], places: Sequence[RowsPlace], bounds: np.ndarray) -> None:
        self._paths, self._places, self._bounds = paths, places, bounds
        self._open: dict[int, tuple[IO[bytes], Lock]] = {}
        self._lock = Lock()
        finalize(self, _close, self._open)

    def __reduce__(self) -> Any:
        return Spool, (self._paths, self._places, self._bounds)

    def rows(self, part: int) -> Rows:
        starts, stops = self._bounds[part : part + 2].astype(np.int64)
        stretches = [(f, int(starts[f]), int(stops[f])) for f in np.flatnonzero(starts < stops).tolist()]
        first = self._places[0]
        if not first.is_sparse:
            return Rows(self._read(0, stretches))
        ends = [self._read(0, [(f, start, stop + 1)]) for f, start, stop in stretches]
        entries = [(f, int(own[0]), int(own[-1])) for (f, _, _), own in zip(stretches, ends, strict=True)]
        indptr = np.cumsum(np.concatenate([[0], *map(np.diff, ends)]), dtype=first.arrays[0].dtype)
        csr = self._read(2, entries), self._read(1, entries), indptr
        return Rows(sparse.csr_array(csr, shape=(len(indptr) - 1, first.d)))

    def _read(self, number: int, stretches: list[tuple[int, int, int]]) -> np.ndarray:
        """Entries start..stop of an array of a file, and of those after it."""
        place, done = self._places[0].arrays[number], 0
        out = np.empty((sum(stop - start for _, start, stop in stretches), *place.shape[1:]), place.dtype)
        for f, start, stop in stretches:
            self._read_into(out[done : done + stop - start], f, number, start)
            done += stop - start
        return out

    def _read_into(self, out: np.ndarray, f: int, number: int, start: int) -> None:
        place = self._places[f].arrays[number]
        with self._lock:
            if f not in self._open and len(self._open) < MOST_OPEN:
                self._open[f] = self._opened(f), Lock()
        if (kept := self._open.get(f)) is not None:
            file, lock = kept
            with lock:
                place.read(file, start, start + len(out), out)
        else:
            with self._opened(f) as file:
                place.read(file, start, start + len(out), out)

    def _opened(self, f: int) -> IO[bytes]:
        return self._paths[f].open("rb", buffering=0)


def _close(opened: dict[int, tuple[IO[bytes], Lock]]) -> None:
    for file, _ in opened.values():
        file.close()


def _write(
    folder: Path, n_parts: int, samples: Samples, blocks: list[Block], parts: np.ndarray
) -> tuple[Path, RowsPlace, np.ndarray]:
    """A file of some blocks' rows by part, what lies in it, and where each part begins."""
    rows = read_blocks(samples, blocks)
    order, bounds = by_part(parts, n_parts)
    path = folder / f"{blocks[0][0]:012d}.X"
    with storage_errors(str(folder)), path.open("wb") as file:
        place = put_rows(file, rows.take(order))
    return path, place, bounds.astype(np.uint32)
