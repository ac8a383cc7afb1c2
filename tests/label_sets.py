"""Rows with several labels, a fit of them, and commands."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from sklearn.datasets import make_multilabel_classification

from streamsvm.cli.app import app, exit_status
from streamsvm.config import FitConfig, build_config
from streamsvm.data.labels import set_texts

K = 3
NAMES = np.array(["2", "10", "30"])


@cache
def rows() -> tuple[np.ndarray, np.ndarray]:
    """(n, d) float32, and (n, K) bool: a label that is rare, and rows without any."""
    X, Y = make_multilabel_classification(240, 5, n_classes=K, n_labels=2, random_state=3)
    Y[:, 0] &= X[:, 0] > np.quantile(X[:, 0], 0.7)
    assert not Y.any(axis=1).all()
    return ((X - X.mean(axis=0)) / X.std(axis=0)).astype(np.float32), Y.astype(bool)


def texts(Y: np.ndarray) -> np.ndarray:
    return set_texts(Y, NAMES)


def config(**values: Any) -> FitConfig:
    base = {"task": "multilabel", "C": 2.0, "kernel": {"gamma": 0.2}, "tol": 1e-4, "threads": 2}
    return build_config(("test", base | values))


def command(capfd, *words: object) -> tuple[int, str, str]:
    status = exit_status(lambda: app([*map(str, words)], standalone_mode=False))
    told = capfd.readouterr()
    return status, told.out, told.err
