"""The matrix: nested bases, couplings of siblings, diagonal blocks; its products, ranks and bytes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from streamsvm.hss.tree import ClusterTree
from streamsvm.parallel.strips import strips

SUBTREES = 4  # tasks of a sweep for each thread
WORTH_THREADS = (
    1 << 20
)  # bytes of a node times columns below which threads wait for the interpreter, not for memory


@dataclass(frozen=True)
class HSSMatrix:
    """A symmetric n x n matrix K, rows in tree order (Chandrasekaran, Gu and Lyons 2005; symmetric case).

    Leaves hold K's diagonal blocks D (m, m). A node but the root holds its basis P (m, r): m rows of a leaf, or the
    ranks of the nodes below, follow from r of them. Inner nodes hold B (r, r'), the coupling of the nodes below; so
    the block of siblings i and j is U_i B U_j' with U_leaf = P, U = blkdiag(U_below) P above.
    """

    tree: ClusterTree
    D: list[np.ndarray]  # by leaf
    P: list[np.ndarray]  # by node but the root: P[node - 1]
    B: list[np.ndarray]  # by inner node

    @property
    def shape(self) -> tuple[int, int]:
        return self.tree.n, self.tree.n

    @property
    def nbytes(self) -> int:
        return sum(array.nbytes for arrays in (self.D, self.P, self.B) for array in arrays)

    @property
    def dtype(self) -> np.dtype:
        return self.D[0].dtype

    def diagonal(self, leaf: int) -> np.ndarray:
        """D of a leaf, by node number."""
        return self.D[leaf - 2**self.tree.depth + 1]

    def ranks(self) -> list[np.ndarray]:
        """Ranks of the nodes, level by level from the top; the root has none."""
        levels = (self.tree.level(number) for number in range(1, self.tree.depth + 1))
        return [np.array([self.P[node - 1].shape[1] for node in level]) for level in levels]

    def fullness(self, max_rank: int) -> float:
        """Mean over nodes of the rank over the largest possible one: the rows of its basis, or max_rank."""
        return float(np.mean([P.shape[1] / min(len(P), max_rank) for P in self.P])) if self.P else 0.0

    def product(self, V: np.ndarray, threads: int = 1) -> np.ndarray:
        """K @ V for V (n,) or (n, k), float64."""
        columns = np.ascontiguousarray(V.reshape(len(V), -1), self.dtype)
        up: dict[int, np.ndarray] = {}
        down: dict[int, np.ndarray] = {}
        out = np.empty_like(columns)

        def rise(node: int) -> None:
            if node == 0:
                return
            below = (
                columns[slice(*self.tree.span(node))]
                if self.tree.is_leaf(node)
                else np.concatenate([up[2 * node + 1], up[2 * node + 2]])
            )
            up[node] = self.P[node - 1].T @ below

        def fall(node: int) -> None:
            from_above = self.P[node - 1] @ down.pop(node) if node in down else None
            if self.tree.is_leaf(node):
                here = slice(*self.tree.span(node))
                out[here] = self.diagonal(node) @ columns[here]
                if from_above is not None:
                    out[here] += from_above
                return
            left, right = 2 * node + 1, 2 * node + 2
            across = np.concatenate([self.B[node] @ up[right], self.B[node].T @ up[left]])
            if from_above is not None:
                across += from_above
            r = len(up[left])
            down[left], down[right] = across[:r], across[r:]

        sweep(self.tree, rise, fall, threads, self.nbytes * columns.shape[1])
        return out.reshape(V.shape).astype(np.float64)


def sweep(
    tree: ClusterTree, rise: Callable[[int], None], fall: Callable[[int], None], threads: int, work_bytes: int
) -> None:
    """Calls rise for all nodes, every one after those below it, then fall, every one after those above it.

    Subtrees are shared among threads where work_bytes, the bytes of all nodes times columns, are worth it.
    """
    threads = threads if work_bytes > WORTH_THREADS * tree.size else 1
    top = min(tree.depth, int(np.ceil(np.log2(SUBTREES * threads))) if threads > 1 else 0)
    roots = tree.level(top)

    def whole(visit: Callable[[int], None], order: int) -> Callable[[int, int], None]:
        def work(start: int, stop: int) -> None:
            for root in roots[start:stop]:
                for node in list(tree.below(root))[::order]:
                    visit(node)

        return work

    strips(whole(rise, 1), len(roots), 1, threads)
    above = range(roots.start)
    for node in reversed(above):
        rise(node)
    for node in above:
        fall(node)
    strips(whole(fall, -1), len(roots), 1, threads)
