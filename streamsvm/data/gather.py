"""Samples as tasks see them: blocks that workers keep, and rows by number out of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from streamsvm.data.rows import Rows, concat
from streamsvm.data.samples import Block, Samples
from streamsvm.parallel.engine import Engine, Later


class Table:
    """Samples in blocks, as items of mapped functions; workers of a cluster keep them as long as this lives."""

    def __init__(self, samples: Samples, engine: Engine) -> None:
        self.n, self.blocks = samples.n, samples.blocks()
        self._samples, self._engine = samples, engine
        shared = (engine.share(samples),)
        self.rows = engine.hold(_read, self.blocks, shared=shared, nbytes=samples.nbytes)

    def take(self, ids: np.ndarray) -> Rows:
        """The rows `ids`, in their order."""
        return _taken(self._samples, ids, self._engine, self.rows)


def gather(samples: Samples, ids: np.ndarray, engine: Engine) -> Rows:
    """The rows `ids`, in their order; on a cluster, workers pick them, each from whole blocks."""
    if engine.is_local:
        return samples.take(ids)
    source = engine.share(samples)
    return _taken(samples, ids, engine, [Later(_read, source, block) for block in samples.blocks()])


def _taken(samples: Samples, ids: np.ndarray, engine: Engine, items: Sequence[Any]) -> Rows:
    """The rows `ids` out of the samples' blocks, which are items of mapped functions."""
    if engine.is_local:
        return samples.take(ids)
    order = np.argsort(ids, kind="stable")
    parts = zip(items, _by_block(samples.blocks(), ids[order]), strict=True)
    wanted = [(rows, here) for rows, here in parts if len(here)]
    rows = concat(list(engine.map(Rows.take, *zip(*wanted, strict=True))))
    back = np.empty_like(order)
    back[order] = np.arange(len(order))
    return rows.take(back)


def _by_block(blocks: list[Block], ids: np.ndarray) -> list[np.ndarray]:
    """Ascending ids, as numbers inside the block that they are in."""
    starts = [start for start, _ in blocks]
    parts = np.split(ids, np.searchsorted(ids, starts[1:]))
    return [here - start for start, here in zip(starts, parts, strict=True)]


def _read(samples: Samples, block: Block) -> Rows:
    return samples.read(*block)
