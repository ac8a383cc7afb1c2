"""A dual whose rows are with the workers or in files: these compute products, and the driver gets few rows at a
time."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np

from streamsvm.data.cache import SingleEntryCache
from streamsvm.data.regroup import PartitionReader, RowPartitions, rows_by_part
from streamsvm.data.rows import Rows, concat
from streamsvm.kernels.base import Float64, Kernel
from streamsvm.parallel.engine import Engine
from streamsvm.problems.dual import BoundedGap, signed

COPIES = 3  # of rows that tasks keep: by partition, the problem's, and its active ones
NEAR_BYTES = 32 << 20  # of rows in the driver's cache: to fetch one takes as long as to compute a block's matrix
BATCHES = 64  # of rows in the cache; then they become one


class CachedRows(NamedTuple):
    """Rows in the workers' memory, as items for `Engine.map`, and for each item their places in a product."""

    rows: Sequence[Any]
    places: list[np.ndarray]


class StreamedDual(BoundedGap):
    """The dual of one binary problem whose rows are read partition by partition, once for each product.

    ids (n,): the problem's rows among those of `groups`; y and upper (n,) are in their order. On a cluster the workers
    keep the rows, and separate copies of those of the active set: a round sends them a working set, and they send
    products back. The driver caches rows of working sets, as most of them come again."""

    def __init__(
        self,
        kernel: Kernel,
        groups: RowPartitions,
        ids: np.ndarray,
        y: np.ndarray,
        upper: np.ndarray,
        engine: Engine,
    ) -> None:
        self.y, self.upper = y, upper
        self.linear: np.ndarray | float = -1.0
        self.nu: float | None = None
        self._kernel: Kernel | Float64 = kernel
        self._engine, self._nbytes = engine, groups.nbytes
        self._part, self._place = np.empty(len(ids), np.int32), np.empty(len(ids), np.int32)
        self._sizes = np.empty(groups.n_parts, np.int64)
        position = np.full(max(int(ids.max()) + 1, 1), -1)
        position[ids] = np.arange(len(ids))
        for number in range(groups.n_parts):
            part_ids = groups.ids(number)
            inside = np.flatnonzero(part_ids < len(position))
            members = position[part_ids[inside]]
            self._part[members[members >= 0]] = number
            self._place[members[members >= 0]] = inside[members >= 0]
            self._sizes[number] = len(part_ids)
        shared = (engine.share(groups.reader),)
        self._rows = engine.hold(_read_part, range(groups.n_parts), shared=shared, nbytes=groups.nbytes)
        self._active: SingleEntryCache[CachedRows] = SingleEntryCache()
        row = max(groups.nbytes / self._sizes.sum(), 1.0)
        self._near = NearRows(len(ids), 0 if engine.is_local else int(NEAR_BYTES / row))

    def in_float64(self) -> StreamedDual:
        return self._in_float64

    @cached_property
    def _in_float64(self) -> StreamedDual:
        if isinstance(self._kernel, Float64):
            return self
        dual = copy(self)
        dual._kernel, dual.value_error = self._kernel.in_float64(), 0.0
        return dual

    @cached_property
    def value_error(self) -> float:
        assert isinstance(self._kernel, Kernel)
        return max(self._engine.map(partial(_float32_error, self._kernel), self._all.rows))

    def order(self) -> np.ndarray:
        return np.concatenate(self._all.places)

    def cross(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        both = self._gather(np.concatenate([a, b]))  # in one message to the workers
        return self._kernel.block(both.take(slice(len(a))), both.take(slice(len(a), None)), self._engine.threads)

    def diagonal(self, ids: np.ndarray) -> np.ndarray:
        return self._kernel.diag(self._gather(ids))

    def gram(self, ids: np.ndarray) -> np.ndarray:
        rows = self._gather(ids)
        return signed(self._kernel.block(rows, rows, self._engine.threads), self.y[ids])

    def apply(self, ids: np.ndarray, delta: np.ndarray, rows: np.ndarray | None = None) -> np.ndarray:
        out = np.zeros(len(self.y) if rows is None else len(rows))
        if len(ids) == 0:
            return out
        right = self._engine.share((self._gather(ids), delta * self.y[ids]))
        cached = self._all if rows is None else self._active.of(rows, self._cache)
        products = self._engine.map(partial(_multiply, self._kernel), cached.rows, shared=(right,))
        for places, product in zip(cached.places, products, strict=True):
            out[places] = product
        return out * (self.y if rows is None else self.y[rows])

    @cached_property
    def _all(self) -> CachedRows:
        return self._cache(np.arange(len(self.y)))

    def _cache(self, ids: np.ndarray) -> CachedRows:
        """Rows by problem ids, in the memory of the workers that have their partitions."""
        parts, chosen, places = self._cut(ids)
        wanted = [self._rows[part] for part in parts]
        whole = (np.array_equal(some, np.arange(self._sizes[part])) for part, some in zip(parts, chosen, strict=True))
        if all(whole):
            return CachedRows(wanted, places)
        return CachedRows(self._engine.hold(Rows.take, wanted, chosen, nbytes=COPIES * self._nbytes), places)

    def _cut(self, ids: np.ndarray) -> tuple[list[int], list[np.ndarray], list[np.ndarray]]:
        """Of the partitions that have some of these rows: their numbers, which of their rows, and where these are in
        ids."""
        parts, places = rows_by_part(self._part[ids])
        return parts, [self._place[ids[some]] for some in places], places

    def _gather(self, ids: np.ndarray) -> Rows:
        """Rows by problem ids, in their order; an id may come more than once."""
        new = self._near.missing(ids)
        if len(new):
            parts, chosen, places = self._cut(new)
            fetched = self._engine.map(Rows.take, [self._rows[part] for part in parts], chosen)
            self._near.add(new[np.concatenate(places)], concat(list(fetched)))
        return self._near.take(ids)


class NearRows:
    """The driver's cache of rows of a problem, with room for `most`, or for two working sets where these are more."""

    def __init__(self, n: int, most: int) -> None:
        self._most = most
        self._at = np.full(n, -1, np.int32)  # where they are, one batch after the other
        self._batches: list[Rows] = []
        self._starts = [0]  # of batches, and where the next one begins

    def missing(self, ids: np.ndarray) -> np.ndarray:
        """The rows to add before `take`, each once and rising; all of these if there is no room, and the cache is
        emptied."""
        wanted = np.unique(ids)
        new = wanted[self._at[wanted] < 0]
        if len(new) and self._starts[-1] + len(new) > max(self._most, 2 * len(wanted)):
            self._at[:], self._batches, self._starts = -1, [], [0]
            return wanted
        return new

    def add(self, ids: np.ndarray, rows: Rows) -> None:
        if len(self._batches) == BATCHES:
            self._batches, self._starts = [concat(self._batches)], [0, self._starts[-1]]
        self._at[ids] = np.arange(self._starts[-1], self._starts[-1] + len(ids))
        self._batches.append(rows)
        self._starts.append(self._starts[-1] + len(ids))

    def take(self, ids: np.ndarray) -> Rows:
        at = self._at[ids]
        numbers, places = rows_by_part(np.searchsorted(self._starts, at, side="right") - 1)
        pieces = [
            self._batches[number].take(at[some] - self._starts[number])
            for number, some in zip(numbers, places, strict=True)
        ]
        return concat(pieces).take(np.argsort(np.concatenate(places)))


def _read_part(reader: PartitionReader, part: int) -> Rows:
    return reader.rows(part)


def _float32_error(kernel: Kernel, rows: Rows) -> float:
    return kernel.float32_error(rows)


def _multiply(kernel: Kernel | Float64, right: tuple[Rows, np.ndarray], rows: Rows) -> np.ndarray:
    return kernel.apply(rows, *right)
