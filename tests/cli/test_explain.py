"""`streamsvm explain`: tables for people, JSON and files for programs, one line for what is wrong."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from every_case import every_case
from scipy import sparse

from streamsvm import ALFPGMSVC, DCSVC, Store
from streamsvm.cli.app import app, exit_status
from streamsvm.config import build_config
from streamsvm.data.rows import Rows
from streamsvm.data.writer import StoreWriter
from streamsvm.train import train

NAMES = ["warm", "loud", "old"]


def run(*args):
    return exit_status(lambda: app([*map(str, args)], standalone_mode=False))


@pytest.fixture(scope="module")
def there(tmp_path_factory):
    """A folder with a store of names and models of it: rbf, matern, linear."""
    folder = tmp_path_factory.mktemp("explain")
    X = np.random.default_rng(0).normal(size=(80, 3)).astype(np.float32)
    columns = [{"name": name} for name in NAMES]
    with StoreWriter(str(folder / "s"), d=3, dtype="float32", attrs={"columns": columns}) as writer:
        writer.append(Rows(X), np.where(X[:, 0] * X[:, 1] > 0, "yes", "no"))
    store = Store.open(str(folder / "s"))
    for name, values in {
        "rbf": {"kernel": {"gamma": 0.5}},
        "matern": {"kernel": {"name": "matern"}},
        "linear": {"solver": "cutting-plane", "kernel": {"name": "linear"}},
    }.items():
        config = build_config(("test", {"scale": "standard", "C": 10.0} | values))
        train(store, config, model_path=folder / name)
    with StoreWriter(str(folder / "other"), d=2, dtype="float32") as writer:
        writer.append(Rows(X[:, :2]))
    DCSVC(gamma=0.5).fit(sparse.csr_array(X), X[:, 0] > 0).save(folder / "sparse")
    ALFPGMSVC(kernel="precomputed").fit(np.eye(20), np.arange(20) % 2).save(folder / "given")
    return folder


def said(capfd, *args):
    assert run("explain", *args, "--json") == 0
    return json.loads(capfd.readouterr().out)


def test_columns_of_a_model(there, capfd):
    found = said(capfd, "--model", there / "rbf")
    assert found["importances_from"] == "support vectors"
    assert [record["feature"] for record in found["importances"]][2] == "old"
    assert sum(record["importance"] for record in found["importances"]) == pytest.approx(1)
    assert run("explain", "--model", there / "rbf", "--top", 1) == 0
    lines = capfd.readouterr().out.splitlines()
    assert lines[0].endswith("rbf, from support vectors; 2 more below")
    assert len(lines) == 5


def test_rows_of_a_store(there, capfd):
    found = said(
        capfd,
        "--model",
        there / "rbf",
        "--store",
        there / "s",
        "--rows",
        "7,0..1",
        "--shapley",
        "--support",
        2,
    )
    assert found["importances_from"] == "80 rows"
    assert [row["row"] for row in found["rows"]] == [7, 0, 1]
    for row in found["rows"]:
        total = row["shapley_base"] + sum(feature["shapley"] for feature in row["features"])
        assert total == pytest.approx(row["decision"], abs=1e-9)
        assert (row["decision"] > 0) == (row["answer"] == "yes")
        assert len(row["support_by_weight"]) == len(row["support_by_distance"]) == 2
        assert set(row["support_by_weight"][0]["values"]) == set(NAMES)


def test_rows_for_people(there, capfd):
    assert run("explain", "--model", there / "rbf", "--store", there / "s", "--shapley") == 0
    out, err = capfd.readouterr()
    assert err == ""
    for text in (
        "Row 0: ",
        "Row 2: ",
        "(above 0: yes) = ",
        "shapley",
        "Support vectors of row 2",
        "training row",
    ):
        assert text in out
    assert "Row 3" not in out


def test_without_shapley_there_is_no_such_column(there, capfd):
    assert run("explain", "--model", there / "matern", "--store", there / "s", "--rows", 4, "--support", 0) == 0
    out = capfd.readouterr().out
    assert "effect" in out
    assert "shapley" not in out
    assert "Support vectors of" not in out


def test_a_linear_model_has_weights_and_no_support_vectors(there, capfd):
    found = said(capfd, "--model", there / "linear", "--store", there / "s")
    assert found["rows"][0]["support_by_weight"] == []
    assert said(capfd, "--model", there / "linear")["importances_from"] == "weights"


def test_sparse_models(there, tmp_path, capfd):
    X = np.eye(6, 3).astype(np.float32)
    with StoreWriter(str(tmp_path / "s"), d=3, dtype="float32", is_sparse=True) as writer:
        writer.append(Rows(sparse.csr_array(X)))
    found = said(capfd, "--model", there / "sparse", "--store", tmp_path / "s", "--shapley")
    assert found["rows"][0]["features"][0]["feature"] == "0"


def test_fewer_rows_than_are_shown_by_default(there, tmp_path, capfd):
    with StoreWriter(str(tmp_path / "s"), d=3, dtype="float32") as writer:
        writer.append(Rows(np.ones((1, 3), np.float32)))
    found = said(capfd, "--model", there / "rbf", "--store", tmp_path / "s")
    assert [row["row"] for row in found["rows"]] == [0]


@pytest.mark.parametrize("rows", [[], ["--store", "s", "--rows", "3,4", "--shapley"]])
def test_files_hold_all_of_it(there, tmp_path, monkeypatch, capfd, rows):
    monkeypatch.chdir(there)
    found = said(capfd, "--model", "rbf", *rows, "--out", tmp_path / "e.json")
    assert json.loads((tmp_path / "e.json").read_text()) == found
    said(capfd, "--model", "rbf", *rows, "--out", tmp_path / "e.csv")
    with (tmp_path / "e.csv").open(newline="") as file:
        lines = list(csv.DictReader(file))
    if not rows:
        assert [(line["feature"], float(line["importance"])) for line in lines] == [
            (record["feature"], record["importance"]) for record in found["importances"]
        ]
        return
    assert [line["row"] for line in lines] == ["3"] * 3 + ["4"] * 3
    assert float(lines[0]["shapley"]) == found["rows"][0]["features"][0]["shapley"]


@every_case(
    ("words", "line"),
    [
        ("--model rbf --store s --rows 80", "--rows: found 80, s has rows 0 to 79"),
        ("--model rbf --store s --rows 3..999999999999", "--rows: found 3..999999999999, s has rows 0 to 79"),
        ("--model rbf --store s --rows 5..3", "--rows: found '5..3', expected row numbers such as 0,5,10..20"),
        ("--model rbf --store s --rows 1,,2", "--rows: found '', expected row numbers such as 0,5,10..20"),
        ("--model rbf --store s --rows -1", "--rows: found '-1', expected row numbers such as 0,5,10..20"),
        ("--model rbf --rows 3", "--rows is about rows: name their store with --store"),
        ("--model rbf --shapley", "--shapley is about rows: name their store with --store"),
        ("--model rbf --out e.txt", "--out e.txt: expected a name ending in .csv or .json"),
        ("--model rbf --store other", "other has 2 columns, the model was trained on 3"),
        ("--model rbf --store rbf", "rbf: found a model, expected a store of rows"),
        ("--model s", "s: found a store of data, expected a model"),
        ("--model matern --store s --shapley", "Shapley values are those of kernels that are products over features"),
        ("--model given", "the kernel is precomputed: a row is its kernel values"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_in_one_line(there, monkeypatch, capfd, words, line):
    monkeypatch.chdir(there)
    assert run("explain", *words.split()) == 2
    out, err = capfd.readouterr()
    assert out == ""
    assert err.startswith(f"error: {line}")
    assert err.count("\n") == 1


def test_columns_are_named_as_they_are_and_their_values_have_no_units(tmp_path, capfd):
    names = ["seconds_idle", "size_bytes"]
    X = np.random.default_rng(0).integers(0, 5, (60, 2)).astype(np.float32)
    with StoreWriter(
        str(tmp_path / "s"), d=2, dtype="float32", attrs={"columns": [{"name": n} for n in names]}
    ) as writer:
        writer.append(Rows(X), (X[:, 0] > X[:, 1]).astype(int))
    train(Store.open(str(tmp_path / "s")), build_config(), model_path=tmp_path / "m")
    assert run("explain", "--model", tmp_path / "m", "--store", tmp_path / "s", "--rows", 3) == 0
    out = capfd.readouterr().out
    assert sum(name in line for line in out.splitlines() for name in names) == 2 * 3
    assert " s\n" not in out
    assert " B" not in out


def test_values_of_a_text_column_are_one_line(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    colours, sizes = rng.choice(["red", "blue", "green"], 80), rng.normal(size=80)
    lines = [f"{colour},{size:.3f},{colour == 'red'}" for colour, size in zip(colours, sizes, strict=True)]
    Path("t.csv").write_text("\n".join(["colour,size,good", *lines, ""]), encoding="utf-8")
    assert run("fit", "t.csv", "--no-search", "--model", "m") == 0
    capfd.readouterr()
    found = said(capfd, "--model", "m", "--store", "t.zarr")
    values = {record["feature"]: record["importance"] for record in found["importances"]}
    colour, size = found["importances_by_column"]
    assert colour["column"] == "colour"
    assert colour["most"].startswith("red, ")
    assert colour["importance"] == pytest.approx(sum(values.values()) - values["size"])
    assert size == {"column": "size", "importance": values["size"], "most": None}
    found = said(capfd, "--model", "m", "--store", "t.zarr", "--rows", "0..9", "--shapley")
    for row, colour, size in zip(found["rows"], colours, sizes, strict=False):
        values = {record["feature"]: record for record in row["features"]}
        columns = {record["column"]: record for record in row["columns"]}
        assert columns["colour"]["value"] == colour
        assert columns["size"]["value"] == pytest.approx(size, abs=1e-3)
        of_colours = [record for name, record in values.items() if name != "size"]
        assert columns["colour"]["shapley"] == pytest.approx(sum(record["shapley"] for record in of_colours))
        assert abs(columns["colour"]["effect"]) == max(abs(record["effect"]) for record in of_colours)
        assert columns["colour"]["effect_of"] in ("red", "blue", "green")
        assert row["support_by_distance"][0]["columns"]["colour"] == colour
    assert run("explain", "--model", "m", "--store", "t.zarr", "--rows", 0) == 0
    assert "colour=red" not in capfd.readouterr().out


def test_times_and_true_are_shown_as_the_table_has_them(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    sizes = rng.normal(size=60)
    lines = [f"2026-01-{1 + i % 28:02d},{size > 1},{size:.3f},{size > 0}" for i, size in enumerate(sizes)]
    Path("t.csv").write_text("\n".join(["day,promo,size,good", *lines, ""]), encoding="utf-8")
    assert run("fit", "t.csv", "--label", "good", "--no-search", "--scale", "standard", "--model", "m") == 0
    capfd.readouterr()
    for i, row in enumerate(said(capfd, "--model", "m", "--store", "t.zarr", "--rows", "0..9")["rows"]):
        values = {record["column"]: record["value"] for record in row["columns"]}
        assert values["day"] == f"2026-01-{1 + i:02d}"
        assert values["promo"] == str(sizes[i] > 1).lower()
        assert values["size"] == pytest.approx(sizes[i], abs=1e-3)
        assert {vector["columns"]["promo"] for vector in row["support_by_weight"]} <= {"true", "false"}
