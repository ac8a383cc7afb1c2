"""A kernel matrix as landmarks plus an HSS matrix of what they leave, and its shifted inverse."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from streamsvm.data.rows import Rows
from streamsvm.errors import MemoryLimitError
from streamsvm.events import Events, ignore
from streamsvm.hss.compress import Sampling, Tolerances, compress
from streamsvm.hss.matrix import HSSMatrix
from streamsvm.hss.neighbours import nearest_neighbours
from streamsvm.hss.tree import ClusterTree, order_rows, principal_direction
from streamsvm.hss.ulv import ULVFactor, factorise
from streamsvm.kernels.base import Kernel
from streamsvm.parallel.engine import Engine
from streamsvm.parallel.memory import MiB, process_bytes
from streamsvm.parallel.sizes import Weighed
from streamsvm.parallel.strips import strips
from streamsvm.storage.human import human_bytes

TREES = 8  # random trees that find neighbours: on ijcnn1 they know 98 % of the nearest 16
WORTH = 0.5  # share of the trace that landmarks must explain to be used: they cost each product n x landmarks
RANK_TOL = 1e-10  # of the largest eigenvalue: landmarks' values are float64
NOISE = 1e-6  # of the diagonal: rounding of the landmarks' float32 features in what they leave
STRIP_ROWS, STRIP_COLUMNS = 4096, 64  # of Z at a time
PROBES = 4  # random vectors, and
PROBED_ROWS = 300  # rows of the product, by which errors are estimated


@dataclass(frozen=True)
class HSSOptions:
    """The tolerances (atol over the mean of K's diagonal), rows of a leaf, neighbours of a row, landmarks (0: none).

    single: matrix and factor are float32.
    """

    tolerances: Tolerances
    leaf_rows: int = 128
    neighbours: int = 32
    landmarks: int = 256
    seed: int = 0
    single: bool = False

    @property
    def dtype(self) -> np.dtype:
        return np.dtype(np.float32 if self.single else np.float64)


@dataclass(frozen=True)
class KernelMatrix:
    """K(X, X) as Z Z' + H: features Z (n, m) of m landmarks, m may be 0, and the HSS matrix H of the rest.

    Rows are in tree order. A smooth kernel leaves H little, and what it leaves is local; of a narrow one landmarks
    explain little and are left out. Nystroem's remainder is positive semidefinite, so H may be kept so.
    """

    H: HSSMatrix
    Z: np.ndarray
    explained: float  # share of the trace

    @property
    def nbytes(self) -> int:
        return self.H.nbytes + self.Z.nbytes

    def product(self, V: np.ndarray, threads: int = 1) -> np.ndarray:
        """K @ V for V (n,) or (n, k), float64."""
        out = self.H.product(V, threads)
        if self.Z.shape[1]:
            _subtract_product(out, self.Z, -_transposed_times(self.Z, V, threads), threads)
        return out

    def shifted(self, beta: float, engine: Engine, events: Events = ignore) -> ShiftedKernel:
        """The factor of K + beta I. Raises ConfigError where that is not positive definite."""
        factor = factorise(self.H, beta, engine.local, events)
        if not self.Z.shape[1]:
            return ShiftedKernel(factor, self.Z, np.empty((0, 0)))
        with engine.serial_blas():
            W = np.empty_like(self.Z)
            for first in range(0, W.shape[1], STRIP_COLUMNS):
                columns = slice(first, first + STRIP_COLUMNS)
                W[:, columns] = factor.solve(self.Z[:, columns], engine.threads)
                events.progress("factorise landmarks", min(columns.stop, W.shape[1]), W.shape[1])
            inner = np.linalg.inv(np.eye(W.shape[1]) + (self.Z.T @ W).astype(np.float64))
        return ShiftedKernel(factor, W, (inner + inner.T) / 2)

    def facts(self) -> dict[str, Any]:
        """Ranks by level (mean, largest), bytes, and what the landmarks explain, for reports."""
        levels = [{"mean": float(r.mean()), "most": int(r.max())} for r in self.H.ranks()]
        return {
            "hss_ranks": levels,
            "hss_bytes": self.nbytes,
            "landmarks": self.Z.shape[1],
            "explained": self.explained,
        }


@dataclass(frozen=True)
class ShiftedKernel:
    """(Z Z' + H + beta I)^-1 = F - W (I + Z'W)^-1 W', with F = (H + beta I)^-1 and W = F Z (Woodbury)."""

    factor: ULVFactor
    W: np.ndarray  # (n, m)
    inner: np.ndarray  # (m, m)

    @property
    def nbytes(self) -> int:
        return self.factor.nbytes + self.W.nbytes

    def solve(self, V: np.ndarray, threads: int = 1) -> np.ndarray:
        """(K + beta I)^-1 V for V (n,) or (n, k), float64."""
        out = self.factor.solve(V, threads)
        if self.W.shape[1]:
            inside = self.inner @ _transposed_times(self.W, V, threads)
            _subtract_product(out, self.W, inside, threads)
        return out


def _transposed_times(W: np.ndarray, V: np.ndarray, threads: int) -> np.ndarray:
    """W'V of long W (n, m) and V (n,) or (n, k), float64; the sum does not depend on the threads."""
    parts = np.empty((-(-len(W) // STRIP_ROWS), W.shape[1], *V.shape[1:]), W.dtype)

    def fill(start: int, stop: int) -> None:
        parts[start // STRIP_ROWS] = W[start:stop].T @ V[start:stop].astype(W.dtype)

    strips(fill, len(W), STRIP_ROWS, threads)
    return parts.sum(axis=0, dtype=np.float64)


def _subtract_product(out: np.ndarray, W: np.ndarray, B: np.ndarray, threads: int) -> None:
    B = B.astype(W.dtype)

    def subtract(start: int, stop: int) -> None:
        out[start:stop] -= W[start:stop] @ B

    strips(subtract, len(W), STRIP_ROWS, threads)


def approximate(
    kernel: Kernel,
    rows: Rows,
    options: HSSOptions,
    engine: Engine,
    limit_bytes: int | None = None,
    events: Events = ignore,
) -> tuple[np.ndarray, KernelMatrix]:
    """(order, K): K(X, X) approximated, its rows those of X in this order.

    limit_bytes is for the whole process. Raises MemoryLimitError before it is met, with the bytes that it would take.
    """
    budget = _Budget(len(rows), options, limit_bytes)
    tree = ClusterTree.of(len(rows), options.leaf_rows)
    order = order_rows(rows, tree, principal_direction, [options.seed, 0], engine.local, events)
    rows = rows.take(order)
    Z, explained = _landmarks(kernel, rows, options, engine)
    seed = [options.seed, 1]
    neighbours = nearest_neighbours(rows, options.neighbours, TREES, seed, engine.local, events)

    scale, tolerances = float(kernel.diag(rows).mean()), options.tolerances
    noise = NOISE if Z.shape[1] else 0.0  # no basis shall follow it
    atol, noise = max(tolerances.atol, noise) * scale, noise * scale
    tolerances = replace(tolerances, atol=atol, noise=noise, dtype=options.dtype)
    if tolerances.definite is None:
        # landmarks that explain little tell of a narrow kernel: its norm is below beta
        tolerances = replace(tolerances, definite=Z.shape[1] > 0 or options.landmarks == 0)
    H = compress(
        _Entries(kernel, rows, Z),
        tree,
        Sampling(*neighbours, [options.seed, 2]),
        tolerances,
        engine,
        events=events,
        on_level=budget.check,
    )
    return order, KernelMatrix(H, Z, explained)


@dataclass(frozen=True)
class _Entries(Weighed):
    """Entries of K(X, X) - Z Z' by row and column ids."""

    kernel: Kernel
    rows: Rows
    Z: np.ndarray

    def __call__(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        values = self.kernel.exact(self.rows.take(a), self.rows.take(b))
        if self.Z.shape[1]:
            values -= self.Z[a] @ self.Z[b].T
        return values


def _landmarks(kernel: Kernel, rows: Rows, options: HSSOptions, engine: Engine) -> tuple[np.ndarray, float]:
    """Features (n, m) float32 of random landmarks and their share of the trace; m = 0 where it is small."""
    n, rng = len(rows), np.random.default_rng([options.seed, 3])
    count = min(options.landmarks, n // 4)
    none = np.empty((n, 0), np.float32)
    if count == 0:
        return none, 0.0
    landmarks = rows.take(np.sort(rng.choice(n, count, replace=False)))
    values, vectors = np.linalg.eigh(kernel.exact(landmarks, landmarks))
    kept = values > RANK_TOL * values[-1]
    M = vectors[:, kept] / np.sqrt(values[kept])
    tried = rows.take(np.sort(rng.choice(n, min(n, 1000), replace=False)))
    squares = np.square(kernel.exact(tried, landmarks) @ M).sum()
    explained = float(squares / max(kernel.diag(tried).sum(), 1e-300))
    if explained < WORTH:
        return none, explained
    Z = np.empty((n, M.shape[1]), np.float32)

    def fill(start: int, stop: int) -> None:
        Z[start:stop] = kernel.exact(rows.take(slice(start, stop)), landmarks) @ M

    with engine.serial_blas():
        strips(fill, n, STRIP_ROWS, engine.threads)
    return Z, explained


def least_bytes(n: int, options: HSSOptions) -> int:
    """Of the diagonal blocks and their factors, neighbours and landmarks, whatever the ranks."""
    leaf = max(1, n // 2 ** ClusterTree.of(n, options.leaf_rows).depth)
    return n * (2 * leaf * options.dtype.itemsize + 8 * options.neighbours + 8 * options.landmarks)


class _Budget:
    """Bytes that matrix and factor will take, from the ranks met so far."""

    def __init__(self, n: int, options: HSSOptions, limit_bytes: int | None) -> None:
        self._n, self._options, self._limit = n, options, limit_bytes
        self._held = process_bytes()
        self._factor = 0.0
        if limit_bytes is not None:
            self._require(least_bytes(n, options), "before the first rank is known")

    def check(self, level: int, nbytes: int, ranks: np.ndarray) -> None:
        """Raises MemoryLimitError where the levels above, if their ranks are as these, will not fit."""
        if self._limit is None:
            return
        itemsize, options, nodes = self._options.dtype.itemsize, self._options, len(ranks)
        rank = float(ranks.mean())
        rows = self._n / nodes if self._factor == 0 else 2 * rank
        self._factor += nodes * itemsize * (rows**2 + rows * rank)
        above = (
            nodes * itemsize * 9 * rank**2
        )  # half as many nodes of 2 r rows: B, P, Linv and Q; halved each level
        rest = self._n * 8 * (options.neighbours + options.landmarks)
        met = f"ranks of {rank:.0f} in the mean, {ranks.max()} at most, were met at level {level}"
        self._require(int(nbytes + self._factor + above + rest), met)

    def _require(self, needed: int, when: str) -> None:
        assert self._limit is not None
        total = self._held + needed
        if total > self._limit:
            raise MemoryLimitError(
                f"a memory limit of {human_bytes(self._limit)} is too small for the compressed kernel "
                f"matrix of {self._n} rows ({when}): give about {-(-total // MiB)} MiB, a larger "
                "admm_hss.rtol, a smaller admm_hss.max_rank or admm_hss.storage float32"
            )


def estimated_errors(
    kernel: Kernel, rows: Rows, matrix: KernelMatrix, inverse: ShiftedKernel, seed: int, threads: int
) -> dict[str, float]:
    """Relative errors on random vectors v: of the product, |(K~ - K) v| / |K v| on some rows, and of the solve,
    |(K~ + beta I) x - v| / |v|; rows in tree order, as the matrix."""
    rng = np.random.default_rng([seed, 4])
    V = rng.choice([-1.0, 1.0], size=(len(rows), PROBES))
    ids = np.sort(rng.choice(len(rows), min(PROBED_ROWS, len(rows)), replace=False))
    exact = kernel.apply(rows.take(ids), rows, V, threads)
    X = inverse.solve(V, threads)
    residual = matrix.product(X, threads) + inverse.factor.beta * X - V
    error = matrix.product(V, threads)[ids] - exact
    return {
        "product_error": float(np.linalg.norm(error) / max(float(np.linalg.norm(exact)), 1e-300)),
        "solve_error": float(np.linalg.norm(residual) / np.linalg.norm(V)),
    }
