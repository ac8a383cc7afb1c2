"""Samples that are read in many passes: in memory as far as it reaches, the rest uncompressed in a scratch folder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import numpy as np

from streamsvm.data.rows import Rows
from streamsvm.data.samples import Block, Samples, read_blocks, windows
from streamsvm.data.scratch import put_array, put_rows
from streamsvm.storage.atomic import storage_errors

PASS_BYTES = 16 << 20  # of rows that one task reads: small enough for the allocator to reuse the buffers

Columns = tuple[np.ndarray, ...]  # for a block's rows, (m,) each


class RowColumns(Protocol):
    """Columns that go with the rows, such as labels, and that passes do not change."""

    @property
    def row_bytes(self) -> int: ...

    def read(self, start: int, stop: int) -> Columns: ...


class CachedSamples:
    """Blocks of samples for many passes, with their columns. The first pass reads the sources.

    The first blocks stay in memory, up to keep_bytes. The others become plain files in `folder()`, which are read at
    the speed of the disk. Raises what `samples.read` raises, and StorageError if the disk is full.
    """

    def __init__(
        self,
        samples: Samples,
        keep_bytes: int,
        folder: Callable[[], Path],
        beside: RowColumns | None = None,
    ) -> None:
        self.n, self.d = samples.n, samples.d
        self.source, self.beside = samples, beside
        self.nbytes = samples.nbytes + (samples.n * beside.row_bytes if beside else 0)
        self._keep_rows = int(keep_bytes / self.nbytes * samples.n)
        self._folder = folder() if self._keep_rows < samples.n else None
        self.groups = {(group[0][0], group[-1][1]): group for group in windows(samples, PASS_BYTES)}
        self._kept: dict[Block, tuple[Rows, Columns]] = {}
        self._files: dict[Block, _BlockFile] = {}

    def blocks(self) -> list[Block]:
        return list(self.groups)

    def read(self, start: int, stop: int) -> tuple[Rows, Columns]:
        """The rows of one of `blocks()`, and their columns."""
        block = start, stop
        if block in self._kept:
            return self._kept[block]
        if block in self._files:
            return self._files[block].read()
        found = read_group(self.source, self.beside, self.groups[block])
        if self._folder is None or stop <= self._keep_rows:
            self._kept[block] = found
        else:
            self._files[block] = _BlockFile(*found, self._folder / f"{start:012d}")
        return found


def read_group(source: Samples, beside: RowColumns | None, group: list[Block]) -> tuple[Rows, Columns]:
    """The rows of neighbouring blocks, and their columns."""
    rows = read_blocks(source, group)
    return rows, beside.read(group[0][0], group[-1][1]) if beside else ()


class _BlockFile:
    """A block of rows and their columns, in a separate file."""

    def __init__(self, rows: Rows, columns: Columns, path: Path) -> None:
        self._path = path
        with storage_errors(str(path)), path.open("wb") as file:
            self._rows = put_rows(file, rows)
            self._columns = [put_array(file, values) for values in columns]

    def read(self) -> tuple[Rows, Columns]:
        with self._path.open("rb") as file:
            return self._rows.read(file), tuple(place.read(file) for place in self._columns)
