"""Rows divided into parts by k-means: a tree of centres, fitted round by round, each of them one pass over the rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

from streamsvm.data.gather import Table
from streamsvm.data.regroup import by_part
from streamsvm.data.rows import Rows
from streamsvm.data.samples import Block
from streamsvm.events import Events, ignore
from streamsvm.kernels.base import Kernel
from streamsvm.kernels.kmeans import MOST_CENTRES, Centres, Partition, fit_centres
from streamsvm.parallel.engine import Engine

SAMPLED = 64  # rows a centre, of a part that is split on
Routes = dict[int, tuple[Centres, np.ndarray]]


@dataclass(frozen=True)
class Cuts:
    """About n_parts parts of at most max_rows rows, by k-means with this kernel on `sample` rows at first."""

    n_parts: int
    max_rows: int
    sample: int
    kernel: Kernel


def partition(
    table: Table,
    engine: Engine,
    wanted: Cuts,
    rng: np.random.Generator,
    candidates: np.ndarray | None = None,
    events: Events = ignore,
) -> tuple[Partition, np.ndarray]:
    """The parts, and the part of each row, (n,) int32.

    k-means with n_parts centres first (at most MOST_CENTRES), from a sample of `candidates` (row ids; None: all);
    then every part that is too large is split on, from a sample of its own. Each round is one pass. Rows that no
    centres tell apart are cut by position, so the bound always holds; such pieces share a centre, which routes to
    the first of them.
    """
    tree, n_parts, max_rows = _Tree(), wanted.n_parts, wanted.max_rows
    every = partial(engine.map, events=events)
    parts, counts = np.zeros(table.n, np.int32), np.array([table.n])
    if candidates is not None and len(candidates) < n_parts:
        candidates = None
    todo = {0: min(n_parts, MOST_CENTRES)} if n_parts > 1 else _too_large(counts, max_rows, tree.solid)
    while todo:
        if candidates is None:
            own = SAMPLED if tree.n_leaves > 1 else wanted.sample
            most = {part: min(wanted.sample, own * k) for part, k in todo.items()}
            ranks = {p: _chosen(int(counts[p]), m, rng) for p, m in most.items()}
            drawn = ids_of_ranks(parts, table.blocks, ranks)
        else:
            drawn = [
                candidates[_chosen(len(candidates), wanted.sample, rng)]
            ]  # of the one part that there is
        centres = _fit_parts(table, every, drawn, todo, wanted.kernel, rng)
        todo_parts, before = list(todo), counts
        leaves = [tree.split(part, c) for part, c in zip(todo_parts, centres, strict=True)]
        routes = dict(zip(todo_parts, zip(centres, leaves, strict=True), strict=True))

        old = (parts[slice(*block)] for block in table.blocks)
        shared = (engine.share(routes),)
        new = every(_relabel, table.rows, old, shared=shared, phase="assign")
        parts = np.concatenate(list(new))
        counts = np.bincount(parts, minlength=tree.n_leaves)
        for part, children in zip(todo_parts, leaves, strict=True):
            tree.note(children, int(before[part]), counts[children])
        candidates = None
        todo = _too_large(counts, max_rows, tree.solid)
    return tree.finish(parts, max_rows)


def _relabel(routes: Routes, rows: Rows, parts: np.ndarray) -> np.ndarray:
    out, (order, bounds) = parts.copy(), by_part(parts)
    for part in np.flatnonzero(np.diff(bounds)).tolist():
        if part in routes:
            centres, leaves = routes[part]
            here = order[bounds[part] : bounds[part + 1]]
            out[here] = leaves[centres.assign(rows if len(here) == len(rows) else rows.take(here))]
    return out


def _too_large(counts: np.ndarray, max_rows: int, solid: set[int]) -> dict[int, int]:
    """Parts above the bound, and how many centres each gets."""
    large = [p for p in np.flatnonzero(counts > max_rows).tolist() if p not in solid]
    return {p: int(np.clip(-(-3 * counts[p] // (2 * max_rows)), 2, MOST_CENTRES)) for p in large}


def _chosen(n: int, most: int, rng: np.random.Generator) -> np.ndarray:
    return np.sort(rng.choice(n, min(n, most), replace=False))


def ids_of_ranks(parts: np.ndarray, blocks: list[Block], ranks: Mapping[int, np.ndarray]) -> list[np.ndarray]:
    """For each part the ids of its rows with these rising ranks among its own, block by block."""
    found: dict[int, list[np.ndarray]] = {part: [] for part in ranks}
    seen = dict.fromkeys(ranks, 0)
    for start, stop in blocks:
        order, bounds = by_part(parts[start:stop])
        for part in np.flatnonzero(np.diff(bounds)).tolist():
            if part in ranks:
                first, count = bounds[part], bounds[part + 1] - bounds[part]
                lo, hi = np.searchsorted(ranks[part], (seen[part], seen[part] + count))
                found[part].append(start + order[first + ranks[part][lo:hi] - seen[part]])
                seen[part] += count
    return [np.concatenate(own) for own in found.values()]


def _fit_parts(
    table: Table,
    every: Callable[..., Iterator[Any]],
    drawn: list[np.ndarray],
    todo: dict[int, int],
    kernel: Kernel,
    rng: np.random.Generator,
) -> list[Centres]:
    """Centres for each part to split, from samples that are gathered in one pass."""
    gathered = table.take(np.concatenate(drawn))
    bounds = np.cumsum([0, *map(len, drawn)])
    sampled = [gathered.take(slice(lo, hi)) for lo, hi in pairwise(bounds)]
    jobs = (sampled, todo.values(), rng.spawn(len(todo)))
    return list(every(partial(_fit_part, kernel), *jobs, phase="centres"))


def _fit_part(kernel: Kernel, sample: Rows, k: int, rng: np.random.Generator) -> Centres:
    return fit_centres(sample, min(k, len(sample)), kernel, rng)


class _Tree:
    """A partition under construction; leaves are numbered as they appear."""

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

    def note(self, leaves: np.ndarray, before: int, counts: np.ndarray) -> None:
        """Marks what three splits in a row have hardly made smaller; an empty leaf routes nothing."""
        largest = int(leaves[np.argmax(counts)])
        poor = self._poor[int(leaves[0])] + 1 if counts.max() > 0.9 * before else 0
        self._poor[largest] = poor
        if poor >= 3 or counts.max() == before:
            self.solid.add(largest)
        at = self._place[int(leaves[0])][0]
        node = self._nodes[at]
        self._nodes[at] = replace(node, offsets=np.where(counts > 0, node.offsets, np.inf))

    def finish(self, parts: np.ndarray, max_rows: int) -> tuple[Partition, np.ndarray]:
        """The tree over its non-empty leaves, numbered from the largest down, and the rows' parts."""
        counts = np.bincount(parts, minlength=self.n_leaves)
        pieces = [
            np.array_split(np.flatnonzero(parts == leaf), -(-counts[leaf] // max_rows)) for leaf in self.solid
        ]
        cuts = {leaf: cut for leaf, cut in zip(self.solid, pieces, strict=True) if len(cut) > 1}
        counts[list(cuts)] = max_rows
        numbers = np.empty(self.n_leaves, np.int32)
        numbers[np.argsort(-counts, kind="stable")] = np.arange(self.n_leaves)
        parts = numbers[parts]
        n_parts = int(np.count_nonzero(counts))
        for cut in cuts.values():
            for piece in cut[1:]:
                parts[piece] = n_parts
                n_parts += 1
        children = tuple(tuple(c if c < 0 else int(numbers[c]) for c in row) for row in self._children)
        return Partition(tuple(self._nodes), children), parts
