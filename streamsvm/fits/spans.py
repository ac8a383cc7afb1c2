"""How the rows of an early fit are distributed over the tasks of its graph."""

from __future__ import annotations

from dataclasses import dataclass

from streamsvm.data.regroup import file_bytes
from streamsvm.data.samples import Block, StoreSamples, block_columns, grouped, memory_blocks
from streamsvm.kernels.division import Cuts
from streamsvm.parallel.sizes import Weighed


@dataclass(frozen=True)
class Spans(Weighed):
    """blocks: of rows whose products are made together; those of one task each. files: spans of one task each, which
    regroups them. slots: the maximum number of tasks that solve partitions."""

    blocks: list[list[Block]]
    files: list[list[Block]]
    slots: int
    in_memory: bool  # whether the fit holds its rows, whose blocks are others then

    @property
    def whole(self) -> list[Block]:
        """The rows of each task that assigns."""
        return list(map(_whole, self.blocks))


def spans_of(samples: StoreSamples, cuts: Cuts, *, in_memory: bool) -> Spans:
    """The spans of a fit."""
    chunks = samples.blocks()
    held = memory_blocks(samples.n, block_columns(samples))
    blocks = list(grouped(held if in_memory else chunks, chunks[0][1]))
    slots = 2 * max(cuts.n_parts, -(-samples.n // cuts.max_rows))
    rows = int(file_bytes(samples, slots) * samples.n / samples.nbytes)
    return Spans(blocks, list(grouped(list(map(_whole, blocks)), rows)), slots, in_memory)


def _whole(blocks: list[Block]) -> Block:
    return blocks[0][0], blocks[-1][1]
