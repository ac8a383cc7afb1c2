"""ULV factorisation of K + beta I for an HSS matrix K, and its solves."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.linalg import solve_triangular

from streamsvm.errors import ConfigError
from streamsvm.events import Events, ignore
from streamsvm.hss.matrix import HSSMatrix, TreeSweep, swept
from streamsvm.hss.tree import ClusterTree, level_of
from streamsvm.parallel.engine import Engine
from streamsvm.parallel.sizes import SizedInBytes


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

    The factor of a subtree, or of the nodes above all subtrees, has those nodes only.
    """

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


def factorise(matrix: HSSMatrix, beta: float, engine: Engine, events: Events = ignore) -> ULVFactor:
    """The factor of matrix + beta I. Raises ConfigError if that is not positive definite."""
    return factorise_nodes(matrix, beta, matrix.tree.levels(), {}, engine, events)


def factorise_nodes(
    matrix: HSSMatrix,
    beta: float,
    levels: Sequence[range],
    below: Mapping[int, np.ndarray],
    engine: Engine,
    events: Events = ignore,
) -> ULVFactor:
    """The factor of the nodes of these levels, the lowest first; below: R of the nodes under them. Raises
    ConfigError."""
    tree = matrix.tree
    nodes, R = dict[int, ULVNode](), dict(below)

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

    for level in levels:
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
