"""Whether the rows of two stores are alike: how well a classifier separates them, and which columns differ."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse

from streamsvm.config import build_config
from streamsvm.data.folds import draw_ids
from streamsvm.data.layout import first_difference
from streamsvm.data.rows import Rows, concat
from streamsvm.data.samples import gather
from streamsvm.data.store import Store, have_same_columns
from streamsvm.errors import DataError
from streamsvm.events import ignore
from streamsvm.metrics import scored
from streamsvm.parallel.engine import Engine
from streamsvm.tables.checks import MOST_NAMED, column_values, namer
from streamsvm.train import train_in_memory

LEAST_ROWS, MOST_ROWS, MOST_BYTES = 50, 10_000, 64 << 20  # of each store
HELD_OUT = 4  # one row of so many scores the classifier
Z, BY_CHANCE = 2.576, 0.01  # what 99 of 100 pairs of stores of the same rows stay below


def drift(store: Store, other: Store, engine: Engine) -> dict[str, Any]:
    """From as many random rows of each store: the ROC area at which a classifier (`bsgd`) separates held-out ones.

    chance: the range that contains it in 99 of 100 cases if the rows are alike. columns: the ten that differ most, by
    the statistic of Kolmogorov and Smirnov (a gap is a value below all others), among those beyond what chance explains
    for so many. Raises DataError if stores have different columns, or too few rows.
    """
    _require_alike(store, other)
    most = int(MOST_BYTES / max(8, 12 * max(store.row_entries, other.row_entries)))
    n = min(store.n, other.n, MOST_ROWS, max(most, LEAST_ROWS))
    if n < LEAST_ROWS:
        raise DataError(f"found {n} rows to compare, expected at least {LEAST_ROWS} in each store")
    parts = [_sampled(each, n, engine) for each in (store, other)]
    if parts[0].is_sparse != parts[1].is_sparse:
        parts = [Rows(sparse.csr_array(part.X)) for part in parts]
    area, n_held = _separation(concat(parts))
    error = Z * ((2 * n_held + 1) / (12 * n_held**2)) ** 0.5
    name = namer(store)
    columns = [{"column": name(column), "ks": ks} for column, ks in _columns(*parts)]
    return {
        "store": other.url,
        "rows": n,
        "held_out": 2 * n_held,
        "roc_auc": area,
        "chance": [0.5 - error, 0.5 + error],
        "columns": columns,
    }


def remarks(result: dict[str, Any]) -> list[str]:
    """A warning if `drift` found more than chance explains."""
    low, high = result["chance"]
    if result["roc_auc"] <= high and not result["columns"]:
        return []
    most = ", ".join(f"{column['column']} ({column['ks']:.3f})" for column in result["columns"])
    by_column = f"; columns that differ most: {most}" if most else ""
    return [
        f"rows of {result['store']} differ: a classifier separates them with a ROC area of "
        f"{result['roc_auc']:.3f}, where chance has {low:.3f} to {high:.3f}{by_column}"
    ]


def _require_alike(store: Store, other: Store) -> None:
    names, first_names = other.feature_names, store.feature_names
    if not have_same_columns(store, other):
        widths = f" has {other.d} columns, {store.url or 'the first'} has {store.d}" * (other.d != store.d)
        difference = f": {first_difference(names, first_names)}" if names and first_names else ""
        raise DataError(
            f"{other.url or 'the second store'}{widths}{difference}; expected the same columns, as "
            "`streamsvm ingest FILE --store S --like STORE` makes them"
        )


def _sampled(store: Store, n: int, engine: Engine) -> Rows:
    ids = draw_ids(store.n, n, np.random.default_rng(0))
    rows = gather(store, ids, engine)
    store.require_finite(rows, ids, gaps=True)
    return rows.astype(np.float32)


def _separation(rows: Rows) -> tuple[float, int]:
    """(ROC area on held-out rows, how many these are of each store) of rows of two stores, half of each."""
    n = len(rows) // 2
    n_held, order = n // HELD_OUT, np.random.default_rng(0).permutation(n)
    test, training = (np.concatenate([part, n + part]) for part in (order[:n_held], order[n_held:]))
    options = {"solver": "bsgd", "gaps": "mean", "scale": "maxabs" if rows.is_sparse else "standard"}
    store = Store.from_arrays(rows.take(training).X, training >= n)
    model, _ = train_in_memory(store, build_config(("check", options)), ignore)
    values = model.decision_function(rows.take(test)).ravel()
    return scored(test >= n, values).roc_auc() or 0.5, n_held


def _columns(a: Rows, b: Rows) -> list[tuple[int, float]]:
    """(column, statistic), the largest first, of those beyond chance.

    No column's is larger than the share of rows in which it is not 0: so the emptier ones need not be looked at.
    """
    from scipy.stats import ks_2samp

    n, d = len(a), a.d
    filled = np.maximum(*(np.asarray((rows.X != 0).sum(axis=0)).ravel() for rows in (a, b))) / n
    threshold = (np.log(2 * d / BY_CHANCE) / n) ** 0.5
    X, Y = (sparse.csc_array(rows.X) if rows.is_sparse else rows.X for rows in (a, b))
    differing: list[tuple[int, float]] = []
    for column in np.argsort(-filled, kind="stable").tolist():
        if filled[column] <= threshold:
            break
        ks = ks_2samp(column_values(X, column), column_values(Y, column), method="asymp").statistic
        if ks > threshold:
            differing = sorted([*differing, (column, float(ks))], key=lambda pair: -pair[1])[:MOST_NAMED]
            threshold = threshold if len(differing) < MOST_NAMED else differing[-1][1]
    return differing
