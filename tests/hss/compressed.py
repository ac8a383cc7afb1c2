"""Data and compressed matrices that the HSS tests share."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import replace

import numpy as np
from sklearn.datasets import load_breast_cancer, make_swiss_roll
from sklearn.preprocessing import minmax_scale, scale

from streamsvm.data.rows import Rows
from streamsvm.hss.compress import Sampling, Tolerances, compress
from streamsvm.hss.matrix import HSSMatrix
from streamsvm.hss.tree import ClusterTree, nearest_neighbours, order_rows, principal_direction
from streamsvm.kernels.base import Kernel
from streamsvm.kernels.distance import RBF
from streamsvm.parallel.engine import Engine

ENGINE = Engine(2)
LEAF = 32
ANY_RANK = 10**6


class Elsewhere(Engine):
    """As a cluster: values that are held come and go as bytes."""

    is_local = False

    def __init__(self, limit_bytes: int | None = None) -> None:
        super().__init__(2)
        self._limit_bytes = limit_bytes

    @property
    def local(self) -> Engine:
        return ENGINE

    def worker_memory(self) -> tuple[int | None, int]:
        return self._limit_bytes, 1

    def hold(self, read, items, *more, shared=(), nbytes=0.0):
        return [pickle.dumps(value) for value in self.map(read, items, *more, shared=shared)]

    def map(self, fn, items, *more, shared=(), phase="map", events=None, window=None):
        jobs = [(*shared, *job) for job in zip(items, *more, strict=True)]
        return (fn(*(pickle.loads(arg) if isinstance(arg, bytes) else arg for arg in job)) for job in jobs)


def rbf(h: float) -> Kernel:
    return RBF(1 / (2 * h * h))


def roll(n: int = 300) -> Rows:
    """A surface in three dimensions, scaled to [0, 1]."""
    X, _ = make_swiss_roll(n, random_state=0)
    return Rows(minmax_scale(X).astype(np.float32))


def cancer(n: int = 300, *, standard: bool = False) -> Rows:
    """Real rows of 30 features, scaled to [0, 1] or standardised."""
    X = load_breast_cancer().data[:n]
    return Rows((scale(X) if standard else minmax_scale(X)).astype(np.float32))


def tolerances(rtol: float = 1e-2, *, definite: bool = True, max_rank: int = ANY_RANK, atol: float = 0.0) -> Tolerances:
    return Tolerances(rtol, atol, max_rank, definite)


def in_order(rows: Rows, leaf: int = LEAF) -> tuple[ClusterTree, Rows]:
    tree = ClusterTree.of(len(rows), leaf)
    return tree, rows.take(order_rows(rows, tree, principal_direction, [0], ENGINE))


def compressed(
    rows: Rows,
    entries: Callable[[np.ndarray, np.ndarray], np.ndarray],
    wanted: Tolerances,
    *,
    leaf: int = LEAF,
    engine: Engine = ENGINE,
    dtype: type = np.float64,
    **options: object,
) -> HSSMatrix:
    """entries(rows, columns) compressed; rows are in tree order."""
    tree = ClusterTree.of(len(rows), leaf)
    near = nearest_neighbours(rows, 32, 4, [1], engine)
    return compress(entries, tree, Sampling(*near, [2]), replace(wanted, dtype=np.dtype(dtype)), engine, **options)  # type: ignore[arg-type]


def dense(matrix: HSSMatrix) -> np.ndarray:
    """The whole matrix."""
    return matrix.product(np.eye(matrix.tree.n))


def relative(error: np.ndarray, exact: np.ndarray) -> float:
    """In the spectral norm; both symmetric."""
    largest, of = (np.abs(np.linalg.eigvalsh(A)).max() for A in (error, exact))
    return float(largest / of)
