"""Arrow columns as numbers, and the kind of each column."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute

from streamsvm.data.schema import Schema
from streamsvm.errors import DataError

DAY_MS = 86_400_000.0


def raw_rows(
    batch: pa.RecordBatch, schema: Schema, dtype: np.dtype, where: str, line: int, *, gaps: bool
) -> np.ndarray:
    """(m, features) numbers, times in days, and category numbers. A schema that is not frozen adds new categories.
    line: of the first row. Raises DataError."""
    raw = np.empty((batch.num_rows, len(schema.features)), np.float32 if dtype == np.float32 else np.float64)
    for j, feature in enumerate(schema.features):
        column = batch.column(feature.name)
        if feature.kind == "text":
            feature.is_wanted |= pa.types.is_dictionary(column.type)  # categories, even if they are numbers
            raw[:, j] = schema.codes(feature, *texts(column), where)
        else:
            plain = days(column) if feature.kind == "time" else column
            values = _plain(plain, where, feature.name, line, gaps=gaps)
            with np.errstate(over="ignore"):  # values that overflow to infinity are errors
                kept = values.astype(raw.dtype, copy=False)
            raw[:, j] = _finite(kept, where, feature.name, line, gaps=gaps, given=values)
            if not schema.frozen and feature.kind == "number":
                feature.see_lost(values, kept)
    return raw


def kind_of(t: pa.DataType) -> str:
    """`number`, `bool`, `time`, `text`, or the name of another Arrow type."""
    is_a = pa.types
    if is_a.is_dictionary(t):  # codes of names
        return "text" if kind_of(t.value_type) in ("text", "number", "bool") else str(t)
    if is_a.is_string(t) or is_a.is_large_string(t) or is_a.is_string_view(t):
        return "text"
    if is_a.is_timestamp(t) or is_a.is_date(t):
        return "time"
    if is_a.is_boolean(t):
        return "bool"
    return "number" if _is_number(t) or is_a.is_null(t) else str(t)


def numbers(column: pa.Array, path: str, name: str, line: int, *, gaps: bool = False) -> np.ndarray:
    """(m,) finite numbers of a column. line: of the first row. gaps: missing values become NaN. Raises DataError."""
    return _finite(_plain(column, path, name, line, gaps=gaps), path, name, line, gaps=gaps)


def _plain(column: pa.Array, path: str, name: str, line: int, *, gaps: bool) -> np.ndarray:
    if column.null_count and not gaps:
        at = column.is_null().to_pylist().index(True)
        raise DataError(f"{path}:{line + at}: column {name!r} has no value; fill it in or remove the row")
    if pa.types.is_boolean(column.type):
        column = column.cast(pa.uint8())
    if column.type not in (pa.float32(), pa.float64()):
        try:
            column = column.cast(pa.float64(), safe=False)
        except pa.ArrowInvalid as error:
            raise DataError(f"{path}: column {name!r}: expected numbers; {error}") from error
    values = _buffer(column, np.float32 if column.type == pa.float32() else np.float64)
    if column.null_count:
        values = np.where(_buffer(column.is_null().cast(pa.uint8()), np.uint8), np.nan, values)
    return values


def _finite(
    values: np.ndarray, path: str, name: str, line: int, *, gaps: bool, given: np.ndarray | None = None
) -> np.ndarray:
    """values, which are `given` in a type of fewer bits."""
    bad = np.flatnonzero(np.isinf(values) if gaps else ~np.isfinite(values))
    if len(bad):
        found = (values if given is None else given)[bad[0]]
        most = f"{values.dtype} holds up to {np.finfo(values.dtype).max:.2g}; take --dtype float64"
        expected = most if np.isfinite(found) else "expected a finite number"
        raise DataError(f"{path}:{line + bad[0]}: column {name!r} is {found}; {expected}")
    return values


def days(column: pa.Array) -> pa.Array:
    """Times as days since 1970."""
    day = of_numbers(np.array([DAY_MS]))[0]
    return pa.compute.divide(milliseconds(column).cast(pa.float64()), day)


def times(column: pa.Array) -> pa.Array:
    """Texts as times, with a zone or without. Raises pa.ArrowInvalid for others."""
    try:
        return column.cast(pa.timestamp("us"))
    except pa.ArrowInvalid:
        return column.cast(pa.timestamp("us", "UTC"))


def milliseconds(column: pa.Array) -> pa.Array:
    """Times as whole milliseconds since 1970."""
    return column.cast(pa.timestamp("ms"), safe=False).cast(pa.int64())


def texts(column: pa.Array) -> tuple[list[str], np.ndarray]:
    """The distinct texts of a column, stripped of spaces and quotes, and (m,) the index of each row's text."""
    if pa.types.is_dictionary(column.type):
        known = column.dictionary.cast(pa.string())
        column = pa.DictionaryArray.from_arrays(column.indices, known).dictionary_decode()
    encoded = column.cast(pa.string()).dictionary_encode()  # in their order of appearance
    texts = [unquoted(t) for t in encoded.dictionary.cast(pa.string()).to_pylist()]
    ids = _buffer(encoded.indices.cast(pa.int64()), np.int64)
    is_there = _buffer(encoded.indices.is_valid().cast(pa.uint8()), np.uint8)
    return [*texts, ""], np.where(is_there, ids, len(texts))


def _buffer(column: pa.Array, dtype: Any) -> np.ndarray:
    """(m,) values of a column of primitive type; Arrow's own to_numpy imports pandas."""
    if not len(column):
        return np.empty(0, dtype)
    offset = column.offset * np.dtype(dtype).itemsize
    return np.frombuffer(column.buffers()[1], dtype, count=len(column), offset=offset)


def of_numbers(values: np.ndarray) -> pa.Array:
    """(m,) float64 as a column, NaN as gaps; Arrow's own array() imports pandas."""
    return _of_buffers(pa.float64(), ~np.isnan(values), values)


def of_texts(texts: Sequence[str | None]) -> pa.Array:
    """Raises TypeError for values that are not text."""
    packed = [b"" if text is None else str.encode(text) for text in texts]
    ends = np.cumsum([0, *map(len, packed)], dtype=np.int64)
    is_there = np.array([text is not None for text in texts], bool)
    return _of_buffers(pa.large_string(), is_there, ends, b"".join(packed))


def _of_buffers(t: pa.DataType, is_there: np.ndarray, *buffers: Any) -> pa.Array:
    bits = np.packbits(is_there, bitorder="little")
    return pa.Array.from_buffers(t, len(is_there), [pa.py_buffer(buffer) for buffer in (bits, *buffers)])


def unquoted(text: str | None) -> str:
    text = (text or "").strip()
    while len(text) >= 2 and text[0] == text[-1] and text[0] in "'\"":
        text = text[1:-1].strip()
    return text


def _is_number(t: pa.DataType) -> bool:
    is_a = pa.types
    return is_a.is_integer(t) or is_a.is_floating(t) or is_a.is_boolean(t) or is_a.is_decimal(t)


def is_text(t: pa.DataType) -> bool:
    if pa.types.is_dictionary(t):
        return is_text(t.value_type)
    return not (_is_number(t) or pa.types.is_null(t))


def as_written(column: pa.Array) -> np.ndarray:
    texts = [text or "" for text in column.cast(pa.string()).to_pylist()]
    return np.array(texts, dtype=object)
