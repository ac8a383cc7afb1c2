"""The contents of a store as one JSON object."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from streamsvm.data.labels import Classes
from streamsvm.data.store import Store
from streamsvm.storage.paths import local_path

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
        return sum(f.stat().st_size for f in Path(path).rglob("*") if f.is_file())
    import fsspec

    fs, remote = fsspec.core.url_to_fs(store.url)
    return int(fs.du(remote))
