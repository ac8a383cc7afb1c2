"""Whether the rows of two stores are alike: how well a classifier separates them, and which columns differ."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse

from streamsvm.config import build_config
from streamsvm.data.folds import draw_ids
from streamsvm.data.names import first_difference
from streamsvm.data.rows import Rows, concat
from streamsvm.data.samples import gather
from streamsvm.data.store import Store, have_same_columns
from streamsvm.errors import DataError
from streamsvm.events import ignore
from streamsvm.metrics import scored
from streamsvm.parallel.engine import Engine
from streamsvm.tables.suspects import MOST_NAMED, column_values, namer
from streamsvm.train import train_in_memory

LEAST_ROWS, MOST_ROWS, MOST_BYTES = 50, 10_000, 64 << 20  # of each store
HELD = 4  # one row of so many scores the classifier
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
    parts = [_sampled(one, n, engine) for one in (store, other)]
    if parts[0].is_sparse != parts[1].is_sparse:
        parts = [Rows(sparse.csr_array(part.X)) for part in parts]
    area, held = _told_apart(concat(parts))
    error = Z * ((2 * held + 1) / (12 * held**2)) ** 0.5
    name = namer(store)
    columns = [{"column": name(column), "ks": ks} for column, ks in _columns(*parts)]
    return {
        "store": other.url,
        "rows": n,
        "held_out": 2 * held,
        "roc_auc": area,
        "chance": [0.5 - error, 0.5 + error],
        "columns": columns,
    }


def remarks(found: dict[str, Any]) -> list[str]:
    """A warning if `drift` found more than chance explains."""
    low, high = found["chance"]
    if found["roc_auc"] <= high and not found["columns"]:
        return []
    most = ", ".join(f"{one['column']} ({one['ks']:.3f})" for one in found["columns"])
    by_column = f"; columns that differ most: {most}" if most else ""
    return [
        f"rows of {found['store']} differ: a classifier separates them with a ROC area of "
        f"{found['roc_auc']:.3f}, where chance has {low:.3f} to {high:.3f}{by_column}"
    ]


def _require_alike(store: Store, other: Store) -> None:
    found, expected = other.feature_names, store.feature_names
    if not have_same_columns(store, other):
        widths = f" has {other.d} columns, {store.url or 'the first'} has {store.d}" * (other.d != store.d)
        names = f": {first_difference(found, expected)}" if found and expected else ""
        raise DataError(
            f"{other.url or 'the second store'}{widths}{names}; expected the same columns, as "
            "`streamsvm ingest FILE --store S --like STORE` makes them"
        )


def _sampled(store: Store, n: int, engine: Engine) -> Rows:
    ids = draw_ids(store.n, n, np.random.default_rng(0))
    rows = gather(store, ids, engine)
    store.require_finite(rows, ids, gaps=True)
    return rows.astype(np.float32)


def _told_apart(rows: Rows) -> tuple[float, int]:
    """(ROC area on held-out rows, how many these are of each store) of rows of two stores, half of each."""
    n = len(rows) // 2
    held, order = n // HELD, np.random.default_rng(0).permutation(n)
    test, learnt = (np.concatenate([part, n + part]) for part in (order[:held], order[held:]))
    options = {"solver": "bsgd", "gaps": "mean", "scale": "maxabs" if rows.is_sparse else "standard"}
    known = Store.from_arrays(rows.take(learnt).X, learnt >= n)
    model, _ = train_in_memory(known, build_config(("check", options)), ignore)
    values = model.decision_function(rows.take(test)).ravel()
    return scored(test >= n, values).roc_auc() or 0.5, held


def _columns(a: Rows, b: Rows) -> list[tuple[int, float]]:
    """(column, statistic), the largest first, of those beyond chance.

    No column's is larger than the share of rows in which it is not 0: so the emptier ones need not be looked at.
    """
    from scipy.stats import ks_2samp

    n, d = len(a), a.d
    most = np.maximum(*(np.asarray((rows.X != 0).sum(axis=0)).ravel() for rows in (a, b))) / n
    least = (np.log(2 * d / BY_CHANCE) / n) ** 0.5
    X, Y = (sparse.csc_array(rows.X) if rows.is_sparse else rows.X for rows in (a, b))
    found: list[tuple[int, float]] = []
    for column in np.argsort(-most, kind="stable").tolist():
        if most[column] <= least:
            break
        ks = ks_2samp(column_values(X, column), column_values(Y, column), method="asymp").statistic
        if ks > least:
            found = sorted([*found, (column, float(ks))], key=lambda one: -one[1])[:MOST_NAMED]
            least = least if len(found) < MOST_NAMED else found[-1][1]
    return found
