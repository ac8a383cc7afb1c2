"""Rows by number, out of all blocks."""

from __future__ import annotations

import numpy as np

from streamsvm.data.rows import Rows, concat
from streamsvm.data.samples import Block, Samples
from streamsvm.graph import Engine


def gather(samples: Samples, ids: np.ndarray, engine: Engine) -> Rows:
    """The rows `ids`, in their order; on a cluster, workers pick them, each from whole blocks."""
    if engine.is_local:
        return samples.take(ids)
    order = np.argsort(ids, kind="stable")
    wanted = [(block, here) for block, here in _by_block(samples, ids[order]) if len(here)]
    rows = concat(list(engine.map(_pick, *zip(*wanted, strict=True), shared=(engine.share(samples),))))
    back = np.empty_like(order)
    back[order] = np.arange(len(order))
    return rows.take(back)


def _by_block(samples: Samples, ids: np.ndarray) -> list[tuple[Block, np.ndarray]]:
    """Ascending ids by the block that they are in."""
    blocks = samples.blocks()
    bounds = np.searchsorted(ids, [start for start, _ in blocks[1:]])
    return list(zip(blocks, np.split(ids, bounds), strict=True))


def _pick(samples: Samples, block: Block, ids: np.ndarray) -> Rows:
    return samples.read(*block).take(ids - block[0])
