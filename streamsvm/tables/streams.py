"""Tables that can be read only once: lazy frames, readers and relations. They become tables in memory."""

from __future__ import annotations

from typing import Any

from streamsvm.errors import DataError

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
            return _of_stream(X)
    except DataError:
        raise
    except Exception as error:  # query engines raise any error, of several lines
        raise DataError(f"X: a {kind.__name__} that cannot be read: {' '.join(str(error).split())[:200]}") from error
    return X


def _of_stream(X: Any) -> Any:
    import pyarrow as pa

    table = pa.RecordBatchReader.from_stream(X).read_all()
    if not len(table):
        raise DataError(
            f"X: a {type(X).__name__} without rows; it can be read only once: after a fit or a prediction, give a new "
            "one, or a table"
        )
    return table
