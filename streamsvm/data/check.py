"""Reading everything of a store and saying what is wrong, by chunk, row and column."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from streamsvm.data.rows import Rows
from streamsvm.errors import DataError
from streamsvm.events import Events, ignore

if TYPE_CHECKING:
    from streamsvm.data.store import Store

MOST_CHUNK_BYTES = 256 << 20


def first_nonfinite(rows: Rows, start: int = 0) -> tuple[int, int, float] | None:
    """(row, column, value) of the first NaN or infinity of a block whose first row is row `start`, or None."""
    if rows.X.dtype.kind != "f":
        return None
    entries = rows.X if isinstance(rows.X, np.ndarray) else rows.X.data
    # A sum is finite unless an entry is not, or it overflows: one fast pass decides nearly always.
    with np.errstate(over="ignore", invalid="ignore"):
        if np.isfinite(np.add.reduce(entries, axis=None)):
            return None
    bad = np.flatnonzero(~np.isfinite(entries))
    if not len(bad):
        return None
    at = int(bad[0])
    if isinstance(rows.X, np.ndarray):
        row, column = divmod(at, rows.d)
        return start + row, column, float(rows.X[row, column])
    row = int(np.searchsorted(rows.X.indptr, at, side="right")) - 1
    return start + row, int(rows.X.indices[at]), float(rows.X.data[at])


def require_finite(store: Store, rows: Rows, start: int) -> None:
    """Raises DataError naming chunk, row and column where the block of rows from `start` on holds NaN or infinity."""
    bad = first_nonfinite(rows, start)
    if bad is not None:
        row, column, value = bad
        raise DataError(
            f"{store.url or 'X'}: row {row}, column {column} (chunk {row // store.chunk_rows}) is {value}; "
            f"expected finite numbers: correct the source and ingest it again"
        )


def check(store: Store, events: Events = ignore) -> dict[str, Any]:
    """Reads every array of a store; returns what was read, with warnings.

    Raises CorruptDataError for a chunk that is damaged or missing and for a broken CSR structure; DataError for NaN,
    infinity, missing labels and bad weights. Each names array, chunk and row.
    """
    warnings = _check_labels(store)
    unsorted = []
    blocks = store.blocks()
    for i, (start, stop) in enumerate(blocks):
        require_finite(store, store.read(start, stop), start)
        if not store.is_canonical(start, stop):
            unsorted.append(start)
        events.progress("check", i + 1, len(blocks))
    if unsorted:
        warnings.append(
            f"CSR indices unsorted or duplicate, first from row {unsorted[0]} on; reads sort them"
        )
    chunk_bytes = store.nbytes // store.n * store.chunk_rows
    if chunk_bytes > MOST_CHUNK_BYTES:
        warnings.append(
            f"a chunk holds {chunk_bytes >> 20} MiB and every read decodes it whole; rechunk by rows"
        )
    return {
        "store": store.url,
        "rows": store.n,
        "features": store.d,
        "bytes": store.nbytes,
        "blocks": len(blocks),
        "warnings": warnings,
    }


def _check_labels(store: Store) -> list[str]:
    """Reads labels, weights and query ids; returns warnings. Raises DataError."""
    warnings = []
    weight, _, _ = store.sample_weight, store.qid, store.statistics
    if weight is not None and not weight.any():
        raise DataError(f"{store.url or 'the data'}: every sample_weight is 0; expected some positive ones")
    if not store.has_y:
        warnings.append("no labels: good for prediction only")
    elif np.all(store.y == store.y[0]):
        warnings.append(f"one class only: every label is {store.y[0]}")
    return warnings
