"""SQLite and DuckDB databases: a table or the result of a query, read batch by batch and never written."""

from __future__ import annotations

import re
import sqlite3
from bisect import bisect_left
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from streamsvm.data.arrow import of_numbers, of_texts
from streamsvm.data.ingest.options import IngestOptions
from streamsvm.data.ingest.streams import open_raw
from streamsvm.data.ingest.table import ARROW_ERRORS, Batches, OfSchema, require_different, rows_at_once, told
from streamsvm.data.names import listed
from streamsvm.errors import ConfigError, DataError
from streamsvm.storage.paths import local_path

WHOLE = "; expected a whole database that no other program is writing to"
SELECT = "; expected a table's name, or one SELECT, as --query"
FIRST_ROWS = 1000  # give the kind of a column if its declaration does not
PATIENCE_S = 2.0  # to wait for a program that is writing
_SELECTS = re.compile(r"[\s(]*(select|with|values|from)\b", re.IGNORECASE)
_TEXT, _NUMBER = re.compile("CHAR|CLOB|TEXT"), re.compile("INT|REAL|FLOA|DOUB|NUM|DEC")


class Sqlite:
    """A SQLite table or query. SQLite has no times or booleans, and any column may hold any value. The kind of a column
    is the declared one. For times and booleans, and without a declaration (of sums, for example), the first rows give
    it."""

    def __init__(self, path: str, options: IngestOptions) -> None:
        self._path, self._options = path, options
        uri = _local(path).absolute().as_uri()
        self._told = partial(
            told, f"{path}: SQLite says", sqlite3.Error, sqlite3.Warning, hint=_hint(options)
        )
        with self._told(hint=WHOLE):
            self._connection = sqlite3.connect(
                f"{uri}?mode=ro", uri=True, timeout=PATIENCE_S, check_same_thread=False
            )
        try:
            self._sql = self._query()
            self._kinds = self._kinds_of_rows()
        except Exception:
            self.close()
            raise

    def _query(self) -> str:
        find = "SELECT name FROM sqlite_master WHERE type = ? AND name NOT GLOB 'sqlite_*' ORDER BY name"
        with self._told(hint=WHOLE):
            tables, views = ([name for (name,) in self._run(find, type_)] for type_ in ("table", "view"))
        query, is_table = table_or_query(self._path, self._options.query, tables, views)
        if not is_table:
            return query
        in_order = f"{query} ORDER BY rowid"  # otherwise the order may be that of a covering index
        try:
            self._run(f"{in_order} LIMIT 0")
        except sqlite3.OperationalError:  # a table WITHOUT ROWID is in the order of its key
            return query
        return in_order

    def _kinds_of_rows(self) -> dict[str, str]:
        with self._told():
            # a view accepts only a single SELECT, and knows the declarations of its columns
            self._run(f"CREATE TEMP VIEW streamsvm_rows AS {self._sql}")
            declared = [row[2] for row in self._run("PRAGMA table_info(streamsvm_rows)")]
            cursor = self._run(self._sql)
            first = cursor.fetchmany(FIRST_ROWS)
        names = [column[0] for column in cursor.description]
        require_different(self._path, names)
        return {
            name: _kind(type_, [row[j] for row in first if row[j] is not None])
            for j, (name, type_) in enumerate(zip(names, declared, strict=True))
        }

    def _run(self, sql: str, *values: str) -> sqlite3.Cursor:
        return self._connection.execute(sql, values)

    def kinds(self) -> dict[str, str]:
        return self._kinds

    def row_numbers(self) -> set[str]:
        return set()

    def batches(self, types: dict[str, pa.DataType]) -> Batches:
        size, row = rows_at_once(self._options, len(self._kinds)), 1
        with self._told():
            cursor = self._run(self._sql)
            while rows := cursor.fetchmany(size):
                columns = dict(zip(self._kinds, zip(*rows, strict=True), strict=True))
                arrays = [self._array(name, columns[name], type_, row) for name, type_ in types.items()]
                yield pa.RecordBatch.from_arrays(arrays, [*types])
                row += len(rows)

    def _array(self, name: str, values: Sequence[Any], type_: pa.DataType, row: int) -> pa.Array:
        """A column as this type. Raises DataError naming the first row with another type."""
        kind = self._kinds[name]
        try:
            return _converted(values, kind, type_)
        except (ValueError, TypeError):
            rows = range(len(values))
            at = bisect_left(rows, True, key=lambda i: not _are_like(values[: i + 1], kind, type_))
        wanted = "a time such as 2024-01-31 12:00:00" if pa.types.is_timestamp(type_) else "a number"
        raise DataError(
            f"{self._path}:{row + at}: column {name!r} is {str(values[at])[:80]!r}; expected {wanted}"
        )

    def close(self) -> None:
        self._connection.close()


class DuckDb(OfSchema):
    """A DuckDB table or query, which has types. One thread keeps the order of rows the same in every pass."""

    def __init__(self, path: str, options: IngestOptions) -> None:
        try:
            import duckdb
        except ImportError:
            raise ConfigError(
                f"{path}: reading DuckDB databases needs the package duckdb: pip install duckdb"
            ) from None
        self._path, local = path, _local(path)
        self._told = partial(told, f"{path}: DuckDB says", duckdb.Error, *ARROW_ERRORS, hint=_hint(options))
        memory = f"{options.memory_limit // 4}B"
        config: dict[str, Any] = {"threads": 1, "memory_limit": memory, "python_enable_replacements": False}
        with self._told(hint=WHOLE):
            self._connection = duckdb.connect(str(local), read_only=True, config=config)
        try:
            self._reader = self._rows(options)
        except Exception:
            self.close()
            raise
        self._schema = self._reader.schema

    def _rows(self, options: IngestOptions) -> pa.RecordBatchReader:
        find = "SELECT {0}_name FROM duckdb_{0}s() WHERE NOT internal AND schema_name = 'main' ORDER BY 1"
        with self._told(hint=WHOLE):
            tables, views = (
                [name for (name,) in self._connection.sql(find.format(what)).fetchall()]
                for what in ("table", "view")
            )
        query, _ = table_or_query(self._path, options.query, tables, views)
        with self._told():
            found = self._connection.sql(query)
            return found.to_arrow_reader(rows_at_once(options, len(found.columns)))

    def batches(self, types: dict[str, pa.DataType]) -> Batches:
        with self._told():
            yield from self._reader

    def close(self) -> None:
        self._connection.close()


def _hint(options: IngestOptions) -> str:
    """The expectation to add to errors of the query, once the database is open."""
    return WHOLE if options.query is None else SELECT


def _local(path: str) -> Path:
    """Raises ConfigError, NotFoundError, DataError."""
    local = local_path(path)
    if local is None:
        raise ConfigError(f"{path}: found a URL of a database, expected a local file; download it")
    open_raw(path).close()  # raises an error if the file does not exist
    return local


def table_or_query(path: str, wanted: str | None, tables: list[str], views: list[str]) -> tuple[str, bool]:
    """The query, and whether it selects a whole table. Raises DataError."""
    names = {name.lower(): name for name in (*tables, *views)}
    has = f"it has {listed([*names.values()])}" if names else "it has none"
    if wanted is None and len(tables) != 1:
        raise DataError(f"{path}: expected one table, {has}; name one, or SELECT rows, by --query")
    table = tables[0] if wanted is None else names.get(wanted.lower())
    if table is not None:
        quoted = table.replace('"', '""')
        return f'SELECT * FROM "{quoted}"', table in tables
    assert wanted is not None
    if not _SELECTS.match(wanted):
        raise DataError(f"{path} has no table {wanted!r}{SELECT}; {has}")
    return wanted, False


def _kind(declared: str, values: list[Any]) -> str:
    """The kind of a SQLite column, from its declaration and its values in the first rows."""
    declared = declared.upper()
    if "BOOL" in declared and all(value in (0, 1) for value in values):
        return "bool"
    if ("DATE" in declared or "TIME" in declared) and _are_like(values, "time", pa.timestamp("us")):
        return "time"
    if _TEXT.search(declared):
        return "text"
    if _NUMBER.search(declared) or all(isinstance(value, int | float) for value in values):
        return "number"
    return "blob" if any(isinstance(value, bytes) for value in values) else "text"


def _converted(values: Sequence[Any], kind: str, type_: pa.DataType) -> pa.Array:
    """SQLite values as an Arrow array. Raises ValueError, TypeError."""
    if pa.types.is_string(type_):
        own = {0: "false", 1: "true"} if kind == "bool" else {}
        return of_texts([None if v is None else own.get(v, str(v)) for v in values])
    if pa.types.is_timestamp(type_):
        return _times(of_texts(values))
    return of_numbers(np.array(values, np.float64))  # None becomes NaN


def _times(texts: pa.Array) -> pa.Array:
    try:
        return texts.cast(pa.timestamp("us"))
    except pa.ArrowInvalid:
        return texts.cast(pa.timestamp("us", "UTC"))


def _are_like(values: Sequence[Any], kind: str, type_: pa.DataType) -> bool:
    try:
        _converted(values, kind, type_)
    except (ValueError, TypeError):
        return False
    return True
