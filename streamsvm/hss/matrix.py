"""The matrix: nested bases, couplings of siblings, diagonal blocks; its products, ranks and bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Protocol

import numpy as np

from streamsvm.hss.tree import ClusterTree
from streamsvm.parallel.sizes import SizedInBytes
from streamsvm.parallel.strips import strips

SUBTREES = 4  # tasks of a sweep for each thread
WORTH_THREADS = (
    1 << 20
)  # bytes of a node times columns below which threads wait for the interpreter, not for memory

Blocks = dict[int, np.ndarray]  # by number of a node


@dataclass
class TreeSweep(SizedInBytes):
    """The state of a product or a solve on its way up and down a tree, or a subtree.

    columns (m, k): of row number `first` and those after it. up, down: what each node sends up, and is sent from
    above. kept: what `rise` leaves for `fall`. out (m, k): the result.
    """

    columns: np.ndarray
    first: int = 0
    up: Blocks = field(default_factory=dict)
    kept: Blocks = field(default_factory=dict)
    down: Blocks = field(default_factory=dict)
    out: np.ndarray = field(default_factory=lambda: np.empty(0))

    @classmethod
    def of(cls, V: np.ndarray, dtype: np.dtype, first: int = 0) -> TreeSweep:
        """That of V (m,) or (m, k)."""
        return cls(np.ascontiguousarray(V.reshape(len(V), -1), dtype), first)

    def falling(self, down: Blocks) -> TreeSweep:
        """This on its way down, as often as wanted: what there is of the way up stays as it is."""
        kept, out = dict(self.kept), np.empty_like(self.columns)
        return TreeSweep(self.columns, self.first, self.up, kept, down, out)

    def rows(self, span: tuple[int, int]) -> slice:
        return slice(span[0] - self.first, span[1] - self.first)


class SweepNodes(Protocol):
    """Nodes of a tree that a product or a solve goes up and down by: `rise` after the nodes below, `fall` after that
    above."""

    @property
    def tree(self) -> ClusterTree: ...

    @property
    def dtype(self) -> np.dtype: ...

    @property
    def nbytes(self) -> int: ...

    def rise(self, node: int, at: TreeSweep) -> None: ...

    def fall(self, node: int, at: TreeSweep) -> None: ...


@dataclass(frozen=True)
class HSSMatrix(SizedInBytes):
    """A symmetric n x n matrix K, rows in tree order (Chandrasekaran, Gu and Lyons 2005; symmetric case).

    Leaves hold K's diagonal blocks D (m, m). A node but the root holds its basis P (m, r): m rows of a leaf, or the
    ranks of the nodes below, follow from r of them. Inner nodes hold B (r, r'), the coupling of the nodes below; so
    the block of siblings i and j is U_i B U_j' with U_leaf = P, U = blkdiag(U_below) P above.

    Of a subtree, or of what is above all subtrees, it has the blocks of those nodes alone.
    """

    tree: ClusterTree
    D: Blocks
    P: Blocks
    B: Blocks

    @property
    def shape(self) -> tuple[int, int]:
        return self.tree.n, self.tree.n

    @property
    def nbytes(self) -> int:
        return sum(array.nbytes for blocks in (self.D, self.P, self.B) for array in blocks.values())

    @property
    def dtype(self) -> np.dtype:
        return next(chain(self.D.values(), self.B.values())).dtype

    def ranks(self) -> list[np.ndarray]:
        """Ranks of the nodes, level by level from the top; the root has none."""
        return ranks_of(self.tree, shapes_of(self.P))

    def part(self, nodes: Iterable[int]) -> HSSMatrix:
        """The blocks of these nodes."""
        wanted = set(nodes)
        return HSSMatrix(self.tree, *(_of(blocks, wanted) for blocks in (self.D, self.P, self.B)))

    def with_part(self, other: HSSMatrix) -> HSSMatrix:
        """The blocks of both."""
        return HSSMatrix(self.tree, self.D | other.D, self.P | other.P, self.B | other.B)

    def product(self, V: np.ndarray, threads: int = 1) -> np.ndarray:
        """K @ V for V (n,) or (n, k), float64."""
        return swept(self, V, threads)

    def rise(self, node: int, at: TreeSweep) -> None:
        if node == 0:
            return
        below = (
            at.columns[at.rows(self.tree.span(node))]
            if self.tree.is_leaf(node)
            else np.concatenate([at.up[2 * node + 1], at.up[2 * node + 2]])
        )
        at.up[node] = self.P[node].T @ below

    def fall(self, node: int, at: TreeSweep) -> None:
        from_above = self.P[node] @ at.down.pop(node) if node in at.down else None
        if self.tree.is_leaf(node):
            here = at.rows(self.tree.span(node))
            at.out[here] = self.D[node] @ at.columns[here]
            if from_above is not None:
                at.out[here] += from_above
            return
        left, right = 2 * node + 1, 2 * node + 2
        across = np.concatenate([self.B[node] @ at.up[right], self.B[node].T @ at.up[left]])
        if from_above is not None:
            across += from_above
        r = len(at.up[left])
        at.down[left], at.down[right] = across[:r], across[r:]


Shapes = Mapping[int, tuple[int, ...]]  # of bases, by number of a node


def shapes_of(P: Blocks) -> dict[int, tuple[int, ...]]:
    return {node: basis.shape for node, basis in P.items()}


def ranks_of(tree: ClusterTree, shapes: Shapes) -> list[np.ndarray]:
    """Ranks of the nodes, level by level from the top; the root has none."""
    levels = (tree.level(number) for number in range(1, tree.depth + 1))
    return [np.array([shapes[node][1] for node in level]) for level in levels]


def fullness(shapes: Shapes, max_rank: int) -> float:
    """Mean over nodes of the rank over the largest possible one: the rows of its basis, or max_rank."""
    return float(np.mean([r / min(m, max_rank) for m, r in shapes.values()])) if shapes else 0.0


def _of(blocks: Blocks, nodes: set[int]) -> Blocks:
    return {node: block for node, block in blocks.items() if node in nodes}


def swept(made: SweepNodes, V: np.ndarray, threads: int) -> np.ndarray:
    """The result of a product or a solve for V (n,) or (n, k), float64, of a whole tree that is here.

    Subtrees are shared among threads where the bytes of all nodes times columns are worth it.
    """
    tree, at = made.tree, TreeSweep.of(V, made.dtype)
    at.out = np.empty_like(at.columns)
    worth = made.nbytes * at.columns.shape[1] > WORTH_THREADS * tree.size
    threads = threads if worth else 1
    top = min(tree.depth, int(np.ceil(np.log2(SUBTREES * threads))) if threads > 1 else 0)
    roots = tree.level(top)

    def whole(visit: Callable[[int, TreeSweep], None], order: int) -> Callable[[int, int], None]:
        def work(start: int, stop: int) -> None:
            for root in roots[start:stop]:
                for node in list(tree.below(root))[::order]:
                    visit(node, at)

        return work

    strips(whole(made.rise, 1), len(roots), 1, threads)
    above = range(roots.start)
    for node in reversed(above):
        made.rise(node, at)
    for node in above:
        made.fall(node, at)
    strips(whole(made.fall, -1), len(roots), 1, threads)
    return at.out.reshape(V.shape).astype(np.float64)


def risen(made: SweepNodes, root: int, V: np.ndarray) -> TreeSweep:
    """The way up a subtree, for V (m,) or (m, k) of its rows."""
    at = TreeSweep.of(V, made.dtype, made.tree.span(root)[0])
    for node in made.tree.below(root):
        made.rise(node, at)
    return at


def fallen(made: SweepNodes, root: int, at: TreeSweep, down: np.ndarray) -> np.ndarray:
    """The way down a subtree that `down` is sent to, and the result (m, k) of its rows, float64."""
    falling = at.falling({root: down})
    for node in list(made.tree.below(root))[::-1]:
        made.fall(node, falling)
    return falling.out.astype(np.float64)


def across(made: SweepNodes, up: Blocks) -> Blocks:
    """What is sent down to each subtree, from what they send up."""
    tree = made.tree
    at = TreeSweep(np.empty((0, next(iter(up.values())).shape[1]), made.dtype), up=dict(up))
    for node in reversed(tree.above):
        made.rise(node, at)
    for node in tree.above:
        made.fall(node, at)
    return at.down
