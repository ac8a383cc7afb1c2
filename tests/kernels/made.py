"""Every kernel, at parameters of use and at those far off, and rows of every layout."""

from __future__ import annotations

import numpy as np
from scipy import sparse

from streamsvm.data.rows import Rows
from streamsvm.kernels.distance import RBF, Cauchy, Laplacian, Matern
from streamsvm.kernels.inner import Linear, Poly, Precomputed, Sigmoid

KERNELS = [
    RBF(0.1),
    Laplacian(0.1),
    Matern(0.4, 0.5),
    Matern(0.4, 1.5),
    Matern(0.4, 2.5),
    Cauchy(0.2),
    Poly(0.1, 3, 1.0),
    Poly(0.5, 1, 0.0),
    Sigmoid(0.1, -0.2),
    Linear(),
]
OF_EACH_PRODUCT = [RBF(0.1), Laplacian(0.1), Poly(0.1, 3, 1.0), Linear()]  # whose code sees how rows are held
STEEP = [RBF(300.0), Laplacian(20.0), Matern(3.0, 2.5), Poly(2.0, 3, 1.0), Sigmoid(2.0, 0.0)]
FLAT = [RBF(1e-4)]
WITH_GRADIENT = [*KERNELS, *FLAT, *STEEP]  # in float64: where it nearly vanishes, tiles have few digits of it
EVERY = [*WITH_GRADIENT, Precomputed()]


def rows(m: int, d: int, layout: str, seed: int, filled: float = 0.5) -> Rows:
    rng = np.random.default_rng(seed)
    X = np.where(rng.random((m, d)) < filled, rng.normal(size=(m, d)), 0).astype(np.float32)
    if layout == "uint8":
        return Rows((np.abs(X) * 3).astype(np.uint8))
    return Rows(sparse.csr_array(X) if layout == "csr" else X.astype(layout))
