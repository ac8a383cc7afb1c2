"""Per-feature statistics of a block of rows, and how those of two blocks merge."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np

from streamsvm.data.rows import Rows
from streamsvm.parallel.sizes import Weighed


@dataclass(frozen=True)
class Moments(Weighed):
    """Statistics of n rows, per feature, all (d,) float64: lowest, highest, mean, and m2 = sum (x - mean)^2."""

    n: int
    low: np.ndarray
    high: np.ndarray
    mean: np.ndarray
    m2: np.ndarray


def moments_of(rows: Rows) -> Moments:
    """The statistics of at least one row."""
    X = rows.X
    if not isinstance(X, np.ndarray):
        return _sparse(X)
    step = max(1, (1 << 15) // X.shape[1])  # a tile of 256 KiB of float64 stays in L2
    return reduce(merge, (_dense(X[lo : lo + step].astype(np.float64)) for lo in range(0, len(X), step)))


def _dense(X: np.ndarray) -> Moments:
    mean = X.mean(axis=0)
    low, high = X.min(axis=0), X.max(axis=0)
    X -= mean
    return Moments(len(X), low, high, mean, np.einsum("ij,ij->j", X, X))


def _sparse(X: Any) -> Moments:
    n, d = X.shape
    data = X.data.astype(np.float64)
    stored = np.bincount(X.indices, minlength=d)
    mean = np.bincount(X.indices, weights=data, minlength=d) / n
    deviations = (data - mean[X.indices]) ** 2
    m2 = np.bincount(X.indices, weights=deviations, minlength=d) + (n - stored) * mean**2
    low, high = X.min(axis=0).toarray().astype(np.float64), X.max(axis=0).toarray().astype(np.float64)
    return Moments(n, low, high, mean, m2)


def variance(moments: Moments, offset: Any = 0.0, scale: Any = 1.0) -> float:
    """var(X) over all entries of X, with features scaled as (x - offset) * scale."""
    means = (moments.mean - offset) * scale
    return float(np.mean(moments.m2 / moments.n * scale**2 + means**2) - means.mean() ** 2)


def merge(a: Moments, b: Moments) -> Moments:
    """The statistics of the rows of a and b together (Chan, Golub and LeVeque 1979)."""
    n = a.n + b.n
    delta = b.mean - a.mean
    return Moments(
        n,
        np.minimum(a.low, b.low),
        np.maximum(a.high, b.high),
        a.mean + delta * (b.n / n),
        a.m2 + b.m2 + delta**2 * (a.n * b.n / n),
    )
