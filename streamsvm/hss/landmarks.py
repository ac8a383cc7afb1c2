"""Landmarks: random rows that explain the smooth part of a kernel; and products with their long, thin features."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from streamsvm.data.rows import Rows
from streamsvm.kernels.base import Kernel
from streamsvm.parallel.sizes import SizedInBytes
from streamsvm.parallel.strips import strips

WORTH = 0.5  # share of the trace that landmarks must explain to be used: they cost each product n x landmarks
RANK_TOL = 1e-10  # of the largest eigenvalue: landmarks' values are float64
STRIP_ROWS, STRIP_COLUMNS = 4096, 64  # of features at a time

Strips = Sequence[tuple[int, int]]  # first and last row of each


@dataclass(frozen=True)
class Landmarks(SizedInBytes):
    """Rows and M (rows, m), so that Z = K(X, rows) M gives Nystroem's Z Z'; m = 0 if they explain little. explained:
    share of the trace."""

    kernel: Kernel
    rows: Rows
    M: np.ndarray
    explained: float

    @classmethod
    def of(cls, kernel: Kernel, rows: Rows, most: int, seed: int) -> Landmarks:
        """Up to so many of these rows."""
        n, rng = len(rows), np.random.default_rng([seed, 3])
        count = min(most, n // 4)
        if count == 0:
            return cls(kernel, rows.take(slice(0)), np.empty((0, 0)), 0.0)
        chosen = rows.take(np.sort(rng.choice(n, count, replace=False)))
        values, vectors = np.linalg.eigh(kernel.exact(chosen, chosen))
        significant = values > RANK_TOL * values[-1]
        M = vectors[:, significant] / np.sqrt(values[significant])
        sample = rows.take(np.sort(rng.choice(n, min(n, 1000), replace=False)))
        squares = np.square(kernel.exact(sample, chosen) @ M).sum()
        explained = float(squares / max(kernel.diag(sample).sum(), 1e-300))
        return cls(kernel, chosen, M if explained >= WORTH else M[:, :0], explained)

    def features(self, rows: Rows, within: Strips, threads: int = 1) -> np.ndarray:
        """Z (n, m) float32 of these rows."""
        Z = np.empty((len(rows), self.M.shape[1]), np.float32)

        def fill(start: int, stop: int) -> None:
            Z[start:stop] = self.kernel.exact(rows.take(slice(start, stop)), self.rows) @ self.M

        if Z.shape[1]:
            _each(fill, within, threads)
        return Z


@dataclass(frozen=True)
class NystroemRemainder(SizedInBytes):
    """Entries of K(X, X) - Z Z' by row and column ids."""

    kernel: Kernel
    rows: Rows
    Z: np.ndarray

    def __call__(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        values = self.kernel.exact(self.rows.take(a), self.rows.take(b))
        if self.Z.shape[1]:
            values -= self.Z[a] @ self.Z[b].T
        return values


def partial_products(Z: np.ndarray, V: np.ndarray, within: Strips, threads: int = 1) -> np.ndarray:
    """(strips, m) or (strips, m, k): Z'V of each strip, of long Z (n, m) and V (n,) or (n, k); their sum is Z'V."""
    parts = np.empty((len(within), Z.shape[1], *V.shape[1:]), Z.dtype)

    def fill(number: int, _: int) -> None:
        rows = slice(*within[number])
        parts[number] = Z[rows].T @ V[rows].astype(Z.dtype)

    strips(fill, len(within), 1, threads)
    return parts


def subtract_product(out: np.ndarray, Z: np.ndarray, B: np.ndarray, within: Strips, threads: int = 1) -> None:
    """out -= Z B, in place."""
    B = B.astype(Z.dtype)

    def subtract(start: int, stop: int) -> None:
        out[start:stop] -= Z[start:stop] @ B

    _each(subtract, within, threads)


def column_strips(m: int) -> list[slice]:
    """Of m columns of features."""
    return [slice(first, min(m, first + STRIP_COLUMNS)) for first in range(0, m, STRIP_COLUMNS)]


def woodbury(products: Sequence[np.ndarray]) -> np.ndarray:
    """(I + Z'W)^-1, of Z'W of each subtree."""
    inner = np.linalg.inv(np.eye(len(products[0])) + sum(products))
    return (inner + inner.T) / 2


def _each(work: Callable[[int, int], None], within: Strips, threads: int) -> None:
    strips(lambda number, _: work(*within[number]), len(within), 1, threads)
