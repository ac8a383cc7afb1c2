"""`ingest` on the command line: options reach the reader, one JSON object comes back."""

from __future__ import annotations

import json

import numpy as np
import pytest

from streamsvm.cli.app import app, exit_status
from streamsvm.data.store import Store


def run(*args):
    return exit_status(lambda: app(["ingest", *map(str, args)], standalone_mode=False))


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("".join(f"{i % 2},{i},{i * i}\n" for i in range(100)))
    return path


def test_options_reach_the_store(tmp_path, table, capfd):
    options = "--no-header --label first --dtype float64 --rows-per-chunk 7 --memory-limit 64MiB "
    options += "--split 0.8 --seed 3 --json"
    assert run(table, "--store", tmp_path / "s", "--test-store", tmp_path / "t", *options.split()) == 0
    summary = json.loads(capfd.readouterr().out)
    train, test = Store.open(tmp_path / "s"), Store.open(tmp_path / "t")
    assert (train.d, train.dtype, train.chunk_rows) == (2, np.float64, 7)
    assert summary["rows"] == train.n
    assert train.n + test.n == 100
    assert summary["seconds"] > 0
    assert summary["peak_rss_bytes"] > 1 << 20
    assert set(train.y) == {0, 1}


def test_dense_and_sparse(tmp_path, table):
    assert run(table, "--no-header", "--store", tmp_path / "s", "--sparse") == 0
    assert run(table, "--no-header", "--store", tmp_path / "d", "--dense") == 0
    assert Store.open(tmp_path / "s").is_sparse
    assert not Store.open(tmp_path / "d").is_sparse


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--split", "0.8"], "--split: split and test_store go together"),
        (
            ["--split-by", "f0"],
            "--split-by: split_by goes with split, the fraction of the rows that come first",
        ),
        (
            ["--split-by", "f0", "--group", "f1", "--split", "0.5", "--test-store", "t"],
            "found group, too, whose rows",
        ),
        (["--memory-limit", "lots"], "--memory-limit: found 'lots', expected a memory size like 2GiB"),
        (["--memory-limit", "1KiB"], "--memory-limit: found '1KiB', expected at least 32MiB"),
        (["--dtype", "int8"], "--dtype: found 'int8', expected 'uint8', 'float32' or 'float64'"),
        (["--split", "2", "--test-store", "t"], "--split: found 2, expected a fraction between 0 and 1"),
        (["--rows-per-chunk", "0"], "--rows-per-chunk: found 0, expected a number at least 1"),
        (["--label", "colour", "--no-header"], "colour"),
    ],
)
def test_mistakes_are_one_line_and_leave_nothing(tmp_path, table, capfd, args, message):
    assert run(table, "--store", tmp_path / "s", *args) == 2
    out, err = capfd.readouterr()
    assert message in err
    assert err.count("\n") == 1
    assert out == ""
    assert [path.name for path in tmp_path.iterdir()] == ["t.csv"]
