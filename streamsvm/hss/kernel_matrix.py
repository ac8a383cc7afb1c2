"""A kernel matrix as landmarks plus an HSS matrix of the rest, and its shifted inverse."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from streamsvm.data.rows import Rows
from streamsvm.events import Events, ignore
from streamsvm.hss.budget import Budget, HSSOptions
from streamsvm.hss.compress import Sampling, compress
from streamsvm.hss.landmarks import (
    STRIP_ROWS,
    Landmarks,
    NystroemRemainder,
    column_strips,
    partial_products,
    subtract_product,
    woodbury,
)
from streamsvm.hss.matrix import HSSMatrix, fullness, shapes_of
from streamsvm.hss.neighbours import nearest_neighbours
from streamsvm.hss.spread import SpreadInverse, SpreadKernel, spread_kernel
from streamsvm.hss.tree import ClusterTree, order_rows, principal_direction
from streamsvm.hss.ulv import ULVFactor, factorise
from streamsvm.kernels.base import Kernel
from streamsvm.parallel.engine import Engine

TREES = 8  # random trees for neighbours: on ijcnn1 they have 98 % of the nearest 16
NOISE = 1e-6  # of the diagonal: rounding of the landmarks' float32 features in the remainder
PROBES = 4  # random vectors, and
PROBED_ROWS = 300  # rows of the product, by which errors are estimated


@dataclass(frozen=True)
class KernelMatrix:
    """K(X, X) as Z Z' + H: features Z (n, m) of m landmarks, m may be 0, and the HSS matrix H of the rest.

    Rows are in tree order. Of a smooth kernel the remainder H is small and local; of a narrow one landmarks explain
    little and are left out. Nystroem's remainder is positive semidefinite, and H may be, too.
    """

    H: HSSMatrix
    Z: np.ndarray
    explained: float  # share of the trace

    @property
    def tree(self) -> ClusterTree:
        return self.H.tree

    @property
    def nbytes(self) -> int:
        return self.H.nbytes + self.Z.nbytes

    @property
    def landmarks(self) -> int:
        return self.Z.shape[1]

    def ranks(self) -> list[np.ndarray]:
        """Ranks of the nodes, level by level from the top; the root has none."""
        return self.H.ranks()

    def fullness(self, max_rank: int) -> float:
        """Mean over nodes of the rank over the largest possible one."""
        return fullness(shapes_of(self.H.P), max_rank)

    def product(self, V: np.ndarray, threads: int = 1) -> np.ndarray:
        """K @ V for V (n,) or (n, k), float64."""
        out = self.H.product(V, threads)
        if self.Z.shape[1]:
            within = self.tree.strips(STRIP_ROWS)
            inside = partial_products(self.Z, V, within, threads).sum(axis=0, dtype=np.float64)
            subtract_product(out, self.Z, -inside, within, threads)
        return out

    def shifted(self, beta: float, engine: Engine, events: Events = ignore) -> ShiftedKernel:
        """The factor of K + beta I. Raises ConfigError if that is not positive definite."""
        factor = factorise(self.H, beta, engine.local, events)
        if not self.Z.shape[1]:
            return ShiftedKernel(factor, self.Z, np.empty((0, 0)))
        with engine.serial_blas():
            W = np.empty_like(self.Z)
            for columns in column_strips(W.shape[1]):
                W[:, columns] = factor.solve(self.Z[:, columns], engine.threads)
                events.progress("factorise landmarks", columns.stop, W.shape[1])
            spans = [slice(*self.tree.span(root)) for root in self.tree.roots]
            inner = woodbury([(self.Z[rows].T @ W[rows]).astype(np.float64) for rows in spans])
        return ShiftedKernel(factor, W, inner)


@dataclass(frozen=True)
class ShiftedKernel:
    """(Z Z' + H + beta I)^-1 = F - W (I + Z'W)^-1 W', with F = (H + beta I)^-1 and W = F Z (Woodbury)."""

    factor: ULVFactor
    W: np.ndarray  # (n, m)
    inner: np.ndarray  # (m, m)

    @property
    def beta(self) -> float:
        return self.factor.beta

    @property
    def nbytes(self) -> int:
        return self.factor.nbytes + self.W.nbytes

    def solve(self, V: np.ndarray, threads: int = 1) -> np.ndarray:
        """(K + beta I)^-1 V for V (n,) or (n, k), float64."""
        out = self.factor.solve(V, threads)
        if self.W.shape[1]:
            within = self.factor.tree.strips(STRIP_ROWS)
            inside = self.inner @ partial_products(self.W, V, within, threads).sum(axis=0, dtype=np.float64)
            subtract_product(out, self.W, inside, within, threads)
        return out


AnyKernel = KernelMatrix | SpreadKernel
AnyInverse = ShiftedKernel | SpreadInverse


def facts_of(matrix: AnyKernel) -> dict[str, Any]:
    """Ranks by level (mean, largest), bytes, and the share of the trace that landmarks explain, for reports."""
    levels = [{"mean": float(r.mean()), "most": int(r.max())} for r in matrix.ranks()]
    return {
        "hss_ranks": levels,
        "hss_bytes": matrix.nbytes,
        "landmarks": matrix.landmarks,
        "explained": matrix.explained,
    }


def approximate(
    kernel: Kernel,
    rows: Rows,
    options: HSSOptions,
    engine: Engine,
    limit_bytes: int | None = None,
    events: Events = ignore,
) -> tuple[np.ndarray, AnyKernel]:
    """(order, K): K(X, X) approximated, its rows those of X in this order. On a cluster the subtrees of a tree that has
    several stay with the workers. limit_bytes is for the whole process. Raises MemoryLimitError before it is reached,
    with the bytes that would be needed."""
    tree = ClusterTree.of(len(rows), options.leaf_rows)
    is_spread = tree.cut > 0 and not engine.is_local
    budget = Budget(len(rows), options, None if is_spread else limit_bytes)
    order = order_rows(rows, tree, principal_direction, [options.seed, 0], engine.local, events)
    rows = rows.take(order)
    landmarks = Landmarks.of(kernel, rows, options.landmarks, options.seed)
    seed = [options.seed, 1]
    neighbours = nearest_neighbours(rows, options.neighbours, TREES, seed, engine.local, events)
    sampling = Sampling(*neighbours, [options.seed, 2])

    scale, tolerances, m = float(kernel.diag(rows).mean()), options.tolerances, landmarks.M.shape[1]
    noise = NOISE if m else 0.0  # bases ignore values below it
    atol, noise = max(tolerances.atol, noise) * scale, noise * scale
    tolerances = replace(tolerances, atol=atol, noise=noise, dtype=options.dtype)
    if tolerances.definite is None:
        # landmarks that explain little imply a narrow kernel: its norm is below beta
        tolerances = replace(tolerances, definite=m > 0 or options.landmarks == 0)
    if is_spread:
        options = replace(options, tolerances=tolerances)
        return order, spread_kernel(rows, tree, landmarks, sampling, options, engine, events)
    with engine.serial_blas():
        Z = landmarks.features(rows, tree.strips(STRIP_ROWS), engine.threads)
    entries = NystroemRemainder(kernel, rows, Z)
    H = compress(entries, tree, sampling, tolerances, engine, events=events, on_level=budget.check)
    return order, KernelMatrix(H, Z, landmarks.explained)


def estimated_errors(
    kernel: Kernel, rows: Rows, matrix: AnyKernel, inverse: AnyInverse, seed: int, threads: int
) -> dict[str, float]:
    """Relative errors on random vectors v: of the product, |(K~ - K) v| / |K v| on some rows, and of the solve,
    |(K~ + beta I) x - v| / |v|; rows in tree order, as the matrix."""
    rng = np.random.default_rng([seed, 4])
    V = rng.choice([-1.0, 1.0], size=(len(rows), PROBES))
    ids = np.sort(rng.choice(len(rows), min(PROBED_ROWS, len(rows)), replace=False))
    exact = kernel.apply(rows.take(ids), rows, V, threads)
    X = inverse.solve(V, threads)
    residual = matrix.product(X, threads) + inverse.beta * X - V
    error = matrix.product(V, threads)[ids] - exact
    return {
        "product_error": float(np.linalg.norm(error) / max(float(np.linalg.norm(exact)), 1e-300)),
        "solve_error": float(np.linalg.norm(residual) / np.linalg.norm(V)),
    }
