"""The tree of centres as it grows, leaf by leaf, before it is a partition."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from streamsvm.kernels.kmeans import Centres, Partition
from streamsvm.parallel.sizes import Weighed


class Tree(Weighed):
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

    def finish(
        self, counts: np.ndarray, max_rows: int
    ) -> tuple[Partition, np.ndarray, dict[int, np.ndarray], np.ndarray]:
        """The tree over its non-empty leaves, numbered from the largest down; the first partition of each leaf, all
        partitions of those that are too large and cut by position, and the rows of each. counts: rows of each leaf.
        """
        pieces = {leaf: -(-int(counts[leaf]) // max_rows) for leaf in self.solid}
        cuts = {leaf: _even(int(counts[leaf]), k) for leaf, k in pieces.items() if k > 1}
        order = counts.copy()
        order[list(cuts)] = max_rows
        ranked = np.argsort(-order, kind="stable")
        of_leaf = np.empty(self.n_leaves, np.int32)
        of_leaf[ranked] = np.arange(self.n_leaves)
        sizes = counts[ranked][: np.count_nonzero(counts)].tolist()
        parts: dict[int, np.ndarray] = {}
        for leaf, own in cuts.items():
            sizes[of_leaf[leaf]] = own[0]
            more = np.arange(len(sizes), len(sizes) + len(own) - 1, dtype=np.int32)
            parts[leaf] = np.append(of_leaf[leaf], more)
            sizes += own[1:]
        children = tuple(tuple(c if c < 0 else int(of_leaf[c]) for c in row) for row in self._children)
        return Partition(tuple(self._nodes), children), of_leaf, parts, np.array(sizes)


def _even(n: int, k: int) -> list[int]:
    """n in k shares as even as can be, larger ones first."""
    return [n // k + (i < n % k) for i in range(k)]
