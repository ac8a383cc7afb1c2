"""Samples: the scaled rows that training reads, from memory or from a store, and regrouped by part."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from scipy import sparse

from streamsvm.ahead import ahead
from streamsvm.data.check import require_finite
from streamsvm.data.rows import Rows, concat
from streamsvm.data.scaling import Scaling
from streamsvm.data.store import Store
from streamsvm.data.target import storage_errors

Block = tuple[int, int]
SPOOL_BYTES = 32 << 20  # of rows sorted by part at once: the more, the less often each part's file is opened


class Samples(Protocol):
    """n scaled rows: uint8 as stored where nothing scales them, else float32."""

    n: int
    d: int
    nbytes: float  # of all rows as they are read

    def blocks(self) -> list[Block]: ...

    def read(self, start: int, stop: int) -> Rows: ...

    def take(self, ids: np.ndarray) -> Rows: ...


class MemorySamples:
    """Samples that fit in memory."""

    def __init__(self, rows: Rows) -> None:
        self.rows, self.n, self.d, self.nbytes = rows, len(rows), rows.d, float(rows.nbytes)

    def blocks(self) -> list[Block]:
        step = max(1, (4 << 20) // (4 * self.d))
        return [(start, min(self.n, start + step)) for start in range(0, self.n, step)]

    def read(self, start: int, stop: int) -> Rows:
        return self.rows.take(slice(start, stop))

    def take(self, ids: np.ndarray) -> Rows:
        return self.rows.take(ids)


class StoreSamples:
    """Samples read from a store block by block. Raises DataError where a row holds NaN or infinity."""

    def __init__(self, store: Store, scaling: Scaling) -> None:
        self.store, self.scaling, self.n, self.d = store, scaling, store.n, store.d
        self._as_stored = scaling.kind == "none" and store.dtype == np.uint8 and not store.is_sparse
        grown = 1.0 if self._as_stored or store.is_sparse else 4 / store.dtype.itemsize
        self.nbytes = store.nbytes * grown

    def blocks(self) -> list[Block]:
        return self.store.blocks()

    def read(self, start: int, stop: int) -> Rows:
        rows = self.store.read(start, stop)
        require_finite(self.store, rows, start)
        return self._scaled(rows)

    def take(self, ids: np.ndarray) -> Rows:
        return self._scaled(self.store.take(ids))

    def load(self) -> MemorySamples:
        """All of it in memory."""
        return MemorySamples(concat([self.read(*block) for block in self.blocks()]))

    def _scaled(self, rows: Rows) -> Rows:
        return rows if self._as_stored else self.scaling.apply(rows)


class Groups(Protocol):
    """Samples by part: ids(p) are ascending row ids, rows(p) the rows in that order."""

    n_parts: int

    def ids(self, part: int) -> np.ndarray: ...

    def rows(self, part: int) -> Rows: ...


class MemoryGroups:
    """Parts of samples in memory."""

    def __init__(self, samples: MemorySamples, parts: np.ndarray, n_parts: int) -> None:
        self.n_parts = n_parts
        self._samples = samples
        self._order = np.argsort(parts, kind="stable")
        self._bounds = np.searchsorted(parts[self._order], np.arange(n_parts + 1))

    def ids(self, part: int) -> np.ndarray:
        return self._order[self._bounds[part] : self._bounds[part + 1]]

    def rows(self, part: int) -> Rows:
        return self._samples.take(self.ids(part))


def windows(samples: Samples, most_bytes: int) -> Iterator[list[Block]]:
    """Blocks in groups of at most so many bytes of rows, at least one in each."""
    blocks, row_bytes = samples.blocks(), samples.nbytes / samples.n
    step = max(1, int(most_bytes / row_bytes) // max(stop - start for start, stop in blocks))
    return (blocks[first : first + step] for first in range(0, len(blocks), step))


def read_blocks(samples: Samples, blocks: list[Block]) -> tuple[int, Rows]:
    """The first row's number, and the rows."""
    return blocks[0][0], concat([samples.read(*block) for block in blocks])


class SpooledGroups(MemoryGroups):
    """Parts in scratch files, written in one sequential pass: reading a part is reading one file (CSR: three).

    Row order inside a file is row order in the store. Raises StorageError when the disk is full.
    """

    def __init__(self, samples: Samples, parts: np.ndarray, n_parts: int, folder: Path) -> None:
        super().__init__(samples, parts, n_parts)  # type: ignore[arg-type]
        self._folder = folder
        self._dtype, self._is_sparse, self._d = np.dtype(np.float32), False, samples.d
        folder.mkdir(parents=True)
        with storage_errors(str(folder)):
            for start, rows in ahead(partial(read_blocks, samples), windows(samples, SPOOL_BYTES)):
                self._append(rows, parts[start : start + len(rows)])

    def rows(self, part: int) -> Rows:
        if not self._is_sparse:
            return Rows(np.fromfile(self._file(part, "X"), self._dtype).reshape(-1, self._d))
        data = np.fromfile(self._file(part, "data"), np.float32)
        indices = np.fromfile(self._file(part, "indices"), np.int64)
        indptr = np.concatenate([[0], np.cumsum(np.fromfile(self._file(part, "counts"), np.int64))])
        return Rows(sparse.csr_array((data, indices, indptr), shape=(len(indptr) - 1, self._d)))

    def _append(self, rows: Rows, parts: np.ndarray) -> None:
        self._dtype, self._is_sparse = rows.X.dtype, rows.is_sparse
        order = np.argsort(parts, kind="stable")
        bounds = np.flatnonzero(np.diff(parts[order], prepend=-1))
        rows = rows.take(order)
        for first, last in zip(bounds, [*bounds[1:], len(parts)], strict=True):
            self._write(int(parts[order[first]]), rows.take(slice(first, last)))

    def _write(self, part: int, rows: Rows) -> None:
        if not self._is_sparse:
            arrays = {"X": rows.X}
        else:
            X: Any = rows.X
            counts = np.diff(X.indptr).astype(np.int64)
            arrays = {"data": X.data, "indices": X.indices.astype(np.int64), "counts": counts}
        for name, array in arrays.items():
            with self._file(part, name).open("ab") as file:
                file.write(np.ascontiguousarray(array).data)

    def _file(self, part: int, name: str) -> Path:
        return self._folder / f"{part:06d}.{name}"
