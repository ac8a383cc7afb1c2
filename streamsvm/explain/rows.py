"""Rows of a store, one by one: the model's answer, what it would take to change it, and what it rests on."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from streamsvm.data.moments import moments_of
from streamsvm.data.rows import Rows
from streamsvm.data.store import Store
from streamsvm.explain.decisions import Decision, PooledDecision, answered, decisions
from streamsvm.explain.sample import chosen
from streamsvm.explain.shapley import require_shapley, shapley_values
from streamsvm.explain.support import SupportVector, support_vectors
from streamsvm.models.base import Model
from streamsvm.texts.documented import described


@dataclass(frozen=True)
class RowExplanation:
    """A row and its decision.

    decision: g(x) of `Decision`. answer: the label, of a task without labels the value. for_class: the class that a
    decision above 0 is for; None if there are no classes. values, gradient (d,): raw features, and derivatives
    of g by them. effect (d,): gradient times the column's standard deviation, what one of these would add.
    shapley (d,), base: with g(x) = base + sum of shapley, where asked for; shapley_error (d,): standard errors of
    sampled ones. weightiest, nearest: support vectors.
    """

    row: int
    answer: object
    decision: float
    for_class: object
    values: np.ndarray
    gradient: np.ndarray
    effect: np.ndarray
    weightiest: list[SupportVector]
    nearest: list[SupportVector]
    shapley: np.ndarray | None = None
    base: float | None = None
    shapley_error: np.ndarray | None = None

    def order(self) -> np.ndarray:
        """(d,) columns, those that count most here first: by Shapley values where there are any, else by effect."""
        return np.argsort(-np.abs(self.effect if self.shapley is None else self.shapley), kind="stable")


def deviations(rows: Rows) -> np.ndarray:
    """(d,) standard deviations of columns."""
    moments = moments_of(rows)
    return np.sqrt(moments.m2 / moments.n)


@described
def explain_rows(
    model: Model,
    store: Store,
    ids: np.ndarray,
    deviation: np.ndarray,
    *,
    shapley: bool = False,
    support: int = 3,
    label: str | None = None,
) -> list[RowExplanation]:
    """Explains the decisions on some rows of a store.

    Parameters
    ----------
    ids : ndarray of shape (m,)
        Row numbers, from 0 to n - 1.
    deviation : ndarray of shape (d,)
        Standard deviation of each column, see `deviations`.
    shapley : bool
        Add Shapley values.
    support : int
        Number of support vectors of each sort. 0: none, as for linear models.
    label : str or None
        The label whose decision is explained, of a model whose rows have several.

    Returns
    -------
    list of RowExplanation
        The explanations, in the order of `ids`.

    Raises
    ------
    ModelError, DataError
    """
    raw = chosen(model, store, ids)
    answers, codes = answered(model, raw, label)
    explained: dict[int, RowExplanation] = {}
    for places, decision in decisions(model, raw, codes):
        if shapley:
            require_shapley(decision)
        some = raw.take(places)
        scaled = decision.scaled(some)
        g, gradient = decision.values(scaled), decision.gradients(some)
        for i, place in enumerate(places.tolist()):
            row = scaled.take(slice(i, i + 1))
            near = support_vectors(model, decision, row, support) if decision.of_rows and support else ([], [])
            explained[place] = RowExplanation(
                int(ids[place]),
                answers[place].item(),
                float(g[i]),
                _class(model, decision, int(codes[place])),
                raw.take(slice(place, place + 1)).dense()[0].astype(np.float64),
                gradient[i],
                gradient[i] * deviation,
                *near,
                *(shapley_values(decision, row) if shapley else ()),
            )
    return [explained[place] for place in range(len(ids))]


def _class(model: Model, decision: Decision | PooledDecision, code: int) -> object:
    """The class that a decision above 0 is for; None if there are none."""
    if decision.label is not None:
        return decision.label
    if not model.learned.speaks_for_classes:
        return None
    return model.classes[1 if decision.is_single else code].item()
