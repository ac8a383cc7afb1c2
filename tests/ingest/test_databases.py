"""Tables in databases and Arrow files: the same rows as in CSV, in bounded memory, or one line that says what is
wrong."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import tracemalloc
from contextlib import closing

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from every_case import every_case
from tabled import WRITERS, rows_of, write_csv, write_duckdb, write_sqlite

from streamsvm.data.store import Store
from streamsvm.errors import ConfigError, DataError, NotFoundError
from streamsvm.ingest import databases
from streamsvm.ingest.files import ingest
from streamsvm.ingest.options import IngestOptions
from streamsvm.ingest.paths import DataFile
from streamsvm.ingest.streams import detect_format
from streamsvm.ingest.tables import table_of


@pytest.fixture
def small_blocks(monkeypatch):
    monkeypatch.setattr(IngestOptions, "block_bytes", 4096)


def load(path, **options):
    ingest([path], path.parent / "s", IngestOptions(force=True, **options))
    return Store.open(path.parent / "s")


def whole(store):
    return store.read(0, store.n).dense()


def filled(path, *statements):
    with closing(sqlite3.connect(path) if path.suffix == ".sqlite" else duckdb.connect(str(path))) as base:
        for statement in statements:
            base.execute(statement)
        base.commit()
    return path


@pytest.mark.parametrize("name", WRITERS)
def test_a_table_is_the_same_store_in_every_format(tmp_path, name, small_blocks):
    rows = rows_of(300)
    write_csv(tmp_path / "sales.csv", rows)
    plain = load(tmp_path / "sales.csv")
    expected = whole(plain), plain.labels(0, 300), plain.attrs["columns"]
    assert [column["kind"] for column in expected[2] if "kind" in column] == ["bool", "time"]
    WRITERS[name](tmp_path / name, rows)
    store = load(tmp_path / name)
    assert whole(store).tobytes() == expected[0].tobytes()
    assert store.labels(0, 300).tolist() == expected[1].tolist()
    assert store.attrs["columns"] == expected[2]
    assert np.isnan(expected[0]).any()


@pytest.mark.parametrize("name", [name for name in WRITERS if name != "sales.csv"])
def test_tables_come_in_batches(tmp_path, name, small_blocks):
    WRITERS[name](tmp_path / name, rows_of(300))
    file, options = DataFile(str(tmp_path / name), {}), IngestOptions()
    with closing(table_of(file, detect_format(file.path), options)) as table:
        counts = [
            batch.num_rows for batch in table.batches({"id": pa.string(), "size": pa.float64()}) if batch.num_rows
        ]
    assert sum(counts) == 300
    assert max(counts) <= 4096 // 16


def test_sqlite_is_never_read_whole(tmp_path, monkeypatch):
    monkeypatch.setattr(IngestOptions, "block_bytes", 1 << 14)
    many = "WITH RECURSIVE c(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM c WHERE i < 20000)"
    path = filled(tmp_path / "a.sqlite", f"CREATE TABLE t AS {many} SELECT i, printf('%0200d', i) AS s, 0 AS y FROM c")
    with closing(table_of(DataFile(str(path), {}), "sqlite", IngestOptions())) as table:
        tracemalloc.start()
        n = sum(batch.num_rows for batch in table.batches(dict.fromkeys("isy", pa.string())))
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert n == 20_000
    assert peak < 1 << 20  # of 5 MB of text alone


@pytest.mark.parametrize("suffix", ["sqlite", "duckdb"])
class TestQueries:
    def base(self, folder, suffix):
        return filled(
            folder / f"a.{suffix}",
            "CREATE TABLE t (a INTEGER, b REAL, y INTEGER)",
            "INSERT INTO t VALUES (3, 0.5, 1), (1, 1.5, 0), (2, 2.5, 1)",
            'CREATE TABLE "other ""one" (a INTEGER, y INTEGER)',
            'INSERT INTO "other ""one" VALUES (7, 1)',
            "CREATE VIEW v AS SELECT b, y FROM t WHERE a < 3",
        )

    @every_case(
        ("query", "X"),
        [
            ("t", [[3, 0.5], [1, 1.5], [2, 2.5]]),
            ("T", [[3, 0.5], [1, 1.5], [2, 2.5]]),
            ('other "one', [[7]]),
            ("v", [[1.5], [2.5]]),
            ("SELECT a * 2 AS a, y FROM t ORDER BY a", [[2], [4], [6]]),
            ("  with u as (select a, y from t) select * from u where y = 1;", [[3], [2]]),
        ],
    )
    def test_a_table_or_a_select(self, tmp_path, suffix, query, X):
        np.testing.assert_array_equal(whole(load(self.base(tmp_path, suffix), query=query)), X)

    @every_case(
        ("query", "message"),
        [
            (
                None,
                "expected one table, it has 'other \"one', 't', 'v'; name one, or SELECT rows, by --query",
            ),
            ("u", "has no table 'u'; expected a table's name, or one SELECT, as --query; it has 'other"),
            ("DELETE FROM t", "has no table 'DELETE FROM t'; expected a table's name, or one SELECT"),
            ("SELECT FROM t WHERE", "says: .*syntax error.*; expected a table's name, or one SELECT, as"),
            ("SELECT nope FROM t", "says: .*nope.*; expected a table's name, or one SELECT, as --query"),
            ("SELECT * FROM nope", "says: .*nope.*; expected a table's name, or one SELECT, as --query"),
            ("SELECT a, y FROM t WHERE a > 9", "has no samples; expected at least one"),
        ],
    )
    def test_what_is_wrong_is_one_line(self, tmp_path, suffix, query, message):
        path = self.base(tmp_path, suffix)
        with pytest.raises(DataError, match=message) as error:
            load(path, query=query)
        assert str(error.value).startswith(str(path))
        assert "\n" not in str(error.value)
        assert not (tmp_path / "s").exists()

    def test_nothing_is_written(self, tmp_path, suffix):
        path = self.base(tmp_path, suffix)
        before = path.read_bytes()
        load(path, query="t")
        assert path.read_bytes() == before
        assert {p.name for p in tmp_path.iterdir()} == {path.name, "s"}

    def test_a_base_without_tables(self, tmp_path, suffix):
        path = filled(tmp_path / f"a.{suffix}", "CREATE TABLE t (a INTEGER)", "DROP TABLE t")
        with pytest.raises(DataError, match="expected one table, it has none"):
            load(path)

    def test_an_empty_table(self, tmp_path, suffix):
        path = filled(tmp_path / f"a.{suffix}", "CREATE TABLE t (a INTEGER, y INTEGER)")
        with pytest.raises(DataError, match="has no samples; expected at least one"):
            load(path)

    def test_what_is_no_whole_base(self, tmp_path, suffix):
        path = tmp_path / f"a.{suffix}"
        with pytest.raises(NotFoundError, match="does not exist"):
            load(path)
        path.write_text("a,y\n1,0\n" * 200)
        with pytest.raises(DataError, match=f"{path}: .* says: .*; expected a whole database"):
            load(path)
        path.unlink()
        (write_sqlite if suffix == "sqlite" else write_duckdb)(path, rows_of(3000))
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
        with pytest.raises(DataError, match=f"{path}: .* says: "):
            load(path)
        assert not (tmp_path / "s").exists()

    def test_a_base_of_an_object_store(self, suffix):
        with pytest.raises(ConfigError, match="found a URL of a database, expected a local file"):
            ingest([f"memory://a.{suffix}"], "s")


def test_a_query_is_of_databases(tmp_path):
    write_csv(tmp_path / "a.csv", rows_of(3))
    with pytest.raises(ConfigError, match="--query applies to databases, found csv; leave it out"):
        load(tmp_path / "a.csv", query="t")


def test_sqlite_that_is_locked(tmp_path, monkeypatch):
    monkeypatch.setattr(databases, "PATIENCE_S", 0.01)
    write_sqlite(tmp_path / "a.sqlite", rows_of(3))
    with closing(sqlite3.connect(tmp_path / "a.sqlite")) as other:
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(DataError, match="SQLite says: database is locked; expected .* no other program"):
            load(tmp_path / "a.sqlite")


def test_duckdb_that_is_locked(tmp_path):
    write_duckdb(tmp_path / "a.duckdb", rows_of(3))
    hold = f"import duckdb\nbase = duckdb.connect({str(tmp_path / 'a.duckdb')!r})\nprint(flush=True)\ninput()"
    with subprocess.Popen([sys.executable, "-c", hold], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout.readline()
        with pytest.raises(DataError, match="DuckDB says: .*lock.*; expected .* no other program"):
            load(tmp_path / "a.duckdb")
        other.communicate(b"\n")


def test_duckdb_that_is_not_installed(tmp_path, monkeypatch):
    write_duckdb(tmp_path / "a.duckdb", rows_of(3))
    monkeypatch.setitem(sys.modules, "duckdb", None)
    with pytest.raises(ConfigError, match="reading DuckDB databases needs the package duckdb: pip install duckdb"):
        load(tmp_path / "a.duckdb")


def test_rows_of_sqlite_come_in_the_order_of_their_numbers(tmp_path):
    """Which an index of all columns has otherwise."""
    path = filled(
        tmp_path / "a.sqlite",
        "CREATE TABLE t (a INTEGER, y INTEGER)",
        "INSERT INTO t VALUES (3, 0), (1, 1), (2, 0)",
        "CREATE INDEX by_a ON t (a, y)",
    )
    assert whole(load(path)).ravel().tolist() == [3, 1, 2]
    keyed = filled(
        tmp_path / "b.sqlite",
        "CREATE TABLE t (a INTEGER PRIMARY KEY, y INTEGER) WITHOUT ROWID",
        "INSERT INTO t VALUES (3, 0), (1, 1), (2, 0)",
    )
    assert whole(load(keyed)).ravel().tolist() == [1, 2, 3]


@every_case(
    ("declared", "values", "kind", "X"),
    [
        ("DATETIME", ["1970-01-02 12:00:00", "1970-01-01T06:00:00.000"], "time", [1.5, 0.25]),
        ("TIMESTAMP", ["1970-01-02T00:00:00Z", "1970-01-02T00:00:00+02:00"], "time", [1, 1 - 2 / 24]),
        ("DATE", [3, 4.5], None, [3, 4.5]),
        ("BOOLEAN", [1, 0], "bool", [1, 0]),
        ("BOOLEAN", [1, 2], None, [1, 2]),
        ("", [1, 2.5], None, [1, 2.5]),
        ("DECIMAL(8, 2)", ["1.25", 2], None, [1.25, 2]),
        ("REAL", [1.5, "", "NA", " "], None, [1.5, np.nan, np.nan, np.nan]),
        ("DATE", ["1970-01-02", "", "n/a"], "time", [1, np.nan, np.nan]),
        ("", [1, "", "2.5"], None, [1, np.nan, 2.5]),
    ],
)
def test_kinds_of_sqlite(tmp_path, declared, values, kind, X):
    path = filled(tmp_path / "a.sqlite", f"CREATE TABLE t (a {declared}, y INTEGER)")
    with closing(sqlite3.connect(path)) as base, base:
        base.executemany("INSERT INTO t VALUES (?, 0)", [(value,) for value in values])
    store = load(path)
    [column] = store.attrs["columns"]
    assert {name: own for name, own in column.items() if name != "from_text"} == {"name": "a"} | (
        {"kind": kind} if kind else {}
    )
    np.testing.assert_allclose(whole(store).ravel(), X, rtol=1e-7)


@pytest.mark.parametrize(
    ("declared", "first", "last", "message"),
    [
        ("INTEGER", 1, "many", ":1002: column 'a' is 'many'; expected a number"),
        ("", 1, "?", ":1002: column 'a' is '\\?'; expected a number"),
        ("DATE", "2024-01-01", "soon", ":1002: column 'a' is 'soon'; expected a time such as 2024-01-31"),
        ("BLOB", b"1", b"2", "column 'a' holds blob; expected numbers, times or text"),
    ],
)
def test_values_of_sqlite_that_are_others(tmp_path, declared, first, last, message):
    path = filled(tmp_path / "a.sqlite", f"CREATE TABLE t (a {declared}, y INTEGER)")
    with closing(sqlite3.connect(path)) as base, base:
        base.executemany("INSERT INTO t VALUES (?, 0)", [(first,)] * 1001 + [(last,)])
    with pytest.raises(DataError, match=message):
        load(path)


@pytest.mark.parametrize("cut", [0.5, 0.0])
def test_arrow_files_that_are_cut_off(tmp_path, cut):
    for name in ("sales.feather", "plain.arrow", "stream.arrow"):
        path = tmp_path / name
        WRITERS[name](path, rows_of(300))
        path.write_bytes(path.read_bytes()[: int(cut * path.stat().st_size)])
        with pytest.raises(DataError, match=f"{path} is (not a whole Arrow file|damaged): "):
            load(path)


def test_tables_with_gaps_and_times_do_without_pandas(tmp_path):
    """Which takes as long to import as all else."""
    write_csv(tmp_path / "a.csv", rows_of(20))
    write_sqlite(tmp_path / "a.sqlite", rows_of(20))
    code = (
        "import sys\nfrom streamsvm.ingest.files import ingest\n"
        "for name in ('a.csv', 'a.sqlite'):\n    ingest([name], f'{name}.zarr')\n"
        "assert 'pandas' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=tmp_path)
