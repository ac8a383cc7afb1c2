"""Data frames of pandas, polars, Arrow and Dask as rows. Text, times and gaps are encoded as `ingest` encodes files.

Tables that can be read only once (lazy frames, readers and relations) become tables in memory. Of a Dask dataframe a
first pass, which keeps no partition, finds the kinds of the columns. Each partition is encoded when it is read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence, Set
from numbers import Number
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
from scipy import sparse

from streamsvm.data.layout import GAPS, Layout, is_frame, listed
from streamsvm.data.rows import Matrix, Rows, concat
from streamsvm.data.sources import ArraySource, PartitionSource, Source, computed, is_dask_frame
from streamsvm.data.statistics import NeedsFloat64
from streamsvm.errors import DataError
from streamsvm.events import Warned, heard
from streamsvm.tables.schema import DENSE_FROM, KINDS, Feature, Schema, is_number, require_texts

FRAMES = ("pandas", "polars", "pyarrow", "narwhals")  # their frames in memory stay unchanged


def read_once(X: Any) -> Any:
    """X, or the table of an X that can be read only once: a lazy frame of polars or narwhals, a reader, scanner or
    dataset of Arrow, a relation of DuckDB, or another Arrow stream. Raises DataError."""
    kind = type(X)
    is_arrow = kind.__module__.startswith("pyarrow")
    is_stream = hasattr(X, "__arrow_c_stream__") and kind.__module__.partition(".")[0] not in FRAMES
    try:
        if hasattr(X, "collect") and hasattr(X, "collect_schema"):
            return X.collect()
        if is_arrow and hasattr(X, "to_table"):
            return X.to_table()
        if is_stream or (is_arrow and hasattr(X, "read_all")):
            import pyarrow as pa

            table = pa.RecordBatchReader.from_stream(X).read_all()
            if not len(table):
                problem = f"X: a {kind.__name__} without rows; it can be read only once"
                raise DataError(f"{problem}: after a fit or a prediction, give a new one, or a table")
            return table
    except DataError:
        raise
    except Exception as error:  # query engines raise any error, of several lines
        raise DataError(f"X: a {kind.__name__} that cannot be read: {' '.join(str(error).split())[:200]}") from error
    return X


if TYPE_CHECKING:
    import pyarrow as pa


Frame: TypeAlias = Any  # a data frame of pandas, polars, Arrow, Dask or another library
CATEGORY = "category={name!r}"  # parameter of estimators
FLOAT32, FLOAT64 = np.dtype(np.float32), np.dtype(np.float64)


def encoded(
    X: object, like: Layout | Mapping[str, float | str] | None, category: Collection[str] = ()
) -> tuple[Source | None, dict[str, object]]:
    """The rows (n, d) of a data frame, and the attributes of a store of these rows: None and none of anything else.

    Rows are float32, or float64 if float32 loses what a column says, with their own columns and categories or those of
    other rows. like: those of others, or the columns to target-encode. category: of number codes. Raises DataError.
    """
    X = read_once(X)
    like, target = (None, like) if isinstance(like, Mapping) else (like, None)
    if is_dask_frame(X):
        return partitions(X, like, target, category)
    return _of_frame(X, like, target, category) if is_frame(X) else (None, {})


def _of_frame(
    frame: Frame, like: Layout | None, target: Mapping[str, float | str] | None, category: Collection[str]
) -> tuple[Source, dict[str, object]]:
    table = table_of(frame)
    schema = schema_like(like) or new_schema(table, target, category)
    try:
        raw = raw_of(table, schema, dtype_of(like), widens=like is None)
    except NeedsFloat64 as error:
        heard(Warned(f"X: {error}"))
        raw = raw_of(table, schema, FLOAT64)
    if like is None:
        _settle(schema, sum(map(len, raw)))
    rows = concat([Rows(schema.encode(part)) for part in raw])  # without rows, a store raises the error
    if not are_sparse(rows.csr.nnz if rows.is_sparse else None, len(rows) * rows.d, like):
        rows = Rows(rows.dense())
    return ArraySource(rows.X), _attributes(schema, bool(np.isnan(rows.X.sum())))


def _attributes(schema: Schema, has_gaps: bool) -> dict[str, object]:
    return {**schema.to_attrs(), "format": "frame", **({GAPS: True} if has_gaps else {})}


def _settle(schema: Schema, n: int) -> None:
    """Called once all n rows of a frame are known. Raises DataError for too many texts. Warns of numbers stored as
    text, of texts that hardly look like categories, and of whole numbers that float32 cannot represent."""
    schema.settle("X")
    messages = [schema.numbers_remark(CATEGORY)]
    for feature in schema.features:
        fewer = f"target_encode={[feature.name]} makes one column of them, or leave the column out"
        messages.append(feature.remark(n, fewer, CATEGORY))
    messages += [feature.rounding_remark("subtract the smallest") for feature in schema.features]
    for message in filter(None, messages):
        heard(Warned(f"X: {message}"))


def are_sparse(entries: int | None, cells: int, like: Layout | None) -> bool:
    """Whether rows with this number of nonzero entries are sparse. None: there are no text columns."""
    if like is not None:
        return like.is_sparse
    return entries is not None and entries < DENSE_FROM * cells


def schema_like(like: Layout | None) -> Schema | None:
    """The columns of other rows, if these come from a table."""
    return Schema.from_attrs(like.attrs) if like is not None and "columns" in like.attrs else None


def schema_of(
    kinds: dict[str, str], target: Mapping[str, float | str] | None = None, category: Collection[str] = ()
) -> Schema:
    """The columns of a frame, all as features. Raises DataError for other kinds, and for names without a column."""
    for name in category:
        if name not in kinds:
            raise DataError(f"X has no column {name!r} to take as categories; it has {listed([*kinds])}")
    kinds = kinds | dict.fromkeys(category, "text")
    for name, kind in kinds.items():
        if kind not in KINDS:
            problem = f"column {name!r} holds {kind}"
            raise DataError(f"{problem}; expected numbers, times or text: convert it, or leave it out")
    require_texts("X", kinds, dict.fromkeys(target or {}, "target-encode"), f"; {CATEGORY} takes numbers as categories")
    schema = Schema([Feature(name, kind, smooth=(target or {}).get(name)) for name, kind in kinds.items()])
    for feature in schema.features:
        feature.is_code = feature.stays_text = feature.name in category
    return schema


def new_schema(
    table: pa.Table,
    target: Mapping[str, float | str] | None = None,
    category: Collection[str] = (),
    as_texts: Set[str] = frozenset(),
) -> Schema:
    """`schema_of` a table, with numbers stored as text as numbers, unless they are in `as_texts`. Raises DataError."""
    from streamsvm.tables.arrow import take_numbers

    schema = schema_of(kinds_of(table), target, category)
    texts = [f.name for f in schema.features if f.may_be_numbers and f.name not in as_texts]
    take_numbers(schema, texts, [table])
    return schema


def kinds_of(table: pa.Table) -> dict[str, str]:
    """The columns by name. Raises DataError if two columns have the same name."""
    from streamsvm.tables.arrow import kind_of

    twice = [name for name, count in Counter(table.column_names).items() if count > 1]
    if twice:
        raise DataError(f"X has two columns {twice[0]!r}; expected different names")
    return {field.name: kind_of(field.type) for field in table.schema}


def dtype_of(like: Layout | None) -> np.dtype:
    """float64 if other rows are, else float32."""
    return FLOAT64 if like is not None and like.dtype == FLOAT64 else FLOAT32


def raw_of(
    table: pa.Table, schema: Schema, dtype: np.dtype, where: str = "X", *, widens: bool = False
) -> list[np.ndarray]:
    """(m, features) numbers and codes of the rows, in pieces (see `raw_rows`). Raises DataError, NeedsFloat64."""
    from streamsvm.tables.arrow import raw_rows

    require_columns(table.column_names, schema)
    pieces, line = [], 0
    for batch in table.select([f.name for f in schema.features]).combine_chunks().to_batches():
        pieces.append(raw_rows(batch, schema, dtype, where, line, gaps=True, widens=widens))
        line += len(batch)
    return pieces


def require_columns(names: list[str], schema: Schema) -> None:
    """Raises DataError if a column is missing."""
    missing = [f.name for f in schema.features if f.name not in names]
    if missing:
        raise DataError(f"X lacks column {missing[0]!r}, which the model was trained on")


def table_of(X: Frame) -> pa.Table:
    """Raises DataError for columns without an Arrow type."""
    import pyarrow as pa

    if isinstance(X, pa.Table):
        return X
    is_pandas = type(X).__module__.startswith("pandas")
    try:
        return pa.Table.from_pandas(X, preserve_index=False) if is_pandas else pa.table(X)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        if is_pandas and (plain := _without_mixed(X)) is not None:
            return table_of(plain)
        reason = "; ".join(" ".join(str(part).split())[:200] for part in error.args)
        raise DataError(f"X: {reason}; expected columns of one kind each: numbers, times or text") from None


def _without_mixed(frame: Frame) -> Frame:
    """A pandas frame in which columns of numbers, some of them as text, are all text. None if it has none."""
    mixed = {name: frame[name] for name in frame.columns if frame.columns.is_unique and _is_mixed(frame[name])}
    texts = {name: column.map(str, na_action="ignore") for name, column in mixed.items()}
    return frame.assign(**texts) if texts else None


def _is_mixed(column: Any) -> bool:
    """Whether a pandas column has numbers and texts, and all of these are numbers or missing."""
    if column.dtype != object:
        return False
    from streamsvm.tables.arrow import MISSING

    present = column[column.notna()]
    texts = [value.strip() for value in present if isinstance(value, str)]
    others = [value for value in present if not isinstance(value, str)]
    are_numbers = all(isinstance(value, Number) and not isinstance(value, bool) for value in others)
    return bool(texts and others) and are_numbers and all(map(is_number, {*texts} - {"", *MISSING}))


class PartitionColumn(NamedTuple):
    """The contents of a column in a partition. kind: None if all values are missing. from_text, rounded, has_fractions:
    see `schema.Feature`; from_text None: texts that stand for missing numbers alone. texts: in order of appearance."""

    kind: str | None
    from_text: bool | None
    texts: list[str]
    entries: int
    has_gaps: bool
    rounded: tuple[float, float] | None
    has_fractions: bool


class PartitionSummary(NamedTuple):
    """A partition's number of rows and its columns by name. narrow: why float32 is too narrow for them, if it is."""

    rows: int
    columns: dict[str, PartitionColumn]
    narrow: str | None


def partitions(
    frame: Frame, like: Layout | None, target: Mapping[str, float | str] | None = None, category: Collection[str] = ()
) -> tuple[PartitionSource, dict[str, object]]:
    """The same rows and attributes that `frames.encoded` makes from a frame in memory. Raises DataError."""
    from dask import array

    frame = frame.optimize()  # which may join partitions
    schema, has_gaps, dtype = schema_like(like), False, dtype_of(like)
    if schema is None:
        as_texts = frozenset(target or ())
        summaries = [*computed(frame.map_partitions(_summary, category, as_texts, meta=(None, object)))]
        parts_of = {name: [part.columns[name] for part in summaries] for name in summaries[0].columns}
        are_numbers = {name for name, parts in parts_of.items() if any(part.from_text for part in parts)}
        if texts := frozenset(name for name in are_numbers if any(map(_is_text, parts_of[name]))):  # only in some parts
            summaries = [*computed(frame.map_partitions(_summary, category, as_texts | texts, meta=(None, object)))]
        lengths, columns = [part.rows for part in summaries], [part.columns for part in summaries]
        if narrow := next((part.narrow for part in summaries if part.narrow), None):
            dtype = FLOAT64
            heard(Warned(f"X: {narrow}"))
        schema = schema_of(_kinds(columns), target, category)
        for feature in schema.features:
            feature.from_text = any(part_columns[feature.name].from_text for part_columns in columns)
        entries, has_gaps = _learned(schema, summaries)
        _settle(schema, sum(lengths))
    else:
        require_columns([*map(str, frame.columns)], schema)
        lengths = [int(n) for n in computed(frame.map_partitions(len))]
        entries = sum(lengths) * len(schema.features)  # at most
    n, d = sum(lengths), int(schema.offsets[-1])
    is_sparse = are_sparse(entries if schema.has_text else None, n * d, like)
    attrs = _attributes(schema, has_gaps)
    empty = np.empty((0, d), dtype)
    final = Schema.from_attrs(attrs)
    blocks = frame.map_partitions(_encoded, final, is_sparse, dtype, meta=empty, enforce_metadata=False)
    meta = sparse.csr_array(empty) if is_sparse else empty
    X = array.Array(blocks.dask, blocks.name, chunks=(tuple(lengths), (d,)), meta=meta)
    return PartitionSource(X, (4 + dtype.itemsize) * entries if is_sparse else dtype.itemsize * n * d), attrs


def _encoded(part: Frame, schema: Schema, is_sparse: bool, dtype: np.dtype) -> Matrix:
    rows = Rows(schema.encode(_raw(part, schema, dtype)))
    return (rows if is_sparse else Rows(rows.dense())).X


def _raw(part: Frame, schema: Schema, dtype: np.dtype, *, widens: bool = False) -> np.ndarray:
    """(m, features) numbers and codes of a partition, which may have no rows."""
    pieces = raw_of(table_of(part), schema, dtype, "a partition of X", widens=widens)
    return np.concatenate([np.empty((0, len(schema.features)), dtype), *pieces])


def _summary(part: Frame, category: Collection[str], as_texts: Set[str]) -> Any:
    """The `PartitionSummary` of a partition, as a series with one entry. category: columns of number codes. as_texts:
    columns of texts, even if all of them are numbers here. Raises DataError."""
    import pandas as pd

    from streamsvm.tables.arrow import MISSING

    table, narrow = table_of(part), None
    schema = new_schema(table, None, category, as_texts)
    try:
        raw = _raw(table, schema, FLOAT32, widens=True)
    except NeedsFloat64 as error:
        raw, narrow = _raw(table, schema, FLOAT64), str(error)
    columns = {}
    for f, column, values in zip(schema.features, table.columns, raw.T, strict=True):
        kind = None if column.null_count == len(column) else f.kind
        are_missing = f.kind == "text" and {*MISSING} >= f.categories.keys()  # if there are any texts
        from_text = f.from_text or (None if are_missing else False)
        entries, has_gaps = int(np.count_nonzero(values)), bool(np.isnan(values).any())
        columns[f.name] = PartitionColumn(
            kind, from_text, [*f.categories], entries, has_gaps, f.rounded, f.has_fractions
        )
    return pd.Series([PartitionSummary(len(raw), columns, narrow)], dtype=object)


def _is_text(column: PartitionColumn) -> bool:
    return column.kind == "text" and column.from_text is not None


def _kinds(columns: Sequence[dict[str, PartitionColumn]]) -> dict[str, str]:
    """The kind of each column. Raises DataError if partitions differ."""
    kinds: dict[str, str] = {}
    for name in columns[0]:
        parts = [part_columns[name] for part_columns in columns]
        numbers = any(part.from_text for part in parts)  # stored as text
        kinds_found = {part.kind for part in parts if _is_text(part) or not (numbers and part.kind == "text")} - {None}
        if len(kinds_found) > 1:
            differing = " and ".join(sorted(map(str, kinds_found)))
            raise DataError(f"column {name!r} holds {differing} in different partitions of X; expected one of them")
        kinds[name] = str(next(iter(kinds_found), "number"))
    return kinds


def _learned(schema: Schema, summaries: Sequence[PartitionSummary]) -> tuple[int, bool]:
    """The number of nonzero entries of all rows, and whether one is missing. Adds all texts to the schema."""
    entries, has_gaps = 0, False
    for part in summaries:
        for feature in schema.features:
            column = part.columns[feature.name]
            if feature.from_text and column.kind == "text":  # all of them are missing
                entries, has_gaps = entries + part.rows, True
                continue
            feature.learn(column.texts, "X")
            feature.rounded = feature.rounded or column.rounded
            feature.has_fractions |= column.has_fractions
            if feature.kind != "text" or column.kind is not None:  # missing text sets no column
                entries, has_gaps = entries + column.entries, has_gaps or column.has_gaps
    return entries, has_gaps
