"""Commands on several files, folders of them, Arrow files and databases, in place of one CSV file."""

from __future__ import annotations

import csv
import io
import json
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from commands import require_one_line, run
from tabled import WRITERS, rows_of, write_csv, write_duckdb, write_sqlite, written

from streamsvm import Store, load_model

FIT = ("--label", "said", "--ignore", "id", "--no-search", "--gamma", 1)


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


def require_same(rows, expected):
    """Products of blocks of other sizes may be rounded otherwise: decision values are compared within float32."""
    decisions = [np.array([float(row["decision"]) for row in each]) for each in (rows, expected)]
    np.testing.assert_allclose(*decisions, atol=1e-5)
    first, second = ([{**row, "decision": None} for row in each] for each in (rows, expected))
    assert first == second


def test_answers_are_the_same_to_every_format(answers, tmp_path, monkeypatch):
    monkeypatch.setattr("streamsvm.ingest.options.IngestOptions.block_bytes", 1024)
    first, *others = written(tmp_path, rows_of(90, seed=1))
    plain = answers(first, "--keep", "id,colour,flag,day")
    assert [row["id"] for row in plain] == [str(i) for i in range(90)]
    assert len({row["flag"] for row in plain}) == 3  # true, false, or a gap
    for path in others:
        require_same(answers(path, "--keep", "id,colour,flag,day"), plain)


def test_answers_to_several_files_come_in_their_order(answers, tmp_path):
    rows = rows_of(60, seed=1)
    write_csv(tmp_path / "whole.csv", rows)
    plain = answers(tmp_path / "whole.csv", "--keep", "id")
    for i in range(3):
        folder = tmp_path / f"parts/at={i}"
        folder.mkdir(parents=True)
        write_csv(folder / "part.csv", rows[20 * i : 20 * i + 20])
    require_same(answers(tmp_path / "parts", "--keep", "id"), plain)
    require_same(answers(tmp_path / "parts/*/*.csv", "--keep", "id"), plain)
    require_same(answers(*(tmp_path / f"parts/at={i}/part.csv" for i in range(3)), "--keep", "id"), plain)
    backwards = answers(*(tmp_path / f"parts/at={i}" for i in (2, 1, 0)), "--keep", "at,id")
    assert [row.pop("at") for row in backwards] == ["2"] * 20 + ["1"] * 20 + ["0"] * 20
    require_same(backwards, [*plain[40:], *plain[20:40], *plain[:20]])


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
    assert "using the store of an earlier read, parts.zarr" in capsys.readouterr().err


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


@pytest.fixture
def refused(capsys):
    return lambda *args, message: require_one_line(capsys, message, *args)


@pytest.fixture
def told(capsys):
    def found(*args):
        capsys.readouterr()
        assert run(*args, "--json") == 0
        return json.loads(capsys.readouterr().out)

    return found


@pytest.fixture
def ways(tmp_path):
    """The same rows: in one file first, then in several, in a folder, as a pattern, and in a database."""
    rows = rows_of(90, seed=1)
    write_csv(tmp_path / "whole.csv", rows)
    (tmp_path / "parts").mkdir()
    for i in range(3):
        write_csv(tmp_path / f"parts/{i}.csv", rows[30 * i : 30 * i + 30])
    write_sqlite(tmp_path / "shop.db", rows)
    several = [tmp_path / f"parts/{i}.csv" for i in range(3)]
    query = (tmp_path / "shop.db", "--query", "SELECT * FROM sales")
    return [tmp_path / "whole.csv"], several, [tmp_path / "parts"], [tmp_path / "parts/*.csv"], query


@pytest.mark.parametrize("command", ["info", "check"])
def test_rows_are_looked_at_however_many_files_they_are_in(told, ways, tmp_path, command):
    read = ("--label", "said", "--ignore", "id")
    first = tmp_path / "first.csv"
    write_csv(first, rows_of(90, seed=1)[:50])
    plain = told(command, *ways[0], *read)
    for own in ways[1:]:
        found = told(command, *own, *read)
        for name in ("rows", "features", "labels", "warnings"):
            assert found.get(name) == plain.get(name)
    one, *others = (told(command, first, *read, "--against", *own)["against"] for own in (ways[0], *ways[2:4]))
    assert all(other | {"store": 0} == one | {"store": 0} for other in others)


def test_a_query_is_of_both_databases(told, ways, tmp_path):
    found = told("info", *ways[-1], "--against", tmp_path / "shop.db")
    assert found["against"]["duplicates"]["rows"] == 90


def test_what_files_became_is_used_again_to_look_at_them(told, ways, tmp_path):
    assert run("fit", *ways[2], *FIT) == 0
    read = ("--label", "said", "--ignore", "id")
    assert "made_of" in told("info", *ways[2], *read)["attributes"]
    assert "made_of" not in told("info", *ways[3], *read)["attributes"]
    write_csv(tmp_path / "parts/3.csv", rows_of(5))
    found = told("info", *ways[2], *read)
    assert (found["rows"], "made_of" in found["attributes"]) == (95, False)


def test_a_model_is_calibrated_explained_and_scored_by_rows_of_any_files(told, model, ways, tmp_path):
    """Sliced by columns that the model does not know, too, which are read again from all files."""
    kept: list[object] = []
    for i, own in enumerate((ways[0], ways[1], ways[-1])):
        out = tmp_path / f"c{i}"
        assert told("calibrate", "--model", model, *own, "--out", out)["n"] == 90
        probe = load_model(out).predict_proba(Store.open(model.with_name("sales.zarr")).read(0, 9))
        explained = told("explain", "--model", model, *own, "--rows", "3,80")
        scores = told("evaluate", "--model", model, *own, "--slice", "id,said,day", "--group", "id")
        names = ("accuracy", "groups", "intervals", "slices")
        kept.append((probe.tolist(), explained["rows"], {name: scores[name] for name in names}))
        assert kept[-1] == kept[0]
    *_, last = kept
    assert [row["n"] for row in last[2]["slices"]["id"]] == [23, 22, 23, 22]


def test_a_search_takes_a_database(told, ways):
    sets = ("solver=bsgd", "tune.folds=2", "tune.grid.bsgd.lam=[0.01]", "bsgd.epochs=1")
    search = ["--label", "said", "--ignore", "id", *(word for text in sets for word in ("--set", text))]
    one, other = (told("tune", *own, *search)["results"][0]["fold_scores"] for own in (ways[0], ways[-1]))
    assert one == other


def test_a_column_that_files_hold_otherwise_is_sliced_as_text(told, model, tmp_path):
    rows = [(i if i < 20 else f"r{i % 2}", *row[1:]) for i, row in enumerate(rows_of(40))]
    for i in range(2):
        write_csv(tmp_path / f"{i}.csv", rows[20 * i : 20 * i + 20])
    found = told("evaluate", "--model", model, tmp_path / "*.csv", "--slice", "id")["slices"]["id"]
    assert [row["value"] for row in found] == ["r0", "r1", *map(str, range(20))]


def test_a_format_that_is_given_is_that_of_stdin(answers, tmp_path, monkeypatch):
    write_csv(tmp_path / "a.csv", rows_of(9))
    stdin = SimpleNamespace(buffer=io.BytesIO((tmp_path / "a.csv").read_bytes()))
    monkeypatch.setattr(sys, "stdin", stdin)
    assert answers("-", "--format", "csv") == answers(tmp_path / "a.csv")


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["info", "s.zarr", "a.csv"], "found s.zarr among 2 sources, expected one store, or files alone"),
        (["check", "nope", "a.csv"], "found nope among 2 sources, expected one store, or files alone"),
        (["check", "bare"], "bare is a directory but not a zarr group; expected a store that"),
        (["info", "b*.csv"], "b*.csv: no file matches; expected at least one"),
        (["info", "s.zarr", "--query", "t"], "--query applies to a file, found a store; leave it out"),
        (["info", "a.csv", "--against", "b*.csv"], "b*.csv: no file matches; expected at least one"),
        (["info", "a.csv", "c.csv"], "c.csv lacks column 'colour'; expected"),
        (
            ["evaluate", "--model", "m", "a.csv", "--slice", "x"],
            "a.csv has no column 'x' to slice by",
        ),
        *(
            (
                [*command, "a.csv", "./a.csv"],
                "./a.csv, which is a.csv, is found twice, by 'a.csv' and by './a.csv'",
            )
            for command in (
                ["evaluate", "--model", "m"],
                ["predict", "--model", "m", "--out", "p.csv"],
                ["fit", "--label", "y"],
                ["ingest", "--store", "new"],
            )
        ),
    ],
)
def test_what_is_not_to_be_looked_at_is_one_line(model, tmp_path, args, message, refused, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_csv(tmp_path / "a.csv", rows_of(5))
    (tmp_path / "c.csv").write_text("id\n1\n")
    (tmp_path / "bare").mkdir()
    (tmp_path / "m").symlink_to(model)
    assert run("ingest", "a.csv", "--store", "s.zarr") == 0
    refused(*args, message=message)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["*.parquet"], "*.parquet: no file matches; expected at least one"),
        (["a.csv", "--query", "t"], "--query applies to databases, found csv; leave it out"),
        (["--store", "s", "--query", "t"], "--query applies to a file, found a store; leave it out"),
        (
            ["a.csv", "a.feather"],
            "the sources have different formats (arrow, csv); give those of one format at a time",
        ),
        (["a.feather", "--keep", "x"], "a.feather has no column 'x' to keep; it has 'id', 'colour'"),
        (["a.sqlite", "--keep", "x"], "a.sqlite has no column 'x' to keep; it has 'id', 'colour'"),
        (["a.sqlite", "--query", "x"], "a.sqlite has no table 'x'; expected a table's name, or one SELECT"),
        (["a.csv", "bare.csv", "--keep", "id"], "bare.csv lacks column 'colour'; expected 'colour', 'size'"),
        (["no.sqlite"], "no.sqlite does not exist; expected a data file"),
    ],
)
def test_what_does_not_fit_is_one_line(model, tmp_path, args, message, refused, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_csv(tmp_path / "a.csv", rows_of(5))
    (tmp_path / "bare.csv").write_text("id\n1\n")
    WRITERS["sales.feather"](tmp_path / "a.feather", rows_of(5))
    write_sqlite(tmp_path / "a.sqlite", rows_of(5))
    refused("predict", "--model", model, *args, message=message)


def test_a_column_of_another_kind_than_the_models_is_one_line(model, tmp_path, capsys):
    rows = [(*row[:2], "large", *row[3:]) for row in rows_of(5)]
    write_sqlite(tmp_path / "a.sqlite", rows)
    assert run("predict", "--model", model, tmp_path / "a.sqlite") == 2
    assert "a.sqlite:1: column 'size' is 'large'; expected a number" in capsys.readouterr().err
