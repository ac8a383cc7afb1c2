"""SQLite, DuckDB and PostgreSQL databases: a table or the result of a query, read batch by batch and never written.

Each is a `Database` that opens a connection and runs the query of `table_or_query`. SQLite and DuckDB are local files.
PostgreSQL sends its rows through ADBC, in a transaction that cannot write.
"""

from __future__ import annotations

import re
import sqlite3
from bisect import bisect_left
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar, TypeAlias

import numpy as np
import pyarrow as pa

from streamsvm.data.layout import listed
from streamsvm.errors import ConfigError, DataError
from streamsvm.ingest.options import IngestOptions
from streamsvm.ingest.streams import open_raw, with_password
from streamsvm.ingest.table import (
    ARROW_ERRORS,
    ArrowTable,
    Batches,
    Table,
    library_errors,
    require_different,
    rows_at_once,
)
from streamsvm.storage.paths import local_path
from streamsvm.tables.arrow import MISSING, of_integers, of_numbers, of_texts, times

SqlValue: TypeAlias = int | float | str | bytes | None
WHOLE = "; expected a whole database that no other program is writing to"
SELECT = "; expected a table's name, or one SELECT, as --query"
FIRST_ROWS = 1000  # give the kind of a column if its declaration does not
EXACT = 2**53  # float64 holds whole numbers up to here
PATIENCE_S = 2.0  # to wait for a program that is writing
SETTINGS = (  # of PostgreSQL; the last two: rows of a table come in the same order in every pass
    "transaction_read_only = on",
    "synchronize_seqscans = off",
    "max_parallel_workers_per_gather = 0",
)
TYPE = b"ADBC:postgresql:typname"  # of a column that Arrow has no type for, which comes as text
_TEXT, _NUMBER = re.compile("CHAR|CLOB|TEXT"), re.compile("INT|REAL|FLOA|DOUB|NUM|DEC")
_SELECTS = re.compile(r"[\s(]*(select|with|values|from)\b", re.IGNORECASE)


class Database:
    """A connection that can only read, and is closed if the query fails."""

    FIND: ClassVar[str]  # the names of each `table` or `view`, which takes the place of {0}
    HINT: ClassVar[str] = ""  # to add to errors of FIND
    _connection: Any
    _errors: Any  # turns its errors into a DataError

    def __init__(self, path: str, options: IngestOptions) -> None:
        self._path, self._options = path, options
        self._connect()
        try:
            self._ask()
        except Exception:
            self.close()
            raise

    def _connect(self) -> None:
        raise NotImplementedError

    def _ask(self) -> None:
        raise NotImplementedError

    def close(self) -> None:
        self._connection.close()

    def _query(self) -> tuple[str, bool]:
        """The query, and whether it selects a whole table. Raises DataError."""
        with self._errors(hint=self.HINT):
            tables, views = (self._names(self.FIND.format(kind)) for kind in ("table", "view"))
        return table_or_query(self._path, self._options.query, tables, views)

    def _names(self, query: str) -> list[str]:
        return [name for (name,) in self._connection.execute(query).fetchall()]


class Sqlite(Database, Table):
    """A SQLite table or query. SQLite has no times or booleans, and any column may hold any value. The kind of a column
    is the declared one. For times and booleans, and without a declaration (of sums, for example), the first rows give
    it."""

    FIND = "SELECT name FROM sqlite_master WHERE type = '{0}' AND name NOT GLOB 'sqlite_*' ORDER BY name"
    HINT = WHOLE

    def _connect(self) -> None:
        uri = _local(self._path).absolute().as_uri()
        errors, hint = (sqlite3.Error, sqlite3.Warning), _hint(self._options)
        self._errors = partial(library_errors, f"{self._path}: SQLite says", *errors, hint=hint)
        with self._errors(hint=WHOLE):
            self._connection = sqlite3.connect(f"{uri}?mode=ro", uri=True, timeout=PATIENCE_S, check_same_thread=False)

    def _ask(self) -> None:
        self._sql, is_table = self._query()
        if is_table:
            in_order = f"{self._sql} ORDER BY rowid"  # otherwise the order may be that of a covering index
            with suppress(sqlite3.OperationalError):  # a table WITHOUT ROWID is in the order of its key
                self._run(f"{in_order} LIMIT 0")
                self._sql = in_order
        with self._errors():
            # a view accepts only a single SELECT, and knows the declarations of its columns
            self._run(f"CREATE TEMP VIEW streamsvm_rows AS {self._sql}")
            declared = [row[2] for row in self._run("PRAGMA table_info(streamsvm_rows)")]
            cursor = self._run(self._sql)
            first = cursor.fetchmany(FIRST_ROWS)
        names = [column[0] for column in cursor.description]
        require_different(self._path, names)
        self._kinds = {
            name: _kind(type_, [row[j] for row in first if row[j] is not None])
            for j, (name, type_) in enumerate(zip(names, declared, strict=True))
        }

    def _run(self, sql: str) -> sqlite3.Cursor:
        return self._connection.execute(sql)

    def kinds(self) -> dict[str, str]:
        return self._kinds

    def batches(self, types: dict[str, pa.DataType]) -> Batches:
        size, row = rows_at_once(self._options, len(self._kinds)), 1
        with self._errors():
            cursor = self._run(self._sql)
            while rows := cursor.fetchmany(size):
                columns = dict(zip(self._kinds, zip(*rows, strict=True), strict=True))
                arrays = [self._array(name, columns[name], type_, row) for name, type_ in types.items()]
                yield pa.RecordBatch.from_arrays(arrays, [*types])
                row += len(rows)

    def _array(self, name: str, values: Sequence[SqlValue], type_: pa.DataType, row: int) -> pa.Array:
        """A column as this type. Raises DataError naming the first row with another type."""
        kind = self._kinds[name]
        try:
            return _converted(values, kind, type_)
        except (ValueError, TypeError):
            rows = range(len(values))
            at = bisect_left(rows, True, key=lambda i: not _are_like(values[: i + 1], kind, type_))
        wanted = "a time such as 2024-01-31 12:00:00" if pa.types.is_timestamp(type_) else "a number"
        raise DataError(f"{self._path}:{row + at}: column {name!r} is {str(values[at])[:80]!r}; expected {wanted}")


class DuckDb(Database, ArrowTable):
    """A DuckDB table or query, which has types. One thread keeps the order of rows the same in every pass."""

    FIND = "SELECT {0}_name FROM duckdb_{0}s() WHERE NOT internal AND schema_name = 'main' ORDER BY 1"
    HINT = WHOLE

    def _connect(self) -> None:
        duckdb = driver(self._path, "DuckDB databases", "duckdb", "duckdb")
        local, hint = _local(self._path), _hint(self._options)
        self._errors = partial(library_errors, f"{self._path}: DuckDB says", duckdb.Error, *ARROW_ERRORS, hint=hint)
        memory = f"{self._options.memory_limit // 4}B"
        config: dict[str, Any] = {"threads": 1, "memory_limit": memory, "python_enable_replacements": False}
        with self._errors(hint=WHOLE):
            self._connection = duckdb.connect(str(local), read_only=True, config=config)

    def _ask(self) -> None:
        query, _ = self._query()
        with self._errors():
            relation = self._connection.sql(query)
            self._reader = relation.to_arrow_reader(rows_at_once(self._options, len(relation.columns)))
        self._schema = self._reader.schema

    def batches(self, types: dict[str, pa.DataType]) -> Batches:
        with self._errors():
            yield from self._reader


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


def _kind(declared: str, values: list[SqlValue]) -> str:
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
        words = {0: "false", 1: "true"} if kind == "bool" else {}
        return of_texts([None if v is None else words.get(v, str(v)) for v in values])
    if pa.types.is_timestamp(type_):
        return times(of_texts(_with_gaps(values)))
    try:
        numbers = np.array(values, np.float64)  # None becomes NaN
    except ValueError:
        values = _with_gaps(values)
        numbers = np.array(values, np.float64)
    if np.nanmax(np.abs(numbers), initial=0) >= EXACT and all(v is None or isinstance(v, int) for v in values):
        return of_integers(values)
    return of_numbers(numbers)


def _with_gaps(values: Sequence[SqlValue]) -> list[Any]:
    """Values with None for texts that stand for a missing number or time."""
    return [None if isinstance(v, str) and (not v.strip() or v.strip() in MISSING) else v for v in values]


def _are_like(values: Sequence[SqlValue], kind: str, type_: pa.DataType) -> bool:
    try:
        _converted(values, kind, type_)
    except (ValueError, TypeError):
        return False
    return True


class PostgreSql(Database, ArrowTable):
    """A PostgreSQL table or query, which has types; numerics become float64. The server sends rows as they are read."""

    FIND = (
        "SELECT table_name FROM information_schema.tables WHERE table_schema = ANY (current_schemas(false)) "
        "AND (table_type = 'VIEW') = ('{0}' = 'view') ORDER BY 1"
    )

    def _connect(self) -> None:
        package, module = "adbc-driver-postgresql", "adbc_driver_postgresql.dbapi"
        dbapi = driver(self._path, "PostgreSQL", package, module)
        self._errors = partial(library_errors, f"{self._path}: PostgreSQL says", dbapi.Error, *ARROW_ERRORS)
        with self._errors():
            self._connection = dbapi.connect(with_password(self._path))
        self._cursor = self._connection.cursor()

    def _ask(self) -> None:
        from adbc_driver_postgresql import StatementOptions

        size = {StatementOptions.BATCH_SIZE_HINT_BYTES.value: str(self._options.block_bytes)}
        self._cursor.adbc_statement.set_options(**size)
        with self._errors():
            for setting in SETTINGS:
                self._cursor.execute(f"SET {setting}")
        query, _ = self._query()
        with self._errors(hint=SELECT):
            self._cursor.execute(query.rstrip().rstrip(";"))
            self._reader = self._cursor.fetch_record_batch()
        self._schema = pa.schema([_plain_field(field) for field in self._reader.schema])

    def _names(self, query: str) -> list[str]:
        self._cursor.execute(query)
        return [name for (name,) in self._cursor.fetchall()]

    def batches(self, types: dict[str, pa.DataType]) -> Batches:
        with self._errors():
            for batch in self._reader:
                columns = map(_plain, batch.columns, self._schema.types)
                yield pa.RecordBatch.from_arrays([*columns], schema=self._schema)

    def close(self) -> None:
        self._cursor.close()
        super().close()


def _plain_field(field: pa.Field) -> pa.Field:
    """A column's name and the type that it is read as."""
    type_name = (field.metadata or {}).get(TYPE)
    if type_name is None or not pa.types.is_string(getattr(field.type, "storage_type", field.type)):
        return pa.field(field.name, field.type)
    return pa.field(field.name, pa.float64() if type_name == b"numeric" else pa.string())


def _plain(column: pa.Array, type_: pa.DataType) -> pa.Array:
    if column.type == type_:
        return column
    return (column.storage if isinstance(column, pa.ExtensionArray) else column).cast(type_)


def driver(path: str, what: str, package: str, module: str) -> Any:
    """The module of a package. Raises ConfigError without it."""
    try:
        return import_module(module)
    except ImportError:
        raise ConfigError(f"{path}: reading {what} needs the package {package}: pip install {package}") from None


def table_or_query(path: str, query: str | None, tables: list[str], views: list[str]) -> tuple[str, bool]:
    """The query, and whether it selects a whole table. Raises DataError."""
    names = {name.lower(): name for name in (*tables, *views)}
    has = f"it has {listed([*names.values()])}" if names else "it has none"
    if query is None and len(tables) != 1:
        raise DataError(f"{path}: expected one table, {has}; name one, or SELECT rows, by --query")
    table = tables[0] if query is None else names.get(query.lower())
    if table is not None:
        quoted = table.replace('"', '""')
        return f'SELECT * FROM "{quoted}"', table in tables
    assert query is not None
    if not _SELECTS.match(query):
        raise DataError(f"{path} has no table {query!r}{SELECT}; {has}")
    return query, False
