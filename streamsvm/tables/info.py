"""What a store holds, as JSON: its shape and labels, duplicate rows, and rows that are in two stores.

Test rows should not be among training rows.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Any

import numpy as np
from scipy import sparse

from streamsvm.data.labels import Classes
from streamsvm.data.rows import Rows
from streamsvm.data.samples import memory_blocks
from streamsvm.data.store import Store, have_same_columns
from streamsvm.errors import DataError
from streamsvm.events import Events, ignore
from streamsvm.storage.paths import filesystem, local_path

MAX_CLASSES = 1000  # with more distinct labels, they are targets of a regression
MAX_LISTED_FEATURES = 1000


def describe(store: Store) -> dict[str, Any]:
    """Shape, dtype, chunks, labels, sizes in bytes and columns of a store. Every value is JSON."""
    facts: dict[str, object] = {
        "store": store.url,
        "rows": store.n,
        "features": store.d,
        "dtype": str(store.dtype),
        "layout": "csr" if store.is_sparse else "dense",
        "chunk_rows": store.chunk_rows,
        "chunks": -(-store.n // store.chunk_rows),
        "bytes": store.nbytes,
        "stored_bytes": _stored_bytes(store),
        "labels": _labels(store.classes) if store.has_y else None,
        "queries": None if store.qid is None else len(np.unique(store.qid)),
        "groups": None if store.group is None else len(np.unique(store.group)),
        "sample_weight": store.sample_weight is not None,
    }
    if store.is_sparse:
        entries = (store.nbytes - 8 * (store.n + 1)) // (store.dtype.itemsize + 4)
        facts["density"] = entries / (store.n * store.d)
    if store.statistics is not None:
        facts["statistics"] = _statistics(store.statistics)
    names = store.feature_names
    facts["feature_names"] = None if names is None else list(names[:MAX_LISTED_FEATURES])
    facts["attributes"] = store.attrs
    return facts


def _labels(classes: Classes) -> dict[str, object]:
    """{dtype, classes, counts} if there are few distinct labels, else {dtype, min, max, distinct}."""
    values, counts = classes.values, classes.counts
    kind = {"i": "integer", "f": "float", "U": "text", "b": "boolean"}[values.dtype.kind]
    if len(values) > MAX_CLASSES:
        return {"dtype": kind, "distinct": len(values), "min": values[0].item(), "max": values[-1].item()}
    return {"dtype": kind, "classes": values.tolist(), "counts": counts.tolist()}


def _statistics(statistics: dict[str, np.ndarray]) -> dict[str, object]:
    """The range over all features and the number of constant ones, and per feature if there are not too many."""
    facts: dict[str, object] = {
        "lowest": float(statistics["min"].min()),
        "highest": float(statistics["max"].max()),
        "constant_features": int(np.sum(statistics["min"] == statistics["max"])),
    }
    if len(statistics["min"]) <= MAX_LISTED_FEATURES:
        facts |= {k: v.tolist() for k, v in statistics.items()}
    return facts


def _stored_bytes(store: Store) -> int | None:
    """Bytes that the store takes on disk or in its object store; None for data in memory."""
    if store.url is None:
        return None
    path = local_path(store.url)
    if path is not None:
        return sum(f.stat().st_size for f in path.rglob("*") if f.is_file())
    fs, remote = filesystem(store.url)
    return int(fs.du(remote))


DIGEST = np.dtype("S16")  # two of 1e9 different rows collide with probability 1e-21


def duplicates(store: Store, against: Store | None = None, events: Events = ignore) -> dict[str, Any]:
    """Counts the rows of the store that equal earlier ones, and the rows of another store that are in it.

    Rows are equal if all numbers are, for any type, sparse or dense. Missing values are equal. `same_label` counts
    those that also have equal labels, if there are labels. Memory: 16 bytes for each row of the first store, twice as
    many with labels. Raises DataError if columns differ.
    """
    if against is not None:
        if not have_same_columns(store, against):
            problem = f"{against.url or 'the data'} has other columns than {store.url or 'the data'}"
            raise DataError(f"{problem}, so no rows are equal; ingest it with --like")
    labelled = store.has_y and (against is None or against.has_y)
    digests = np.empty((1 + labelled, store.n), DIGEST)
    for start, block_digests in _digests(store, labelled, events):
        digests[:, start : start + block_digests.shape[1]] = block_digests
    digests.sort(axis=1)
    repeats = [int(np.count_nonzero(row[1:] == row[:-1])) for row in digests]
    result: dict[str, object] = {"duplicates": _by_name(repeats)}
    if against is not None:
        counts = np.zeros(len(digests), np.int64)
        for _, block_digests in _digests(against, labelled, events):
            for i, (sought, known) in enumerate(zip(block_digests, digests, strict=True)):
                places = np.minimum(np.searchsorted(known, sought), len(known) - 1)
                counts[i] += np.count_nonzero(known[places] == sought)
        result["against"] = {"store": against.url, "rows": against.n, "duplicates": _by_name(counts)}
    return result


def _by_name(counts: Iterable[int]) -> dict[str, int]:
    return dict(zip(("rows", "same_label"), map(int, counts), strict=False))


def _digests(store: Store, labelled: bool, events: Events) -> Iterator[tuple[int, np.ndarray]]:
    """The first row of a block of m rows, and (1, m) digests of them. labelled: (2, m), the second with labels."""
    for start, stop in store.blocks():
        rows = store.read(start, stop)
        blocks = [(0, len(rows))] if rows.is_sparse else memory_blocks(len(rows), rows.d)
        columns = [[digest for block in blocks for digest in _of_entries(rows.take(slice(*block)))]]
        if labelled:
            labels = store.labels(start, stop)
            texts = labels.tolist() if labels.dtype.kind == "U" else map(float, labels.tolist())  # 1 and 1.0 are equal
            columns.append([_digest(row + str(text).encode()) for row, text in zip(columns[0], texts, strict=True)])
        yield start, np.stack([np.frombuffer(b"".join(column), DIGEST) for column in columns])
        events.progress("duplicates", stop, store.n)


def _of_entries(rows: Rows) -> list[bytes]:
    """Digests of the nonzero numbers and their columns."""
    X = sparse.csr_array(rows.X, dtype=np.float64, copy=True)
    X.eliminate_zeros()
    data, indices = np.where(np.isnan(X.data), np.nan, X.data), X.indices.astype(np.int64)
    parts = (slice(*ends) for ends in pairwise(X.indptr.tolist()))
    return [_digest(indices[part].tobytes() + data[part].tobytes()) for part in parts]


def _digest(content: bytes) -> bytes:
    return hashlib.blake2b(content, digest_size=DIGEST.itemsize).digest()
