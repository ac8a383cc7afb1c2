"""What is kept of rows: the latest result of a function of an array, and samples that are read in many passes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Generic, Protocol, TypeVar

import numpy as np

from streamsvm.data.rows import Rows
from streamsvm.data.samples import Block, Samples, read_blocks, windows
from streamsvm.data.scratch import ArrayPlace, RowsPlace, put_array, put_rows
from streamsvm.storage.atomic import storage_errors

Answer = TypeVar("Answer")


class SingleEntryCache(Generic[Answer]):
    """Caches the result for the latest array. Arrays are compared entry by entry with a copy.

    So an array that was changed in place is computed again, and a copy of the latest one is not. A comparison costs a
    pass over the array, little compared to a result that is worth caching.
    """

    def __init__(self) -> None:
        self._array: np.ndarray | None = None
        self._answer: Answer | None = None

    def of(self, array: np.ndarray, make: Callable[[np.ndarray], Answer]) -> Answer:
        """make(array), or the cached result for equal entries."""
        if self._array is None or self._answer is None or not np.array_equal(array, self._array):
            self._array = self._answer = None  # free the old result before making the new one
            self._answer = make(array)
            self._array = array.copy()
        return self._answer


PASS_BYTES = 16 << 20  # of rows that one task reads: small enough for the allocator to reuse the buffers

Columns = tuple[np.ndarray, ...]  # for a block's rows, (m,) each


class RowColumns(Protocol):
    """Columns that go with the rows, such as labels, and that passes do not change."""

    @property
    def row_bytes(self) -> int: ...

    def read(self, start: int, stop: int) -> Columns: ...


class CachedSamples:
    """Blocks of samples for many passes, with their columns. The first pass reads the sources.

    The first blocks stay in memory, up to cache_bytes. The others become plain files in `folder()`, which are read at
    the speed of the disk. A block has up to block_bytes of rows (default: PASS_BYTES), or is one of `samples`.

    Raises what `samples.read` raises, and StorageError if the disk is full.
    """

    def __init__(
        self,
        samples: Samples,
        cache_bytes: int,
        folder: Callable[[], Path],
        columns: RowColumns | None = None,
        block_bytes: int | None = None,
    ) -> None:
        self.n, self.d = samples.n, samples.d
        self.source, self.columns = samples, columns
        self.nbytes = samples.nbytes + (samples.n * columns.row_bytes if columns else 0)
        self._cached_rows = int(cache_bytes / self.nbytes * samples.n)
        self._folder = folder() if self._cached_rows < samples.n else None
        self.groups = {(group[0][0], group[-1][1]): group for group in windows(samples, block_bytes or PASS_BYTES)}
        self._cached: dict[Block, tuple[Rows, Columns]] = {}
        self._files: dict[Block, tuple[Path, RowsPlace, list[ArrayPlace]]] = {}

    def blocks(self) -> list[Block]:
        return list(self.groups)

    def read(self, start: int, stop: int) -> tuple[Rows, Columns]:
        """The rows of one of `blocks()`, and their columns."""
        block = start, stop
        if block in self._cached:
            return self._cached[block]
        if block in self._files:
            path, rows_place, places = self._files[block]
            with path.open("rb") as file:
                return rows_place.read(file), tuple(place.read(file) for place in places)
        rows, columns = read_group(self.source, self.columns, self.groups[block])
        if self._folder is None or stop <= self._cached_rows:
            self._cached[block] = rows, columns
        else:
            path = self._folder / f"{start:012d}"
            with storage_errors(str(path)), path.open("wb") as file:
                self._files[block] = path, put_rows(file, rows), [put_array(file, values) for values in columns]
        return rows, columns


def read_group(source: Samples, columns: RowColumns | None, group: list[Block]) -> tuple[Rows, Columns]:
    """The rows of neighbouring blocks, and their columns."""
    rows = read_blocks(source, group)
    return rows, columns.read(group[0][0], group[-1][1]) if columns else ()
