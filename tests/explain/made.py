"""Small models of every kind to explain."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from cases import config
from scipy import sparse

from streamsvm.data.store import Store
from streamsvm.models.base import Model
from streamsvm.train import train_in_memory

SUMS = ["dcsvm", "dcsvm early", "bsgd", "cutting-plane", "admm-hss", "alfpgm", "landmarks"]
SUMS += ["kernel k-means", "several parts"]
LABELS = np.array(["ant", "bee", "cat"])
MEAN, SPREAD = np.array([0, 100, 0, 5], np.float32), np.array([1, 10, 1, 0.1], np.float32)


@cache
def animals(k: int) -> tuple[np.ndarray, np.ndarray]:
    """(300, 4) float32 in different units and k labels; the last column is noise."""
    Z = np.random.default_rng(0).normal(size=(300, 4)).astype(np.float32)
    return Z * SPREAD + MEAN, LABELS[(Z[:, 0] * Z[:, 1] > 0).astype(int) + (k - 2) * (Z[:, 2] > 0.5)]


@cache
def made(kind: str, k: int, scale: str = "standard", layout: str = "dense", **kernel: Any) -> Model:
    X, y = animals(k)
    X = sparse.csr_array(X) if layout == "csr" else X
    more = {"kernel": kernel} if kernel else {}
    return train_in_memory(Store.from_arrays(X, y), config(kind, scale=scale, **more))[0]
