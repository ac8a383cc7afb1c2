"""The check of every reader: finite numbers, and NaN only if missing values are filled."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from streamsvm.data.rows import Rows
from streamsvm.errors import DataError

if TYPE_CHECKING:
    from streamsvm.data.store import Store

LARGEST = 1e150  # of rows that are scaled: their squares fit float64


def first_nonfinite(rows: Rows, start: int = 0, *, gaps: bool = False) -> tuple[int, int, float] | None:
    """(row, column, value) of the first NaN or infinity of a block whose first row is row `start`, or None.

    gaps: NaN is allowed.
    """
    if rows.X.dtype.kind != "f":
        return None
    entries = rows.X if isinstance(rows.X, np.ndarray) else rows.X.data
    # A sum is finite unless an entry is not, or it overflows, so one fast pass nearly always suffices.
    with np.errstate(over="ignore", invalid="ignore"):
        if np.isfinite(np.add.reduce(entries, axis=None)):
            return None
    bad = np.flatnonzero(np.isinf(entries) if gaps else ~np.isfinite(entries))
    if not len(bad):
        return None
    entry = int(bad[0])
    if isinstance(rows.X, np.ndarray):
        row, column = divmod(entry, rows.d)
        return start + row, column, float(rows.X[row, column])
    row = int(np.searchsorted(rows.X.indptr, entry, side="right")) - 1
    return start + row, int(rows.X.indices[entry]), float(rows.X.data[entry])


def option(store: Store, value: str = "") -> str:
    """The option that fills missing values: of a store on the command line, of data in memory in Python."""
    if store.url is None:
        return f'gaps="{value}"' if value else "gaps"
    return f"--gaps {value}".rstrip()


def require_finite(store: Store, rows: Rows, first_row: int | np.ndarray, *, gaps: bool = False) -> None:
    """Raises DataError naming chunk, row and column if rows of a store hold infinity, or NaN without `gaps`.

    at: the number of the first row of a block, or the numbers (m,) of all its rows.
    """
    bad = first_nonfinite(rows, gaps=gaps)
    if bad is None:
        return
    block_row, column, value = bad
    store, row = store.origin(
        int(first_row[block_row]) if isinstance(first_row, np.ndarray) else first_row + block_row
    )
    advice = "correct the source and ingest it again"
    if np.isnan(value):
        advice = f"fill it in, or fit with {option(store, 'mean')} (or median, most_frequent)"
    raise DataError(
        f"{store.url or 'X'}: row {row}, column {column} (chunk {row // store.chunk_rows}) is {value}; "
        f"expected finite numbers: {advice}"
    )


def require_squares(store: Store, low: np.ndarray, high: np.ndarray) -> None:
    """Raises DataError naming a column of a store whose values, from low to high (d,), are too large for variances."""
    largest = np.maximum(-low, high)
    largest[~np.isfinite(largest)] = 0.0  # without values
    column = int(np.argmax(largest))
    if largest[column] > LARGEST:
        names = store.feature_names
        name = column if names is None else repr(names[column])
        raise DataError(
            f"{store.url or 'X'}: column {name} has values up to {largest[column]:.3g}, expected at most {LARGEST:.0e}"
            ": give them in other units"
        )
