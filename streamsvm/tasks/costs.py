"""Labels with the least expected cost (Elkan 2001, The foundations of cost-sensitive learning, equation 1). With
several labels a row, each is a choice between the label and the rest."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from streamsvm.data.labels import label_texts, matching_label
from streamsvm.errors import ConfigError

Costs = Mapping[str, Mapping[str, float]]  # true label, predicted label, cost
REST = "rest"  # stands for all other labels, if rows have several


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
