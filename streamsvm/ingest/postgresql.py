"""PostgreSQL databases: a table or the result of a query, streamed through ADBC in a transaction that cannot write."""

from __future__ import annotations

from functools import partial

import pyarrow as pa

from streamsvm.ingest.queries import SELECT, Database, driver
from streamsvm.ingest.servers import with_password
from streamsvm.ingest.table import ARROW_ERRORS, Batches, OfSchema, told

SETTINGS = (  # the last two: rows of a table come in the same order in every pass
    "transaction_read_only = on",
    "synchronize_seqscans = off",
    "max_parallel_workers_per_gather = 0",
)
TYPE = b"ADBC:postgresql:typname"  # of a column that Arrow has no type for, which comes as text


class PostgreSql(Database, OfSchema):
    """A PostgreSQL table or query, which has types; numerics become float64. The server sends rows as they are read."""

    FIND = (
        "SELECT table_name FROM information_schema.tables WHERE table_schema = ANY (current_schemas(false)) "
        "AND (table_type = 'VIEW') = ('{0}' = 'view') ORDER BY 1"
    )

    def _connect(self) -> None:
        package, module = "adbc-driver-postgresql", "adbc_driver_postgresql.dbapi"
        dbapi = driver(self._path, "PostgreSQL", package, module)
        self._told = partial(told, f"{self._path}: PostgreSQL says", dbapi.Error, *ARROW_ERRORS)
        with self._told():
            self._connection = dbapi.connect(with_password(self._path))
        self._cursor = self._connection.cursor()

    def _ask(self) -> None:
        from adbc_driver_postgresql import StatementOptions

        size = {StatementOptions.BATCH_SIZE_HINT_BYTES.value: str(self._options.block_bytes)}
        self._cursor.adbc_statement.set_options(**size)
        with self._told():
            for setting in SETTINGS:
                self._cursor.execute(f"SET {setting}")
        query, _ = self._query()
        with self._told(hint=SELECT):
            self._cursor.execute(query.rstrip().rstrip(";"))
            self._reader = self._cursor.fetch_record_batch()
        self._schema = pa.schema([_plain_field(field) for field in self._reader.schema])

    def _names(self, query: str) -> list[str]:
        self._cursor.execute(query)
        return [name for (name,) in self._cursor.fetchall()]

    def batches(self, types: dict[str, pa.DataType]) -> Batches:
        with self._told():
            for batch in self._reader:
                columns = map(_plain, batch.columns, self._schema.types)
                yield pa.RecordBatch.from_arrays([*columns], schema=self._schema)

    def close(self) -> None:
        self._cursor.close()
        super().close()


def _plain_field(field: pa.Field) -> pa.Field:
    """A column's name and the type that it is read as."""
    own = (field.metadata or {}).get(TYPE)
    if own is None or not pa.types.is_string(getattr(field.type, "storage_type", field.type)):
        return pa.field(field.name, field.type)
    return pa.field(field.name, pa.float64() if own == b"numeric" else pa.string())


def _plain(column: pa.Array, type_: pa.DataType) -> pa.Array:
    if column.type == type_:
        return column
    return (column.storage if isinstance(column, pa.ExtensionArray) else column).cast(type_)
