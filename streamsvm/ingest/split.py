"""Blocks of samples before they are stored: on disk, in order or in random order, and split into two stores."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import closing, suppress
from typing import Any

import numpy as np

from streamsvm.data.rows import concat
from streamsvm.data.scratch import ArrayPlace, RowsPlace, put_array, put_rows
from streamsvm.errors import DataError
from streamsvm.ingest.block import Block, join_columns
from streamsvm.ingest.options import IngestOptions
from streamsvm.storage.atomic import storage_errors

_BUCKETS = 32


class Spool:
    """Blocks in an unnamed temporary file (a kill leaves nothing), read back in order.

    Raises StorageError if the disk is full.
    """

    def __init__(self, folder: str | None) -> None:
        self._folder = folder or tempfile.gettempdir()
        with storage_errors(self._folder):
            self._file = tempfile.TemporaryFile(dir=folder)
        self._places: list[tuple[RowsPlace, list[ArrayPlace | None]]] = []  # for each block
        self.n, self.nbytes = 0, 0

    def append(self, block: Block) -> None:
        with storage_errors(self._folder):
            columns = [None if v is None else put_array(self._file, v) for v in block.all_columns]
            self._places.append((put_rows(self._file, block.rows), columns))
            self._file.flush()
        self.n, self.nbytes = self.n + len(block.rows), self._file.tell()

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
        with closing(Shuffler(self._folder, self._limit, self._rng)) as inner:
            for block in spool:
                inner.append(block)
            yield from inner

    def close(self) -> None:
        for spool in self._buckets:
            spool.close()


def _join(blocks: list[Block]) -> Block:
    by_column = zip(*(b.all_columns for b in blocks), strict=True)
    columns = (None if c[0] is None else join_columns(c) for c in by_column)
    return Block(concat([b.rows for b in blocks]), *columns)


GROUPS = 0x6709  # a separate random stream that draws groups


class Split:
    """Sees every block, settles, and then splits blocks, which come in storage order."""

    def __init__(self, fraction: float) -> None:
        self._fraction = fraction

    def see(self, block: Block) -> None:
        raise NotImplementedError

    def settle(self) -> dict[str, object]:
        """Fixes the split. Returns facts to report. Raises DataError if a store stays empty."""
        raise NotImplementedError

    def is_first(self, block: Block) -> np.ndarray:
        """(m,) whether each row of the next block is for the store."""
        raise NotImplementedError

    def parts(self, block: Block) -> tuple[Block, Block]:
        """The rows of a block for the store, and for the test store."""
        is_first = self.is_first(block)
        return block.take(np.flatnonzero(is_first)), block.take(np.flatnonzero(~is_first))

    def _empty(self, of: str) -> DataError:
        return DataError(f"a split at {self._fraction} of {of} leaves one store empty")


def split_of(options: IngestOptions) -> Split | None:
    """The split that the options describe, or None."""
    if options.split is None:
        return None
    if options.split_by is not None:
        return ValueSplit(options.split, options.split_by)
    if options.group is not None:
        return GroupSplit(options.split, np.random.default_rng([options.seed, GROUPS]))
    return RandomSplit(options.split)


class RandomSplit(Split):
    """The first rows of a random order."""

    _n = 0

    def see(self, block: Block) -> None:
        self._n += len(block.rows)

    def settle(self) -> dict[str, object]:
        self._left = round(self._n * self._fraction)
        if not 0 < self._left < self._n:
            raise self._empty(f"{self._n} rows")
        return {}

    def is_first(self, block: Block) -> np.ndarray:
        is_first = np.arange(len(block.rows)) < self._left
        self._left -= len(block.rows)
        return is_first


class ValueSplit(Split):
    """Rows with keys below a cut between different keys, as close to the fraction as these allow.

    Memory: the keys, 8 bytes per row (8 GB for 1e9 rows).
    """

    def __init__(self, fraction: float, column: str) -> None:
        super().__init__(fraction)
        self._column, self._raw = column, bytearray()

    def see(self, block: Block) -> None:
        assert block.key is not None
        self._dtype = block.key.dtype
        self._raw += block.key.tobytes()

    def settle(self) -> dict[str, object]:
        keys = np.frombuffer(self._raw, self._dtype)
        keys.sort()
        n = len(keys)
        wanted = round(n * self._fraction)
        value = keys[min(wanted, n - 1)]
        places = [int(np.searchsorted(keys, value, side)) for side in ("left", "right")]
        places = [place for place in places if 0 < place < n]
        if not places:
            raise self._empty(f"rows that all have {_plain(value)} in column {self._column!r}")
        self._cut = keys[min(places, key=lambda place: abs(place - wanted))]
        del keys, self._raw
        return {"split_by": self._column, "split_at": _plain(self._cut)}

    def is_first(self, block: Block) -> np.ndarray:
        return block.key < self._cut


class GroupSplit(Split):
    """Whole groups in random order, until their rows are closest to the fraction. Memory: 8 bytes per group."""

    def __init__(self, fraction: float, rng: np.random.Generator) -> None:
        super().__init__(fraction)
        self._rng, self._sizes = rng, np.zeros(1, np.int64)

    def see(self, block: Block) -> None:
        assert block.group is not None
        missing = int(block.group.max()) + 1 - len(self._sizes)
        if missing > 0:  # at least doubled, because time would be quadratic in the number of groups
            self._sizes = np.pad(self._sizes, (0, max(missing, len(self._sizes))))
        np.add.at(self._sizes, block.group, 1)

    def settle(self) -> dict[str, object]:
        count = np.count_nonzero(self._sizes)
        if count < 2:
            raise self._empty("rows of one group")
        order = self._rng.permutation(count)
        ends = np.cumsum(self._sizes[order])[:-1]
        n_first = 1 + int(np.argmin(np.abs(ends - self._sizes.sum() * self._fraction)))
        self._first = np.zeros(count, bool)
        self._first[order[:n_first]] = True
        return {"groups": n_first, "test_groups": int(count) - n_first}

    def is_first(self, block: Block) -> np.ndarray:
        return self._first[block.group]


def _plain(value: Any) -> Any:
    return str(value).removesuffix(".000") if isinstance(value, np.datetime64) else value.item()
