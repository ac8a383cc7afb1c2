"""Databases at URLs: SQLite and DuckDB are files, PostgreSQL is a server, whose password is written nowhere."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from contextlib import closing
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tabled import arrow_of, rows_of, write_csv, write_duckdb, write_sqlite

from streamsvm.cli.app import app, exit_status
from streamsvm.data.store import Store
from streamsvm.errors import ConfigError, DataError
from streamsvm.ingest.files import ingest
from streamsvm.ingest.options import IngestOptions
from streamsvm.ingest.paths import DataFile
from streamsvm.ingest.streams import with_password, without_password
from streamsvm.ingest.tables import table_of

PASSWORD = "s3cret-of-me"
TABLES = (
    'CREATE TABLE "other ""one" (a integer, cost numeric(10, 2), y text)',
    "INSERT INTO \"other \"\"one\" VALUES (1, 0.25, 'no'), (NULL, NULL, 'yes'), (3, 'NaN', 'no')",
    "CREATE VIEW seen AS SELECT size, flag, said FROM sales WHERE id < 50 ORDER BY id",
    "CREATE TABLE odd AS SELECT gen_random_uuid() AS id, 1 AS y",
)


@pytest.fixture(scope="module")
def server():
    """A server with tables: its URL with the password, without it, and a connection that may write."""
    if shutil.which("initdb") is None:
        pytest.skip("needs PostgreSQL's initdb and pg_ctl on the path")
    dbapi = pytest.importorskip("adbc_driver_postgresql.dbapi", reason="needs the extra postgresql")

    with closing(socket.create_server(("127.0.0.1", 0))) as free:
        port = free.getsockname()[1]
    plain = f"postgresql://me@127.0.0.1:{port}/postgres"
    url = plain.replace("@", f":{PASSWORD}@")
    settings = f"-p {port} -c listen_addresses=127.0.0.1 -c unix_socket_directories= -c fsync=off"
    with TemporaryDirectory() as folder:  # not below pytest's, which other users cannot enter
        user = "postgres" if os.getuid() == 0 else None  # the server refuses root
        if user is not None:
            shutil.chown(folder, user)
        Path(folder, "password").write_text(PASSWORD, encoding="utf-8")
        start = partial(subprocess.run, check=True, cwd=folder, stdout=subprocess.DEVNULL, user=user)
        start(["initdb", "-D", "db", "-A", "scram-sha-256", "-U", "me", "--pwfile=password", "--no-sync"])
        start(["pg_ctl", "-D", "db", "-w", "-l", "log", "-o", settings, "start"])
        try:
            with closing(dbapi.connect(url)) as writes, closing(writes.cursor()) as cursor:
                cursor.adbc_ingest("sales", arrow_of(rows_of(300)))
                for statement in TABLES:
                    cursor.execute(statement)
                writes.commit()
                yield SimpleNamespace(url=url, plain=plain, writes=writes)
        finally:
            start(["pg_ctl", "-D", "db", "-m", "immediate", "stop"])


def run(*words):
    return exit_status(lambda: app([str(word) for word in words], standalone_mode=False))


def loaded(source, folder, **options):
    ingest([source], folder / "s", IngestOptions(force=True, **options))
    return Store.open(folder / "s")


def whole(store):
    return store.read(0, store.n).dense()


def test_a_table_of_a_server_is_that_of_a_file(server, tmp_path, monkeypatch):
    monkeypatch.setattr(IngestOptions, "block_bytes", 4096)
    write_csv(tmp_path / "sales.csv", rows_of(300))
    expected = loaded(tmp_path / "sales.csv", tmp_path)
    X, y, columns = whole(expected), expected.y.tolist(), expected.attrs["columns"]
    store = loaded(server.url, tmp_path, query="sales")
    assert whole(store).tobytes() == X.tobytes()
    assert (store.y.tolist(), store.attrs["columns"]) == (y, columns)
    with closing(table_of(DataFile(server.plain, {}), "postgresql", IngestOptions(query="sales"))) as table:
        counts = [batch.num_rows for batch in table.batches(dict.fromkeys(("id", "said"), pa.string()))]
    assert sum(counts) == 300
    assert max(counts) < 100


@pytest.mark.parametrize(
    ("query", "X"),
    [
        ('other "one', [[1, 0.25], [np.nan, np.nan], [3, np.nan]]),
        ('SELECT cost, y FROM "other ""one" WHERE a > 0 ORDER BY a DESC;', [[np.nan], [0.25]]),
    ],
)
def test_a_table_or_a_select_with_numerics(server, query, X, tmp_path):
    np.testing.assert_array_equal(whole(loaded(server.url, tmp_path, query=query)), X)


@pytest.mark.parametrize(
    ("query", "message"),
    [
        (None, "expected one table, it has 'odd', 'other \"one', 'sales', 'seen'; name one, or SELECT rows"),
        ("nope", "has no table 'nope'; expected a table's name, or one SELECT, as --query; it has"),
        ("SELECT nope FROM sales", 'PostgreSQL says: .*column "nope" does not exist.*; expected a table\'s'),
        ("SELECT 1 AS a; SELECT 2", "PostgreSQL says: .*multiple commands"),
        ("WITH gone AS (DELETE FROM sales RETURNING *) SELECT * FROM gone", "says: .*read-only"),
        ("odd", "column 'id' holds .*; expected numbers, times or text"),
        ("SELECT id, said FROM sales WHERE id < 0", "has no samples; expected at least one"),
    ],
)
def test_what_is_wrong_is_one_line(server, query, message, tmp_path):
    with pytest.raises(DataError, match=message) as error:
        loaded(server.url, tmp_path, query=query)
    assert str(error.value).startswith(server.plain)
    assert "\n" not in str(error.value)
    assert PASSWORD not in str(error.value)


def test_a_server_that_does_not_answer_is_one_line(server, tmp_path):
    for url in (server.url.replace(PASSWORD, "wrong"), "postgresql://me:wrong@127.0.0.1:1/postgres"):
        with pytest.raises(DataError, match="PostgreSQL says: .*(authentication failed|refused)") as error:
            loaded(url, tmp_path)
        assert "\n" not in str(error.value)
        assert "wrong" not in str(error.value)
    with pytest.raises(ConfigError, match="^postgresql://127.0.0.1: found a password among the parameters"):
        loaded(f"postgresql://127.0.0.1/x?user=me&password={PASSWORD}", tmp_path)
    loaded(server.url, tmp_path, query="sales")  # which the right password still opens


def test_commands_read_it_again_and_write_no_password(server, tmp_path, capsys, monkeypatch):
    made = tmp_path / "all"
    made.mkdir()
    monkeypatch.chdir(made)
    fit = [
        "fit",
        server.url,
        "--query",
        "seen",
        "--no-search",
        "--solver",
        "bsgd",
        "--model",
        "m",
        "--run-dir",
        "r",
    ]
    monkeypatch.setattr("sys.argv", ["streamsvm", *fit])
    assert run(*fit) == 2
    stderr = capsys.readouterr().err.strip()
    assert stderr == f"error: {server.plain}: rows of a server have no path for their store; give one with --store"
    fit += ["--store", "s", "--force"]
    assert run(*fit) == 0
    n = Store.open("s").n
    with closing(server.writes.cursor()) as cursor:
        cursor.execute("UPDATE sales SET id = 40 WHERE id = 100")
    server.writes.commit()
    assert run(*fit) == 0
    assert Store.open("s").n == n + 1
    of_rows = [server.url, "--query", "seen", "--model", "m"]
    assert run("evaluate", *of_rows, "--run-dir", "r") == 0
    assert run("predict", *of_rows, "--out", "p.csv", "--keep", "size") == 0
    assert len(Path("p.csv").read_text(encoding="utf-8").splitlines()) == n + 2
    assert run("info", server.url, "--query", "seen", "--against", server.url) == 0
    assert run("evaluate", *of_rows, server.plain) == 2
    stderr = capsys.readouterr()
    assert "is found twice" in stderr.err
    assert PASSWORD not in stderr.out + stderr.err
    files = [path for path in made.rglob("*") if path.is_file()]
    assert len(files) > 10
    assert not [path for path in files if PASSWORD.encode() in path.read_bytes()]


@pytest.mark.parametrize(("scheme", "write"), [("sqlite", write_sqlite), ("duckdb", write_duckdb)])
def test_urls_of_files_are_the_files(scheme, write, tmp_path, monkeypatch):
    write(tmp_path / "sales.db", rows_of(60))
    expected = loaded(tmp_path / "sales.db", tmp_path)
    monkeypatch.chdir(tmp_path)
    for url in (f"{scheme}:///sales.db", f"{scheme}:///{tmp_path}/sales.db"):
        store = loaded(url, tmp_path)
        assert whole(store).tobytes() == whole(expected).tobytes()
        assert store.attrs["sources"] == ["sales.db"]
    assert run("fit", url, "--no-search", "--solver", "bsgd", "--model", "m") == 0
    assert run("check", "sales.zarr") == 0
    with pytest.raises(ConfigError, match="is found twice"):
        ingest([url, "sales.db"], "t")


@given(st.text(st.characters(codec="ascii", exclude_characters="/?#@[]\\", min_codepoint=33), min_size=1))
def test_passwords_go_and_come_back(password):
    plain = without_password(f"postgres://me:{password}@host:5432/name?sslmode=require")
    assert plain == "postgres://me@host:5432/name?sslmode=require"
    assert with_password(plain) == f"postgres://me:{password}@host:5432/name?sslmode=require"
    for source in (
        "postgresql://me@host/name",
        "postgresql:///name?host=/run",
        "a.csv",
        "s3://me:word@b/a.csv",
    ):
        assert without_password(source) == with_password(source) == source
