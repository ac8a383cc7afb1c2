"""Data frames of pandas, polars, Arrow and Dask as rows. Text, times and gaps are encoded as `ingest` encodes files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Set
from numbers import Number
from typing import TYPE_CHECKING, Any

import numpy as np

from streamsvm.data.layout import GAPS, Layout
from streamsvm.data.names import listed
from streamsvm.data.narrow import TooNarrow
from streamsvm.data.rows import Rows, concat
from streamsvm.data.schema import DENSE_FROM, KINDS, Feature, Schema, is_number, require_texts
from streamsvm.data.sources import ArraySource, Source, is_dask_frame
from streamsvm.errors import DataError
from streamsvm.events import Warned, heard

if TYPE_CHECKING:
    import pyarrow as pa

CATEGORY = "category={name!r}"  # parameter of estimators
FLOAT32, FLOAT64 = np.dtype(np.float32), np.dtype(np.float64)


def encoded(
    frame: Any, like: Layout | Mapping[str, float | str] | None, category: Collection[str] = ()
) -> tuple[Source, dict[str, Any]]:
    """The rows (n, d) of a frame, float32, or float64 if float32 loses what a column says, with its own columns and
    categories or those of other rows, and the attributes of a store of these rows. like: those of others, or the
    columns to target-encode. category: of number codes. Raises DataError."""
    like, target = (None, like) if isinstance(like, Mapping) else (like, None)
    if is_dask_frame(frame):
        from streamsvm.data.dask_frames import partitions  # dask

        return partitions(frame, like, target, category)
    table = table_of(frame)
    schema = known_schema(like) or new_schema(table, target, category)
    try:
        raw = raw_of(table, schema, dtype_of(like), widens=like is None)
    except TooNarrow as error:
        heard(Warned(f"X: {error}"))
        raw = raw_of(table, schema, FLOAT64)
    schema.settle("X")
    rows = concat([Rows(schema.encode(part)) for part in raw])  # without rows, a store raises the error
    if like is None:
        tell_texts(schema, len(rows))
    tell_lost(schema)
    X: Any = rows.X
    if not is_few(X.nnz if rows.is_sparse else None, len(rows) * rows.d, like):
        rows = Rows(rows.dense())
    return ArraySource(rows.X), attributes(schema, bool(np.isnan(rows.X.sum())))


def tell_texts(schema: Schema, n: int) -> None:
    """Warns of numbers stored as text, and of texts in n rows of a frame that hardly look like categories."""
    if told := schema.remark_numbers(CATEGORY):
        heard(Warned(f"X: {told}"))
    for feature in schema.features:
        fewer = f"target_encode={[feature.name]} makes one column of them, or leave the column out"
        if told := feature.remark(n, fewer, CATEGORY):
            heard(Warned(f"X: {told}"))


def tell_lost(schema: Schema) -> None:
    """Warns of whole numbers of a frame that float32 cannot represent."""
    for feature in schema.features:
        if lost := feature.remark_lost("subtract the smallest"):
            heard(Warned(f"X: {lost}"))


def attributes(schema: Schema, has_gaps: bool) -> dict[str, Any]:
    """The attributes of a store of a frame's rows."""
    return {**schema.to_attrs(), "format": "frame", **({GAPS: True} if has_gaps else {})}


def is_few(entries: int | None, of: int, like: Layout | None) -> bool:
    """Whether rows with this number of nonzero entries are sparse. None: there are no text columns."""
    if like is not None:
        return like.is_sparse
    return entries is not None and entries < DENSE_FROM * of


def known_schema(like: Layout | None) -> Schema | None:
    """The columns of other rows, if these come from a table."""
    return Schema.from_attrs(like.attrs) if like is not None and "columns" in like.attrs else None


def schema_of(
    kinds: dict[str, str], target: Mapping[str, float | str] | None = None, category: Collection[str] = ()
) -> Schema:
    """The columns of a frame, all as features. Raises DataError for an unsupported kind, and without a column that is
    named."""
    for name in category:
        if name not in kinds:
            raise DataError(f"X has no column {name!r} to take as categories; it has {listed([*kinds])}")
    kinds = kinds | dict.fromkeys(category, "text")
    for name, kind in kinds.items():
        if kind not in KINDS:
            raise DataError(
                f"column {name!r} holds {kind}; expected numbers, times or text: convert it, or leave it out"
            )
    require_texts(
        "X", kinds, dict.fromkeys(target or {}, "target-encode"), f"; {CATEGORY} takes numbers as categories"
    )
    schema = Schema([Feature(name, kind, smooth=(target or {}).get(name)) for name, kind in kinds.items()])
    for feature in schema.features:
        feature.is_code = feature.is_wanted = feature.name in category
    return schema


def new_schema(
    table: pa.Table,
    target: Mapping[str, float | str] | None = None,
    category: Collection[str] = (),
    as_texts: Set[str] = frozenset(),
) -> Schema:
    """The columns of a frame, all as features, numbers stored as text as numbers but for the columns `as_texts`. Raises
    DataError."""
    from streamsvm.data.arrow import take_numbers

    schema = schema_of(kinds_of(table), target, category)
    texts = [f.name for f in schema.features if f.may_be_numbers and f.name not in as_texts]
    take_numbers(schema, texts, [table])
    return schema


def kinds_of(table: pa.Table) -> dict[str, str]:
    """The columns by name. Raises DataError if two columns have the same name."""
    from streamsvm.data.arrow import kind_of

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
    """(m, features) numbers and codes of the rows, in pieces (see `raw_rows`). Raises DataError, TooNarrow."""
    from streamsvm.data.arrow import raw_rows

    require_columns(table.column_names, schema)
    batches = table.select([f.name for f in schema.features]).combine_chunks().to_batches()
    firsts = np.cumsum([0, *(len(batch) for batch in batches)]).tolist()
    return [
        raw_rows(batch, schema, dtype, where, line, gaps=True, widens=widens)
        for batch, line in zip(batches, firsts, strict=False)
    ]


def require_columns(names: list[str], schema: Schema) -> None:
    """Raises DataError if a column is missing."""
    missing = [f.name for f in schema.features if f.name not in names]
    if missing:
        raise DataError(f"X lacks column {missing[0]!r}, which the model was trained on")


def table_of(X: Any) -> pa.Table:
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
        told = "; ".join(" ".join(str(part).split())[:200] for part in error.args)
        raise DataError(f"X: {told}; expected columns of one kind each: numbers, times or text") from None


def _without_mixed(frame: Any) -> Any:
    """A pandas frame in which columns of numbers, some of them as text, are all text. None if it has none."""
    mixed = {
        name: frame[name] for name in frame.columns if frame.columns.is_unique and _is_mixed(frame[name])
    }
    texts = {name: column.map(str, na_action="ignore") for name, column in mixed.items()}
    return frame.assign(**texts) if texts else None


def _is_mixed(column: Any) -> bool:
    """Whether a pandas column has numbers and texts, and all of these are numbers or missing."""
    if column.dtype != object:
        return False
    from streamsvm.data.arrow import MISSING

    there = column[column.notna()]
    texts = [value.strip() for value in there if isinstance(value, str)]
    others = [value for value in there if not isinstance(value, str)]
    are_numbers = all(isinstance(value, Number) and not isinstance(value, bool) for value in others)
    return bool(texts and others) and are_numbers and all(map(is_number, {*texts} - {"", *MISSING}))
