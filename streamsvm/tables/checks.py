"""Reads all of a store, and reports what is damaged by chunk, row and column, and what looks wrong.

Columns and classes look wrong as leaks of the label, ids, constants, copies, gaps and rare classes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice, pairwise
from typing import Any

import numpy as np
from scipy import sparse

from streamsvm.data.folds import draw_ids
from streamsvm.data.labels import Classes
from streamsvm.data.rows import Matrix, Rows, concat
from streamsvm.data.statistics import Moments, merge, moments_of
from streamsvm.data.store import Store
from streamsvm.errors import CorruptDataError, DataError
from streamsvm.events import Events, ignore
from streamsvm.parallel.engine import Engine
from streamsvm.parallel.sizes import SizedInBytes
from streamsvm.tables.info import MAX_CLASSES
from streamsvm.tables.schema import Feature, Schema

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
    rows = store.read_finite(*block, gaps=store.has_gaps)
    return (store.is_canonical(*block), rows.take(ids - block[0])), ColumnSummary.of(rows, block[0])


def _check_labels(store: Store) -> list[str]:
    """Reads labels, weights and query ids. Returns warnings. Raises DataError, and CorruptDataError for counts of
    labels that differ from those that ingest kept."""
    stored = store.stored_classes
    if stored is not None:
        counted = store.count_labels()
        if counted is None or not np.array_equal(stored.values, counted.values):
            raise CorruptDataError("array 'statistics/labels' lists other labels than 'y' has; ingest the rows again")
        wrong = np.flatnonzero(stored.counts != counted.counts)
        if len(wrong):
            label, stored_count, count = (a[wrong[0]] for a in (counted.values, stored.counts, counted.counts))
            problem = f"array 'statistics/counts' says {stored_count} rows of label {label}, 'y' has {count}"
            raise CorruptDataError(f"{problem}; ingest the rows again")
    weight, _, _, _ = store.sample_weight, store.qid, store.group, store.statistics
    if weight is not None and not weight.any():
        raise DataError(f"{store.url or 'the data'}: every sample_weight is 0; expected some positive ones")
    if not store.has_y:
        return ["no labels: good for prediction only"]
    values = store.classes.values
    return [f"one class only: every label is {values[0]}"] if len(values) == 1 else []


MOST_NAMED = 10
LEAST_ROWS, MOST_ROWS, MOST_BYTES = 30, 10_000, 64 << 20  # of the sample; bytes as float64
FEW = 5  # rows of a rare class
ENOUGH = 10  # rows of each class, so that hardly any of many columns separates them at random
LEAK = 0.99  # an honest column alone hardly reaches this accuracy or ROC area
COMMON = 0.9  # share of the largest class above which accuracy says little
IDS, MANY_ROWS = 0.99, 1000  # share of distinct values; with fewer rows, all may differ at random
ODD = 0x9E3779B97F4A7C15


@dataclass(frozen=True)
class ColumnSummary(SizedInBytes):
    """Moments of the columns of rows, and hashes (d,) uint64, which are equal for equal columns."""

    moments: Moments
    hashes: np.ndarray

    @classmethod
    def of(cls, rows: Rows, start: int) -> ColumnSummary:
        """The summary of some rows. start: the number of the first row."""
        with np.errstate(over="ignore", invalid="ignore"):  # squares of huge numbers
            return cls(moments_of(rows), _hashes(rows, start))

    def merged(self, other: ColumnSummary) -> ColumnSummary:
        return ColumnSummary(merge(self.moments, other.moments), self.hashes + other.hashes)


def _hashes(rows: Rows, start: int) -> np.ndarray:
    """For each column, the sum over its rows of key times mixed value, modulo 2^64. Zeros add nothing."""
    keys = _mixed(np.arange(start + 1, start + 1 + len(rows), dtype=np.uint64)) | np.uint64(1)
    X = rows.X
    if not isinstance(X, np.ndarray):
        return np.asarray(keys @ sparse.csr_array((_mixed_values(X.data), X.indices, X.indptr), shape=X.shape))
    step = max(1, (1 << 18) // rows.d)  # no float64 copy of the block
    tiles = (slice(lo, lo + step) for lo in range(0, len(rows), step))
    return sum((keys[tile] @ _mixed_values(X[tile]) for tile in tiles), np.zeros(rows.d, np.uint64))


def _mixed_values(values: np.ndarray) -> np.ndarray:
    """Bits of numbers, as uint64; 0 for 0 and -0, and all NaN alike."""
    values = values.astype(np.float64) + 0.0
    values[np.isnan(values)] = np.nan
    return _mixed(values.view(np.uint64))


def _mixed(bits: np.ndarray) -> np.ndarray:
    for _ in range(2):
        bits = (bits ^ (bits >> np.uint64(32))) * np.uint64(ODD)
    return bits ^ (bits >> np.uint64(29))


def sample_ids(store: Store) -> np.ndarray:
    """Sorted ids of a sufficient number of random rows."""
    row_bytes = max(8, 12 * store.row_entries)
    return draw_ids(store.n, min(store.n, MOST_ROWS, int(MOST_BYTES / row_bytes) + 1), np.random.default_rng(0))


def suspects(store: Store, summary: ColumnSummary, ids: np.ndarray, sample: Rows) -> Iterator[str]:
    """A line for each kind of problem. sample: the rows `ids`."""
    name = namer(store)
    moments, labels = summary.moments, _classes(store)
    if len(ids) >= LEAST_ROWS:
        if labels is not None:
            yield from _line("columns that predict the label alone, as leaks do", _leaks(store, ids, sample, labels))
        yield from _line("columns of whole numbers that differ from row to row, as ids do", _ids(store, sample))
    constant = (moments.low == moments.high) | (np.asarray(moments.present) == 0)
    if store.n > 1:
        yield from _line("columns with a single value", map(name, np.flatnonzero(constant).tolist()))
        yield from _line("columns equal to an earlier one", _copies(name, summary.hashes, constant))
    if moments.gaps is not None:
        share = moments.gaps / moments.n
        with_gaps = np.argsort(-share, kind="stable")[: np.count_nonzero(share)].tolist()
        shares = (f"{name(column)} ({100 * share[column]:.2g} %)" for column in with_gaps)
        yield from _line("columns with missing values", shares)
    if labels is not None:
        few = np.flatnonzero(labels.counts < FEW)
        rare = (f"{labels.values[i]!s:.80} ({labels.counts[i]})" for i in few)
        yield from _line(f"classes with fewer than {FEW} rows", rare)


def namer(store: Store) -> Callable[[int], str]:
    """The names of columns, or their numbers if they have no names."""
    names, shown = store.feature_names, store.shown_names
    if names is None:
        return str if shown is None else lambda column: shown[column][:80]
    return lambda column: repr(names[column][:80])


def _line(problem: str, names: Iterable[str]) -> Iterator[str]:
    texts = iter(names)
    if shown := list(islice(texts, MOST_NAMED)):
        more = sum(1 for _ in texts)
        yield f"{problem}: {', '.join(shown)}" + (f" and {more:,} more" if more else "")


def _classes(store: Store) -> Classes | None:
    """The classes, if labels are classes and neither regression targets nor sets."""
    if not store.has_y:
        return None
    classes = store.classes
    values, is_text = classes.values, classes.values.dtype.kind == "U"
    if is_text:
        is_other = any("," in text for text in values.tolist())
    else:
        is_other = store.n < FEW * len(values) or bool(np.any(values != np.rint(values)))
    return None if is_other or len(values) > MAX_CLASSES else classes


def _copies(name: Callable[[int], str], hashes: np.ndarray, constant: np.ndarray) -> Iterator[str]:
    _, first, place = np.unique(hashes, return_index=True, return_inverse=True)
    for column in np.flatnonzero((first[place] < np.arange(len(hashes))) & ~constant).tolist():
        yield f"{name(column)} (like {name(int(first[place[column]]))})"


def _ids(store: Store, sample: Rows) -> Iterator[str]:
    name, m = namer(store), len(sample)
    times = {columns.start for feature, columns in _features(store) if feature.kind == "time"}
    for column, values in _filled(sample.X, IDS * m - 1):
        if column in times or not np.all(np.isfinite(values) & (values == np.rint(values))):
            continue
        if np.all(np.diff(values) > 0) or (m >= MANY_ROWS and len(np.unique(values)) >= IDS * m):
            yield name(column)


def _leaks(store: Store, ids: np.ndarray, sample: Rows, classes: Classes) -> Iterator[str]:
    """Columns that predict the labels. For text columns, each value is one number."""
    order = np.random.default_rng(0).permutation(len(ids))  # so that equal values have no order
    codes = classes.codes(store.labels_at(ids))[order]
    counts = np.bincount(codes)
    name, X = namer(store), sample.X[order]
    for column, values in _filled(X, COMMON * (len(ids) - counts.max())):
        if evidence := _too_good(values, codes):
            yield f"{name(column)} ({evidence})"
    for feature, columns in _features(store):
        if feature.kind == "text" and feature.width > 2:
            values = np.asarray(X[:, columns] @ np.arange(1, feature.width + 1))
            if evidence := _too_good(values, codes):
                yield f"{feature.name[:80]!r} ({evidence})"


def _too_good(values: np.ndarray, codes: np.ndarray) -> str | None:
    """How well values (m,) predict codes (m,), if that is too good to be true."""
    counts = np.bincount(codes)
    counts = counts[counts > 0]
    if len(counts) == 2 and counts.min() >= ENOUGH:
        if (area := _roc_area(values, codes == codes.max())) > LEAK:
            return f"ROC area {area:.4f}"
    if counts.max() <= COMMON * len(codes) and (right := _accuracy(values, codes)) > LEAK:
        return f"accuracy {right:.4f}"
    return None


def _roc_area(values: np.ndarray, positive: np.ndarray) -> float:
    """The ROC area in the better of both directions."""
    from scipy.stats import rankdata

    p, q = np.count_nonzero(positive), np.count_nonzero(~positive)
    area = (rankdata(values)[positive].sum() - p * (p + 1) / 2) / (p * q)
    return float(max(area, 1 - area))


def _accuracy(values: np.ndarray, codes: np.ndarray) -> float:
    """The better accuracy of a cut between classes, and of the majority of other rows with the same value."""
    m, k = len(codes), int(codes.max()) + 1
    changes = np.count_nonzero(np.diff(codes[np.argsort(values, kind="stable")]))
    _, place, sizes = np.unique(values, return_inverse=True, return_counts=True)
    pairs, rows = np.unique(place.astype(np.int64) * k + codes, return_counts=True)
    largest = np.zeros(len(sizes), np.int64)
    np.maximum.at(largest, pairs // k, rows)
    by_value = np.sum(sizes * (largest - 1) / np.maximum(sizes - 1, 1)) / m
    cuts = len(np.unique(codes)) - 1
    return max(float(by_value), 1.0 if changes <= cuts else 1 - (changes - cuts) / m)


def _filled(X: Matrix, least: float) -> Iterator[tuple[int, np.ndarray]]:
    """(column, its values with gaps lowest) of columns with at least this many nonzero rows."""
    if isinstance(X, np.ndarray):
        counts = np.count_nonzero(X, axis=0)
    else:
        X = sparse.csc_array(X)
        counts = np.diff(X.indptr)
    for column in np.flatnonzero(counts >= least).tolist():
        yield column, column_values(X, column)


def column_values(X: Matrix, column: int) -> np.ndarray:
    """(m,) float64 values of a column, with gaps below all others."""
    values = X[:, column] if isinstance(X, np.ndarray) else X[:, [column]].toarray()
    return np.nan_to_num(values.ravel().astype(np.float64), nan=-np.inf)


def _features(store: Store) -> Iterator[tuple[Feature, slice]]:
    """The columns of the table that a store was made from, if it was, and their places in the store."""
    if store.layout is not None and "columns" in store.attrs:
        schema = Schema.from_attrs(store.attrs)
        for feature, ends in zip(schema.features, pairwise(schema.offsets.tolist()), strict=True):
            yield feature, slice(*ends)
