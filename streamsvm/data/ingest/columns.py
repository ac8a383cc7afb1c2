"""Columns of a table by name, beside its rows: as they are written, or as values."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from streamsvm.data.arrow import as_written, days, numbers, texts
from streamsvm.data.ingest.options import IngestOptions
from streamsvm.data.ingest.streams import TABLES, detect_format
from streamsvm.data.ingest.tables import READ_AS, Table, arrow_errors, table_of
from streamsvm.data.names import listed
from streamsvm.errors import ConfigError, DataError


@dataclass(frozen=True)
class Values:
    """What a column holds, see `schema.KINDS`. found (n,): numbers, NaN where one is missing; of text each row's place
    in `texts`, -1 where there is none."""

    kind: str
    found: np.ndarray
    texts: tuple[str, ...] = ()


class KeptColumns:
    """Columns of a table as it has them, text that goes beside the answers to its rows."""

    def __init__(self, path: str, names: Sequence[str], options: IngestOptions) -> None:
        """Raises ConfigError where the file is no table, DataError where it has no such column."""
        self._names, self._table = names, _table_with(path, names, options, "to keep")
        self._batches = self._table.batches(dict.fromkeys(names, pa.string()))
        self._rest: pa.RecordBatch | None = None

    def take(self, rows: int) -> dict[str, np.ndarray]:
        """Those of so many rows more, by name."""
        pieces: list[pa.RecordBatch] = []
        while rows:
            batch = self._rest or next(self._batches)
            piece, rest = batch.slice(0, rows), batch.slice(rows)
            self._rest = rest if rest.num_rows else None
            rows -= piece.num_rows
            pieces.append(piece)
        return {name: np.concatenate([as_written(p.column(name)) for p in pieces]) for name in self._names}

    def close(self) -> None:
        self._table.close()


def values_of(path: str, name: str, options: IngestOptions) -> Values:
    """A column of a table, whether or not it is a feature. Raises ConfigError, DataError."""
    options = options.model_copy(update={"format": options.format or detect_format(path)})
    places: dict[str, int] = {"": -1}
    found, line = [], 1 + (options.format != "parquet" and options.header)
    with arrow_errors(path), closing(_table_with(path, [name], options, "to slice by")) as table:
        kind = table.kinds()[name]
        if kind not in READ_AS:
            raise DataError(
                f"{path}: column {name!r} to slice by holds {kind}; expected numbers, times or text"
            )
        for batch in table.batches({name: READ_AS[kind]}):
            column = batch.column(name)
            if kind == "text":
                own, ids = texts(column)
                found.append(np.array([places.setdefault(text, len(places) - 1) for text in own])[ids])
            else:
                plain = days(column) if kind == "time" else column
                found.append(numbers(plain, path, name, line, gaps=True))
            line += len(column)
    return Values(kind, np.concatenate(found), tuple(places)[1:])


def _table_with(path: str, names: Sequence[str], options: IngestOptions, use: str) -> Table:
    """A table that has these columns. Raises ConfigError, DataError."""
    format_ = options.format or detect_format(path)
    if format_ not in TABLES:
        raise ConfigError(f"{path}: columns {use} are of a table, found {format_}")
    table = table_of(path, format_, options)
    missing = [name for name in names if name not in table.kinds()]
    if missing:
        table.close()
        raise DataError(f"{path} has no column {missing[0]!r} {use}; it has {listed([*table.kinds()])}")
    return table
