"""Columns of tables by name, next to their rows: as text, or as values."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import chain

import numpy as np
import pyarrow as pa

from streamsvm.data.names import listed
from streamsvm.errors import ConfigError, DataError
from streamsvm.ingest.options import IngestOptions
from streamsvm.ingest.paths import DataFile, files_of
from streamsvm.ingest.streams import TABLES, detect_format
from streamsvm.ingest.table import Batches, Table, arrow_errors
from streamsvm.ingest.tables import READ_AS, table_of
from streamsvm.tables.arrow import as_written, days, numbers, texts


@dataclass(frozen=True)
class ReadColumn:
    """The values of a column of a kind (see `schema.KINDS`). values (n,): numbers, NaN if missing; for text, each row's
    index in `texts`, -1 if missing."""

    kind: str
    values: np.ndarray
    texts: tuple[str, ...] = ()


class OtherColumns:
    """Columns of tables as they are written there, as text to go next to the predictions of their rows."""

    def __init__(self, sources: Sequence[str], names: Sequence[str], options: IngestOptions) -> None:
        """Raises ConfigError if a file is not a table, DataError if it has no such column."""
        self._names, self._tables = names, _Tables(sources, options, "to keep")
        self._table: Table | None = None
        first, *others = self._tables.files
        begun = self._batches_of(first)  # fails before any prediction is written
        self._batches = chain(begun, chain.from_iterable(map(self._batches_of, others)))
        self._rest: pa.RecordBatch | None = None

    def _batches_of(self, file: DataFile) -> Batches:
        self.close()
        self._table = self._tables.opened(file, self._names)
        return self._table.batches(dict.fromkeys(self._names, pa.string()))

    def take(self, rows: int) -> dict[str, np.ndarray]:
        """The columns of the next `rows` rows, by name."""
        pieces: list[pa.RecordBatch] = []
        while rows:
            batch = self._rest or next(self._batches)
            piece, rest = batch.slice(0, rows), batch.slice(rows)
            self._rest = rest if rest.num_rows else None
            rows -= piece.num_rows
            pieces.append(piece)
        empty = np.empty(0, str)
        return {name: np.concatenate([empty, *(as_written(p.column(name)) for p in pieces)]) for name in self._names}

    def close(self) -> None:
        if self._table is not None:
            self._table.close()


def values_of(sources: Sequence[str], name: str, options: IngestOptions) -> ReadColumn:
    """A column of tables, whether or not it is a feature. It is text if the tables differ in its kind. Raises
    ConfigError, DataError."""
    tables, codes = _Tables(sources, options, "to slice by"), {"": -1}
    kinds = {_kind_in(tables, file, name) for file in tables.files}
    kind = kinds.pop() if len(kinds) == 1 else "text"
    values = [batch_values for file in tables.files for batch_values in _values_in(tables, file, name, kind, codes)]
    return ReadColumn(kind, np.concatenate(values), tuple(codes)[1:])


def _kind_in(tables: _Tables, file: DataFile, name: str) -> str:
    with arrow_errors(file.path), closing(tables.opened(file, [name])) as table:
        kind = table.kinds()[name]
    if kind not in READ_AS:
        raise DataError(f"{file.path}: column {name!r} to slice by holds {kind}; expected numbers, times or text")
    return kind


def _values_in(tables: _Tables, file: DataFile, name: str, kind: str, codes: dict[str, int]) -> Iterator[np.ndarray]:
    """`ReadColumn.values` batch by batch. codes: index by text, to which new texts are added."""
    with arrow_errors(file.path), closing(tables.opened(file, [name])) as table:
        line = table.first_line
        for batch in table.batches({name: READ_AS[kind]}):
            column = batch.column(name)
            if kind == "text":
                batch_texts, ids = texts(column)
                yield np.array([codes.setdefault(text, len(codes) - 1) for text in batch_texts])[ids]
            else:
                plain = days(column) if kind == "time" else column
                yield numbers(plain, file.path, name, line, gaps=True)
            line += len(column)


class _Tables:
    """Files of one format, which is detected once. Some of their columns are read for a separate use."""

    def __init__(self, sources: Sequence[str], options: IngestOptions, use: str) -> None:
        """Raises ConfigError for files that are not tables."""
        self.files, self._options, self._use = files_of(sources), options, use
        path = self.files[0].path
        self._format = options.format or detect_format(path)
        if self._format not in TABLES:
            raise ConfigError(f"{path}: columns {use} need a table, found {self._format}")

    def opened(self, file: DataFile, names: Sequence[str]) -> Table:
        """A table that has these columns. Raises DataError."""
        table = table_of(file, self._format, self._options)
        has = [*table.kinds()]
        missing = [name for name in names if name not in has]
        if missing:
            table.close()
            raise DataError(f"{file.path} has no column {missing[0]!r} {self._use}; it has {listed(has)}")
        return table
