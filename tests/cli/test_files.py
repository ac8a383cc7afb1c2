"""Files in place of stores, in every command that reads rows."""

from __future__ import annotations

import csv
import io
import json
import os
import shutil
import sys
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
import zarr
from commands import require_one_line, run
from every_case import every_case

from streamsvm import Store, load_model

COLUMNS = ("id", "colour", "size", "returned")
FIT = ("--label", "returned", "--ignore", "id", "--no-search", "--gamma", 1)


def rows_of(n, seed=0):
    rng = np.random.default_rng(seed)
    colours, sizes = rng.choice(["red", "blue", "gr,een"], n), rng.normal(size=n).round(3)
    said = np.where((colours == "red") ^ (sizes > 0), "yes", "no")
    return [[f"r{i}", c, s, y] for i, (c, s, y) in enumerate(zip(colours, sizes, said, strict=True))]


def write(path, rows, columns=COLUMNS):
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerows([columns, *rows])
    return path


@pytest.fixture
def sales(tmp_path):
    return write(tmp_path / "sales.csv", rows_of(200))


@pytest.fixture
def new(tmp_path):
    return write(tmp_path / "new.csv", rows_of(60, seed=1))


@pytest.fixture
def model(sales, tmp_path):
    assert run("fit", sales, *FIT) == 0
    return tmp_path / "sales.model.zarr"


def answers(*args, capsys):
    capsys.readouterr()
    assert run("predict", *args) == 0
    return [*csv.DictReader(io.StringIO(capsys.readouterr().out))]


def test_answers_to_a_file_are_those_to_a_store_like_the_training_store(model, sales, new, tmp_path, capsys):
    found = answers("--model", model, new, "--keep", "id,colour", "--decision", capsys=capsys)
    assert [row["id"] for row in found] == [f"r{i}" for i in range(60)]
    assert [row["colour"] for row in found] == [row[1] for row in rows_of(60, seed=1)]
    assert run("ingest", new, "--like", tmp_path / "sales.zarr", "--store", tmp_path / "new.zarr") == 0
    out = tmp_path / "a.csv"
    own = ("--model", model, "--store", tmp_path / "new.zarr", "--out", out)
    assert run("predict", *own, "--decision") == 0
    with out.open() as file:
        assert [(r["label"], r["decision"]) for r in csv.DictReader(file)] == [
            (r["label"], r["decision"]) for r in found
        ]


def test_columns_come_in_any_order_and_others_are_told(model, tmp_path, capsys):
    rows = rows_of(30, seed=1)
    plain = answers("--model", model, write(tmp_path / "a.csv", rows), "--decision", capsys=capsys)
    turned = [[size, "?", colour] for _, colour, size, _ in rows]
    other = write(tmp_path / "b.csv", turned, ("size", "what", "colour"))
    assert answers("--model", model, other, "--decision", capsys=capsys) == plain
    assert run("predict", "--model", model, other, "--out", tmp_path / "o.csv") == 0
    assert f"{other}: left out 'what': not among the known columns" in capsys.readouterr().err


def test_parquet_and_packed_and_piped_rows_have_the_same_answers(model, new, tmp_path, capsys, monkeypatch):
    plain = answers("--model", model, new, "--decision", capsys=capsys)
    pq.write_table(pa.csv.read_csv(new), tmp_path / "new.parquet")
    assert answers("--model", model, tmp_path / "new.parquet", "--decision", capsys=capsys) == plain
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(new.read_bytes())))
    assert answers("--model", model, "-", "--decision", capsys=capsys) == plain


def test_rows_are_answered_as_they_are_read(model, new, tmp_path, capsys):
    """To CSV and zarr; an array, whose rows have to be counted first, and processes have a store in between."""
    plain = answers("--model", model, new, capsys=capsys)
    for out in ("a.zarr", "a.npy", "a.csv"):
        assert run("predict", "--model", model, new, "--out", tmp_path / out, "--json") == 0
        assert json.loads(capsys.readouterr().out)["n"] == 60
    expected = [row["label"] for row in plain]
    assert zarr.open_group(tmp_path / "a.zarr", mode="r")["label"][:].tolist() == expected
    assert np.load(tmp_path / "a.npy").tolist() == expected
    gapped = write(tmp_path / "gap.csv", [*rows_of(3), ["r", "red", "", "no"]])
    assert run("predict", "--model", model, gapped, "--out", tmp_path / "b.csv") == 2
    assert "row 3, column 'size' is missing, and the model learned from rows without gaps" in capsys.readouterr().err
    assert not (tmp_path / "b.csv").exists()


def test_a_file_is_scored(model, new, capsys):
    capsys.readouterr()
    assert run("evaluate", "--model", model, new, "--json") == 0
    assert json.loads(capsys.readouterr().out)["accuracy"] > 0.9


def test_a_store_is_used_again_until_its_file_changes(model, sales, tmp_path, capsys):
    store = tmp_path / "sales.zarr"
    made = store.stat().st_mtime_ns
    assert Store.open(store).n == 200
    capsys.readouterr()
    assert run("fit", sales, *FIT, "--force") == 0
    assert "using the store of an earlier read" in capsys.readouterr().err
    assert store.stat().st_mtime_ns == made
    write(sales, rows_of(201))
    assert run("fit", sales, *FIT, "--force") == 0
    assert Store.open(store).n == 201
    assert run("fit", sales, "--label", "returned", "--no-search", "--gamma", 1, "--force") == 0
    assert Store.open(store).d > 201  # with the ids


def test_a_store_of_others_is_not_replaced(sales, new, tmp_path, capsys):
    assert run("ingest", new, "--label", "returned", "--ignore", "id", "--store", tmp_path / "sales.zarr") == 0
    assert run("fit", sales, *FIT) == 2
    assert "found a store that was not made from" in capsys.readouterr().err
    other = ("--store", tmp_path / "other.zarr", "--model", tmp_path / "m")
    assert run("fit", sales, *FIT, *other) == 0
    assert run("fit", new, *FIT, *other, "--force") == 2
    assert "found a store that was not made from" in capsys.readouterr().err
    assert load_model(tmp_path / "m").layout.attrs["ignored"] == ["id"]


def told(*args, capsys):
    capsys.readouterr()
    assert run(*args, "--json") == 0
    return json.loads(capsys.readouterr().out)


READ = ("--label", "returned", "--ignore", "id")


def test_a_search_reads_a_file_once_and_a_fit_has_its_store(sales, tmp_path, capsys):
    sets = ("solver=bsgd", "tune.folds=2", "tune.grid.bsgd.lam=[0.01, 0.001]")
    search = [word for text in sets for word in ("--set", text)]
    found = told("tune", sales, *READ, *search, capsys=capsys)
    assert Store.open(tmp_path / "sales.zarr").n == 200
    again = told("tune", "--store", tmp_path / "sales.zarr", *search, capsys=capsys)
    scores = [[row["fold_scores"] for row in one["results"]] for one in (found, again)]
    assert scores[0] == scores[1]
    assert run("fit", sales, *FIT) == 0
    assert "using the store of an earlier read" in capsys.readouterr().err


def test_a_model_is_calibrated_and_explained_by_rows_of_a_file(model, new, tmp_path, capsys):
    assert run("ingest", new, "--like", tmp_path / "sales.zarr", "--store", tmp_path / "new.zarr") == 0
    stored = ("--store", tmp_path / "new.zarr")
    probabilities = []
    for rows in ((new,), stored):
        out = tmp_path / f"c{len(probabilities)}"
        assert told("calibrate", "--model", model, *rows, "--out", out, capsys=capsys)["n"] == 60
        probabilities.append(answers("--model", out, new, "--proba", capsys=capsys))
    assert probabilities[0] == probabilities[1]
    one, other = (told("explain", "--model", model, *rows, "--rows", "3,5", capsys=capsys) for rows in ((new,), stored))
    assert one.pop("store") == str(new)
    assert other.pop("store") == str(tmp_path / "new.zarr")
    assert one == other
    unlabelled = write(tmp_path / "x.csv", [row[:3] for row in rows_of(5)], COLUMNS[:3])
    assert len(told("explain", "--model", model, unlabelled, capsys=capsys)["rows"]) == 3


def test_a_file_is_looked_at_as_its_store_is(sales, new, tmp_path, capsys):
    """Through a store for as long as it is read; the second file has the columns of the first."""
    for command in ("info", "check"):
        of_file = told(command, sales, *READ, "--against", new, capsys=capsys)
        assert {*os.listdir(tmp_path)} == {"sales.csv", "new.csv"}
        assert of_file["store"] == str(sales)
        assert of_file["against"].pop("store") == str(new)
        stored = tmp_path / "sales.zarr"
        assert run("ingest", sales, *READ, "--store", stored) == 0
        for named in ((stored,), ("--store", stored)):
            of_store = told(command, *named, "--against", new, capsys=capsys)
            assert of_store["store"] == str(stored)
            for name in ("rows", "features", "warnings", "labels", "duplicates"):
                assert of_store.get(name) == of_file.get(name)
            assert of_store["against"] | {"store": 0} == of_file["against"] | {"store": 0}
        shutil.rmtree(stored)


def test_what_a_file_became_is_used_again_to_look_at_it(model, sales, tmp_path, capsys):
    plain = told("info", sales, *READ, capsys=capsys)
    assert "made_of" in plain["attributes"]
    assert "made_of" not in told("info", sales, "--ignore", "id,size", capsys=capsys)["attributes"]


@pytest.mark.parametrize(("column", "groups"), [("colour", 3), ("size", 60), ("id", 60)])
def test_scores_of_a_file_are_by_groups_of_a_column_feature_or_not(model, new, tmp_path, column, groups, capsys):
    store = tmp_path / "new.zarr"
    like = ("--like", tmp_path / "sales.zarr", "--group", column)
    assert run("ingest", new, *like, "--store", store) == 0
    of_file = told("evaluate", "--model", model, new, "--group", column, capsys=capsys)
    of_store = told("evaluate", "--model", model, "--store", store, capsys=capsys)
    assert of_file["groups"] == groups
    for name in ("groups", "intervals", "accuracy"):
        assert of_file[name] == of_store[name]
    assert [row["score"] for row in of_file["intervals"]] == ["accuracy", "balanced_accuracy", "roc_auc"]
    assert run("evaluate", "--model", model, new, "--group", column) == 0
    assert f"95 % intervals, by {groups} groups" in capsys.readouterr().out


def test_the_format_of_a_file_is_looked_at_once(model, new, tmp_path, capsys, monkeypatch):
    from streamsvm.ingest import streams

    seen, looked = [], streams.Stream.read_exactly
    bare = tmp_path / "parquet-without-a-name"
    pq.write_table(pa.csv.read_csv(new), bare)
    monkeypatch.setattr(streams.Stream, "read_exactly", lambda *own: seen.append(own) or looked(*own))
    assert len(answers("--model", model, bare, "--keep", "id", capsys=capsys)) == 60
    assert len(seen) == 1


ENCODED = {
    "--hash": ("colour=8", {"hash": 8}),
    "--min-frequency": (70, {"categories": ["gr,een", "(rare)"], "rare": True}),
}


@pytest.mark.parametrize("flag", ENCODED)
def test_a_model_has_new_texts_encoded_as_those_it_was_trained_on(sales, new, tmp_path, flag, capsys):
    value, column = ENCODED[flag]
    assert run("fit", sales, *FIT, flag, value) == 0
    model = tmp_path / "sales.model.zarr"
    loaded = load_model(model)
    assert loaded.layout.attrs["columns"] == [{"name": "colour"} | column, {"name": "size"}]
    plain = answers("--model", model, new, "--decision", capsys=capsys)
    table = pa.csv.read_csv(new)
    pq.write_table(table, tmp_path / "new.parquet")
    assert answers("--model", model, tmp_path / "new.parquet", "--decision", capsys=capsys) == plain
    found = loaded.decision_function(table)
    assert [float(row["decision"]) for row in plain] == pytest.approx(found.tolist(), abs=1e-6)


@every_case(
    ("args", "message"),
    [
        (
            ["fit", "sales.csv", "--hash", "nope=4"],
            "sales.csv has no feature column 'nope' to hash; it has 'id', 'colour', 'size'",
        ),
        (["fit", "sales.csv", "--hash", "returned=4"], "has no feature column 'returned' to hash"),
        (["fit", "sales.csv", "--hash", "size=4"], "column 'size' to hash holds numbers; expected text"),
        (["fit", "sales.csv", "--hash", "colour=1"], "--hash: found 1, expected a number at least 2"),
        (["fit", "sales.csv", "--hash", "colour=2000000"], "expected a number at most 1048576"),
        (["fit", "sales.csv", "--hash", "colour"], "found 'colour', expected COL=WIDTH[,COL=WIDTH...]"),
        (["fit", "sales.csv", "--hash", "id=4,id=5"], "found 'id=4,id=5', expected each column once"),
        (
            ["fit", "sales.csv", "--hash", "id=4", "--ignore", "id"],
            "hash and ignore both name column 'id'; expected one of them",
        ),
        (
            ["ingest", "new.csv", "--store", "s", "--like", "sales.zarr", "--hash", "colour=4"],
            "--like: text is encoded as in that store; leave hash and min_frequency out",
        ),
        (["fit", "--store", "s", "--min-frequency", "4"], "--min-frequency applies to a file, found a store"),
        (
            ["fit", "sales.csv", "--min-frequency", "4", "--ignore", "id,colour"],
            "sales.csv has no text column for --min-frequency; leave it out",
        ),
        (
            ["fit", "sales.csv", "--min-frequency", "0"],
            "--min-frequency: found 0, expected a number at least 1",
        ),
        (
            ["ingest", "new.csv", "--store", "s", "--dtype", "uint8", "--hash", "colour=4"],
            "--dtype: hash makes columns of -1, 0 and 1; expected float32 or float64",
        ),
        (["fit"], "found no rows, expected a FILE, or --store STORE"),
        (["fit", "--store", "s", "--label", "y"], "--label applies to a file, found a store; leave it out"),
        (
            ["fit", "-", "--label", "y"],
            "-: rows from stdin have no path for their store; give one with --store",
        ),
        (["fit", "no.csv", "--label", "y"], "no.csv does not exist; expected a data file"),
        (["fit", "gone*.csv", "--label", "y"], "gone*.csv: no file matches; expected at least one"),
        (["fit", "sales.csv", "--label", ""], "sales.csv has no column '' for the label"),
        (["fit", "sales.zarr"], "sales.zarr: found a store, expected files; give a store with --store"),
        (
            ["fit", "--store", "sales.zarr", "--model", "m", "--run-dir", "m"],
            "--run-dir m: found the place of --model, expected another one",
        ),
        (
            ["fit", "--store", "sales.zarr", "--model", "m", "--run-dir", "sales.zarr"],
            "sales.zarr: found a store, expected the folder of a run; take another --run-dir",
        ),
        (
            ["predict", "--model", "sales.model.zarr", "new.csv", "--out", "./new.csv"],
            "--out new.csv: found a file of the rows, which it would replace; take another name",
        ),
        (
            ["explain", "--model", "sales.model.zarr", "new.csv", "--out", "new.csv"],
            "--out new.csv: found a file of the rows, which it would replace; take another name",
        ),
        (["fit", "sales.csv", "--label", "nope"], "sales.csv has no column 'nope' for the label"),
        (
            ["fit", "sales.csv", "--ignore", "nope"],
            "sales.csv has no column 'nope' to leave out; it has 'id'",
        ),
        (["predict", "--model", "sales.model.zarr"], "found no rows, expected a FILE, or --store STORE"),
        (
            ["predict", "--model", "sales.model.zarr", "new.csv", "--store", "s"],
            "found new.csv and --store s, expected one of them",
        ),
        (
            ["predict", "--model", "sales.model.zarr", "new.csv", "--json"],
            "--json prints one object on stdout, where predictions would go; name a file with --out",
        ),
        (
            ["predict", "--model", "sales.model.zarr", "new.csv", "--keep", "x"],
            "new.csv has no column 'x' to keep; it has 'id', 'colour', 'size', 'returned'",
        ),
        (
            ["predict", "--model", "sales.model.zarr", "new.csv", "--keep", "id", "--out", "o.npy"],
            "--out o.npy: only a .csv can hold the kept columns",
        ),
        (
            ["predict", "--model", "sales.model.zarr", "--store", "sales.zarr", "--keep", "id"],
            "--keep names columns of a FILE, found no FILE",
        ),
        (
            ["predict", "--model", "sales.model.zarr", "new.csv", "--x", "x"],
            "--x applies to a store, found a file",
        ),
        (
            ["evaluate", "--model", "sales.model.zarr", "new.csv", "--y", "y"],
            "--y applies to a store, found a file",
        ),
        (["tune"], "found no rows, expected a FILE, or --store STORE"),
        (
            ["tune", "--store", "s", "--ignore", "id"],
            "--ignore applies to a file, found a store; leave it out",
        ),
        (["info"], "found no rows, expected a FILE, or --store STORE"),
        (["info", "nope.csv"], "nope.csv does not exist; expected a data file"),
        (["check", "nope"], "nope does not exist; expected a zarr store"),
        (["check", "sales.csv", "--store", "s"], "found sales.csv and --store s, expected one of them"),
        (["check", "sales.zarr", "--group", "id"], "--group applies to a file, found a store; leave it out"),
        (["check", "sales.zarr", "--against", "few.csv"], "few.csv lacks column 'colour'; expected"),
        (["check", "huge.csv"], "huge.csv:3: column 'size' is inf; expected a finite number"),
        (["info", "sales.csv", "--y", "y"], "--y applies to a store, found a file; leave it out"),
        (["calibrate", "--model", "sales.model.zarr"], "found no rows, expected a FILE, or --store STORE"),
        (["calibrate", "--model", "sales.model.zarr", "few.csv"], "few.csv lacks column 'colour'; expected"),
        (["explain", "--model", "sales.model.zarr", "--format", "csv"], "--format is about rows: name their"),
        (["explain", "--model", "sales.model.zarr", "new.csv", "--rows", "60"], "new.csv has rows 0 to 59"),
        (
            ["evaluate", "--model", "sales.model.zarr", "new.csv", "--group", "nope"],
            "new.csv has no column 'nope' of groups; it has 'id', 'colour', 'size', 'returned'",
        ),
        (
            ["evaluate", "--model", "sales.model.zarr", "new.csv", "--slice", "nope"],
            "new.csv has no column 'nope' to slice by; it has 'id', 'colour', 'size', 'returned'",
        ),
        (
            ["predict", "--model", "sales.model.zarr", "none.csv", "--out", "o.npy"],
            "none.csv has no samples; expected at least one",
        ),
        (
            ["evaluate", "--model", "sales.model.zarr", "none.csv"],
            "none.csv has no samples; expected at least one",
        ),
        (["evaluate", "--model", "sales.model.zarr", "few.csv"], "few.csv lacks column 'colour'; expected"),
    ],
)
def test_what_does_not_fit_is_one_line(model, new, args, message, capsys, monkeypatch):
    folder = model.parent
    write(folder / "few.csv", [[1]], ("size",))
    write(folder / "none.csv", [], ("id", "colour", "size"))
    write(folder / "huge.csv", [[1, "a"], ["inf", "b"]], ("size", "y"))
    monkeypatch.chdir(folder)
    before = {*os.listdir()}
    require_one_line(capsys, message, *args)
    assert {*os.listdir()} == before


def test_queries_of_a_file_are_those_of_the_column_of_the_fit(tmp_path, capsys):
    rng = np.random.default_rng(0)
    rows = [[a, 2**60 + i // 10, round(a + rng.normal())] for i, a in enumerate(rng.normal(size=60).round(3))]
    path = write(tmp_path / "q.csv", rows, ("a", "q", "grade"))
    ranks = "--task", "rank", "--solver", "cutting-plane", "--kernel", "linear", "--no-search"
    assert run("fit", path, "--label", "grade", "--qid", "q", *ranks, "--model", tmp_path / "m") == 0
    known, found = ("--model", tmp_path / "m", "--json"), []
    for more in (["--store", tmp_path / "q.zarr"], [path]):
        capsys.readouterr()
        assert run("evaluate", *known, *more) == 0
        out, err = capsys.readouterr()
        assert "'q'" not in err
        found.append({name: json.loads(out)[name] for name in ("queries", "ndcg")})
    assert found[0] == found[1]
    assert found[0]["queries"] == 6
    assert run("predict", *known[:2], path) == 0
    assert "'q'" not in capsys.readouterr().err
    other = write(tmp_path / "n.csv", [[row[0], row[2]] for row in rows], ("a", "grade"))
    assert run("evaluate", *known, other) == 0
    out, err = capsys.readouterr()
    assert "no column 'q' of query ids, which the fit had: all rows are one query" in err
    assert json.loads(out)["queries"] == 1


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_a_file_without_rows_has_no_answers(model, tmp_path, kind, capsys):
    empty = write(tmp_path / "none.csv", [], ("id", "colour", "size"))
    if kind == "parquet":
        table = pa.table({"id": pa.array([], "str"), "colour": pa.array([], "str"), "size": pa.array([], "f8")})
        empty = tmp_path / "none.parquet"
        pq.write_table(table, empty)
    more = ["--decision", "--keep", "id"]
    assert answers("--model", model, empty, *more, capsys=capsys) == []
    assert run("predict", "--model", model, empty, *more, "--out", tmp_path / "o.csv") == 0
    assert (tmp_path / "o.csv").read_text() == "id,label,decision\n"
    assert run("predict", "--model", model, empty, "--out", tmp_path / "o.zarr") == 0
    assert zarr.open_group(str(tmp_path / "o.zarr"))["label"].shape == (0,)


@every_case("command", ["fit", "tune"])
@every_case(
    ("option", "place", "message"),
    [
        (
            "--model",
            "s.zarr",
            "--model s.zarr: found the place of the store that s.csv is read into; take another --model",
        ),
        ("--model", "x/../s.zarr", "found the place of the store that s.csv is read into"),
        ("--run-dir", "s.zarr", "--run-dir s.zarr: found the place of the store"),
        ("--model", "s.csv", "--model s.csv: found a file, expected nothing or a model"),
    ],
)
def test_places_are_checked_before_a_file_is_read(command, option, place, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "s.csv").write_text("a,y\n" + "".join(f"{i},{'np'[i % 2]}\n" for i in range(60)))
    require_one_line(capsys, message, command, "s.csv", "--label", "y", option, place)
    assert [path.name for path in tmp_path.iterdir()] == ["s.csv"]
