"""The interface of a table, for any file or database."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType
from typing import NamedTuple, Protocol

import pyarrow as pa

from streamsvm.errors import DataError
from streamsvm.ingest.options import IngestOptions
from streamsvm.storage.text import as_names
from streamsvm.tables.arrow import kind_of
from streamsvm.tables.schema import KindChanged

Batches = Iterator[pa.RecordBatch]
ARROW_ERRORS = (pa.ArrowInvalid, OSError)


class ColumnHints(NamedTuple):
    """Facts about columns from earlier files or passes. whole: columns whose kind follows from all rows, because their
    first rows were misleading, with the value that showed it. has_commas: whether numbers have decimal commas."""

    whole: Mapping[str, str] = MappingProxyType({})
    has_commas: bool = False


NO_HINTS = ColumnHints()


def unlike(path: str, line: int, column: str, value: str, expected: str, hints: ColumnHints) -> DataError:
    """The error for a value that is not of its column's type."""
    name, shown = as_names(column), value[:80]
    message = f"{path}:{line}: column {column!r}: expected {expected}, found {shown!r}"
    remedy = f"--missing {as_names(shown)} reads it as a missing value"
    if column in hints.whole:
        return DataError(f"{message}; {remedy}")
    return KindChanged(f"{message}; {remedy}, --text {name} the column as text", column, value)


class Table(Protocol):
    """Rows with named columns, read batch by batch.

    first_line: of the first row. has_commas: whether its numbers have decimal commas. remarks: warnings about how it is
    read.
    """

    first_line: int = 1
    has_commas: bool = False
    remarks: Sequence[str] = ()

    def kinds(self) -> dict[str, str]:
        """The kind of each column: `number`, `bool`, `time`, `text`, or the name of another type."""

    def row_numbers(self) -> set[str]:
        """Columns with row numbers."""
        return set()

    def written(self) -> dict[str, pa.DataType]:
        """Columns of numbers that are texts in the file, such as 1 and 001, and the types that they seem to have."""
        return {}

    def batches(self, types: dict[str, pa.DataType]) -> Batches:
        """All rows once, with at least these columns, in these types if the table does not set types."""

    def close(self) -> None: ...


class ArrowTable(Table):
    """A table described by an Arrow schema."""

    _path: str
    _schema: pa.Schema

    def kinds(self) -> dict[str, str]:
        require_different(self._path, self._schema.names)
        return {f.name: kind_of(f.type) for f in self._schema}

    def row_numbers(self) -> set[str]:
        index = (self._schema.pandas_metadata or {}).get("index_columns", [])
        return {name for name in index if isinstance(name, str)}


def rows_at_once(options: IngestOptions, columns: int) -> int:
    """Rows of a batch, by the memory of a block."""
    return max(1, options.block_bytes // (8 * max(1, columns)))


def require_different(path: str, names: list[str], hint: str = "") -> None:
    """Raises DataError if two columns have the same name."""
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise DataError(f"{path} has two columns named {twice[0]!r}; expected different names{hint}")


def one_line(error: Exception) -> str:
    """The message of an error of a library on one line."""
    return " ".join(str(error).split())[:200]


@contextmanager
def library_errors(what: str, *errors: type[Exception], hint: str = "") -> Iterator[None]:
    """Converts these errors of a library to a DataError of one line, which begins with `what`."""
    try:
        yield
    except errors as error:
        raise DataError(f"{what}: {one_line(error)}{hint}") from error


@contextmanager
def arrow_errors(path: str) -> Iterator[None]:
    """Converts Arrow's errors of a text file, with its `Row #n` as a line number. Raises DataError."""
    try:
        yield
    except pa.ArrowInvalid as error:
        text = one_line(error)
        if "invalid UTF8" in text:
            text += "; expected UTF-8, try `iconv -f LATIN1 -t UTF-8`"
        row = re.search(r"Row #(\d+): ", text)
        where = f"{path}:{row[1]}" if row else path
        raise DataError(f"{where}: {text.replace(row[0], '') if row else text}") from error
