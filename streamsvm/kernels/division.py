"""Rows divided into partitions by k-means: a tree of centres, fitted in rounds, each of them one pass over the rows."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, pairwise
from typing import Any, Protocol

import numpy as np

from streamsvm.data.regroup import order_by_part
from streamsvm.data.rows import Rows, concat
from streamsvm.data.samples import Block, SampleBlocks
from streamsvm.data.vectors import Vector, VectorFactory
from streamsvm.events import Events, ignore
from streamsvm.kernels.base import Kernel
from streamsvm.kernels.kmeans import MOST_CENTRES, Centres, Partition, fit_centres
from streamsvm.parallel.engine import Engine, several
from streamsvm.parallel.sizes import SizedInBytes

COUNT_BYTES = 64 << 20  # of the rows of each leaf by block, up to which they are kept in memory
SAMPLED = 64  # rows per centre, for a partition that is split further
FEW_BLOCKS = 256  # random ones, that samples are read from: a hundredth of sorted rows is hardly missed
PLENTY = 4  # times its sample: rows of a partition that suffice in these blocks
MORE_ROUNDS = 4
MOST_TOGETHER = 16  # leaves whose centres one task fits
Routes = dict[int, tuple[Centres, np.ndarray]]
Job = tuple[Rows, int, np.random.Generator]  # a leaf's sample, the number of its centres, and their seeds


@dataclass(frozen=True)
class PartitionOptions:
    """About n_parts partitions of at most max_rows rows, by k-means with this kernel on `sample` rows at first."""

    n_parts: int
    max_rows: int
    sample: int
    kernel: Kernel


def partition(
    table: SampleBlocks,
    engine: Engine,
    wanted: PartitionOptions,
    rng: np.random.Generator,
    vectors: VectorFactory,
    candidates: np.ndarray | None = None,
    events: Events = ignore,
) -> tuple[Partition, Vector, np.ndarray]:
    """The partitions, with the partition of each row, (n,) int32, the vector `parts`, and the rows of each partition.

    k-means with n_parts centres first (at most MOST_CENTRES), from a sample of `candidates` (row ids; None: all).
    Then each partition that is too large is split further, from its own sample. Each round is one pass. Rows that no
    centres separate, or that are too many after `most_rounds`, are cut by position, so the bound always holds; such
    pieces share a centre, which routes to the first of them."""
    growth, blocks = TreeGrowth(table.n, wanted, rng), table.blocks
    every = partial(engine.map, events=events)
    leaves: Vector | None = None  # of each row; None: of the one that there is
    while growth.todo:
        if leaves is None and candidates is not None and len(candidates) >= wanted.n_parts:
            ids = candidates[_chosen(len(candidates), wanted.sample, rng)]  # of the one leaf that there is
            samples = [table.take(ids)]
        else:
            samples = growth.samples(leaves, table, engine)
        jobs = several(growth.jobs(samples), max(1, min(MOST_TOGETHER, len(samples) // (4 * engine.slots))))
        centres = every(partial(_fit_parts, wanted.kernel), jobs, phase="centres")
        routes = growth.split(list(chain.from_iterable(centres)))
        old, leaves = leaves, vectors.new(growth.name, np.int32)
        shared = (engine.share((old, leaves, routes)),)
        growth.end_round(every(_relabel, table.rows, blocks, shared=shared, phase="assign"))
        if old is not None:
            old.remove()
    tree, numbers = growth.finish(leaves, blocks, engine)
    parts = vectors.new("parts", np.int32)
    shared = (engine.share((numbers, parts)),)
    for _ in every(_number, blocks, shared=shared, phase="assign"):
        pass
    if leaves is not None:
        leaves.remove()
    return tree, parts, numbers.sizes


def most_rounds(n: int, wanted: PartitionOptions) -> int:
    """Rounds after which what is still too large is cut by position: enough to reach the required partitions, and
    MORE_ROUNDS. covtype takes 2 or 3, although 1 would reach them."""
    parts = max(wanted.n_parts, -(-n // wanted.max_rows), 2)
    return math.ceil(math.log(parts) / math.log(MOST_CENTRES)) + MORE_ROUNDS


class TreeGrowth(SizedInBytes):
    """The state of `partition` between rounds: the tree so far, the numbers of rows of its leaves, and the random
    generator. It is small, and reads no rows: only their counts. A round is `samples`, `jobs`, `split`, `end_round`."""

    def __init__(self, n: int, wanted: PartitionOptions, rng: np.random.Generator) -> None:
        self._tree, self._wanted, self._rng = Tree(), wanted, rng
        self._counts, self._left = np.array([n]), most_rounds(n, wanted)
        first = {0: min(wanted.n_parts, MOST_CENTRES)} if wanted.n_parts > 1 else self._too_large()
        self._block_counts: list[np.ndarray] | None = None  # of leaves in each block, where they are small
        self._split: dict[int, np.ndarray] = {}  # the new leaves of each that this round splits
        self.todo = first  # leaves to split, and how many centres each gets

    @property
    def name(self) -> str:
        """Of the vector of this round's leaves."""
        return f"leaves-{self._tree.n_leaves}"

    def samples(self, leaves: Vector | None, table: RowBlocks, engine: Engine) -> list[Rows]:
        """Of each leaf to split, the rows that its centres are fitted on. If rows are read for them, a few blocks do,
        unless they have few of the leaf's own."""
        sample, every = self._wanted.sample, range(len(table.blocks))
        if leaves is None:  # of the one leaf that there is
            return [table.take(random_rows(table, sample, self._rng))]
        left, samples = {leaf: min(sample, SAMPLED * k) for leaf, k in self.todo.items()}, dict[int, Rows]()
        few = few_blocks(table, self._rng)
        if len(few) < len(every):
            samples = self._drawn(leaves, table, few, left, PLENTY, engine)
            left = {leaf: m for leaf, m in left.items() if leaf not in samples}
        samples |= self._drawn(leaves, table, every, left, 0, engine)
        return [samples[leaf] for leaf in self.todo]

    def _drawn(
        self,
        leaves: Vector,
        table: RowBlocks,
        numbers: Sequence[int],
        most: Mapping[int, int],
        plenty: int,
        engine: Engine,
    ) -> dict[int, Rows]:
        """Random rows, at most so many, of each leaf that has `plenty` times as many in the blocks of these numbers."""
        blocks = [table.blocks[number] for number in numbers]
        counts = self._counts_in(leaves, [*most], blocks, numbers, engine)
        each = zip(most.items(), counts.sum(axis=0).tolist(), strict=True)
        ranks = {leaf: _chosen(n, m, self._rng) for (leaf, m), n in each if n >= plenty * m}
        if not ranks:
            return {}
        seen = before_each(counts[:, [leaf in ranks for leaf in most]])
        pieces = [table.rows[number] for number in numbers]
        return dict(zip(ranks, rows_of_ranks(leaves, pieces, blocks, ranks, seen, engine), strict=True))

    def jobs(self, samples: Sequence[Rows]) -> list[Job]:
        """The arguments of fitting centres, of each leaf to split."""
        return list(zip(samples, self.todo.values(), self._rng.spawn(len(self.todo)), strict=True))

    def fit(self, samples: Sequence[Rows]) -> list[Centres]:
        """The centres of all leaves to split, one after the other."""
        return _fit_parts(self._wanted.kernel, self.jobs(samples))

    def split(self, centres: list[Centres]) -> Routes:
        """Splits leaves by these centres; returns the centres and new leaves of each."""
        split = list(self.todo)
        self._split = {leaf: self._tree.split(leaf, c) for leaf, c in zip(split, centres, strict=True)}
        return {leaf: (c, self._split[leaf]) for leaf, c in zip(split, centres, strict=True)}

    def end_round(self, block_counts: Iterable[np.ndarray]) -> None:
        """Ends a round that split leaves. block_counts: of blocks, their rows in each leaf."""
        before, self._counts = self._counts, np.zeros(self._tree.n_leaves, np.int64)
        self._block_counts, nbytes = [], 0
        for counts in block_counts:
            self._counts[: len(counts)] += counts
            nbytes += counts.nbytes
            if self._block_counts is not None and nbytes <= COUNT_BYTES:
                self._block_counts.append(counts)
            else:
                self._block_counts = None
        for leaf, leaves in self._split.items():
            self._tree.mark(leaves, int(before[leaf]), self._counts[leaves])
        self._left -= 1
        self.todo = self._too_large()

    def _too_large(self) -> dict[int, int]:
        """Leaves above the bound, and how many centres each gets; none after the last round."""
        counts, most, solid = self._counts, self._wanted.max_rows, self._tree.solid
        large = [leaf for leaf in np.flatnonzero(counts > most).tolist() if leaf not in solid]
        if self._left == 0:
            solid.update(large)
            return {}
        return {leaf: int(np.clip(-(-3 * counts[leaf] // (2 * most)), 2, MOST_CENTRES)) for leaf in large}

    def finish(
        self, leaves: Vector | None, blocks: Sequence[Block], engine: Engine
    ) -> tuple[Partition, LeafPartitions]:
        """The tree, and what maps its leaves to partitions."""
        tree, first, cuts, sizes = self._tree.finish(self._counts, self._wanted.max_rows)
        seen = before_each(self._counts_in(leaves, [*cuts], blocks, range(len(blocks)), engine))
        starts = np.array([start for start, _ in blocks])
        return tree, LeafPartitions(leaves, first, tuple(cuts.values()), sizes, starts, seen)

    def _counts_in(
        self, leaves: Vector | None, wanted: list[int], blocks: Sequence[Block], numbers: Sequence[int], engine: Engine
    ) -> np.ndarray:
        """(blocks, wanted): rows of these leaves in each of the blocks, which have these numbers."""
        if not wanted or leaves is None:
            return np.zeros((len(blocks), len(wanted)), np.int64)
        chosen = np.array(wanted)
        if self._block_counts is None:
            return np.stack(list(engine.map(_counted, blocks, shared=(engine.share(leaves), chosen))))
        return np.stack([_of_leaves(self._block_counts[number], chosen) for number in numbers])


@dataclass(frozen=True)
class LeafPartitions(SizedInBytes):
    """Finds the partitions of rows by their leaves. first (leaves,) int32: the partition of each; if a leaf is cut by
    position, its first one. cuts: all partitions of each of these leaves. sizes (partitions,): their rows. seen
    (blocks, cuts): rows of these leaves in the blocks before, which begin at starts."""

    leaves: Vector | None
    first: np.ndarray
    cuts: tuple[np.ndarray, ...]
    sizes: np.ndarray
    starts: np.ndarray
    seen: np.ndarray

    def of(self, rows: Rows, start: int) -> np.ndarray:
        """(m,) of these rows, of whole blocks, the first of which is number start."""
        return self.read((start, start + len(rows)))

    def read(self, block: Block) -> np.ndarray:
        """(m,) int32 of a block's rows, or of neighbouring ones'."""
        out = self.first[leaves_of(self.leaves, block)]
        seen = self.seen[np.searchsorted(self.starts, block[0])]
        for before, parts in zip(seen, self.cuts, strict=True):
            members = np.flatnonzero(out == parts[0])
            ends = np.cumsum(self.sizes[parts])
            out[members] = parts[np.searchsorted(ends, before + np.arange(len(members)), side="right")]
        return out


def _relabel(shared: tuple[Vector | None, Vector, Routes], rows: Rows, block: Block) -> np.ndarray:
    """Writes the leaves of a block, and counts them."""
    old, new, routes = shared
    leaves = relabelled(routes, leaves_of(old, block), rows)
    new.write(block[0], leaves)
    return leaf_counts(leaves)


def relabelled(routes: Routes, leaves: np.ndarray, rows: Rows) -> np.ndarray:
    """(m,) int32 the leaves of rows that were in these ones."""
    out, (order, bounds) = leaves.copy(), order_by_part(leaves)
    for leaf in np.flatnonzero(np.diff(bounds)).tolist():
        if leaf in routes:
            centres, children = routes[leaf]
            members = order[bounds[leaf] : bounds[leaf + 1]]
            out[members] = children[centres.assign(rows if len(members) == len(rows) else rows.take(members))]
    return out


def leaves_of(vector: Vector | None, block: Block) -> np.ndarray:
    return np.zeros(block[1] - block[0], np.int32) if vector is None else vector.read(*block)


def _number(shared: tuple[LeafPartitions, Vector], block: Block) -> None:
    """Writes the partitions of a block's rows."""
    numbers, parts = shared
    parts.write(block[0], numbers.read(block))


def _chosen(n: int, most: int, rng: np.random.Generator) -> np.ndarray:
    return np.sort(rng.choice(n, min(n, most), replace=False))


def few_blocks(table: RowBlocks, rng: np.random.Generator) -> Sequence[int]:
    """Numbers of the blocks that samples are drawn from: random ones if rows are read for them, else all."""
    count = len(table.blocks)
    if table.in_memory or count <= FEW_BLOCKS:
        return range(count)
    return _chosen(count, FEW_BLOCKS, rng).tolist()


def random_rows(table: RowBlocks, most: int, rng: np.random.Generator) -> np.ndarray:
    """Rising ids of random rows, at most so many, from `few_blocks`."""
    starts, stops = np.array([table.blocks[number] for number in few_blocks(table, rng)]).T
    ends = np.cumsum(stops - starts)
    ranks = _chosen(int(ends[-1]), most, rng)
    block = np.searchsorted(ends, ranks, side="right")
    return ranks - ends[block] + stops[block]


class RowBlocks(Protocol):
    """Rows by block, as items of mapped functions. in_memory: of the process that maps."""

    @property
    def blocks(self) -> Sequence[Block]: ...

    @property
    def rows(self) -> Sequence[Any]: ...

    @property
    def in_memory(self) -> bool: ...

    def take(self, ids: np.ndarray) -> Rows: ...


def rows_of_ranks(
    leaves: Vector,
    rows: Sequence[Any],
    blocks: Sequence[Block],
    ranks: Mapping[int, np.ndarray],
    seen: np.ndarray,
    engine: Engine,
) -> list[Rows]:
    """For each leaf its rows with these rising ranks among its own, from the rows of blocks. seen (blocks, leaves): its
    rows in the blocks before each."""
    wanted, before = np.array([*ranks]), np.ascontiguousarray(seen.T)
    each = [
        np.searchsorted(leaf_before, leaf_ranks, side="right") - 1
        for leaf_before, leaf_ranks in zip(before, ranks.values(), strict=True)
    ]
    block, which = np.concatenate(each), np.repeat(np.arange(len(wanted)), list(map(len, each)))
    local = np.concatenate(list(ranks.values())) - seen[block, which]
    order, bounds = order_by_part(block, len(blocks))
    cuts = [order[lo:hi] for lo, hi in pairwise(bounds)]
    items = [(rows[b], blocks[b], wanted[which[cut]], local[cut]) for b, cut in enumerate(cuts) if len(cut)]
    drawn = concat(list(engine.map(_at_ranks, *zip(*items, strict=True), shared=(engine.share(leaves),))))
    places = np.empty(len(block), np.int64)
    places[order] = np.arange(len(block))
    return [drawn.take(ids) for ids in np.split(places, np.cumsum(list(map(len, each)))[:-1])]


def _at_ranks(leaves: Vector, rows: Rows, block: Block, leaf: np.ndarray, rank: np.ndarray) -> Rows:
    """Rows of a block by their leaves, and their ranks in these."""
    order, bounds = order_by_part(leaves.read(*block))
    return rows.take(order[bounds[leaf] + rank])


def before_each(counts: np.ndarray) -> np.ndarray:
    """(blocks, m) int64, of counts of each block, their sums over the blocks before it."""
    sums = np.zeros(counts.shape, np.int64)
    np.cumsum(counts[:-1], axis=0, out=sums[1:])
    return sums


def _counted(leaves: Vector, wanted: np.ndarray, block: Block) -> np.ndarray:
    return _of_leaves(leaf_counts(leaves.read(*block)), wanted)


def leaf_counts(leaves: np.ndarray) -> np.ndarray:
    """Rows of each leaf."""
    return np.bincount(leaves).astype(np.uint32)


def _of_leaves(counts: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """(wanted,) rows of these leaves, from those of the first leaves."""
    padded = np.zeros(max(len(counts), int(wanted.max()) + 1), np.uint32)
    padded[: len(counts)] = counts
    return padded[wanted]


def _fit_parts(kernel: Kernel, jobs: Sequence[Job]) -> list[Centres]:
    return [fit_centres(sample, min(k, len(sample)), kernel, rng) for sample, k, rng in jobs]


class Tree(SizedInBytes):
    """A tree of centres that grows leaf by leaf; leaves are numbered as they appear."""

    def __init__(self) -> None:
        self.n_leaves = 1
        self.solid: set[int] = set()  # leaves that splitting does not make smaller
        self._poor: dict[int, int] = {}
        self._nodes: list[Centres] = []
        self._children: list[list[int]] = []
        self._place: dict[int, tuple[int, int]] = {}  # of a leaf among them: node, and number of the child

    def split(self, leaf: int, centres: Centres) -> np.ndarray:
        """Turns a leaf into an inner node; returns the new leaves."""
        leaves = np.arange(self.n_leaves, self.n_leaves + centres.k, dtype=np.int32)
        self.n_leaves += centres.k
        if leaf in self._place:  # else it is the root
            node, child = self._place.pop(leaf)
            self._children[node][child] = ~len(self._nodes)
        self._place |= {int(new): (len(self._nodes), child) for child, new in enumerate(leaves)}
        self._nodes.append(centres)
        self._children.append(leaves.tolist())
        self._poor[int(leaves[0])] = self._poor.get(leaf, 0)
        return leaves

    def mark(self, leaves: np.ndarray, before: int, counts: np.ndarray) -> None:
        """Marks leaves that three splits in a row have hardly made smaller; no rows are routed to an empty leaf."""
        largest = int(leaves[np.argmax(counts)])
        poor = self._poor[int(leaves[0])] + 1 if counts.max() > 0.9 * before else 0
        self._poor[largest] = poor
        if poor >= 3 or counts.max() == before:
            self.solid.add(largest)
        number = self._place[int(leaves[0])][0]
        node = self._nodes[number]
        self._nodes[number] = replace(node, offsets=np.where(counts > 0, node.offsets, np.inf))

    def finish(
        self, counts: np.ndarray, max_rows: int
    ) -> tuple[Partition, np.ndarray, dict[int, np.ndarray], np.ndarray]:
        """The tree over its non-empty leaves, numbered from the largest down; the first partition of each leaf, all
        partitions of those that are too large and cut by position, and the rows of each. counts: rows of each leaf."""
        pieces = {leaf: -(-int(counts[leaf]) // max_rows) for leaf in self.solid}
        cuts = {leaf: _even(int(counts[leaf]), k) for leaf, k in pieces.items() if k > 1}
        order = counts.copy()
        order[list(cuts)] = max_rows
        ranked = np.argsort(-order, kind="stable")
        of_leaf = np.empty(self.n_leaves, np.int32)
        of_leaf[ranked] = np.arange(self.n_leaves)
        sizes = counts[ranked][: np.count_nonzero(counts)].tolist()
        parts: dict[int, np.ndarray] = {}
        for leaf, shares in cuts.items():
            sizes[of_leaf[leaf]] = shares[0]
            more = np.arange(len(sizes), len(sizes) + len(shares) - 1, dtype=np.int32)
            parts[leaf] = np.append(of_leaf[leaf], more)
            sizes += shares[1:]
        children = tuple(tuple(c if c < 0 else int(of_leaf[c]) for c in row) for row in self._children)
        return Partition(tuple(self._nodes), children), of_leaf, parts, np.array(sizes)


def _even(n: int, k: int) -> list[int]:
    """n in k shares as even as can be, larger ones first."""
    return [n // k + (i < n % k) for i in range(k)]
