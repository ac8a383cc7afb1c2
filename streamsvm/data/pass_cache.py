"""Samples that are read again and again: kept in memory as far as it reaches, the rest unpacked in a scratch folder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from streamsvm.data.rows import Rows
from streamsvm.data.samples import Block, Samples, read_blocks, windows
from streamsvm.data.scratch import put_rows
from streamsvm.storage.atomic import storage_errors

PASS_BYTES = 16 << 20  # of rows that one task reads: their buffers are small enough to be used again


class HeldSamples:
    """Blocks of samples for many passes; the first one reads the source.

    The first blocks stay in memory, up to keep_bytes; of the others, plain files in `folder()` are read, as fast as the
    disk gives them. Raises what `samples.read` raises, and StorageError where the disk is full.
    """

    def __init__(self, samples: Samples, keep_bytes: int, folder: Callable[[], Path]) -> None:
        self.n, self.d = samples.n, samples.d
        self.source = samples
        self._keep_rows = int(keep_bytes / samples.nbytes * samples.n)
        self._folder = folder() if self._keep_rows < samples.n else None
        self.groups = {(group[0][0], group[-1][1]): group for group in windows(samples, PASS_BYTES)}
        self._kept: dict[Block, Rows] = {}
        self._files: dict[Block, _BlockFile] = {}

    def blocks(self) -> list[Block]:
        return list(self.groups)

    def read(self, start: int, stop: int) -> Rows:
        """The rows of one of `blocks()`."""
        block = start, stop
        if block in self._kept:
            return self._kept[block]
        if block in self._files:
            return self._files[block].read()
        rows = read_blocks(self.source, self.groups[block])
        if self._folder is None or stop <= self._keep_rows:
            self._kept[block] = rows
        else:
            self._files[block] = _BlockFile(rows, self._folder / f"{start:012d}")
        return rows


class _BlockFile:
    """A block of rows in a file of its own."""

    def __init__(self, rows: Rows, path: Path) -> None:
        self._path = path
        with storage_errors(str(path)), path.open("wb") as file:
            self._place = put_rows(file, rows)

    def read(self) -> Rows:
        with self._path.open("rb") as file:
            return self._place.read(file)
