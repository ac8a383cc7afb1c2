"""How much each column counts, by the gradients of the decision function."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from itertools import product
from typing import Any

import numpy as np

from streamsvm.data.layout import Names
from streamsvm.data.moments import merge, moments_of
from streamsvm.data.rows import Rows
from streamsvm.data.store import Store
from streamsvm.explain.decisions import code_of, gradients, require_features
from streamsvm.explain.sample import sampled, support_rows
from streamsvm.models.base import Model
from streamsvm.texts.documented import described

BLOCK_ENTRIES = 1 << 22  # of gradients: 32 MiB


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


def _measured(model: Model, X: Any, label: str | None) -> tuple[np.ndarray, str]:
    if X is not None:
        store = X if isinstance(X, Store | Rows) else Store.from_arrays(X, like=model.layout)
        rows = store if isinstance(store, Rows) else sampled(model, store)
        return by_gradients(model, rows, label), f"{len(rows):,} rows"
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
