"""Kernel blocks and their products, tiled so that GEMM, exp and the sum happen while a tile is in cache.

Values are float32 (relative error about 1e-7 in the exponential, and gamma |x|^2 2^-24 from the distances);
sums over tiles are float64.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Literal

import numba as nb
import numpy as np
from scipy import sparse

from streamsvm.data.rows import Rows

KernelName = Literal["rbf", "poly", "linear"]
TILE_BYTES = 1 << 20  # half of a common L2: the other half holds the operands
COLUMNS = 2048  # b is split so that a tile keeps at least TILE_BYTES / (4 * COLUMNS) rows


@dataclass(frozen=True)
class Kernel:
    """K(a, b): rbf exp(-gamma |a-b|^2), poly (gamma a'b + coef0)^degree, linear a'b."""

    name: KernelName
    gamma: float = 1.0
    degree: int = 3
    coef0: float = 0.0

    def block(self, a: Rows, b: Rows, threads: int = 1) -> np.ndarray:
        """K(a, b), (m, q) float32."""
        out = np.empty((len(a), len(b)), np.float32)
        right = _Right(self, b)

        def fill(start: int, stop: int) -> None:
            right.tile(a.take(slice(start, stop)), out[start:stop])

        _strips(fill, len(a), len(b), threads)
        return out

    def diag(self, a: Rows) -> np.ndarray:
        """K(a_i, a_i), (m,) float64."""
        if self.name == "rbf":
            return np.ones(len(a))
        if self.name == "linear":
            return a.sq_norms
        return (self.gamma * a.sq_norms + self.coef0) ** self.degree

    def apply(self, a: Rows, b: Rows, coef: np.ndarray, threads: int = 1) -> np.ndarray:
        """K(a, b) @ coef for coef (q,) or (q, k): (m,) or (m, k) float64; the block is never formed."""
        out = np.zeros((len(a), *coef.shape[1:]))
        coef = coef.astype(np.float32)
        for first in range(0, len(b), COLUMNS):
            columns = slice(first, first + COLUMNS)
            right, part = _Right(self, b.take(columns)), np.ascontiguousarray(coef[columns])
            if len(part):
                _strips(_accumulate(right, part, a, out), len(a), len(part), threads)
        return out


class _Right:
    """The right operand of a kernel block, laid out once for many tiles."""

    def __init__(self, kernel: Kernel, b: Rows) -> None:
        self.kernel = kernel
        self.sq_norms = b.sq_norms.astype(np.float32) if kernel.name == "rbf" else None
        self.transposed = b.X.T if b.is_sparse else np.ascontiguousarray(b.X.astype(np.float32, copy=False).T)

    def tile(self, a: Rows, out: np.ndarray) -> None:
        """Writes K(a, b) into out (m, q) float32."""
        _inner(a, self.transposed, out)
        kernel = self.kernel
        if kernel.name == "rbf":
            _rbf(out, a.sq_norms.astype(np.float32), self.sq_norms, np.float32(kernel.gamma))
        elif kernel.name == "poly":
            _poly(out, np.float32(kernel.gamma), np.float32(kernel.coef0), kernel.degree)


def _inner(a: Rows, transposed: np.ndarray | sparse.csc_array, out: np.ndarray) -> None:
    """Writes the inner products a @ b' into out: the one place that tells sparse from dense."""
    if a.is_sparse or sparse.issparse(transposed):
        product = a.X.astype(np.float32) @ transposed
        out[:] = product.toarray() if sparse.issparse(product) else product
    else:
        np.matmul(a.X.astype(np.float32, copy=False), transposed, out=out)


def _accumulate(right: _Right, coef: np.ndarray, a: Rows, out: np.ndarray) -> Callable[[int, int], None]:
    def add(start: int, stop: int) -> None:
        tile = np.empty((stop - start, len(coef)), np.float32)
        right.tile(a.take(slice(start, stop)), tile)
        out[start:stop] += tile @ coef

    return add


def _strips(work: Callable[[int, int], None], m: int, q: int, threads: int) -> None:
    """Calls work(start, stop) over strips of m rows of q columns, each a tile of TILE_BYTES, on some threads."""
    height = max(16, TILE_BYTES // (4 * max(q, 1)))
    starts = range(0, m, height)
    if threads == 1 or len(starts) == 1:
        for start in starts:
            work(start, min(m, start + height))
        return
    shared = iter(starts)  # next() on a range iterator is atomic: threads take strips as they get free

    def worker(_: int) -> None:
        for start in shared:
            work(start, min(m, start + height))

    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(worker, range(threads)))


@nb.njit(nogil=True, fastmath=True, cache=True, error_model="numpy")
def _rbf(tile, a_norms, b_norms, gamma):  # inner products (m, q) -> exp(-gamma |a - b|^2), in place
    m, q = tile.shape
    bits = tile.view(np.int32)
    exponents = np.empty(q, np.int32)
    scale = np.float32(-1.4426950408889634) * gamma
    for i in range(m):
        row, row_bits, norm = tile[i], bits[i], a_norms[i]
        for j in range(q):
            # 2^x = 2^n 2^f with |f| <= 1/2, n added to the exponent bits; of the degree-5 polynomials that are 1 at 0
            # this one has the least relative error there, 9e-8
            sq = max(norm + b_norms[j] - np.float32(2) * row[j], np.float32(0))
            x = max(scale * sq, np.float32(-126))
            n = np.floor(x + np.float32(0.5))
            f = x - n
            p = np.float32(1.32647271e-3)
            p = p * f + np.float32(9.67151264e-3)
            p = p * f + np.float32(5.55073374e-2)
            p = p * f + np.float32(2.40222421e-1)
            p = p * f + np.float32(6.93146978e-1)
            row[j] = p * f + np.float32(1)
            exponents[j] = np.int32(n) << 23
        for j in range(q):
            row_bits[j] += exponents[j]


@nb.njit(nogil=True, fastmath=True, cache=True, error_model="numpy")
def _poly(tile, gamma, coef0, degree):  # inner products -> (gamma t + coef0)^degree, in place
    flat = tile.reshape(-1)
    for i in range(len(flat)):
        base = gamma * flat[i] + coef0
        power = np.float32(1)
        for _ in range(degree):
            power *= base
        flat[i] = power
