"""One table in every format that can hold it."""

from __future__ import annotations

import csv
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq

COLUMNS = {
    "id": (pa.int64(), "INTEGER"),
    "colour": (pa.string(), "VARCHAR(10)"),
    "size": (pa.float64(), "REAL"),
    "flag": (pa.bool_(), "BOOLEAN"),
    "day": (pa.date32(), "DATE"),
    "said": (pa.string(), "TEXT"),
}
Rows = list[tuple[Any, ...]]


def rows_of(n: int, seed: int = 0) -> Rows:
    """Rows with gaps, of numbers, times, true and false and text."""
    rng = np.random.default_rng(seed)
    rows = []
    for i in range(n):
        colour, size = rng.choice(["red", "blue", "gr,een"]), round(float(rng.normal()), 3)
        said = "yes" if (colour == "red") ^ (size > 0) else "no"
        own = [
            str(colour),
            size,
            bool(rng.random() < 0.5),
            date(2024, 1, 1) + timedelta(int(rng.integers(99))),
        ]
        rows.append((i, *(None if rng.random() < 0.1 else value for value in own), said))
    return rows


def arrow_of(rows: Rows) -> pa.Table:
    columns = [list(column) for column in zip(*rows, strict=True)]
    return pa.table({n: pa.array(v, t) for (n, (t, _)), v in zip(COLUMNS.items(), columns, strict=True)})


def write_csv(path: Path, rows: Rows) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(COLUMNS)
        writer.writerows([str(v).lower() if isinstance(v, bool) else v for v in row] for row in rows)


def write_stream(path: Path, rows: Rows) -> None:
    table = arrow_of(rows)
    with pa.ipc.new_stream(path, table.schema) as writer:
        writer.write_table(table)


def write_sqlite(path: Path, rows: Rows) -> None:
    columns = ", ".join(f"{name} {type_}" for name, (_, type_) in COLUMNS.items())
    own = [[str(v) if isinstance(v, date) else v for v in row] for row in rows]
    with closing(sqlite3.connect(path)) as base, base:
        base.execute(f"CREATE TABLE sales ({columns})")
        base.executemany("INSERT INTO sales VALUES (?, ?, ?, ?, ?, ?)", own)


def write_duckdb(path: Path, rows: Rows) -> None:
    with closing(duckdb.connect(str(path))) as base:
        base.register("rows", arrow_of(rows))
        base.execute("CREATE TABLE sales AS SELECT * FROM rows")


WRITERS: dict[str, Callable[[Path, Rows], Any]] = {
    "sales.csv": write_csv,
    "sales.parquet": lambda path, rows: pq.write_table(arrow_of(rows), path),
    "sales.feather": lambda path, rows: pyarrow.feather.write_feather(arrow_of(rows), path),
    "plain.arrow": lambda path, rows: pyarrow.feather.write_feather(arrow_of(rows), path, "uncompressed"),
    "stream.arrow": write_stream,
    "sales.sqlite": write_sqlite,
    "sqlite.db": write_sqlite,
    "sales.duckdb": write_duckdb,
    "duckdb.db": write_duckdb,
}


def written(folder: Path, rows: Rows) -> Iterator[Path]:
    for name, write in WRITERS.items():
        write(folder / name, rows)
        yield folder / name
