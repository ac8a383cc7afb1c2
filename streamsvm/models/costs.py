"""The label with the least expected cost (Elkan 2001, The foundations of cost-sensitive learning, equation 1)."""

from __future__ import annotations

import numpy as np

from streamsvm.data.labels import label_texts
from streamsvm.errors import ConfigError
from streamsvm.options.costs import Costs


def cost_matrix(costs: Costs, classes: np.ndarray) -> np.ndarray:
    """C (k, k), what label j costs if i is true: 0 on the diagonal, and 1 if no cost is given.

    Raises ConfigError for a label that is none of the classes.
    """
    places = {label: place for place, label in enumerate(label_texts(classes).tolist())}
    C = 1.0 - np.eye(len(places))
    for true, row in costs.items():
        for predicted, cost in row.items():
            for label in (true, predicted):
                if label not in places:
                    known = ", ".join(list(places)[:30])
                    raise ConfigError(
                        f"costs {true}>{predicted}: no such label {label}; the labels are {known}"
                    )
            C[places[true], places[predicted]] = cost
    return C


def cheapest(p: np.ndarray, C: np.ndarray) -> np.ndarray:
    """(m,) argmin_j sum_i p_i C_ij of probabilities p (m, k); the first of equal ones.

    Each row's result is the same to the last bit for any number of rows, unlike with matrix products.
    """
    return np.argmin(sum(p[:, [i]] * own for i, own in enumerate(C)), axis=1)
