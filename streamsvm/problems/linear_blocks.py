"""The dual of linear problems whose rows are read in blocks, as many at a time as there is memory for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from streamsvm.data.cache import CachedSamples
from streamsvm.data.row_buffer import RowBuffer
from streamsvm.data.rows import Rows
from streamsvm.events import Events, ignore
from streamsvm.parallel.engine import Engine
from streamsvm.parallel.prefetch import ahead
from streamsvm.problems.linear_dual import LinearDualBlock, RowLosses, RowsDual
from streamsvm.problems.row_risk import LossTerms


@dataclass(kw_only=True)
class Block(RowsDual):
    """See `LinearDualBlock`."""

    ids: np.ndarray
    kept: int
    number: int
    is_last: bool


@dataclass
class BlocksDual(RowLosses):
    """The dual of the rows of `samples`, with a constant feature `bias` unless it is 0; see `LinearDualInBlocks`. A
    block has windows of samples up to `block_bytes`, at least one, and the next window is read meanwhile. Losses, as
    terms, row_columns and upper (n,) make them, are in memory. A pass reads each window once."""

    samples: CachedSamples
    terms: LossTerms
    row_columns: tuple[np.ndarray, ...]
    upper: np.ndarray
    bias: float
    engine: Engine
    block_bytes: int
    events: Events = ignore
    count: int = 0
    note: dict[str, float] = field(default_factory=dict)

    @property
    def d(self) -> int:
        return self.samples.d + (self.bias != 0)

    def over(self, visit: Callable[[LinearDualBlock], np.ndarray], seed: Sequence[int]) -> None:
        self.count += 1
        windows = self.samples.blocks()
        order = np.random.default_rng(seed).permutation(len(windows)).tolist()
        buffer, ids, number, done = self._buffer, np.empty(0, np.int64), 0, 0
        buffer.keep(ids)
        kept = 0
        for start, stop, rows in ahead(self._read, [windows[place] for place in order]):
            if len(buffer) > kept and not buffer.has_room(rows):
                stays = np.flatnonzero(visit(self._block(ids, kept, number)))
                buffer.keep(stays)
                ids, kept, number = ids[stays], len(stays), number + 1
                self.events.progress("rows", done, self.n, **{"pass": self.count}, **self.note)
            buffer.append(rows)
            ids = np.append(ids, np.arange(start, stop))
            done += stop - start
        visit(self._block(ids, kept, number, is_last=True))

    def _read(self, window: tuple[int, int]) -> tuple[int, int, Rows]:
        return *window, self.samples.read(*window)[0]

    def _block(self, ids: np.ndarray, kept: int, number: int, *, is_last: bool = False) -> Block:
        columns, rows = tuple(values[ids] for values in self.row_columns), self._buffer.rows
        places: dict[str, Any] = {"ids": ids, "kept": kept, "number": number, "is_last": is_last}
        return Block(rows, self.terms, columns, self.upper[ids], self.bias, self.engine, **places)

    @cached_property
    def _buffer(self) -> RowBuffer:
        return RowBuffer(self.block_bytes)
