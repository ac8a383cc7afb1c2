"""Samples: the scaled rows for training, from memory or from a store."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import numpy as np

from streamsvm.data.finite import require_finite
from streamsvm.data.rows import Rows, concat
from streamsvm.data.scaling import Scaling
from streamsvm.data.store import Store
from streamsvm.parallel.sizes import Weighed

Block = tuple[int, int]
WIDE = 1 << 16  # columns from which on sparse rows are counted by what they store


class Samples(Protocol):
    """n scaled rows: stored uint8 if they are not scaled, else float32."""

    n: int
    d: int

    @property
    def nbytes(self) -> float:
        """Bytes of all rows as they are read."""

    def blocks(self) -> list[Block]: ...

    def read(self, start: int, stop: int) -> Rows: ...

    def take(self, ids: np.ndarray) -> Rows: ...


class MemorySamples(Weighed):
    """Samples that fit in memory."""

    def __init__(self, rows: Rows) -> None:
        self.rows, self.n, self.d, self.nbytes = rows, len(rows), rows.d, float(rows.nbytes)

    def blocks(self) -> list[Block]:
        return memory_blocks(self.n, block_columns(self))

    def read(self, start: int, stop: int) -> Rows:
        return self.rows.take(slice(start, stop))

    def take(self, ids: np.ndarray) -> Rows:
        return self.rows.take(ids)


class StoreSamples(Weighed):
    """Samples read from a store block by block. Raises DataError if a row holds NaN or infinity."""

    def __init__(self, store: Store, scaling: Scaling) -> None:
        self.store, self.scaling, self.n, self.d = store, scaling, store.n, scaling.width
        self.as_stored = scaling.is_none and store.dtype == np.uint8 and not store.is_sparse
        grown = 1.0 if self.as_stored or store.is_sparse else 4 / store.dtype.itemsize
        self.nbytes = store.nbytes * grown * scaling.width / store.d

    def blocks(self) -> list[Block]:
        return self.store.blocks()

    def read(self, start: int, stop: int) -> Rows:
        rows = self.store.read(start, stop)
        require_finite(self.store, rows, start, gaps=self.scaling.fill is not None)
        return self._scaled(rows)

    def take(self, ids: np.ndarray) -> Rows:
        return self._scaled(self.store.take(ids))

    def load(self) -> MemorySamples:
        """All samples in memory."""
        return MemorySamples(concat([self.read(*block) for block in self.blocks()]))

    def _scaled(self, rows: Rows) -> Rows:
        return rows if self.as_stored else self.scaling.apply(rows)


def block_columns(samples: Samples) -> int:
    """Columns that a block of samples in memory counts by: of wide sparse rows, numbers that a row has stored, else
    each block would be one row."""
    stored = max(1, int(samples.nbytes / max(samples.n, 1) / 4))
    return min(samples.d, stored) if samples.d > WIDE else samples.d


def memory_blocks(n: int, d: int) -> list[Block]:
    """Blocks of n rows of d columns that are in memory."""
    step = max(1, (4 << 20) // (4 * d))
    return [(start, min(n, start + step)) for start in range(0, n, step)]


def windows(samples: Samples, most_bytes: int) -> Iterator[list[Block]]:
    """Blocks in groups of at most this many bytes of rows, at least one block in each."""
    return grouped(samples.blocks(), int(most_bytes * samples.n / samples.nbytes))


def grouped(blocks: list[Block], most_rows: int) -> Iterator[list[Block]]:
    """Neighbouring blocks in groups of at most this many rows, at least one block in each."""
    step = max(1, most_rows // max(stop - start for start, stop in blocks))
    return (blocks[first : first + step] for first in range(0, len(blocks), step))


def read_blocks(samples: Samples, blocks: list[Block]) -> Rows:
    """The rows of neighbouring blocks."""
    return concat([samples.read(*block) for block in blocks])
