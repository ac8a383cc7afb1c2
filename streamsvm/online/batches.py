"""Mini-batches: data frames of pandas, polars or Arrow, their targets, and answers of the same kind."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import DTypeLike

from streamsvm.errors import DataError

if TYPE_CHECKING:
    from streamsvm.tables.frames import Frame


class Batch:
    """The rows of a data frame. values: (m, columns) float64 if all columns are numbers, or true and false, NaN where
    they are missing; else None. bools: names of columns of true and false."""

    def __init__(self, X: Any) -> None:
        """Raises DataError for anything that is not a data frame, and for columns of one name."""
        self._frame = X if _is_pandas(X) else _as_table(X)
        self.names: list[Any] = list(X.columns) if _is_pandas(X) else self._frame.column_names
        if len({*self.names}) < len(self.names):
            twice = next(name for at, name in enumerate(self.names) if name in self.names[:at])
            raise DataError(f"X has two columns {twice!r}; expected different names")
        kinds = self._kinds()
        self.bools = {name for name, kind in zip(self.names, kinds, strict=True) if kind == "b"}
        self.values = self._values() if set("biuf").issuperset(kinds) else None

    def _kinds(self) -> list[str]:
        """NumPy's kind of each column: b, i, u, f, or O for others."""
        if _is_pandas(self._frame):
            return [dtype.kind for dtype in self._frame.dtypes]
        from pyarrow import types

        tests = {"b": types.is_boolean, "i": types.is_integer, "f": types.is_floating}
        return [next((k for k, is_of in tests.items() if is_of(t)), "O") for t in self._frame.schema.types]

    def _values(self) -> np.ndarray:
        if _is_pandas(self._frame):
            values: np.ndarray = self._frame.to_numpy(np.float64, na_value=np.nan)
            return values
        columns = [column.to_numpy().astype(np.float64) for column in self._frame.columns]
        return np.column_stack(columns) if columns else np.empty((self._frame.num_rows, 0))

    def records(self) -> list[dict[Hashable, Any]]:
        """The rows as events, without what is missing."""
        if _is_pandas(self._frame):
            rows = self._frame.astype(object).where(self._frame.notna(), None).to_dict("records")
        else:
            rows = self._frame.to_pylist()
        return [{name: v for name, v in row.items() if v is not None and not _is_nan(v)} for row in rows]

    @property
    def first_rows(self) -> Iterator[dict[Hashable, Any]]:
        """Events of the rows with the first number of some column, with these numbers alone."""
        assert self.values is not None
        is_present = ~np.isnan(self.values)
        firsts = np.where(is_present.any(axis=0), is_present.argmax(axis=0), -1) if len(is_present) else np.empty(0)
        for row in np.unique(firsts[firsts >= 0]).tolist():
            places = np.flatnonzero(firsts == row).tolist()
            values = {self.names[j]: float(self.values[row, j]) for j in places}
            yield {name: bool(v) if name in self.bools else v for name, v in values.items()}


def targets_in(y: Iterable[Any]) -> list[Any]:
    """Labels or numbers of a column of pandas, polars or Arrow, of an array, or of anything else in order."""
    for name in ("tolist", "to_list", "to_pylist"):
        if hasattr(y, name):
            values: list[Any] = getattr(y, name)()
            return values
    return list(y)


def series_like(X: Frame, values: Sequence[Any], dtype: DTypeLike | None = None) -> Frame:
    """Answers to the rows of X, as a column of the library that X is of."""
    if _is_pandas(X):
        import pandas as pd

        return pd.Series(values, index=X.index, dtype=dtype)
    if _is_polars(X):
        import polars as pl

        return pl.Series(values)
    import pyarrow as pa

    return pa.array(values)


def frame_like(X: Frame, values: np.ndarray, names: Sequence[Any]) -> Frame:
    """Answers (m, names) to the rows of X, as a data frame of the library that X is of."""
    if _is_pandas(X):
        import pandas as pd

        return pd.DataFrame(values, index=X.index, columns=list(names))
    columns = {str(name): column for name, column in zip(names, values.T, strict=True)}
    if _is_polars(X):
        import polars as pl

        return pl.DataFrame(columns)
    import pyarrow as pa

    return pa.table(columns)


def _is_nan(value: object) -> bool:
    return isinstance(value, float | np.floating) and bool(np.isnan(value))


def _is_pandas(X: Frame) -> bool:
    return type(X).__module__.partition(".")[0] == "pandas"


def _is_polars(X: Frame) -> bool:
    return type(X).__module__.partition(".")[0] == "polars"


def rows_in(X: Frame) -> int:
    """The rows of a data frame. Raises DataError for what has no number of them, as a lazy frame."""
    if not hasattr(X, "__len__"):
        raise _no_frame(X)
    return len(X)


def _no_frame(X: Frame) -> DataError:
    return DataError(f"found rows as {type(X).__name__}, expected a data frame of pandas, polars or Arrow")


def _as_table(X: Frame) -> Frame:
    from streamsvm.tables.frames import kinds_of, table_of

    if isinstance(X, np.ndarray | list | dict):
        raise _no_frame(X)
    table = table_of(X)
    kinds_of(table)  # names that differ
    return table
