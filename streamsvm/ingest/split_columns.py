"""Columns of a table that decide the store of its rows: values to split by, and groups."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from streamsvm.data.names import listed
from streamsvm.errors import DataError
from streamsvm.ingest.options import IngestOptions
from streamsvm.tables.arrow import milliseconds, numbers, texts

READ_AS = {"number": pa.float64(), "time": pa.timestamp("ms")}


class SplitColumns:
    """Columns that are read in addition to features, and may be features, too."""

    def __init__(self, options: IngestOptions) -> None:
        self._key, self._group = options.split_by, options.group
        self._codes: dict[str, int] = {}  # of groups, in order of appearance

    def types(self, path: str, kinds: dict[str, str]) -> dict[str, pa.DataType]:
        """The types as which to read them from a table with columns of these kinds. Raises DataError."""
        for name, use in ((self._key, "to split by"), (self._group, "of groups")):
            if name is not None and name not in kinds:
                raise DataError(f"{path} has no column {name!r} {use}; it has {listed([*kinds])}")
        if self._group is not None:
            return {self._group: pa.string()}
        return {} if self._key is None else {self._key: self._key_type(path, kinds[self._key])}

    def _key_type(self, path: str, kind: str) -> pa.DataType:
        if kind not in READ_AS:
            raise DataError(
                f"{path}: column {self._key!r} to split by holds {kind}; expected times or numbers"
            )
        return READ_AS[kind]

    def read(self, batch: pa.RecordBatch, path: str, line: int) -> dict[str, np.ndarray]:
        """Their values by field of a block. Raises DataError if a value is missing."""
        if self._group is not None:
            return {"group": self._groups(batch.column(self._group), path, line)}
        return {} if self._key is None else {"key": self._keys(batch.column(self._key), path, line)}

    def _keys(self, column: pa.Array, path: str, line: int) -> np.ndarray:
        assert self._key is not None
        if not pa.types.is_temporal(column.type):
            return numbers(column, path, self._key, line).astype(np.float64, copy=False)
        since = numbers(milliseconds(column), path, self._key, line)
        return since.astype(np.int64).view("M8[ms]")

    def _groups(self, column: pa.Array, path: str, line: int) -> np.ndarray:
        found, ids = texts(column)
        missing = np.flatnonzero(np.array([not text for text in found])[ids])
        if len(missing):
            raise DataError(f"{path}:{line + missing[0]}: the group (column {self._group!r}) is missing")
        codes = [self._codes.setdefault(text, len(self._codes)) if text else -1 for text in found]
        return np.array(codes, np.int64)[ids]
