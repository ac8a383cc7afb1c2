"""Weights of rows: class times sample weights, the factors on C."""

from __future__ import annotations

from typing import Any

import numpy as np

from streamsvm.data.labels import label_texts, matching_label
from streamsvm.errors import ConfigError


def row_weights(
    codes: np.ndarray, classes: np.ndarray, class_weight: Any, sample_weight: np.ndarray | None
) -> np.ndarray:
    """(n,) class times sample weights of rows with these codes. Raises ConfigError for an unknown class."""
    counts = np.bincount(codes, sample_weight, minlength=len(classes))
    weights = class_factors(counts, classes, class_weight)[codes]
    return weights if sample_weight is None else weights * sample_weight


def class_factors(counts: np.ndarray, classes: np.ndarray, class_weight: Any) -> np.ndarray:
    """Factors on C by code, (k,) of classes, of so many rows of each, or rows of so much weight.

    Raises ConfigError for an unknown class.
    """
    factors = np.ones(len(counts))
    if class_weight == "balanced":
        factors = counts.sum() / (len(classes) * np.where(counts > 0, counts, 1))
    elif class_weight:
        texts = label_texts(classes).tolist()
        for name, weight in class_weight.items():
            label = matching_label(name, texts)
            if label is None:
                raise ConfigError(f"class_weight names {name!r}; the classes are {', '.join(texts[:30])}")
            factors[texts.index(label)] = weight
    return factors


def label_factors(
    counts: np.ndarray, sets: np.ndarray, classes: np.ndarray, class_weight: Any
) -> np.ndarray | None:
    """(2, k), see `Targets.factors`, as a fit of each label alone would have them; sets (l, k) have so many rows (l,).

    `balanced` balances the rows of each label with those without it; the weight of a label is that of its rows. Raises
    ConfigError for an unknown label.
    """
    if class_weight is None:
        return None
    has = counts @ sets
    if class_weight == "balanced":
        sides = np.stack([counts.sum() - has, has])
        return counts.sum() / (2 * np.where(sides > 0, sides, 1))
    own = class_factors(has, classes, class_weight)
    return np.stack([np.ones(len(own)), own])


def label_weights(
    has: np.ndarray, classes: np.ndarray, class_weight: Any, sample_weight: np.ndarray | None
) -> np.ndarray:
    """(n, k) factors of labels times sample weights, of rows that have these labels (n, k); as `label_factors`."""
    weights = of_labels(has, label_factors(np.ones(len(has), np.int64), has, classes, class_weight))
    return weights if sample_weight is None else weights * sample_weight[:, None]


def balancing(counts: np.ndarray, classes: np.ndarray, sets: np.ndarray | None) -> np.ndarray:
    """Factors that balance the classes: (k,), of so many rows by code; of sets (l, k) those of each label, (2, k)."""
    factors = None if sets is None else label_factors(counts, sets, classes, "balanced")
    return class_factors(counts, classes, "balanced") if factors is None else factors


def of_labels(has: np.ndarray, factors: np.ndarray | None) -> np.ndarray:
    """(n, k) the factors (2, k) of rows that have these labels (n, k), see `Targets.factors`; None: 1."""
    return np.ones(has.shape) if factors is None else np.where(has, factors[1], factors[0])
