"""exp(-gamma |a-b|_1): distances are sums over features, which no inner product expresses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, TypeAlias

import numpy as np
from scipy import sparse
from scipy.spatial.distance import cdist

from streamsvm.data.rows import Rows
from streamsvm.kernels import epilogues
from streamsvm.kernels.base import Stationary
from streamsvm.kernels.slopes import Slopes
from streamsvm.kernels.tiles import Tile, transposed

SPREAD = np.float32(2.0**60)  # factor on rows: differences from 2^-60 on have a sign, see epilogues.l1_signs

Matrix: TypeAlias = np.ndarray | sparse.csr_array


@dataclass(frozen=True)
class Laplacian(Stationary):
    """exp(-gamma |a-b|_1), scikit-learn's laplacian_kernel."""

    name: ClassVar[str] = "laplacian"

    @classmethod
    def typical_gamma(cls, d: int, variance: float) -> float:
        return 1.0 / (d * variance) ** 0.5

    def tiles(self, b: Rows) -> Tile:
        right, norms = transposed(b), _norms(b.X).astype(np.float32)
        gamma = np.float32(self.gamma)

        def tile(a: Rows, out: np.ndarray) -> None:
            _distances(a.X.astype(np.float32, copy=False), right, norms, out)
            epilogues.laplacian(out, gamma)

        return tile

    def exact(self, a: Rows, b: Rows) -> np.ndarray:
        return np.exp(-self.gamma * self._exact_distances(a, b))

    def gradient(self, a: Rows, b: Rows, coef: np.ndarray) -> np.ndarray:
        """The derivative of |a_if - b_jf| is taken to be 0 where they are equal."""
        weights, A, B = -self.gamma * self.exact(a, b) * coef, a.dense(), b.dense()
        out = np.empty(A.shape)
        for f in range(a.d):  # a block of signs at a time
            out[:, f] = np.einsum("ij,ij->i", weights, np.sign(A[:, f, None].astype(np.float64) - B[:, f]))
        return out

    def slopes(self, b: Rows, coef: np.ndarray) -> Slopes:
        rows, weights = b.astype(np.float32), (-self.gamma * coef).astype(np.float32)
        return self._of_sparse(rows, weights) if b.is_sparse else self._of_dense(rows, weights)

    def _of_dense(self, b: Rows, weights: np.ndarray) -> Slopes:
        right, gamma = np.ascontiguousarray(_spread(b).T), np.float32(self.gamma / SPREAD)

        def add(a: Rows, out: np.ndarray) -> None:
            tile, spread = np.empty((len(a), len(b)), np.float32), _spread(a)
            epilogues.l1_dense(spread, right, tile)
            epilogues.laplacian(tile, gamma)
            weighted = np.empty_like(tile) if len(out) > 1 else tile
            for column, gradient in zip(weights, out, strict=True):
                sums = np.empty_like(spread)
                epilogues.l1_signs(np.multiply(tile, column, out=weighted), spread, right, sums)
                gradient += sums[:, : b.d]

        return add

    def _of_sparse(self, b: Rows, weights: np.ndarray) -> Slopes:
        by_feature = sparse.csc_array(b.X * SPREAD)
        spread = by_feature.indptr, by_feature.indices, by_feature.data

        def add(a: Rows, out: np.ndarray) -> None:
            a = a.astype(np.float32)
            tile = np.empty((len(b), len(a)), np.float32)
            _distances(b.X, transposed(a), _norms(a.X).astype(np.float32), tile)
            epilogues.laplacian(tile, np.float32(self.gamma))
            right = np.ascontiguousarray(a.dense().T) * SPREAD
            signs = np.clip(right, -1, 1)
            weighted = np.empty_like(tile) if len(out) > 1 else tile
            for column, gradient in zip(weights, out, strict=True):
                np.multiply(tile, column[:, None], out=weighted)
                sums = signs * weighted.sum(axis=0)
                epilogues.l1_sign_columns(weighted, spread, right, signs, sums)
                gradient += sums.T

        return add

    def shortfall(self, differences: np.ndarray) -> np.ndarray:
        return -np.expm1(-self.gamma * np.abs(differences))

    def reach(self, a: Rows) -> float:
        return self.gamma * float(_norms(a.X).max())

    @staticmethod
    def _exact_distances(a: Rows, b: Rows) -> np.ndarray:
        if not (a.is_sparse or b.is_sparse):
            return cdist(a.astype(np.float64).X, b.astype(np.float64).X, "cityblock")
        left, right = (sparse.csr_array(rows.X, dtype=np.float64) for rows in (a, b))
        out = np.empty((len(a), len(b)))
        _distances(left, right.tocsc(), _norms(right), out)
        return out


def _norms(X: Matrix) -> np.ndarray:
    """(m,) |x|_1."""
    return np.asarray(abs(X).sum(axis=1, dtype=np.float64)).ravel()


def _spread(a: Rows) -> np.ndarray:
    """a times SPREAD, (m, d), and columns of zeros up to a multiple of four."""
    out = np.zeros((len(a), -(-a.d // 4) * 4), np.float32)
    np.multiply(a.dense(), SPREAD, out=out[:, : a.d], casting="same_kind")
    return out


def _distances(X: Matrix, right: np.ndarray | sparse.csc_array, norms: np.ndarray, out: np.ndarray) -> None:
    """Writes |a-b|_1 into out. X is (m, d), right = b' (d, q), or by features, and norms (q,) are those of b."""
    if isinstance(right, sparse.csc_array):
        left = sparse.csr_array(X)
        out[:] = norms
        out += _norms(left)[:, None].astype(out.dtype)
        by_feature = right.indptr, right.indices, right.data
        epilogues.l1_scatter(left.indptr, left.indices, left.data, *by_feature, out)
    elif isinstance(X, np.ndarray):
        epilogues.l1_dense(X, right, out)
    else:
        out[:] = norms
        epilogues.l1_rows(X.indptr, X.indices, X.data, right, out)
