"""Features whose inner products approximate a kernel, from rows that represent all (Williams and Seeger 2001)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from streamsvm.data.rows import Rows
from streamsvm.kernels.base import Kernel
from streamsvm.parallel.sizes import SizedInBytes

NOISE = 1e-6  # of the largest eigenvalue: smaller ones are rounding of float32 kernel values


@dataclass(frozen=True)
class Nystroem(SizedInBytes):
    """phi(x) = M' K(Z, x), with M M' the pseudo-inverse of K(Z, Z): landmarks Z (s, d), M (s, r) float32, r <= s."""

    kernel: Kernel
    landmarks: Rows
    M: np.ndarray

    @classmethod
    def of(cls, kernel: Kernel, landmarks: Rows) -> Nystroem:
        K = kernel.block(landmarks, landmarks).astype(np.float64)
        values, vectors = np.linalg.eigh((K + K.T) / 2)
        significant = values > NOISE * values[-1]
        M = vectors[:, significant] / np.sqrt(values[significant])
        return cls(kernel, landmarks, M.astype(np.float32))

    def __call__(self, rows: Rows) -> Rows:
        """(m, r) float32 features of scaled rows."""
        return Rows(self.kernel.block(rows, self.landmarks) @ self.M)

    def coefficients(self, W: np.ndarray) -> np.ndarray:
        """(s, q) coefficients of the landmarks' kernel values that are equivalent to weights W (r, q) of features."""
        return self.M.astype(np.float64) @ W
