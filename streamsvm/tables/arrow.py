"""Arrow columns as numbers, and the kind of each column."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute
from numpy.typing import DTypeLike
from pyarrow.csv import ConvertOptions

from streamsvm.data.labels import plain_labels
from streamsvm.errors import DataError
from streamsvm.tables.schema import CODE, NUMBER, KindChanged, Schema

DAY_US = 86_400_000_000.0
FIRST = 100  # texts that are looked at before all others
TIME = (  # day, clock, fraction, and zone: its sign, hours and minutes
    r"^\s*(?P<day>\d{4}-\d\d-\d\d)(?:[T ](?P<clock>\d\d:\d\d(?::\d\d)?)(?:\.(?P<part>\d+))?"
    r"\s*(?:[Zz]|UTC|GMT|(?P<sign>[+-])(?P<hours>\d\d)(?::?(?P<minutes>\d\d))?)?)?\s*$"
)
_WHOLE = "^(0|-?[1-9][0-9]{0,17})$"  # these fit into int64
_CODE = "^[-+]?0[0-9]|^[-+]?[0-9]{16,}$"
MISSING = tuple(ConvertOptions().null_values)  # texts in place of numbers, times, true and false


def raw_rows(
    batch: pa.RecordBatch, schema: Schema, dtype: np.dtype, where: str, line: int, *, gaps: bool, widens: bool = False
) -> np.ndarray:
    """(m, features) numbers, times in days, and category numbers. A schema that is not frozen adds new categories.
    line: of the first row. widens: raises NeedsFloat64 if float32 loses what a column says. Raises DataError;
    KindChanged for a text among numbers, unless the schema is frozen."""
    raw = np.empty((batch.num_rows, len(schema.features)), np.float32 if dtype == np.float32 else np.float64)
    for j, feature in enumerate(schema.features):
        column = batch.column(feature.name)
        if feature.kind == "text":
            feature.stays_text |= pa.types.is_dictionary(column.type)  # categories, even if they are numbers
            raw[:, j] = schema.codes(feature, *texts(column), where)
        else:
            plain = days(column) if feature.kind == "time" else column
            if feature.kind == "number" and kind_of(column.type) == "text":
                plain = _numbers_in(column, where, feature.name, line, is_final=schema.frozen)
            values = _plain(plain, where, feature.name, line, gaps=gaps)
            with np.errstate(over="ignore"):  # values that overflow to infinity are errors
                narrow = values.astype(raw.dtype, copy=False)
            raw[:, j] = _finite(narrow, where, feature.name, line, gaps=gaps, unrounded=values)
            if widens and raw.dtype == np.float32:
                feature.require_float32(values, narrow)
            if not schema.frozen and feature.kind == "number":
                was_float = pa.types.is_floating(column.type) and not feature.is_csv
                feature.note_rounding(values, narrow, was_float=was_float)
    return raw


def take_numbers(schema: Schema, names: Sequence[str], batches: Iterable[pa.RecordBatch | pa.Table]) -> None:
    """Makes numbers of those of these text features whose texts all are numbers, or missing. Reads what it needs."""
    candidates, with_numbers = {f.name: f for f in schema.features if f.name in names}, set()
    for batch in batches:
        for name in [*candidates]:
            column = batch.column(name)
            if pa.types.is_dictionary(column.type):
                del candidates[name]
                continue
            for piece in (column[:FIRST], column[FIRST:]):  # the first ones tell most columns of text
                texts, is_missing = _stripped(piece)
                texts = texts.filter(pa.compute.invert(is_missing))
                are_plain = pa.compute.match_substring_regex(texts, f"^({NUMBER})$")
                are_codes = pa.compute.match_substring_regex(texts, f"^({CODE})$")  # rather no numbers
                if not pa.compute.all(pa.compute.and_not(are_plain, are_codes), min_count=0).as_py():
                    del candidates[name]
                    break
                with_numbers |= {name} if len(texts) else set()
        if not candidates:
            break
    for name in with_numbers & candidates.keys():
        candidates[name].take_numbers()


def _stripped(column: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Texts without spaces around them, and whether each is missing."""
    texts = pa.compute.utf8_trim_whitespace(column.cast(pa.string()))
    markers = of_texts(["", *MISSING]).cast(pa.string())
    return texts, pa.compute.or_(pa.compute.is_null(texts), pa.compute.is_in(texts, markers))


def _numbers_in(column: pa.Array, where: str, name: str, line: int, *, is_final: bool) -> pa.Array:
    """Texts as numbers, missing ones as gaps. line: of the first row. Raises DataError for another text; KindChanged
    unless the column's kind is final."""
    texts, is_missing = _stripped(column)
    are_plain = pa.compute.match_substring_regex(texts, f"^({NUMBER})$")
    wrong = np.flatnonzero(_flags(pa.compute.or_kleene(is_missing, are_plain)) == 0)
    if len(wrong):
        row = int(wrong[0])
        message = f"{where}:{line + row}: column {name!r}: expected a number, found {texts[row].as_py()[:80]!r}"
        raise DataError(message) if is_final else KindChanged(message, name, texts[row].as_py())
    plain = pa.compute.replace_substring_regex(texts, r"^\+", "")  # Arrow reads none
    return pa.compute.if_else(is_missing, pa.nulls(len(texts), pa.string()), plain).cast(pa.float64())


def _flags(flags: pa.Array) -> np.ndarray:
    return _buffer(flags.cast(pa.uint8()), np.uint8)


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


def whole_numbers(column: pa.Array, path: str, name: str, line: int) -> np.ndarray:
    """(m,) integers of a column as int64, or as text if some are beyond it; other numbers as float64. line: of the
    first row. Raises DataError."""
    if not pa.types.is_integer(column.type):
        return numbers(column, path, name, line).astype(np.float64, copy=False)
    _require_all(column, path, name, line)
    return plain_labels(_buffer(column, column.type.to_pandas_dtype()))


def written_numbers(column: pa.Array) -> np.ndarray | None:
    """(m,) numbers of a column of texts: int64 if all are whole ones as programs write them, else float64. None if any
    text is something else, such as 001, or a whole number that float64 may not hold."""
    if pa.compute.all(pa.compute.match_substring_regex(column, _WHOLE)).as_py():
        return _buffer(column.cast(pa.int64()), np.int64)
    if pa.compute.any(pa.compute.match_substring_regex(column, _CODE)).as_py():
        return None
    try:
        values = _buffer(column.cast(pa.float64()), np.float64)
    except pa.ArrowInvalid:
        return None
    return values if np.isfinite(values).all() else None


def _require_all(column: pa.Array, path: str, name: str, line: int) -> None:
    if column.null_count:
        row = column.is_null().to_pylist().index(True)
        raise lacks_value(path, name, line + row)


def lacks_value(path: str, name: str, line: int) -> DataError:
    """The error for a missing value."""
    return DataError(f"{path}:{line}: column {name!r} has no value; fill it in or remove the row")


def _plain(column: pa.Array, path: str, name: str, line: int, *, gaps: bool) -> np.ndarray:
    if not gaps:
        _require_all(column, path, name, line)
    if pa.types.is_boolean(column.type):
        column = column.cast(pa.uint8())
    if column.type not in (pa.float32(), pa.float64()):
        try:
            column = column.cast(pa.float64(), safe=False)
        except pa.ArrowInvalid as error:
            raise DataError(f"{path}: column {name!r}: expected numbers; {error}") from error
    values = _buffer(column, np.float32 if column.type == pa.float32() else np.float64)
    if column.null_count:
        values = np.where(_flags(column.is_null()), np.nan, values)
    return values


def _finite(
    values: np.ndarray, path: str, name: str, line: int, *, gaps: bool, unrounded: np.ndarray | None = None
) -> np.ndarray:
    """The values, checked. unrounded: the same before they were rounded to a type of fewer bits. Raises DataError."""
    bad = np.flatnonzero(np.isinf(values) if gaps else ~np.isfinite(values))
    if len(bad):
        value = (values if unrounded is None else unrounded)[bad[0]]
        limit = f"{values.dtype} holds up to {np.finfo(values.dtype).max:.2g}; take --dtype float64"
        expected = limit if np.isfinite(value) else "expected a finite number"
        raise DataError(f"{path}:{line + bad[0]}: column {name!r} is {value}; {expected}")
    return values


def days(column: pa.Array) -> pa.Array:
    """Times as days since 1970."""
    micros = column.cast(pa.timestamp("us"), safe=False).cast(pa.int64()).cast(pa.float64(), safe=False)
    return pa.compute.divide(micros, of_numbers(np.array([DAY_US]))[0])  # years after 2255 need more digits


def times(column: pa.Array) -> pa.Array:
    """Texts as times of UTC, with a zone or without, and a fraction of any length, which is cut after microseconds.
    Raises pa.ArrowInvalid for others."""
    try:
        return column.cast(pa.timestamp("us"))
    except pa.ArrowInvalid:
        return _times_in_parts(column)


def _times_in_parts(column: pa.Array) -> pa.Array:
    """`times` of texts that Arrow does not cast, from the pieces of each."""
    pieces = pa.compute.extract_regex(column, TIME)
    if pieces.null_count > column.null_count:
        wrong = column.filter(pa.compute.and_(pieces.is_null(), column.is_valid()))
        raise pa.ArrowInvalid(f"expected a time, found {wrong[0].as_py()!r}")
    day, clock, fraction, sign, hours, minutes = pieces.flatten()
    whole = pa.compute.binary_join_element_wise(day, _or(clock, "00:00"), of_texts([" "])[0].cast(day.type))
    micros = pa.compute.utf8_rpad(pa.compute.utf8_slice_codeunits(fraction, 0, 6), 6, "0").cast(pa.int64())
    zone = pa.compute.add(_multiplied(_or(hours, "0").cast(pa.int64()), 60), _or(minutes, "0").cast(pa.int64()))
    zone = pa.compute.if_else(_is(sign, "-"), pa.compute.negate(zone), zone)
    seconds = pa.compute.subtract(whole.cast(pa.timestamp("s")).cast(pa.int64()), _multiplied(zone, 60))
    return pa.compute.add(_multiplied(seconds, 1_000_000), micros).cast(pa.timestamp("us"))


# scalars of Python would import pandas


def _is(texts: pa.Array, text: str) -> pa.Array:
    return pa.compute.equal(texts, of_texts([text])[0].cast(texts.type))


def _or(texts: pa.Array, other: str) -> pa.Array:
    return pa.compute.if_else(_is(texts, ""), of_texts([other])[0].cast(texts.type), texts)


def _multiplied(numbers: pa.Array, factor: int) -> pa.Array:
    return pa.compute.multiply(numbers, of_integers([factor])[0])


def milliseconds(column: pa.Array) -> pa.Array:
    """Times as whole milliseconds since 1970."""
    return column.cast(pa.timestamp("ms"), safe=False).cast(pa.int64())


def texts(column: pa.Array) -> tuple[list[str], np.ndarray]:
    """The distinct texts of a column, stripped of spaces and quotes, and (m,) the index of each row's text."""
    if pa.types.is_dictionary(column.type):
        names = column.dictionary.cast(pa.string())
        column = pa.DictionaryArray.from_arrays(column.indices, names).dictionary_decode()
    encoded = column.cast(pa.string()).dictionary_encode()  # in their order of appearance
    texts = [unquoted(t) for t in encoded.dictionary.cast(pa.string()).to_pylist()]
    ids = _buffer(encoded.indices.cast(pa.int64()), np.int64)
    is_present = _flags(encoded.indices.is_valid())
    return [*texts, ""], np.where(is_present, ids, len(texts))


def _buffer(column: pa.Array, dtype: DTypeLike) -> np.ndarray:
    """(m,) values of a column of primitive type; Arrow's own to_numpy imports pandas."""
    if not len(column):
        return np.empty(0, dtype)
    offset = column.offset * np.dtype(dtype).itemsize
    return np.frombuffer(column.buffers()[1], dtype, count=len(column), offset=offset)


def of_numbers(values: np.ndarray) -> pa.Array:
    """(m,) float64 as a column, NaN as gaps; Arrow's own array() imports pandas."""
    return _of_buffers(pa.float64(), ~np.isnan(values), values)


def of_integers(values: Sequence[int | None]) -> pa.Array:
    """int64 as a column, None as gaps."""
    is_present = np.array([value is not None for value in values], bool)
    return _of_buffers(pa.int64(), is_present, np.array([value or 0 for value in values], np.int64))


def of_texts(texts: Sequence[str | None]) -> pa.Array:
    """Raises TypeError for values that are not text."""
    packed = [b"" if text is None else str.encode(text) for text in texts]
    ends = np.cumsum([0, *map(len, packed)], dtype=np.int64)
    is_present = np.array([text is not None for text in texts], bool)
    return _of_buffers(pa.large_string(), is_present, ends, b"".join(packed))


def _of_buffers(t: pa.DataType, is_present: np.ndarray, *buffers: object) -> pa.Array:
    bits = np.packbits(is_present, bitorder="little")
    return pa.Array.from_buffers(t, len(is_present), [pa.py_buffer(buffer) for buffer in (bits, *buffers)])


def unquoted(text: str | None) -> str:
    """A text without spaces and quotes around it."""
    text = (text or "").strip()
    while len(text) >= 2 and text[0] == text[-1] and text[0] in "'\"":
        text = text[1:-1].strip()
    return text


def _is_number(t: pa.DataType) -> bool:
    is_a = pa.types
    return is_a.is_integer(t) or is_a.is_floating(t) or is_a.is_boolean(t) or is_a.is_decimal(t)


def is_text(t: pa.DataType) -> bool:
    """Whether a type is neither of numbers nor empty."""
    if pa.types.is_dictionary(t):
        return is_text(t.value_type)
    return not (_is_number(t) or pa.types.is_null(t))


def as_written(column: pa.Array) -> np.ndarray:
    """(m,) texts of a column; a missing one is empty."""
    return np.array([text or "" for text in column.cast(pa.string()).to_pylist()], dtype=object)
