"""Commands on several files, folders of them, Arrow files and databases, in place of one CSV file."""

from __future__ import annotations

import csv
import io

import numpy as np
import pytest
from tabled import WRITERS, rows_of, write_csv, write_duckdb, write_sqlite, written

from streamsvm import Store, load_model
from streamsvm.cli.app import app, exit_status

FIT = ("--label", "said", "--ignore", "id", "--no-search", "--gamma", 1)


def run(*args):
    return exit_status(lambda: app([*map(str, args)], standalone_mode=False))


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("fit")
    write_csv(folder / "sales.csv", rows_of(200))
    assert run("fit", folder / "sales.csv", *FIT) == 0
    return folder / "sales.model.zarr"


@pytest.fixture
def answers(model, capsys):
    def found(*args):
        capsys.readouterr()
        assert run("predict", "--model", model, *args, "--decision") == 0
        return [*csv.DictReader(io.StringIO(capsys.readouterr().out))]

    return found


def test_answers_are_the_same_to_every_format(answers, tmp_path, monkeypatch):
    monkeypatch.setattr("streamsvm.data.ingest.options.IngestOptions.block_bytes", 1024)
    first, *others = written(tmp_path, rows_of(90, seed=1))
    plain = answers(first, "--keep", "id,colour,flag,day")
    assert [row["id"] for row in plain] == [str(i) for i in range(90)]
    assert len({row["flag"] for row in plain}) == 3  # true, false, or a gap
    for path in others:
        assert answers(path, "--keep", "id,colour,flag,day") == plain


def test_answers_to_several_files_come_in_their_order(answers, tmp_path):
    rows = rows_of(60, seed=1)
    write_csv(tmp_path / "whole.csv", rows)
    plain = answers(tmp_path / "whole.csv", "--keep", "id")
    for i in range(3):
        folder = tmp_path / f"parts/at={i}"
        folder.mkdir(parents=True)
        write_csv(folder / "part.csv", rows[20 * i : 20 * i + 20])
    assert answers(tmp_path / "parts", "--keep", "id") == plain
    assert answers(tmp_path / "parts/*/*.csv", "--keep", "id") == plain
    assert answers(*(tmp_path / f"parts/at={i}/part.csv" for i in range(3)), "--keep", "id") == plain
    backwards = answers(*(tmp_path / f"parts/at={i}" for i in (2, 1, 0)), "--keep", "at,id")
    assert [row.pop("at") for row in backwards] == ["2"] * 20 + ["1"] * 20 + ["0"] * 20
    assert backwards == [*plain[40:], *plain[20:40], *plain[:20]]


def test_an_array_has_answers_to_all_files(model, answers, tmp_path):
    for i in range(2):
        write_csv(tmp_path / f"{i}.csv", rows_of(20, seed=i))
    assert run("predict", "--model", model, tmp_path / "*.csv", "--out", tmp_path / "a.npy") == 0
    assert np.load(tmp_path / "a.npy").tolist() == [row["label"] for row in answers(tmp_path / "*.csv")]


def test_a_model_of_a_folder_is_that_of_one_file(model, tmp_path, monkeypatch, capsys):
    (tmp_path / "parts").mkdir()
    rows = rows_of(200)
    for i in range(4):
        write_csv(tmp_path / f"parts/{i}.csv", rows[50 * i : 50 * i + 50])
    monkeypatch.chdir(tmp_path)
    assert run("fit", "parts/*.csv", *FIT) == 0
    assert Store.open("parts.zarr").n == 200
    probe = Store.open("parts.zarr").read(0, 200)
    one, other = (load_model(place).decision_function(probe) for place in (model, "parts.model.zarr"))
    assert one.tobytes() == other.tobytes()
    assert run("fit", "parts/*.csv", *FIT, "--force") == 0
    assert "parts.zarr has its rows, as it was read before" in capsys.readouterr().err


@pytest.mark.parametrize("write", [write_sqlite, write_duckdb])
def test_a_database_has_rows_to_fit_and_to_score(model, tmp_path, write, capsys):
    write(tmp_path / "shop.db", rows_of(200))
    red = ("--query", "SELECT * FROM sales WHERE colour = 'red'")
    assert run("fit", tmp_path / "shop.db", *FIT, *red) == 0
    assert 0 < Store.open(tmp_path / "shop.zarr").n < 100
    capsys.readouterr()
    assert run("evaluate", "--model", model, tmp_path / "shop.db", *red, "--json") == 0
    assert f'"n":{Store.open(tmp_path / "shop.zarr").n}' in capsys.readouterr().out.replace(" ", "")
    assert run("fit", tmp_path / "shop.db", *FIT, "--query", "sales", "--force") == 0
    assert Store.open(tmp_path / "shop.zarr").n == 200


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["*.parquet"], "*.parquet: no file is like this; expected at least one"),
        (["a.csv", "--query", "t"], "--query is of databases, found csv; leave it out"),
        (["--store", "s", "--query", "t"], "--query is of a file, found a store; leave it out"),
        (["a.csv", "a.feather"], "the sources have different formats (arrow, csv); ingest one at a time"),
        (["a.feather", "--keep", "x"], "a.feather has no column 'x' to keep; it has 'id', 'colour'"),
        (["a.sqlite", "--keep", "x"], "a.sqlite has no column 'x' to keep; it has 'id', 'colour'"),
        (["a.sqlite", "--query", "x"], "a.sqlite has no table 'x'; expected a table's name, or one SELECT"),
        (["a.csv", "bare.csv", "--keep", "id"], "bare.csv lacks column 'colour'; expected 'colour', 'size'"),
        (["no.sqlite"], "no.sqlite does not exist; expected a data file"),
    ],
)
def test_what_does_not_fit_is_one_line(model, tmp_path, args, message, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_csv(tmp_path / "a.csv", rows_of(5))
    (tmp_path / "bare.csv").write_text("id\n1\n")
    WRITERS["sales.feather"](tmp_path / "a.feather", rows_of(5))
    write_sqlite(tmp_path / "a.sqlite", rows_of(5))
    capsys.readouterr()
    assert run("predict", "--model", model, *args) == 2
    error = capsys.readouterr().err.strip()
    assert error.startswith("error: ")
    assert "\n" not in error
    assert message in error


def test_a_column_of_another_kind_than_the_models_is_one_line(model, tmp_path, capsys):
    rows = [(*row[:2], "large", *row[3:]) for row in rows_of(5)]
    write_sqlite(tmp_path / "a.sqlite", rows)
    assert run("predict", "--model", model, tmp_path / "a.sqlite") == 2
    assert "a.sqlite:1: column 'size' is 'large'; expected a number" in capsys.readouterr().err
