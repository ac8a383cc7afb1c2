"""The support vectors that a row's decision rests on: those that weigh most in it, and those that are nearest."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from streamsvm.data.rows import Rows
from streamsvm.errors import ModelError
from streamsvm.explain.decisions import Decision, PooledDecision
from streamsvm.kernels.distance import sq_distances
from streamsvm.models.base import Model
from streamsvm.tasks.pairs import classes_of_pairs


@dataclass(frozen=True)
class SupportVector:
    """One of those of a row x.

    id: the training row that it was, if the model knows. label: the class that its coefficients are for, that of
    the training row if it was one; None if they are for none. contribution: coef K(x, s). distance: in scaled
    features. values: (d,) raw, NaN in columns that a metric leaves out; None under a full one.
    """

    id: int | None
    label: object
    coef: float
    kernel: float
    contribution: float
    distance: float
    values: np.ndarray | None


def require_support(model: Model, decision: Decision | PooledDecision) -> None:
    """Raises ModelError for weights, which correspond to no rows."""
    if not decision.of_rows:
        raise ModelError(
            "the model is linear: it keeps a weight for each column, which the gradient is, and no support vectors"
        )


def support_vectors(
    model: Model, decision: Decision | PooledDecision, row: Rows, n: int
) -> tuple[list[SupportVector], list[SupportVector]]:
    """(the n with the largest |coef K(x, s)|, the n nearest ones) of one scaled row. Raises ModelError."""
    require_support(model, decision)
    weightiest, nearest = [], []
    for decision_sum in decision.sums_at(row):
        weighty, near = _of_sum(model, decision_sum, row, n)
        weightiest += weighty
        nearest += near
    weightiest.sort(key=lambda vector: -abs(vector.contribution))
    nearest.sort(key=lambda vector: vector.distance)
    return weightiest[:n], nearest[:n]


def _of_sum(model: Model, decision: Decision, row: Rows, n: int) -> tuple[list[SupportVector], list[SupportVector]]:
    kernel = decision.kernel.exact(row, decision.support)[0]
    distance = np.sqrt(np.abs(sq_distances(row, decision.support)[0]))  # abs: of -0.0
    contribution = decision.coef * kernel

    def support_vector(j: int) -> SupportVector:
        return SupportVector(
            id=None if decision.ids is None else int(decision.ids[j]),
            label=_label(model, decision, j),
            coef=float(decision.coef[j]),
            kernel=float(kernel[j]),
            contribution=float(contribution[j]),
            distance=float(distance[j]),
            values=_raw(decision, j),
        )

    weightiest = np.argsort(-np.abs(contribution), kind="stable")[:n]
    nearest = np.argsort(distance, kind="stable")[:n]
    return [support_vector(int(j)) for j in weightiest], [support_vector(int(j)) for j in nearest]


def _raw(decision: Decision, j: int) -> np.ndarray | None:
    """(d,) a support vector as it was before the scaling."""
    values = decision.scaling.undone(decision.support.take(slice(j, j + 1)))
    return None if values is None else values[0]


def _label(model: Model, decision: Decision, j: int) -> object:
    """The class that the coefficients of support row j are for; None if there is no such class."""
    coef = decision.columns[j]
    if decision.label is not None:
        return decision.label if decision.coef[j] > 0 else None
    if not model.learned.speaks_for_classes:
        return None
    if len(coef) > 1 and not model.is_pairwise:  # against the rest: above 0 in the column of its own class alone
        code = int(np.argmax(coef))
        return model.classes[code].item() if coef[code] > 0 else None
    pair = int(np.argmax(np.abs(coef)))  # in all pairs that it is in, it speaks for the same class
    first, second = classes_of_pairs(len(model.classes))
    return model.classes[(second if coef[pair] > 0 else first)[pair]].item()
