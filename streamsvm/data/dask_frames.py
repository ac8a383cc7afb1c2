"""Dask dataframes as rows. A first pass, which keeps no partition, finds the kinds of the columns. Each partition is
encoded when it is read."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence, Set
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from streamsvm.data.arrow import MISSING
from streamsvm.data.frames import (
    FLOAT32,
    FLOAT64,
    attributes,
    dtype_of,
    is_few,
    known_schema,
    new_schema,
    raw_of,
    require_columns,
    schema_of,
    table_of,
    tell_lost,
    tell_texts,
)
from streamsvm.data.layout import Layout
from streamsvm.data.narrow import TooNarrow
from streamsvm.data.rows import Rows
from streamsvm.data.schema import Feature, Schema
from streamsvm.data.sources import PartitionSource, computed
from streamsvm.errors import DataError
from streamsvm.events import Warned, heard


class Held(NamedTuple):
    """The contents of a column in a partition. kind: None if all values are missing. from_text, lost, has_fractions:
    see `schema.Feature`; from_text None: texts that stand for missing numbers alone. texts: in order of appearance."""

    kind: str | None
    from_text: bool | None
    texts: list[str]
    entries: int
    has_gaps: bool
    lost: tuple[float, float] | None
    has_fractions: bool


class Found(NamedTuple):
    """A partition's number of rows and its columns by name. narrow: why float32 is too narrow for them, if it is."""

    rows: int
    columns: dict[str, Held]
    narrow: str | None


def partitions(
    frame: Any,
    like: Layout | None,
    target: Mapping[str, float | str] | None = None,
    category: Collection[str] = (),
) -> tuple[PartitionSource, dict[str, Any]]:
    """The same rows and attributes that `frames.encoded` makes from a frame in memory. Raises DataError."""
    frame = frame.optimize()  # which may join partitions
    schema, has_gaps, dtype = known_schema(like), False, dtype_of(like)
    if schema is None:
        as_texts = frozenset(target or ())
        found = computed(frame.map_partitions(_held, category, as_texts, meta=(None, object)))
        if texts := _texts_in([part.columns for part in found]):
            found = computed(frame.map_partitions(_held, category, as_texts | texts, meta=(None, object)))
        lengths, columns = [part.rows for part in found], [part.columns for part in found]
        if narrow := next((part.narrow for part in found if part.narrow), None):
            dtype = FLOAT64
            heard(Warned(f"X: {narrow}"))
        schema = schema_of(_kinds(columns), target, category)
        for feature in schema.features:
            feature.from_text = any(held[feature.name].from_text for held in columns)
        entries, has_gaps = _learned(schema, found)
        schema.settle("X")
        tell_texts(schema, sum(lengths))
        tell_lost(schema)
    else:
        require_columns([*map(str, frame.columns)], schema)
        lengths = [int(n) for n in computed(frame.map_partitions(len))]
        entries = sum(lengths) * len(schema.features)  # at most
    n, d = sum(lengths), int(schema.offsets[-1])
    is_sparse = is_few(entries if schema.has_text else None, n * d, like)
    attrs = attributes(schema, has_gaps)
    X = _encoded(frame, lengths, Schema.from_attrs(attrs), is_sparse, dtype)
    entry_bytes = dtype.itemsize
    return PartitionSource(X, (4 + entry_bytes) * entries if is_sparse else entry_bytes * n * d), attrs


def _encoded(frame: Any, lengths: Sequence[int], schema: Schema, is_sparse: bool, dtype: np.dtype) -> Any:
    """The dask array (n, d) of the partitions' rows, dense or CSR."""
    from dask import array

    d = int(schema.offsets[-1])
    empty = np.empty((0, d), dtype)
    blocks = frame.map_partitions(_block, schema, is_sparse, dtype, meta=empty, enforce_metadata=False)
    meta = sparse.csr_array(empty) if is_sparse else empty
    return array.Array(blocks.dask, blocks.name, chunks=(tuple(lengths), (d,)), meta=meta)


def _block(part: Any, schema: Schema, is_sparse: bool, dtype: np.dtype) -> np.ndarray | sparse.csr_array:
    rows = Rows(schema.encode(_raw(part, schema, dtype)))
    return (rows if is_sparse else Rows(rows.dense())).X


def _raw(part: Any, schema: Schema, dtype: np.dtype, *, widens: bool = False) -> np.ndarray:
    """(m, features) numbers and codes of a partition, which may have no rows."""
    pieces = raw_of(table_of(part), schema, dtype, "a partition of X", widens=widens)
    return np.concatenate([np.empty((0, len(schema.features)), dtype), *pieces])


def _held(part: Any, category: Collection[str], as_texts: Set[str]) -> Any:
    """What is `Found` in a partition, as a series with one entry. category: columns of number codes. as_texts: columns
    of texts, even if all of them are numbers here. Raises DataError."""
    import pandas as pd

    table = table_of(part)
    schema = new_schema(table, None, category, as_texts)
    narrow = None
    try:
        raw = _raw(table, schema, FLOAT32, widens=True)
    except TooNarrow as error:
        raw, narrow = _raw(table, schema, FLOAT64), str(error)
    is_empty = [column.null_count == len(column) for column in table.columns]
    kinds = [None if empty else f.kind for empty, f in zip(is_empty, schema.features, strict=True)]
    from_text = [f.from_text or (None if _are_missing(f) else False) for f in schema.features]
    entries, gaps = np.count_nonzero(raw, axis=0).tolist(), np.isnan(raw).any(axis=0).tolist()
    texts = [[*f.categories] for f in schema.features]
    lost, fractions = [f.lost for f in schema.features], [f.has_fractions for f in schema.features]
    found = map(Held, kinds, from_text, texts, entries, gaps, lost, fractions)
    held = dict(zip(table.column_names, found, strict=True))
    return pd.Series([Found(len(raw), held, narrow)], dtype=object)


def _are_missing(feature: Feature) -> bool:
    """Whether its texts, if there are any, stand for missing values."""
    return feature.kind == "text" and {*MISSING} >= feature.categories.keys()


def _texts_in(columns: Sequence[dict[str, Held]]) -> frozenset[str]:
    """The columns of texts that are numbers in some partitions, and not in others."""
    numbers = {name for held in columns for name, own in held.items() if own.from_text}
    return frozenset(name for name in numbers if any(_is_text(held[name]) for held in columns))


def _is_text(held: Held) -> bool:
    return held.kind == "text" and held.from_text is not None


def _kinds(columns: Sequence[dict[str, Held]]) -> dict[str, str]:
    """The kind of each column. Raises DataError if partitions differ."""
    kinds: dict[str, str] = {}
    for name in columns[0]:
        parts = [held[name] for held in columns]
        numbers = any(own.from_text for own in parts)  # stored as text
        found = {own.kind for own in parts if _is_text(own) or not (numbers and own.kind == "text")} - {None}
        if len(found) > 1:
            there = " and ".join(sorted(map(str, found)))
            raise DataError(
                f"column {name!r} holds {there} in different partitions of X; expected one of them"
            )
        kinds[name] = str(next(iter(found), "number"))
    return kinds


def _learned(schema: Schema, found: Sequence[Found]) -> tuple[int, bool]:
    """The number of nonzero entries of all rows, and whether one is missing. Adds all texts to the schema."""
    entries, has_gaps = 0, False
    for part in found:
        for feature in schema.features:
            own = part.columns[feature.name]
            if feature.from_text and own.kind == "text":  # all of them are missing
                entries, has_gaps = entries + part.rows, True
                continue
            feature.learn(own.texts, "X")
            feature.lost = feature.lost or own.lost
            feature.has_fractions |= own.has_fractions
            if feature.kind != "text" or own.kind is not None:  # missing text sets no column
                entries, has_gaps = entries + own.entries, has_gaps or own.has_gaps
    return entries, has_gaps
