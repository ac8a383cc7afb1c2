"""Approximate nearest neighbours: rows that share a leaf in one of several random trees."""

from __future__ import annotations

from dataclasses import replace

import numba as nb
import numpy as np

from streamsvm.data.rows import Rows
from streamsvm.events import Event, Events, Progress, Record, TasksRun, ignore
from streamsvm.hss.tree import ClusterTree, order_rows, random_direction
from streamsvm.kernels.base import inner_products
from streamsvm.parallel.engine import Engine

LEAF_ROWS = 256


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


@nb.njit(nogil=True, cache=True)
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
