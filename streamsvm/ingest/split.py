"""Splits rows into two stores: the first rows of a random order, rows before a time, or random groups."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np

from streamsvm.errors import DataError
from streamsvm.ingest.block import Block
from streamsvm.ingest.options import IngestOptions

GROUPS = 0x6709  # a separate random stream that draws groups


class Split(ABC):
    """Sees every block, settles, and then splits blocks, which come in storage order."""

    def __init__(self, fraction: float) -> None:
        self._fraction = fraction

    @abstractmethod
    def see(self, block: Block) -> None: ...

    @abstractmethod
    def settle(self) -> dict[str, object]:
        """Fixes the split. Returns facts to report. Raises DataError if a store stays empty."""

    def parts(self, block: Block) -> tuple[Block, Block]:
        """The rows of a block for the store, and for the test store."""
        is_first = self._is_first(block)
        return block.take(np.flatnonzero(is_first)), block.take(np.flatnonzero(~is_first))

    @abstractmethod
    def _is_first(self, block: Block) -> np.ndarray: ...

    def _empty(self, of: str) -> DataError:
        return DataError(f"a split at {self._fraction} of {of} leaves one store empty")


def split_of(options: IngestOptions) -> Split | None:
    """The split that the options describe, or None."""
    if options.split is None:
        return None
    if options.split_by is not None:
        return ByValue(options.split, options.split_by)
    if options.group is not None:
        return ByGroup(options.split, np.random.default_rng([options.seed, GROUPS]))
    return ByChance(options.split)


class ByChance(Split):
    """The first rows of a random order."""

    _n = 0

    def see(self, block: Block) -> None:
        self._n += len(block.rows)

    def settle(self) -> dict[str, object]:
        self._left = round(self._n * self._fraction)
        if not 0 < self._left < self._n:
            raise self._empty(f"{self._n} rows")
        return {}

    def _is_first(self, block: Block) -> np.ndarray:
        is_first = np.arange(len(block.rows)) < self._left
        self._left -= len(block.rows)
        return is_first


class ByValue(Split):
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

    def _is_first(self, block: Block) -> np.ndarray:
        return block.key < self._cut


class ByGroup(Split):
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

    def _is_first(self, block: Block) -> np.ndarray:
        return self._first[block.group]


def _plain(value: Any) -> Any:
    return str(value).removesuffix(".000") if isinstance(value, np.datetime64) else value.item()
