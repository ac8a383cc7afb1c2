"""The matrix: nested bases, couplings of siblings, diagonal blocks. Its products, ranks and bytes, and the ULV
factorisation of K + beta I, with its solves."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain

import numpy as np
from scipy.linalg import solve_triangular

from streamsvm.errors import ConfigError
from streamsvm.events import Events, ignore
from streamsvm.hss.tree import ClusterTree, level_of
from streamsvm.parallel.engine import Engine
from streamsvm.parallel.sizes import SizedInBytes
from streamsvm.parallel.strips import strips

SUBTREES = 4  # tasks of a sweep for each thread
WORTH_THREADS = 1 << 20  # bytes of a node times columns: below, threads wait for the interpreter, not for memory

Blocks = dict[int, np.ndarray]  # by number of a node


@dataclass
class TreeSweep(SizedInBytes):
    """The state of a product or a solve on its way up and down a tree, or a subtree. columns (m, k): of row number
    `first` and those after it. up, down: vectors that each node sends up, and receives from above. scaled: vectors that
    `ULVFactor.rise` leaves for `fall`. out (m, k): the result."""

    columns: np.ndarray
    first: int = 0
    up: Blocks = field(default_factory=dict)
    scaled: Blocks = field(default_factory=dict)
    down: Blocks = field(default_factory=dict)
    out: np.ndarray = field(default_factory=lambda: np.empty(0))

    @classmethod
    def of(cls, V: np.ndarray, dtype: np.dtype, first: int = 0) -> TreeSweep:
        """The start of a sweep for V (m,) or (m, k)."""
        return cls(np.ascontiguousarray(V.reshape(len(V), -1), dtype), first)

    def rows(self, span: tuple[int, int]) -> slice:
        return slice(span[0] - self.first, span[1] - self.first)

    def inputs(self, tree: ClusterTree, node: int) -> np.ndarray:
        """The columns of a leaf's rows, or the vectors that the nodes below have sent up."""
        if tree.is_leaf(node):
            return self.columns[self.rows(tree.span(node))]
        return np.concatenate([self.up[2 * node + 1], self.up[2 * node + 2]])


@dataclass(frozen=True)
class HSSMatrix(SizedInBytes):
    """A symmetric n x n matrix K, rows in tree order (Chandrasekaran, Gu and Lyons 2005; symmetric case).

    Leaves hold K's diagonal blocks D (m, m). A node but the root holds its basis P (m, r): m rows of a leaf, or the
    ranks of the nodes below, follow from r of them. Inner nodes hold B (r, r'), the coupling of the nodes below; so
    the block of siblings i and j is U_i B U_j' with U_leaf = P, U = blkdiag(U_below) P above.

    The matrix of a subtree, or of the nodes above all subtrees, has the blocks of those nodes only."""

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
        if node > 0:
            at.up[node] = self.P[node].T @ at.inputs(self.tree, node)

    def fall(self, node: int, at: TreeSweep) -> None:
        from_above = self.P[node] @ at.down.pop(node) if node in at.down else None
        if self.tree.is_leaf(node):
            rows = at.rows(self.tree.span(node))
            at.out[rows] = self.D[node] @ at.columns[rows]
            if from_above is not None:
                at.out[rows] += from_above
            return
        left, right = 2 * node + 1, 2 * node + 2
        down = np.concatenate([self.B[node] @ at.up[right], self.B[node].T @ at.up[left]])
        if from_above is not None:
            down += from_above
        r = len(at.up[left])
        at.down[left], at.down[right] = down[:r], down[r:]


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


def swept(operator: HSSMatrix | ULVFactor, V: np.ndarray, threads: int) -> np.ndarray:
    """The result of a product or a solve for V (n,) or (n, k), float64, of a whole tree in this process. Threads share
    the subtrees where the bytes of all nodes times columns are worth it."""
    tree, at = operator.tree, TreeSweep.of(V, operator.dtype)
    at.out = np.empty_like(at.columns)
    worth = operator.nbytes * at.columns.shape[1] > WORTH_THREADS * tree.size
    threads = threads if worth else 1
    top = min(tree.depth, int(np.ceil(np.log2(SUBTREES * threads))) if threads > 1 else 0)
    roots = tree.level(top)

    def whole(visit: Callable[[int, TreeSweep], None], order: int) -> Callable[[int, int], None]:
        def work(start: int, stop: int) -> None:
            for root in roots[start:stop]:
                for node in list(tree.below(root))[::order]:
                    visit(node, at)

        return work

    strips(whole(operator.rise, 1), len(roots), 1, threads)
    _sweep_top(operator, range(roots.start), at)
    strips(whole(operator.fall, -1), len(roots), 1, threads)
    return at.out.reshape(V.shape).astype(np.float64)


def sweep_up(operator: HSSMatrix | ULVFactor, root: int, V: np.ndarray) -> TreeSweep:
    """The state after the way up a subtree, for V (m,) or (m, k) of its rows."""
    at = TreeSweep.of(V, operator.dtype, operator.tree.span(root)[0])
    for node in operator.tree.below(root):
        operator.rise(node, at)
    return at


def sweep_down(operator: HSSMatrix | ULVFactor, root: int, at: TreeSweep, down: np.ndarray) -> np.ndarray:
    """The result (m, k) of a subtree's rows, float64, after the way down. down: the vectors that the root receives."""
    # a copy: the state at the end of the way up does not change
    falling = TreeSweep(at.columns, at.first, at.up, dict(at.scaled), {root: down}, np.empty_like(at.columns))
    for node in list(operator.tree.below(root))[::-1]:
        operator.fall(node, falling)
    return falling.out.astype(np.float64)


def sweep_above(operator: HSSMatrix | ULVFactor, up: Blocks) -> Blocks:
    """The vectors that the root of each subtree receives, from those that they send up."""
    at = TreeSweep(np.empty((0, next(iter(up.values())).shape[1]), operator.dtype), up=dict(up))
    _sweep_top(operator, operator.tree.above, at)
    return at.down


def _sweep_top(operator: HSSMatrix | ULVFactor, nodes: range, at: TreeSweep) -> None:
    """Up and down the first nodes of a tree."""
    for node in reversed(nodes):
        operator.rise(node, at)
    for node in nodes:
        operator.fall(node, at)


@dataclass(frozen=True)
class ULVNode(SizedInBytes):
    """Linv (m, m) of a node's reduced diagonal block L L'; Q (m, r), R (r, r) of the scaled basis Linv U = Q R."""

    Linv: np.ndarray
    Q: np.ndarray
    R: np.ndarray


@dataclass(frozen=True)
class ULVFactor(SizedInBytes):
    """K + beta I = (product of block diagonal L Q over levels) times its transpose.

    A node's diagonal block is scaled to the identity by its Cholesky factor; then the orthogonal Q leaves only r
    variables coupled with other nodes, and these are the next level's (Xia and Gu 2010: scaling and compression).

    The factor of a subtree, or of the nodes above all subtrees, has those nodes only."""

    tree: ClusterTree
    beta: float
    nodes: dict[int, ULVNode]

    @property
    def nbytes(self) -> int:
        return sum(node.Linv.nbytes + node.Q.nbytes for node in self.nodes.values())

    @property
    def dtype(self) -> np.dtype:
        return next(iter(self.nodes.values())).Linv.dtype

    def part(self, nodes: Iterable[int]) -> ULVFactor:
        """These nodes."""
        return ULVFactor(self.tree, self.beta, {i: self.nodes[i] for i in nodes})

    def with_part(self, other: ULVFactor) -> ULVFactor:
        """The nodes of both."""
        return ULVFactor(self.tree, self.beta, self.nodes | other.nodes)

    def solve(self, V: np.ndarray, threads: int = 1) -> np.ndarray:
        """(K + beta I)^-1 V for V (n,) or (n, k), float64."""
        return swept(self, V, threads)

    def rise(self, i: int, at: TreeSweep) -> None:
        node = self.nodes[i]
        at.scaled[i] = node.Linv @ at.inputs(self.tree, i)
        if i > 0:
            at.up[i] = node.Q.T @ at.scaled[i]

    def fall(self, i: int, at: TreeSweep) -> None:
        node, t = self.nodes[i], at.scaled.pop(i)
        if i > 0:
            t = t + node.Q @ (at.down.pop(i) - at.up[i])
        x = node.Linv.T @ t
        if self.tree.is_leaf(i):
            at.out[at.rows(self.tree.span(i))] = x
        else:
            r = len(at.up[2 * i + 1])
            at.down[2 * i + 1], at.down[2 * i + 2] = x[:r], x[r:]


def factorise(
    matrix: HSSMatrix,
    beta: float,
    engine: Engine,
    events: Events = ignore,
    *,
    levels: Sequence[range] | None = None,
    below: Mapping[int, np.ndarray] | None = None,
) -> ULVFactor:
    """The factor of matrix + beta I; of the nodes of these levels, the lowest first, None: of all. below: R of the
    nodes under them. Raises ConfigError if that is not positive definite."""
    tree = matrix.tree
    nodes, R = dict[int, ULVNode](), dict(below or {})

    def reduced(i: int) -> tuple[np.ndarray, np.ndarray]:
        """The reduced diagonal block of a node, and its basis."""
        if tree.is_leaf(i):
            D = matrix.D[i].astype(np.float64)
            D.flat[:: len(D) + 1] += beta
            return D, matrix.P[i].astype(np.float64) if i else np.empty((len(D), 0))
        left, right = R[2 * i + 1], R[2 * i + 2]
        r, s = len(left), len(right)
        D = np.eye(r + s)
        D[:r, r:] = left @ matrix.B[i].astype(np.float64) @ right.T
        D[r:, :r] = D[:r, r:].T
        if i == 0:
            return D, np.empty((r + s, 0))
        P = matrix.P[i].astype(np.float64)
        rank = left.shape[1]
        return D, np.concatenate([left @ P[:rank], right @ P[rank:]])

    def eliminate(i: int) -> ULVNode:
        D, U = reduced(i)
        L = np.linalg.cholesky(D)
        Linv = solve_triangular(L, np.eye(len(L)), lower=True, check_finite=False)
        Q, R = np.linalg.qr(Linv @ U)
        Linv, Q = (np.ascontiguousarray(array, matrix.dtype) for array in (Linv, Q))
        return ULVNode(Linv, Q, np.ascontiguousarray(R))

    for level in tree.levels() if levels is None else levels:
        number = level_of(level.start)
        every = engine.map(
            eliminate, level, phase=f"factorise level {number}", events=events, window=16 * engine.threads
        )
        try:
            for i, node in zip(level, every, strict=True):
                nodes[i], R[i] = node, node.R
        except np.linalg.LinAlgError:
            raise ConfigError(
                f"the compressed kernel matrix plus beta = {beta:g} is not positive definite (found at level "
                f"{number} of {tree.depth}): the error of the compression is larger than beta; expected a smaller "
                "admm_hss.rtol, a larger admm_hss.max_rank or a larger beta"
            ) from None
    return ULVFactor(tree, beta, nodes)
