"""Samples regrouped by part: in memory, or in scratch files that all who work on them see."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol

import numpy as np

from streamsvm.data.rows import Rows, concat
from streamsvm.data.samples import Block, MemorySamples, Samples, read_blocks, windows
from streamsvm.data.scratch import RowsPlace, put_rows
from streamsvm.events import Events, ignore
from streamsvm.parallel.engine import Engine
from streamsvm.parallel.sizes import Weighed
from streamsvm.storage.atomic import storage_errors

SPOOL_BYTES = 32 << 20  # of rows that one file holds, sorted by part


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
        self._order = np.argsort(parts, kind="stable")
        self._bounds = np.searchsorted(parts[self._order], np.arange(n_parts + 1))

    def ids(self, part: int) -> np.ndarray:
        return self._order[self._bounds[part] : self._bounds[part + 1]]


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
        self.reader = Spool(tuple(files))


@dataclass(frozen=True)
class Spool(Weighed):
    """Reads the files of `SpooledGroups`."""

    files: tuple[_File, ...]

    def rows(self, part: int) -> Rows:
        found = [file.rows(part) for file in self.files if file.has(part)]
        return concat(found) if found else self.files[0].rows(part)


@dataclass(frozen=True)
class _File(Weighed):
    """Rows of a few blocks, sorted by part: part p is bounds[p]..bounds[p + 1]."""

    path: Path
    place: RowsPlace
    bounds: np.ndarray

    def has(self, part: int) -> bool:
        return bool(self.bounds[part] < self.bounds[part + 1])

    def rows(self, part: int) -> Rows:
        with self.path.open("rb") as file:
            return self.place.read(file, *self.bounds[part : part + 2].tolist())


def _write(folder: Path, n_parts: int, samples: Samples, blocks: list[Block], parts: np.ndarray) -> _File:
    rows = read_blocks(samples, blocks)
    order = np.argsort(parts, kind="stable")
    bounds = np.searchsorted(parts[order], np.arange(n_parts + 1))
    path = folder / f"{blocks[0][0]:012d}.X"
    with storage_errors(str(folder)), path.open("wb") as file:
        place = put_rows(file, rows.take(order))
    return _File(path, place, bounds)
