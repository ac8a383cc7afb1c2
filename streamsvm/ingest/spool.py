"""Blocks of samples on disk before they are stored, in order or in uniformly random order."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import suppress

import numpy as np

from streamsvm.data.rows import concat
from streamsvm.data.scratch import ArrayPlace, RowsPlace, put_array, put_rows
from streamsvm.ingest.block import Block, join_columns
from streamsvm.storage.atomic import storage_errors

_BUCKETS = 32
_Column = ArrayPlace | None


class Spool:
    """Blocks in an unnamed temporary file (a kill leaves nothing), read back in order.

    Raises StorageError if the disk is full.
    """

    def __init__(self, folder: str | None) -> None:
        self._folder = folder or tempfile.gettempdir()
        with storage_errors(self._folder):
            self._file = tempfile.TemporaryFile(dir=folder)
        self._places: list[tuple[RowsPlace, list[_Column]]] = []  # for each block
        self.n = 0

    @property
    def nbytes(self) -> int:
        return self._file.tell()

    def append(self, block: Block) -> None:
        with storage_errors(self._folder):
            columns = [None if v is None else put_array(self._file, v) for v in block.all_columns]
            self._places.append((put_rows(self._file, block.rows), columns))
            self._file.flush()
        self.n += len(block.rows)

    def __iter__(self) -> Iterator[Block]:
        for rows, columns in self._places:
            values = (None if place is None else place.read(self._file) for place in columns)
            yield Block(rows.read(self._file), *values)

    def close(self) -> None:
        with suppress(OSError):  # a full disk is reported by append; the file is gone either way
            self._file.close()


class Shuffler:
    """Blocks whose rows come back in uniformly random order.

    Each row goes to a random one of 32 buckets on disk, and each bucket is shuffled in memory, so that every order is
    equally likely (Sanders 1998). A bucket above `limit_bytes` is spread over 32 further ones.
    """

    def __init__(self, folder: str | None, limit_bytes: int, rng: np.random.Generator) -> None:
        self._folder, self._limit, self._rng = folder, limit_bytes, rng
        self._buckets = [Spool(folder) for _ in range(_BUCKETS)]
        self._waiting: list[Block] = []
        self.n = 0

    def append(self, block: Block) -> None:
        self._waiting.append(block)
        self.n += len(block.rows)
        if sum(b.rows.nbytes for b in self._waiting) >= self._limit // 4:
            self._scatter()

    def _scatter(self) -> None:
        """Spreads the waiting rows over the buckets, many at once, so that each bucket gets a long piece."""
        block, self._waiting = _join(self._waiting), []
        bucket = self._rng.integers(_BUCKETS, size=len(block.rows))
        order = np.argsort(bucket, kind="stable")
        edges = np.searchsorted(bucket[order], np.arange(_BUCKETS + 1))
        ordered = block.take(order)
        for spool, lo, hi in zip(self._buckets, edges, edges[1:], strict=False):
            if hi > lo:
                spool.append(ordered.take(slice(lo, hi)))

    def __iter__(self) -> Iterator[Block]:
        if self._waiting:
            self._scatter()
        for spool in self._buckets:
            yield from self._shuffled(spool)
            spool.close()

    def _shuffled(self, spool: Spool) -> Iterator[Block]:
        if spool.n == 0:
            return
        if spool.nbytes <= self._limit or spool.n == 1:
            whole = _join(list(spool))
            yield whole.take(self._rng.permutation(spool.n))
            return
        inner = Shuffler(self._folder, self._limit, self._rng)
        try:
            for block in spool:
                inner.append(block)
            yield from inner
        finally:
            inner.close()

    def close(self) -> None:
        for spool in self._buckets:
            spool.close()


def _join(blocks: list[Block]) -> Block:
    by_column = zip(*(b.all_columns for b in blocks), strict=True)
    columns = (None if c[0] is None else join_columns(c) for c in by_column)
    return Block(concat([b.rows for b in blocks]), *columns)
