"""How much each column counts, by the gradients of the decision function at some rows, which are raw."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from itertools import product
from typing import Any

import numpy as np

from streamsvm.data.layout import Names, columns_in_attrs
from streamsvm.data.rows import Rows, concat
from streamsvm.data.scaling import Scaling
from streamsvm.data.statistics import merge, moments_of
from streamsvm.data.store import Store
from streamsvm.errors import ModelError
from streamsvm.explain.decisions import code_of, gradients, require_features
from streamsvm.models import EnsembleModel
from streamsvm.models.base import Model
from streamsvm.predict import rows_at
from streamsvm.texts.documented import described

BLOCK_ENTRIES = 1 << 22  # of gradients: 32 MiB
MOST_ROWS, MOST_VALUES = 1000, 3


@dataclass(frozen=True)
class Importances:
    """values: (d,) float64, at least 0, their sum 1 (0 if nothing counts). source: the rows or weights that they come
    from."""

    values: np.ndarray
    names: Names
    source: str

    def ordered(self, most: int | None = None) -> list[tuple[str, float]]:
        """Columns by their importance, the largest first."""
        order = np.argsort(-self.values, kind="stable")[:most]
        return [(self.names[f], float(self.values[f])) for f in order]


@described
def importances(model: Model, X: Any = None, label: str | None = None) -> Importances:
    """Importance of each column: the mean squared derivative of the decision function times the column's variance.

    Units therefore do not matter. `decisions.Decision` defines the decision function.

    Parameters
    ----------
    X : {Rows, array-like, data frame, Store} of shape (n, d) or None
        Rows to average over; at most 1,000 are read, unless they are `Rows`. None: the support vectors. For a model
        with a metric, None gives the metric's weights of scaled columns, for a linear one the squared weights.
    label : str or None
        The label whose decision it is, of a model whose rows have several. None: the mean over all labels.

    Returns
    -------
    Importances
        A share for each column, and its source.

    Raises
    ------
    ModelError, DataError

    Examples
    --------

    >>> import numpy as np
    >>> from streamsvm import DCSVC
    >>> from streamsvm.explain.importances import importances
    >>> X = np.random.default_rng(0).normal(size=(200, 3))
    >>> found = importances(DCSVC().fit(X, X[:, 1] > 0).model_, X)
    >>> found.source, found.ordered(1)[0][0]
    ('200 rows', '1')
    """
    require_features(model)
    if label is not None:
        code_of(model, label)  # before any work, whether it is known
    names, (values, source) = column_names(model), _measured(model, X, label)
    return Importances(values[: len(names)], names, source)


def importances_table(model: Model, store: Store | None, label: str | None = None) -> dict[str, Any]:
    """`importances`, all columns, those that count most first, and what they are from. If text columns were encoded,
    also by column of the table. Raises ModelError, DataError."""
    measured = importances(model, store, label)
    records = [{"feature": name, "importance": value} for name, value in measured.ordered()]
    tables = {"importances_from": measured.source, "importances": records}
    columns = {} if model.layout is None else columns_in_attrs(model.layout.attrs)
    is_encoded = any(len(names) > 1 for names in columns.values())
    if is_encoded and [name for names in columns.values() for name in names] == list(measured.names):
        tables["importances_by_column"] = _by_column(columns, measured.ordered())
    return tables


def _by_column(columns: dict[str, Names], ordered: list[tuple[str, float]]) -> list[dict[str, Any]]:
    """The sum of each column's importances, and its values or slots that count most."""
    column_of = {name: column for column, names in columns.items() for name in names}
    totals, most = dict.fromkeys(columns, 0.0), {column: list[str]() for column in columns}
    for name, value in ordered:
        column = column_of[name]
        totals[column] += value
        if value > 0 and name != column and len(most[column]) < MOST_VALUES:
            most[column].append(name.removeprefix(f"{column}="))
    records = [{"column": c, "importance": totals[c], "most": ", ".join(most[c]) or None} for c in columns]
    return sorted(records, key=lambda record: -record["importance"])


def _measured(model: Model, X: Any, label: str | None) -> tuple[np.ndarray, str]:
    if X is not None:
        store = X if isinstance(X, Store | Rows) else Store.from_arrays(X, like=model.layout)
        rows = store if isinstance(store, Rows) else sampled(model, store)
        return by_gradients(model, rows, label), f"{len(rows):,} rows"
    if isinstance(model, EnsembleModel):
        of_members = [_measured(member, None, label)[0] for member in model.members]
        return _shares(np.tensordot(model.weights, of_members, 1)), "members"
    of_metric = model.header.scaling.importances
    if of_metric is not None:
        return of_metric, "metric"
    support = support_rows(model)
    if support is None:
        return _by_weights(model, label), "weights"
    return by_gradients(model, support, label), "support vectors"


def column_names(model: Model) -> Names:
    """(d,) names of the model's columns, numbers if there are none; of a stream those that it has seen."""
    names = model.shown_names or ()
    return names if model.by_name else names + tuple(map(str, range(len(names), model.d)))


def by_gradients(model: Model, rows: Rows, label: str | None = None) -> np.ndarray:
    """(d,) mean over raw rows of the squared derivative times the column's variance, normalised to sum 1. label: see
    `importances`."""
    labels = model.classes.tolist() if model.learned.in_sets and label is None else [label]
    step = max(1, BLOCK_ENTRIES // model.d)
    blocks = [rows.take(slice(start, start + step)) for start in range(0, len(rows), step)]
    squares = np.zeros(model.d)
    for block, one_label in product(blocks, labels):
        derivatives = gradients(model, block, one_label)
        squares += np.einsum("ij,ij->j", derivatives, derivatives)
    return _shares(squares * reduce(merge, map(moments_of, blocks)).m2)


def _by_weights(model: Model, label: str | None) -> np.ndarray:
    """(d,) squared weights of scaled columns, over all columns of decision values, or of that of a label."""
    expansion = model.as_expansion()
    weights = expansion.support.dense().astype(np.float64)
    if label is not None:
        weights = expansion.coef[:, code_of(model, label)][None] @ weights
    return _shares(model.header.scaling.of_raw(np.einsum("ij,ij->j", weights, weights)))


def _shares(values: np.ndarray) -> np.ndarray:
    total = values.sum()
    return values / total if total > 0 else np.zeros_like(values)


def sampled(model: Model, store: Store, most: int = MOST_ROWS) -> Rows:
    """At most so many raw rows from all over a store, always the same ones. Raises ModelError, DataError."""
    if store.n <= most:
        return rows_at(model, store, np.arange(store.n))
    return rows_at(model, store, np.sort(np.random.default_rng(0).choice(store.n, most, replace=False)))


def support_rows(model: Model, most: int = MOST_ROWS) -> Rows | None:
    """At most so many of a model's support vectors, raw; None if it keeps weights. Raises ModelError."""
    routes = model.as_routes()
    if routes is not None:
        bounds, places = routes.bounds, _spread(int(routes.bounds[-1]), most)
        part = np.searchsorted(bounds, places, side="right") - 1
        samples = [routes.part(p)[0].take(places[part == p] - bounds[p]) for p in np.unique(part).tolist()]
        return _raw(routes.scaling, concat(samples))
    pooled = model.as_pooled()
    if pooled is not None:
        support = concat([learner.supports() for learner in pooled.kernels])
        return _raw(model.header.scaling, support.take(_spread(len(support), most)))
    expansion = model.as_expansion()
    if not expansion.of_rows:
        return None
    return _raw(expansion.scaling, expansion.support.take(_spread(len(expansion.support), most)))


def _raw(scaling: Scaling, rows: Rows) -> Rows:
    raw, metric = scaling.undone(rows), scaling.metric
    if raw is None or (metric is not None and len(metric.columns) < metric.d):
        raise ModelError(
            "the model's metric leaves out or mixes columns, so its support vectors are not raw rows; give rows to "
            "explain, with --store"
        )
    return Rows(raw)


def _spread(n: int, most: int) -> np.ndarray:
    """At most so many of n places, evenly apart. Raises ModelError if there are none."""
    if not n:
        raise ModelError("the model has no support vectors: its answer does not depend on the row")
    return np.linspace(0, n - 1, min(n, most)).astype(np.int64)
