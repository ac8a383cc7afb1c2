"""Small linear problems, for dual coordinate descent."""

from __future__ import annotations

import numpy as np

from streamsvm.config import FitConfig, build_config

TIGHT = 1e-8


def data(k: int = 2, n: int = 300) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = np.where(rng.random((n, 6)) < 0.5, rng.normal(size=(n, 6)), 0).astype(np.float32)
    f = X @ [1, -2, 0.5, 0, 0.3, 0] + 0.7 * rng.normal(size=n)
    return X, np.digitize(f, np.quantile(f, np.arange(1, k) / k))


def config(**values: object) -> FitConfig:
    linear = {"solver": "cutting-plane", "kernel": {"name": "linear"}, "threads": 2}
    return build_config(("test", linear | values))


def words(n: int = 300) -> tuple[np.ndarray, np.ndarray]:
    """Rows with few entries that are not 0."""
    rng = np.random.default_rng(0)
    X = (rng.random((n, 60)) < 0.1).astype(np.float32)
    return X, (X[:, :30].sum(axis=1) > X[:, 30:].sum(axis=1)).astype(int)
