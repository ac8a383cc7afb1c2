"""Samples: the scaled rows for training, read by blocks or by row number, from memory, a store or a cluster's workers.

`SamplesInMemory` and `SamplesInStore` read them in this process. `SampleBlocks` and `gather` let the workers of a
cluster read them. `splitmix64` gives each row id a random number that does not depend on other ids.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol

import numpy as np

from streamsvm.data.rows import Rows, concat, take_in_parts
from streamsvm.data.scaling import Scaling
from streamsvm.data.store import Store
from streamsvm.parallel.engine import Deferred, Engine
from streamsvm.parallel.sizes import SizedInBytes

Block = tuple[int, int]
WIDE = 1 << 16  # columns from which on blocks of sparse rows are sized by their stored entries


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


class SamplesInMemory(SizedInBytes):
    """Samples that fit in memory."""

    def __init__(self, rows: Rows) -> None:
        self.rows, self.n, self.d, self.nbytes = rows, len(rows), rows.d, float(rows.nbytes)

    def blocks(self) -> list[Block]:
        return memory_blocks(self.n, block_columns(self))

    def read(self, start: int, stop: int) -> Rows:
        return self.rows.take(slice(start, stop))

    def take(self, ids: np.ndarray) -> Rows:
        return self.rows.take(ids)


class SamplesInStore(SizedInBytes):
    """Samples read from a store block by block. Raises DataError if a row holds NaN or infinity."""

    def __init__(self, store: Store, scaling: Scaling) -> None:
        self.store, self.scaling, self.n, self.d = store, scaling, store.n, scaling.width
        self.as_stored = scaling.is_none and store.dtype == np.uint8 and not store.is_sparse
        grown = 1.0 if self.as_stored or store.is_sparse else 4 / store.dtype.itemsize
        self.nbytes = store.nbytes * grown * scaling.width / store.d

    def blocks(self) -> list[Block]:
        return self.store.blocks()

    def read(self, start: int, stop: int) -> Rows:
        return self._scaled(self.store.read_finite(start, stop, gaps=self.scaling.fill is not None))

    def take(self, ids: np.ndarray) -> Rows:
        return self._scaled(self.store.take(ids))

    def load(self) -> SamplesInMemory:
        """All samples in memory."""
        return SamplesInMemory(concat([self.read(*block) for block in self.blocks()]))

    def _scaled(self, rows: Rows) -> Rows:
        return rows if self.as_stored else self.scaling.apply(rows)


class MappedSamples(SizedInBytes):
    """Samples in other blocks, whose rows a function maps in each read. d: the float32 columns that it makes, unless
    rows stay as wide and as large as they are."""

    def __init__(
        self, samples: Samples, blocks: list[Block], function: Callable[[Rows], Rows] | None, d: int | None = None
    ) -> None:
        self.n, self.d = samples.n, samples.d if d is None else d
        self.nbytes = samples.nbytes if d is None else 4.0 * self.n * d
        self._samples, self._blocks, self._function = samples, blocks, function

    def blocks(self) -> list[Block]:
        return self._blocks

    def read(self, start: int, stop: int) -> Rows:
        return self._mapped(self._samples.read(start, stop))

    def take(self, ids: np.ndarray) -> Rows:
        return self._mapped(self._samples.take(ids))

    def _mapped(self, rows: Rows) -> Rows:
        return rows if self._function is None else self._function(rows)


def block_columns(samples: Samples) -> int:
    """The number of columns that sizes blocks in memory. Wide sparse rows count the entries that a row stores on
    average, because blocks sized by all columns would be of one row each."""
    stored = max(1, int(samples.nbytes / max(samples.n, 1) / 4))
    return min(samples.d, stored) if samples.d > WIDE else samples.d


def memory_blocks(n: int, d: int) -> list[Block]:
    """Blocks of n rows of d columns that are in memory."""
    step = max(1, (4 << 20) // (4 * d))
    return [(start, min(n, start + step)) for start in range(0, n, step)]


def windows(samples: Samples, most_bytes: int) -> Iterator[list[Block]]:
    """Blocks in groups of at most this many bytes of rows, at least one block in each."""
    return group_blocks(samples.blocks(), int(most_bytes * samples.n / samples.nbytes))


def group_blocks(blocks: list[Block], most_rows: int) -> Iterator[list[Block]]:
    """Neighbouring blocks in groups of at most this many rows, at least one block in each."""
    step = max(1, most_rows // max(stop - start for start, stop in blocks))
    return (blocks[first : first + step] for first in range(0, len(blocks), step))


def read_blocks(samples: Samples, blocks: list[Block]) -> Rows:
    """The rows of neighbouring blocks."""
    return concat([samples.read(*block) for block in blocks])


class SampleBlocks:
    """Samples in blocks, as items of mapped functions. Workers keep them as long as this object exists."""

    def __init__(self, samples: Samples, engine: Engine) -> None:
        self.n, self.blocks = samples.n, samples.blocks()
        self.in_memory = isinstance(samples, SamplesInMemory)
        self._samples, self._engine = samples, engine
        shared = (engine.share(samples),)
        self.rows = engine.hold(_read, self.blocks, shared=shared, nbytes=samples.nbytes)

    def take(self, ids: np.ndarray) -> Rows:
        """The rows `ids`, in their order."""
        return gather(self._samples, ids, self._engine, self.rows)


def gather(samples: Samples, ids: np.ndarray, engine: Engine, items: Sequence[object] | None = None) -> Rows:
    """The rows `ids`, in their order. On a cluster, workers select them from their blocks.

    items: the samples' blocks as items of mapped functions. None: workers read the blocks from the samples.
    """
    if engine.is_local:
        return samples.take(ids)
    blocks = samples.blocks()
    if items is None:
        source = engine.share(samples)
        items = [Deferred(_read, source, block) for block in blocks]
    starts = np.array([start for start, _ in blocks])

    def block_of(ids: np.ndarray) -> np.ndarray:
        return np.searchsorted(starts, ids, side="right") - 1

    def read(parts: list[np.ndarray]) -> Iterable[Rows]:
        numbers = block_of(np.array([part[0] for part in parts])).tolist()
        ids_in_block = [part - starts[number] for part, number in zip(parts, numbers, strict=True)]
        return engine.map(Rows.take, [items[number] for number in numbers], ids_in_block)

    return take_in_parts(ids, block_of(ids), read, concat)


def _read(samples: Samples, block: Block) -> Rows:
    return samples.read(*block)


STEP, *FACTORS = (np.uint64(n) for n in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))


def splitmix64(ids: np.ndarray, seed: int) -> np.ndarray:
    """(m,) uint64 of ids (m,) and a seed (Steele, Lea and Flood 2014)."""
    hashed = (ids.astype(np.uint64) + np.uint64(seed) + np.uint64(1)) * STEP
    for shift, factor in zip((30, 27), FACTORS, strict=True):
        hashed = (hashed ^ (hashed >> np.uint64(shift))) * factor
    return hashed ^ (hashed >> np.uint64(31))
