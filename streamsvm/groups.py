"""Samples regrouped by part: in memory, or in scratch files that all who work on them see."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from scipy import sparse

from streamsvm.data.rows import Rows, concat
from streamsvm.data.samples import Block, MemorySamples, Samples, read_blocks, windows
from streamsvm.data.target import storage_errors
from streamsvm.events import Events, ignore
from streamsvm.graph import Engine
from streamsvm.sizes import Weighed

SPOOL_BYTES = 32 << 20  # of rows that one file holds, sorted by part


class PartReader(Protocol):
    """What a task needs to read a part."""

    def rows(self, part: int) -> Rows: ...


class Groups(Protocol):
    """Samples by part: ids(p) are ascending row ids, reader.rows(p) the rows in that order; nbytes: of all rows."""

    n_parts: int
    nbytes: float
    reader: PartReader

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
        self.reader = Spool(samples.d, tuple(files))


@dataclass(frozen=True)
class Spool(Weighed):
    """Reads the files of `SpooledGroups`."""

    d: int
    files: tuple[_File, ...]

    def rows(self, part: int) -> Rows:
        found = [file.rows(part, self.d) for file in self.files if file.has(part)]
        return concat(found) if found else self.files[0].rows(part, self.d)


@dataclass(frozen=True)
class _File(Weighed):
    """Rows of a few blocks, sorted by part: part p is bounds[p]..bounds[p + 1], in CSR entries[p]..entries[p + 1]."""

    path: Path
    dtype: np.dtype
    bounds: np.ndarray
    entries: np.ndarray | None

    def has(self, part: int) -> bool:
        return bool(self.bounds[part] < self.bounds[part + 1])

    def rows(self, part: int, d: int) -> Rows:
        first, last = self.bounds[part : part + 2].tolist()
        if self.entries is None:
            return Rows(_part_of(self.path, self.dtype, first * d, last * d).reshape(-1, d))
        lo, hi = self.entries[part : part + 2].tolist()
        data = _part_of(self.path, np.dtype(np.float32), lo, hi)
        indices = _part_of(self.path.with_suffix(".indices"), np.dtype(np.int64), lo, hi)
        counts = _part_of(self.path.with_suffix(".counts"), np.dtype(np.int64), first, last)
        indptr = np.concatenate([[0], np.cumsum(counts)])
        return Rows(sparse.csr_array((data, indices, indptr), shape=(last - first, d)))


def _part_of(path: Path, dtype: np.dtype, start: int, stop: int) -> np.ndarray:
    return np.fromfile(path, dtype, stop - start, offset=start * dtype.itemsize)


def _write(folder: Path, n_parts: int, samples: Samples, blocks: list[Block], parts: np.ndarray) -> _File:
    rows = read_blocks(samples, blocks)
    order = np.argsort(parts, kind="stable")
    rows = rows.take(order)
    bounds = np.searchsorted(parts[order], np.arange(n_parts + 1))
    path, entries = folder / f"{blocks[0][0]:012d}.X", None
    X: Any = rows.X
    arrays = {path: X}
    if rows.is_sparse:
        arrays = {
            path: X.data,
            path.with_suffix(".indices"): X.indices.astype(np.int64),
            path.with_suffix(".counts"): np.diff(X.indptr).astype(np.int64),
        }
        entries = X.indptr[bounds].astype(np.int64)
    with storage_errors(str(folder)):
        for name, array in arrays.items():
            np.ascontiguousarray(array).tofile(name)
    return _File(path, X.dtype, bounds, entries)
