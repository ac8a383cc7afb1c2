"""Reads all of a store and reports problems by chunk, row and column."""

from __future__ import annotations

from typing import Any

import numpy as np

from streamsvm.data.rows import Rows, concat
from streamsvm.data.store import Store
from streamsvm.errors import CorruptDataError, DataError
from streamsvm.events import Events, ignore
from streamsvm.parallel.engine import Engine
from streamsvm.tables.suspects import ColumnSummary, sample_ids, suspects

MOST_CHUNK_BYTES = 256 << 20


def check(store: Store, engine: Engine, events: Events = ignore) -> dict[str, Any]:
    """Reads every array of a store once. Returns what was read, with warnings, including those of `suspects`.

    Raises CorruptDataError for a damaged or missing chunk, a broken CSR structure and labels that differ from those
    that ingest counted, and DataError for NaN, infinity, missing labels and bad weights. Each names array, chunk and
    row.
    """
    warnings = _check_labels(store)
    blocks, ids = store.blocks(), sample_ids(store)
    edges = np.searchsorted(ids, [start for start, _ in blocks])
    results, summary = engine.map_reduce(
        _check_block,
        ColumnSummary.merged,
        blocks,
        np.split(ids, edges[1:]),
        shared=(engine.share(store),),
        phase="check",
        events=events,
    )
    sorted_, samples = zip(*results, strict=True)
    unsorted = [start for (start, _), is_sorted in zip(blocks, sorted_, strict=True) if not is_sorted]
    if unsorted:
        warnings.append(f"CSR indices unsorted or duplicate, first from row {unsorted[0]} on; reads sort them")
    chunk_bytes = store.nbytes // store.n * store.chunk_rows
    if chunk_bytes > MOST_CHUNK_BYTES:
        warnings.append(f"a chunk holds {chunk_bytes >> 20} MiB and every read decodes it whole; rechunk by rows")
    warnings += suspects(store, summary, ids, concat([*samples]))
    return {
        "store": store.url,
        "rows": store.n,
        "features": store.d,
        "bytes": store.nbytes,
        "blocks": len(blocks),
        "warnings": warnings,
    }


def _check_block(store: Store, block: tuple[int, int], ids: np.ndarray) -> tuple[tuple[bool, Rows], ColumnSummary]:
    """Whether the rows' indices are sorted, the rows `ids` of the block, and what is seen. Raises as `check`."""
    rows = store.read(*block)
    store.require_finite(rows, block[0], gaps=store.has_gaps)
    return (store.is_canonical(*block), rows.take(ids - block[0])), ColumnSummary.of(rows, block[0])


def _check_labels(store: Store) -> list[str]:
    """Reads labels, weights and query ids. Returns warnings. Raises DataError."""
    _check_counts(store)
    warnings = []
    weight, _, _, _ = store.sample_weight, store.qid, store.group, store.statistics
    if weight is not None and not weight.any():
        raise DataError(f"{store.url or 'the data'}: every sample_weight is 0; expected some positive ones")
    if not store.has_y:
        warnings.append("no labels: good for prediction only")
    elif len(store.classes.values) == 1:
        warnings.append(f"one class only: every label is {store.classes.values[0]}")
    return warnings


def _check_counts(store: Store) -> None:
    """Raises CorruptDataError if the counts of labels differ from those that ingest kept."""
    stored = store.stored_classes
    if stored is None:
        return
    counted = store.count_labels()
    if counted is None or not np.array_equal(stored.values, counted.values):
        raise CorruptDataError("array 'statistics/labels' lists other labels than 'y' has; ingest the rows again")
    wrong = np.flatnonzero(stored.counts != counted.counts)
    if len(wrong):
        label, stored_count, count = (a[wrong[0]] for a in (counted.values, stored.counts, counted.counts))
        raise CorruptDataError(
            f"array 'statistics/counts' says {stored_count} rows of label {label}, 'y' has {count}; "
            "ingest the rows again"
        )
