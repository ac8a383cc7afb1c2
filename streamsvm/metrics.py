"""How good predictions are, from counts and scores that were gathered block by block."""

from __future__ import annotations

from typing import Any

import numpy as np


def confusion(truth: np.ndarray, predicted: np.ndarray, k: int) -> np.ndarray:
    """(k, k) counts, row = true class, column = predicted class, of codes (m,) in 0..k-1."""
    return np.bincount(truth * k + predicted, minlength=k * k).reshape(k, k)


def per_class(counts: np.ndarray, labels: list[Any]) -> list[dict[str, Any]]:
    """Precision, recall, f1 and support of each class from (k, k) counts; 0 where nothing is divided by nothing."""
    hits, n_true, n_predicted = np.diag(counts), counts.sum(axis=1), counts.sum(axis=0)
    columns = {
        "label": labels,
        "precision": _ratio(hits, n_predicted).tolist(),
        "recall": _ratio(hits, n_true).tolist(),
        "f1": _ratio(2 * hits, n_true + n_predicted).tolist(),
        "support": n_true.tolist(),
    }
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def roc_auc(positive: np.ndarray, scores: np.ndarray) -> float | None:
    """Chance that a positive row scores above a negative one, ties half; None where one class is absent.

    positive: (n,) bool, scores: (n,). Mann and Whitney's rank statistic, O(n log n).
    """
    n_positive = int(np.count_nonzero(positive))
    n_pairs = n_positive * (len(positive) - n_positive)
    if n_pairs == 0:
        return None
    _, inverse, counts = np.unique(scores, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    mean_rank = last - (counts - 1) / 2
    rank_sum = float(mean_rank[inverse[positive]].sum())
    return (rank_sum - n_positive * (n_positive + 1) / 2) / n_pairs


def _ratio(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
    return np.divide(part, whole, out=np.zeros(len(part)), where=whole > 0)
