"""A metric of scaled rows: weights of the directions of the data, as a map of rows to fewer columns."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.linalg import eigh

from streamsvm.data.rows import Rows
from streamsvm.errors import ConfigError
from streamsvm.parallel.sizes import SizedInBytes

NEGLIGIBLE = 1e-3  # of the largest root of M: directions below this are left out


@dataclass(frozen=True)
class Metric(SizedInBytes):
    """x' = L'x, so that |x' - z'|^2 = (x - z)'M(x - z) with M = LL' (Radhakrishnan et al. 2024).

    factor: L (d, r) float64. For a diagonal M its roots (d,), at least 0; columns with 0 are left out of x'.
    """

    factor: np.ndarray

    @classmethod
    def of_gradients(cls, gradients: np.ndarray, rank: int | None = None) -> Metric:
        """M = the mean of g_i g_i' over derivatives g (m, d) of a model, scaled to trace d; I if g = 0.

        rank: of M's best approximation. None: only its diagonal, where weights below NEGLIGIBLE are 0.
        """
        G = gradients.astype(np.float64)
        if not G.any():
            return cls(np.ones(G.shape[1]))
        if rank is None:
            roots = root_sums(G)
            roots[roots < NEGLIGIBLE * roots.max()] = 0.0
            return cls(_of_trace(roots, len(roots)))
        return cls(_of_trace(_principal(G, rank), G.shape[1]))

    @property
    def is_diagonal(self) -> bool:
        return self.factor.ndim == 1

    @property
    def d(self) -> int:
        return len(self.factor)

    @property
    def width(self) -> int:
        """Columns of x'."""
        return len(self.columns) if self.is_diagonal else self.factor.shape[1]

    @cached_property
    def columns(self) -> np.ndarray:
        """The columns of x that x' depends on."""
        return np.flatnonzero(self.factor if self.is_diagonal else self.factor.any(axis=1))

    @cached_property
    def weights(self) -> np.ndarray:
        """The factor from x[columns[j]] to x'[j], for a diagonal M."""
        return self.factor[self.columns]

    @property
    def matrix(self) -> np.ndarray:
        """(d, width) L itself."""
        return np.diag(self.factor)[:, self.columns] if self.is_diagonal else self.factor

    @property
    def importances(self) -> np.ndarray:
        """(d,) the diagonal of M, scaled to sum 1."""
        diagonal = self.factor**2 if self.is_diagonal else np.einsum("ij,ij->i", self.factor, self.factor)
        return diagonal / max(float(diagonal.sum()), np.finfo(np.float64).tiny)

    def undone(self, X: np.ndarray) -> np.ndarray | None:
        """x (m, d) float64 from x', NaN in columns that were left out. None for a full M, which mixes columns."""
        return self.spread(X / self.weights, np.nan) if self.is_diagonal else None

    def pull_back(self, gradients: np.ndarray) -> np.ndarray:
        """Derivatives with respect to x, (m, d), from those with respect to x'."""
        if not self.is_diagonal:
            return gradients @ self.factor.T
        return self.spread(gradients * self.weights)

    def spread(self, values: np.ndarray, others: float = 0.0) -> np.ndarray:
        """(..., d) from values (..., width) of x', for a diagonal M. Columns that were left out get `others`."""
        out = np.full((*values.shape[:-1], self.d), others)
        out[..., self.columns] = values
        return out

    def times(self, weights: np.ndarray) -> Metric:
        """This metric, followed by positive weights (width,) of the columns of x'."""
        factor = self.factor.copy()
        if self.is_diagonal:
            factor[self.columns] *= weights
            return Metric(factor)
        return Metric(factor * weights)

    def of_rows(self, rows: Rows) -> Rows:
        """x' of scaled rows, float32. Raises ConfigError for CSR rows under a full M, which would fill them."""
        if self.is_diagonal:
            return rows.columns(self.columns).times(self.weights)
        if rows.is_sparse:
            raise ConfigError("a full metric would fill a sparse store; use a diagonal one, or ingest with --dense")
        return Rows(rows.X @ self.factor.astype(np.float32))


def root_sums(gradients: np.ndarray) -> np.ndarray:
    """(d,) float64 roots of the sums of squares: a gradient with the diagonal metric of all these (m, d)."""
    G = gradients.astype(np.float64, copy=False)
    return np.sqrt(np.einsum("ij,ij->j", G, G))


def _principal(G: np.ndarray, rank: int) -> np.ndarray:
    """(d, r) L of the best approximation LL' of G'G with at most this rank: eigenvectors times roots of eigenvalues."""
    m, d = G.shape
    small = G.T @ G if d <= m else G @ G.T
    top = [max(0, len(small) - rank), len(small) - 1]
    values, vectors = eigh(small, subset_by_index=top)
    is_large = values > NEGLIGIBLE**2 * values[-1]
    values, vectors = values[is_large], vectors[:, is_large]
    return vectors * np.sqrt(values) if d <= m else G.T @ vectors


def _of_trace(factor: np.ndarray, trace: int) -> np.ndarray:
    """The factor of M, scaled to this trace."""
    return factor * np.sqrt(trace / np.sum(factor**2))
