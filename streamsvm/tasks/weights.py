"""Weights of rows, the factors on C: class weights times sample weights. And costs of errors: labels with the least
expected cost (Elkan 2001, The foundations of cost-sensitive learning, equation 1); with several labels a row, each is a
choice between the label and the rest."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import numpy as np

from streamsvm.data.labels import label_texts, matching_label
from streamsvm.errors import ConfigError

ClassWeight = Literal["balanced"] | Mapping[str, float] | None
Costs = Mapping[str, Mapping[str, float]]  # true label, predicted label, cost
REST = "rest"  # stands for all other labels, if rows have several


def row_weights(
    codes: np.ndarray, classes: np.ndarray, class_weight: ClassWeight, sample_weight: np.ndarray | None
) -> np.ndarray:
    """(n,) class weights times sample weights of rows with these codes. Raises ConfigError for an unknown class."""
    counts = np.bincount(codes, sample_weight, minlength=len(classes))
    weights = class_factors(counts, classes, class_weight)[codes]
    return weights if sample_weight is None else weights * sample_weight


def class_factors(counts: np.ndarray, classes: np.ndarray, class_weight: ClassWeight) -> np.ndarray:
    """(k,) factors on C by class, from the rows of each class, or their weights. Without classes (1,). Raises
    ConfigError for an unknown class."""
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
    counts: np.ndarray, sets: np.ndarray, classes: np.ndarray, class_weight: ClassWeight
) -> np.ndarray | None:
    """(2, k) factors, see `Targets.factors`, as a fit of each label alone would have them. counts (l,): rows of the
    sets (l, k). `balanced` balances the rows of each label with those without it; the weight of a label is that of its
    rows. Raises ConfigError for an unknown label."""
    if class_weight is None:
        return None
    has = counts @ sets
    if class_weight == "balanced":
        sides = np.stack([counts.sum() - has, has])
        return counts.sum() / (2 * np.where(sides > 0, sides, 1))
    factors = class_factors(has, classes, class_weight)
    return np.stack([np.ones(len(factors)), factors])


def label_weights(
    has: np.ndarray, classes: np.ndarray, class_weight: ClassWeight, sample_weight: np.ndarray | None
) -> np.ndarray:
    """(n, k) factors of labels times sample weights, of rows with these labels (n, k); as `label_factors`."""
    weights = of_labels(has, label_factors(np.ones(len(has), np.int64), has, classes, class_weight))
    return weights if sample_weight is None else weights * sample_weight[:, None]


def balancing(counts: np.ndarray, classes: np.ndarray, sets: np.ndarray | None) -> np.ndarray:
    """Factors that balance the classes: (k,) by code; for sets (l, k) of several labels (2, k). counts: rows of each
    code."""
    factors = None if sets is None else label_factors(counts, sets, classes, "balanced")
    return class_factors(counts, classes, "balanced") if factors is None else factors


def of_labels(has: np.ndarray, factors: np.ndarray | None) -> np.ndarray:
    """(n, k) of the factors (2, k), those of rows with these labels (n, k), see `Targets.factors`; None: 1."""
    return np.ones(has.shape) if factors is None else np.where(has, factors[1], factors[0])


def cost_matrix(costs: Costs, classes: np.ndarray) -> np.ndarray:
    """C (k, k), the cost of predicting label j if i is true: 0 on the diagonal, and 1 if no cost is given. Raises
    ConfigError for a label that is none of the classes."""
    texts = label_texts(classes).tolist()
    C = 1.0 - np.eye(len(texts))
    for true, row in costs.items():
        for predicted, cost in row.items():
            places = []
            for name in (true, predicted):
                label = matching_label(name, texts)
                if label is None:
                    names = ", ".join(texts[:30])
                    raise ConfigError(f"costs {true}>{predicted}: no such label {name}; the labels are {names}")
                places.append(texts.index(label))
            C[tuple(places)] = cost
    return C


def cheapest(p: np.ndarray, C: np.ndarray) -> np.ndarray:
    """(m,) argmin_j sum_i p_i C_ij of probabilities p (m, k); the first of equal ones. Each row's result is the same to
    the last bit for any number of rows, unlike with matrix products."""
    return np.argmin(sum(p[:, [i]] * row for i, row in enumerate(C)), axis=1)


def label_costs(costs: Costs, classes: np.ndarray) -> np.ndarray:
    """(2, k) the cost of predicting each label if it is not true, and of not predicting it if it is; 1 if no cost is
    given. Raises ConfigError for costs of anything else."""
    C, labels = np.ones((2, len(classes))), classes.tolist()
    if REST in labels:
        raise ConfigError(f"costs: found a label {REST!r}, which stands for all others here; give it another name")
    for true, row in costs.items():
        for predicted, cost in row.items():
            named = [name for name in (true, predicted) if name != REST]
            if len(named) != 1 or named[0] not in labels:
                raise ConfigError(
                    f"costs {true}>{predicted}: expected LABEL>{REST} (it is missed) or {REST}>LABEL (it is false) "
                    f"for several labels a row; the labels are {', '.join(labels[:30])}"
                )
            C[int(predicted == REST), labels.index(named[0])] = cost
    return C


def cheaper(p: np.ndarray, C: np.ndarray) -> np.ndarray:
    """(m, k) whether it costs less to predict a label than not to, by probabilities p (m, k) and C (2, k)."""
    return p * C[1] > (1.0 - p) * C[0]
