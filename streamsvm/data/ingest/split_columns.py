"""Columns of a table that tell which store its rows go to."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from streamsvm.data.arrow import milliseconds, numbers
from streamsvm.data.ingest.options import IngestOptions
from streamsvm.data.names import listed
from streamsvm.errors import DataError

READ_AS = {"number": pa.float64(), "time": pa.timestamp("ms")}


class SplitColumns:
    """Read beside features, whether or not they are features, too."""

    def __init__(self, options: IngestOptions) -> None:
        self._key = options.split_by

    def types(self, path: str, kinds: dict[str, str]) -> dict[str, pa.DataType]:
        """What they are read as, of a table with columns of these kinds. Raises DataError."""
        if self._key is None:
            return {}
        if self._key not in kinds:
            raise DataError(f"{path} has no column {self._key!r} to split by; it has {listed([*kinds])}")
        kind = kinds[self._key]
        if kind not in READ_AS:
            raise DataError(
                f"{path}: column {self._key!r} to split by holds {kind}; expected times or numbers"
            )
        return {self._key: READ_AS[kind]}

    def read(self, batch: pa.RecordBatch, path: str, line: int) -> dict[str, np.ndarray]:
        """By the fields of a block. Raises DataError where one is missing."""
        if self._key is None:
            return {}
        column = batch.column(self._key)
        if not pa.types.is_temporal(column.type):
            return {"key": numbers(column, path, self._key, line).astype(np.float64, copy=False)}
        since = numbers(milliseconds(column), path, self._key, line)
        return {"key": since.astype(np.int64).view("M8[ms]")}
