"""Samples as tasks read them: blocks that workers keep, and rows by number from these blocks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from streamsvm.data.rows import Rows, concat, taken
from streamsvm.data.samples import Block, MemorySamples, Samples
from streamsvm.parallel.engine import Engine, Later


class Table:
    """Samples in blocks, as items of mapped functions. The workers of a cluster keep them as long as this object
    exists."""

    def __init__(self, samples: Samples, engine: Engine) -> None:
        self.n, self.blocks, self.in_memory = samples.n, samples.blocks(), isinstance(samples, MemorySamples)
        self._samples, self._engine = samples, engine
        shared = (engine.share(samples),)
        self.rows = engine.hold(_read, self.blocks, shared=shared, nbytes=samples.nbytes)

    def take(self, ids: np.ndarray) -> Rows:
        """The rows `ids`, in their order."""
        return _taken(self._samples, ids, self._engine, self.rows)


def gather(samples: Samples, ids: np.ndarray, engine: Engine) -> Rows:
    """The rows `ids`, in their order. On a cluster, workers select them from their blocks."""
    if engine.is_local:
        return samples.take(ids)
    source = engine.share(samples)
    return _taken(samples, ids, engine, [Later(_read, source, block) for block in samples.blocks()])


def _taken(samples: Samples, ids: np.ndarray, engine: Engine, items: Sequence[Any]) -> Rows:
    """The rows `ids` from the samples' blocks, which are items of mapped functions."""
    if engine.is_local:
        return samples.take(ids)
    starts = np.array([start for start, _ in samples.blocks()])

    def block_of(ids: np.ndarray) -> np.ndarray:
        return np.searchsorted(starts, ids, side="right") - 1

    def pick(parts: list[np.ndarray]) -> Iterable[Rows]:
        blocks = block_of(np.array([part[0] for part in parts])).tolist()
        here = [part - starts[block] for part, block in zip(parts, blocks, strict=True)]
        return engine.map(Rows.take, [items[block] for block in blocks], here)

    return taken(ids, block_of(ids), pick, concat)


def _read(samples: Samples, block: Block) -> Rows:
    return samples.read(*block)
