"""What databases are asked for: the rows of a table, or those of a query."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from importlib import import_module
from typing import Any, ClassVar

from streamsvm.data.names import listed
from streamsvm.errors import ConfigError, DataError
from streamsvm.ingest.options import IngestOptions

SELECT = "; expected a table's name, or one SELECT, as --query"
_SELECTS = re.compile(r"[\s(]*(select|with|values|from)\b", re.IGNORECASE)


class Database(ABC):
    """A connection that can only read, closed if it cannot be asked for the rows."""

    FIND: ClassVar[str]  # the names of each `table` or `view`, which takes the place of {0}
    HINT: ClassVar[str] = ""  # to add to errors of FIND
    _connection: Any
    _told: Any  # turns its errors into a DataError

    def __init__(self, path: str, options: IngestOptions) -> None:
        self._path, self._options = path, options
        self._connect()
        try:
            self._ask()
        except Exception:
            self.close()
            raise

    @abstractmethod
    def _connect(self) -> None: ...

    @abstractmethod
    def _ask(self) -> None: ...

    def close(self) -> None:
        self._connection.close()

    def _query(self) -> tuple[str, bool]:
        """The query, and whether it selects a whole table. Raises DataError."""
        with self._told(hint=self.HINT):
            tables, views = (self._names(self.FIND.format(kind)) for kind in ("table", "view"))
        return table_or_query(self._path, self._options.query, tables, views)

    def _names(self, query: str) -> list[str]:
        return [name for (name,) in self._connection.execute(query).fetchall()]


def driver(path: str, what: str, package: str, module: str) -> Any:
    """The module of a package. Raises ConfigError without it."""
    try:
        return import_module(module)
    except ImportError:
        raise ConfigError(
            f"{path}: reading {what} needs the package {package}: pip install {package}"
        ) from None


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
