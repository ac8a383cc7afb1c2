"""Small models of every kind to explain."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
from cases import config
from scipy import sparse

from streamsvm.data.metric import Metric
from streamsvm.data.rows import Rows
from streamsvm.data.scaling import Scaling
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


METRICS = {
    "diagonal": Metric(np.array([1.2, 1.0, 0.5, 0.0])),  # leaves out the noise
    "full": Metric(np.array([[1.0, 0.3], [-0.5, 1.0], [0.2, 0.0], [0.0, 0.1]])),
}


@cache
def under_metric(kind: str, k: int, metric: str, **kernel: Any) -> Model:
    """A model whose scaling has a metric: fitted on rows that it has mapped, then told so."""
    X, y = animals(k)
    scaling = Scaling("standard", X.mean(axis=0).astype(np.float64), 1.0 / SPREAD, METRICS[metric])
    mapped = Store.from_arrays(scaling.apply(Rows(X)).X, y)
    more = {"kernel": kernel} if kernel else {}
    model: Any = train_in_memory(mapped, config(kind, scale="none", **more))[0]
    return replace(model, header=replace(model.header, scaling=scaling))  # type: ignore[no-any-return]
