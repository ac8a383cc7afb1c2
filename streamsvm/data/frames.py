"""Data frames of pandas, polars and Arrow as rows: columns of text, times and gaps as `ingest` has them of files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from streamsvm.data.layout import GAPS, Layout
from streamsvm.data.rows import Rows, concat
from streamsvm.data.schema import DENSE_FROM, KINDS, Feature, Schema
from streamsvm.errors import DataError
from streamsvm.events import Warned, heard

if TYPE_CHECKING:
    import pyarrow as pa

FLOAT32 = np.dtype(np.float32)


def encoded(frame: Any, like: Layout | None) -> tuple[Rows, dict[str, Any]]:
    """The rows (n, d) float32 of a frame, columns and categories as others have them or its own; and the attributes of
    a store of these rows. Raises DataError."""
    table = _arrow(frame)
    schema = _schema(table) if like is None or "columns" not in like.attrs else Schema.from_attrs(like.attrs)
    rows = _rows(table, schema)
    for feature in schema.features:
        if lost := feature.remark_lost("subtract the smallest"):
            heard(Warned(f"X: {lost}"))
    X: Any = rows.X
    few = rows.is_sparse and X.nnz < DENSE_FROM * len(rows) * rows.d
    if not (few if like is None else like.is_sparse):
        rows = Rows(rows.dense())
    gaps = {GAPS: True} if np.isnan(rows.X.sum()) else {}
    return rows, {**schema.to_attrs(), "format": "frame", **gaps}


def _schema(table: pa.Table) -> Schema:
    """The columns of a frame, all of which are features. Raises DataError for one of another kind."""
    from streamsvm.data.arrow import kind_of

    kinds = {field.name: kind_of(field.type) for field in table.schema}
    for name, kind in kinds.items():
        if kind not in KINDS:
            raise DataError(f"column {name!r} holds {kind}; expected numbers, times or text")
    return Schema([Feature(name, kind) for name, kind in kinds.items()])


def _rows(table: pa.Table, schema: Schema) -> Rows:
    from streamsvm.data.arrow import raw_rows

    missing = [f.name for f in schema.features if f.name not in table.column_names]
    if missing:
        raise DataError(f"X lacks column {missing[0]!r}, which the model was trained on")
    batches = table.select([f.name for f in schema.features]).to_batches()
    raw = [raw_rows(batch, schema, FLOAT32, "X", 0, gaps=True) for batch in batches]
    schema.settle("X")
    return concat([Rows(schema.encode(part)) for part in raw])  # of no rows, which a store refuses


def _arrow(X: Any) -> pa.Table:
    """Raises DataError for columns that Arrow has no type for."""
    import pyarrow as pa

    if isinstance(X, pa.Table):
        return X
    try:
        if type(X).__module__.startswith("pandas"):
            return pa.Table.from_pandas(X, preserve_index=False)
        return pa.table(X)
    except (pa.ArrowInvalid, pa.ArrowTypeError, TypeError) as error:
        raise DataError(f"X: {' '.join(str(error).split())[:200]}") from None
