"""ULV factorisation of K + beta I for an HSS matrix K, and its solves."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import solve_triangular

from streamsvm.errors import ConfigError
from streamsvm.events import Events, ignore
from streamsvm.hss.matrix import HSSMatrix, sweep
from streamsvm.parallel.engine import Engine


@dataclass(frozen=True)
class ULVNode:
    """Linv (m, m) of a node's reduced diagonal block L L'; Q (m, r), R (r, r) of the scaled basis Linv U = Q R."""

    Linv: np.ndarray
    Q: np.ndarray
    R: np.ndarray


@dataclass(frozen=True)
class ULVFactor:
    """K + beta I = (product of block diagonal L Q over levels) times its transpose.

    A node's diagonal block is scaled to the identity by its Cholesky factor; then the orthogonal Q leaves only r
    variables that meet other nodes, and these are the next level's (Xia and Gu 2010: scaling and compression).
    """

    matrix: HSSMatrix
    beta: float
    nodes: list[ULVNode]

    @property
    def nbytes(self) -> int:
        return sum(node.Linv.nbytes + node.Q.nbytes for node in self.nodes)

    def solve(self, V: np.ndarray, threads: int = 1) -> np.ndarray:
        """(K + beta I)^-1 V for V (n,) or (n, k), float64."""
        tree = self.matrix.tree
        columns = np.ascontiguousarray(V.reshape(len(V), -1), self.matrix.dtype)
        scaled: dict[int, np.ndarray] = {}
        up: dict[int, np.ndarray] = {}
        down: dict[int, np.ndarray] = {}
        out = np.empty_like(columns)

        def rise(i: int) -> None:
            node = self.nodes[i]
            own = (
                columns[slice(*tree.span(i))]
                if tree.is_leaf(i)
                else np.concatenate([up[2 * i + 1], up[2 * i + 2]])
            )
            scaled[i] = node.Linv @ own
            if i > 0:
                up[i] = node.Q.T @ scaled[i]

        def fall(i: int) -> None:
            node, t = self.nodes[i], scaled.pop(i)
            if i > 0:
                t += node.Q @ (down.pop(i) - up[i])
            x = node.Linv.T @ t
            if tree.is_leaf(i):
                out[slice(*tree.span(i))] = x
            else:
                r = self.nodes[2 * i + 1].Q.shape[1]
                down[2 * i + 1], down[2 * i + 2] = x[:r], x[r:]

        sweep(tree, rise, fall, threads, self.nbytes * columns.shape[1])
        return out.reshape(V.shape).astype(np.float64)


def factorise(matrix: HSSMatrix, beta: float, engine: Engine, events: Events = ignore) -> ULVFactor:
    """The factor of matrix + beta I. Raises ConfigError where that is not positive definite."""
    tree = matrix.tree
    nodes: dict[int, ULVNode] = {}

    def reduced(i: int) -> tuple[np.ndarray, np.ndarray]:
        """The diagonal block of what is left of a node, and its basis."""
        if tree.is_leaf(i):
            D = matrix.diagonal(i).astype(np.float64)
            D.flat[:: len(D) + 1] += beta
            return D, matrix.P[i - 1].astype(np.float64) if i else np.empty((len(D), 0))
        left, right = nodes[2 * i + 1], nodes[2 * i + 2]
        r, s = len(left.R), len(right.R)
        D = np.eye(r + s)
        D[:r, r:] = left.R @ matrix.B[i].astype(np.float64) @ right.R.T
        D[r:, :r] = D[:r, r:].T
        if i == 0:
            return D, np.empty((r + s, 0))
        P = matrix.P[i - 1].astype(np.float64)
        below = matrix.P[2 * i].shape[1]  # of the left node: P[2 i + 1 - 1]
        return D, np.concatenate([left.R @ P[:below], right.R @ P[below:]])

    def eliminate(i: int) -> ULVNode:
        D, U = reduced(i)
        L = np.linalg.cholesky(D)
        Linv = solve_triangular(L, np.eye(len(L)), lower=True, check_finite=False)
        Q, R = np.linalg.qr(Linv @ U)
        Linv, Q = (np.ascontiguousarray(array, matrix.dtype) for array in (Linv, Q))
        return ULVNode(Linv, Q, np.ascontiguousarray(R))

    for number in range(tree.depth, -1, -1):
        level = tree.level(number)
        every = engine.map(
            eliminate, level, phase=f"factorise level {number}", events=events, window=16 * engine.threads
        )
        try:
            for i, node in zip(level, every, strict=True):
                nodes[i] = node
        except np.linalg.LinAlgError:
            raise ConfigError(
                f"the compressed kernel matrix plus beta = {beta:g} is not positive definite (found at level "
                f"{number} of {tree.depth}): the error of the compression is larger than beta; expected a smaller "
                "admm_hss.rtol, a larger admm_hss.max_rank or a larger beta"
            ) from None
    return ULVFactor(matrix, beta, [nodes[i] for i in range(tree.size)])
