"""Missing values: the values that replace them, learned from all rows or a sample of them, and reported."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy import sparse

from streamsvm.data.moments import Moments
from streamsvm.data.rows import Rows
from streamsvm.data.store import Store
from streamsvm.events import Events

if TYPE_CHECKING:
    from streamsvm.config import FitConfig

SAMPLE_ROWS = 1 << 17  # random ones, for medians and most frequent values
REFUSE = "refuse"


def are_filled(store: Store, config: FitConfig) -> bool:
    """Whether missing values are filled: if requested, and if the store is known to have missing values."""
    return store.has_gaps or config.mark_gaps if config.gaps is None else config.gaps != REFUSE


def filled(moments: Moments, store: Store, config: FitConfig, events: Events) -> Moments:
    """The moments of rows with missing values filled and marked as configured; unchanged if they are not."""
    if not are_filled(store, config):
        return moments
    how = config.gaps or "mean"
    fill = moments.mean
    if how != "mean":
        rng = np.random.default_rng([config.seed, 29])
        ids = np.sort(rng.choice(store.n, min(store.n, SAMPLE_ROWS), replace=False))
        fill = _of_sample(store.take(ids), how, fill)
    if config.gaps is None and moments.gaps is not None:
        events.advise(_description(moments.gaps / moments.n, store))
    filled_moments = moments.filled(fill)
    return filled_moments if moments.gaps is None or not config.mark_gaps else filled_moments.marked(moments.gaps)


def _of_sample(rows: Rows, how: str, mean: np.ndarray) -> np.ndarray:
    """(d,) the median, or the most frequent value, of each column; its mean if the sample has no value."""
    X = rows.X if isinstance(rows.X, np.ndarray) else sparse.csc_array(rows.X)
    fill, columns = mean.copy(), np.arange(rows.d)
    if not isinstance(X, np.ndarray):
        mostly_zero = 2 * np.diff(X.indptr) < len(rows)
        fill[mostly_zero], columns = 0.0, np.flatnonzero(~mostly_zero)
    for column in columns.tolist():
        values = X[:, column] if isinstance(X, np.ndarray) else X[:, [column]].toarray().ravel()
        values = values[~np.isnan(values)].astype(np.float64)
        if len(values):
            fill[column] = np.median(values) if how == "median" else _most_frequent(values)
    return fill


def _most_frequent(values: np.ndarray) -> float:
    """The lowest of the most frequent values."""
    different, counts = np.unique(values, return_counts=True)
    return float(different[np.argmax(counts)])


def _description(shares: np.ndarray, store: Store) -> str:
    worst, names = int(np.argmax(shares)), store.shown_names
    name = f"column {worst}" if names is None else repr(names[worst])
    count = np.count_nonzero(shares)
    columns = f"{count} columns have" if count > 1 else "a column has"
    return (
        f"{store.url or 'X'}: {columns} missing values, {'most ' if count > 1 else ''}{name} in {shares[worst]:.1%} of "
        f"the rows; the mean of the column replaces them: {store.gaps_option()} chooses median, most_frequent or refuse"
    )
