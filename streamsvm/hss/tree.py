"""A balanced binary cluster tree: rows in an order in which near ones are neighbours; and approximate nearest
neighbours of rows, by several random trees."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from streamsvm.data.rows import Rows
from streamsvm.events import Event, Events, Progress, Record, TasksRun, ignore
from streamsvm.kernels.base import inner_products
from streamsvm.parallel.engine import Engine
from streamsvm.private.numba import njit

SUBTREE_ROWS = 32_768  # of a subtree, which one worker holds: some hundred MB of matrix and factor
SAMPLE = 1000  # rows from which a split's direction is computed
POWER_STEPS = 10

Direction = Callable[[Rows, np.random.Generator], np.ndarray]
LEAF_ROWS = 256


@dataclass(frozen=True)
class ClusterTree:
    """A complete binary tree over n ordered rows, halved `depth` times. Nodes are numbered level by level from the
    root, 0: those below node i are 2i + 1 and 2i + 2. The nodes of level `cut` are the roots of subtrees, each of which
    a worker may hold; sums over rows are taken subtree by subtree, also in one process, so that they are the same."""

    n: int
    depth: int
    cut: int = 0

    @classmethod
    def of(cls, n: int, leaf_rows: int) -> ClusterTree:
        """The smallest depth whose leaves have at most leaf_rows, the smallest cut whose subtrees have SUBTREE_ROWS."""
        depth, cut = (max(0, int(np.ceil(np.log2(n / most)))) for most in (leaf_rows, SUBTREE_ROWS))
        return cls(n, depth, min(depth, cut))

    @property
    def roots(self) -> range:
        """The roots of the subtrees."""
        return self.level(self.cut)

    @property
    def above(self) -> range:
        """The nodes above all subtrees."""
        return range(self.roots.start)

    @property
    def size(self) -> int:
        """Nodes."""
        return 2 ** (self.depth + 1) - 1

    def level(self, number: int, root: int = 0) -> range:
        """The nodes of a level, 0 is that of the whole tree's root; those under `root`."""
        first = ((root + 1) << (number - level_of(root))) - 1
        return range(first, first + (1 << (number - level_of(root))))

    def levels(self, root: int = 0) -> list[range]:
        """The nodes under `root`, by level, the leaves first."""
        return [self.level(number, root) for number in range(self.depth, level_of(root) - 1, -1)]

    def levels_above(self) -> list[range]:
        """The nodes above all subtrees, by level, the lowest first."""
        return [self.level(number) for number in range(self.cut - 1, -1, -1)]

    def is_leaf(self, node: int) -> bool:
        return node >= 2**self.depth - 1

    def span(self, node: int) -> tuple[int, int]:
        """First row of a node, and the one after its last."""
        level = level_of(node)
        place = node + 1 - 2**level
        return place * self.n >> level, (place + 1) * self.n >> level

    def strips(self, height: int) -> list[tuple[int, int]]:
        """First and last row of strips of at most `height` rows, each within one subtree."""
        spans = map(self.span, self.roots)
        return [strip for start, stop in spans for strip in strips_of(start, stop, height)]

    def below(self, node: int) -> Iterator[int]:
        """The nodes under `node` and itself, every node after those under it."""
        if not self.is_leaf(node):
            yield from self.below(2 * node + 1)
            yield from self.below(2 * node + 2)
        yield node


def level_of(node: int) -> int:
    return (node + 1).bit_length() - 1


def strips_of(start: int, stop: int, height: int) -> list[tuple[int, int]]:
    """Rows start..stop in strips of `height`."""
    return [(first, min(stop, first + height)) for first in range(start, stop, height)]


def order_rows(
    rows: Rows, tree: ClusterTree, direction: Direction, seed: list[int], engine: Engine, events: Events = ignore
) -> np.ndarray:
    """(n,) the row at each place of the tree: nodes are split at the median of their projection on `direction`."""
    order = np.arange(tree.n)

    def split(node: int) -> np.ndarray:
        start, stop = tree.span(node)
        ids = order[start:stop]
        members, rng = rows.take(ids), np.random.default_rng([*seed, node])
        along = members.X @ direction(members, rng).astype(np.float32)
        return ids[np.argpartition(along, tree.span(2 * node + 1)[1] - start)]

    for level in range(tree.depth):
        nodes = tree.level(level)
        parts = engine.map(split, nodes, phase=f"tree level {level}", events=events, window=16 * engine.threads)
        for node, part in zip(nodes, parts, strict=True):
            order[slice(*tree.span(node))] = part
    return order


def principal_direction(rows: Rows, rng: np.random.Generator) -> np.ndarray:
    """(d,) the direction of largest variance of a sample, by power iterations."""
    X = rows.take(np.sort(rng.choice(len(rows), min(SAMPLE, len(rows)), replace=False))).X
    mean = np.asarray(X.mean(axis=0, dtype=np.float64)).ravel()
    v = rng.normal(size=rows.d)
    for _ in range(POWER_STEPS):
        along = X @ v - mean @ v
        v = X.T @ along - mean * along.sum()
        norm = np.linalg.norm(v)
        if norm == 0:  # all rows are equal
            return np.ones(rows.d)
        v /= norm
    return v


def random_direction(rows: Rows, rng: np.random.Generator) -> np.ndarray:
    """(d,) from one row to another."""
    X = Rows(rows.take(rng.integers(len(rows), size=2)).X.astype(np.float64)).dense()
    v = X[1] - X[0]
    return v if v.any() else rng.normal(size=rows.d)


def nearest_neighbours(
    rows: Rows, k: int, trees: int, seed: list[int], engine: Engine, events: Events = ignore
) -> tuple[np.ndarray, np.ndarray]:
    """(n, k) int32 ids of near rows, nearest first, -1 where there are fewer, and float32 squared distances. Dasgupta
    and Freund 2008: random projection trees; each row is compared with those that share a leaf with it."""
    ids = np.full((len(rows), k), -1, np.int32)
    sq_distances = np.full((len(rows), k), np.inf, np.float32)
    tree = ClusterTree.of(len(rows), LEAF_ROWS)
    leaves = tree.level(tree.depth)
    for number in range(trees):
        order = order_rows(rows, tree, random_direction, [*seed, number], engine)

        def compare(leaf: int, order: np.ndarray = order) -> None:
            members = np.sort(order[slice(*tree.span(leaf))])
            block = rows.take(members)
            inner = inner_products(block, block, np.float32)
            norms = block.sq_norms.astype(np.float32)
            _insert_near(inner, norms, members, ids, sq_distances)

        def report(record: Record[Event], number: int = number) -> None:
            if isinstance(record.event, TasksRun):
                events(replace(record.event, phase="neighbours"))
                return
            assert isinstance(record.event, Progress)  # all else that a map emits
            assert record.event.total
            done = number + record.event.done / record.event.total
            events.progress("neighbours", int(done) if done == int(done) else done, trees)

        for _ in engine.map(compare, leaves, window=16 * engine.threads, events=events.heard_by(report)):
            pass
    return ids, sq_distances


@njit(cache=True)
def _insert_near(inner, norms, members, ids, sq_distances):
    """Enters rows `members` into each other's lists of neighbours where they are among the nearest."""
    m, k = len(members), ids.shape[1]
    for i in range(m):
        near, distances = ids[members[i]], sq_distances[members[i]]
        for j in range(m):
            sq = max(norms[i] + norms[j] - np.float32(2) * inner[i, j], np.float32(0))
            if j == i or sq >= distances[k - 1]:
                continue
            twice = False
            for p in range(k):
                twice |= near[p] == members[j]
            if twice:
                continue
            p = k - 1
            while p > 0 and distances[p - 1] > sq:
                distances[p], near[p] = distances[p - 1], near[p - 1]
                p -= 1
            distances[p], near[p] = sq, members[j]
