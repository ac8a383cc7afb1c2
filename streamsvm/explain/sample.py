"""Raw rows to explain: some of a store's, or a model's own support vectors."""

from __future__ import annotations

import numpy as np

from streamsvm.data.rows import Rows, concat
from streamsvm.data.scaling import Scaling
from streamsvm.data.store import Store
from streamsvm.errors import ModelError
from streamsvm.models.base import Model
from streamsvm.models.shapes import PartitionRouting
from streamsvm.tables.target_encoding import with_values_of_model

MOST_ROWS = 1000


def sampled(model: Model, store: Store, most: int = MOST_ROWS) -> Rows:
    """At most so many raw rows from all over a store, always the same ones. Raises ModelError, DataError."""
    if store.n <= most:
        return chosen(model, store, np.arange(store.n))
    return chosen(model, store, np.sort(np.random.default_rng(0).choice(store.n, most, replace=False)))


def chosen(model: Model, store: Store, ids: np.ndarray) -> Rows:
    """The raw rows of a store with these ids, in the model's columns. Raises ModelError, DataError."""
    store = with_values_of_model(store, model.layout)
    columns, _ = model.columns_in(store)
    rows = store.take(ids)
    store.require_finite(rows, ids, gaps=model.takes_gaps)
    rows, scaling = rows.arranged(columns, model.d), model.header.scaling
    return scaling.filled(rows) if scaling.marks is None else rows  # a mark is of a gap


def support_rows(model: Model, most: int = MOST_ROWS) -> Rows | None:
    """At most so many of a model's support vectors, raw; None if it keeps weights. Raises ModelError."""
    routes = model.as_routes()
    if routes is not None:
        return _of_parts(routes, most)
    pooled = model.as_pooled()
    if pooled is not None:
        support = concat([learner.supports() for learner in pooled.kernels])
        return _raw(model.header.scaling, support.take(_spread(len(support), most)))
    expansion = model.as_expansion()
    if not expansion.of_rows:
        return None
    return _raw(expansion.scaling, expansion.support.take(_spread(len(expansion.support), most)))


def _of_parts(routes: PartitionRouting, most: int) -> Rows:
    bounds, places = routes.bounds, _spread(int(routes.bounds[-1]), most)
    part = np.searchsorted(bounds, places, side="right") - 1
    samples = [routes.part(p)[0].take(places[part == p] - bounds[p]) for p in np.unique(part).tolist()]
    return _raw(routes.scaling, concat(samples))


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
