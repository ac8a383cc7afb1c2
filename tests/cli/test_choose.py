"""`fit` with a store alone: what it chooses, says and writes, and that the file it writes repeats it."""

from __future__ import annotations

import json
import tomllib

import numpy as np
import pytest
from commands import run
from making import write

from streamsvm import load_model
from streamsvm.data.rows import Rows

SMALL = ("--trials", 40, "--set", "threads=1")  # steps, so that time decides nothing


def table():
    """(400, 4): two columns tell the classes, the third drowns them in its units, and the last is constant."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 4)).astype(np.float32)
    y = np.where(X[:, 0] ** 2 + X[:, 1] > 0.8, "out", "in")
    X[:, 2] *= 1000
    X[:, 3] = 5
    return X, y


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A store and the model of it, whose report is in a file."""
    folder = tmp_path_factory.mktemp("bare")
    X, y = table()
    write(folder / "data.zarr", Rows(X), y)
    assert run("fit", "--store", folder / "data.zarr", *SMALL) == 0
    return folder


def accuracy(model):
    X, y = table()
    return float(np.mean(load_model(model).predict(Rows(X)) == y))


def test_a_bare_fit_decides_what_the_defaults_do_not(folder, tmp_path):
    assert run("fit", "--store", folder / "data.zarr", "--no-search", "--model", tmp_path / "plain") == 0
    assert not (tmp_path / "plain.fit.toml").exists()
    assert accuracy(tmp_path / "plain") < 0.75
    assert accuracy(folder / "data.model.zarr") > 0.93


def test_what_was_chosen_is_next_to_the_model(folder):
    text = (folder / "data.model.fit.toml").read_text()
    assert "--config data.model.fit.toml` repeats it" in text.splitlines()[0]
    values, header = tomllib.loads(text), load_model(folder / "data.model.zarr").header
    assert values["search"] == {"options": []}
    assert values.get("C", 1.0) == header.config["C"]
    assert values["kernel"]["gamma"] == header.config["kernel"]["gamma"] == header.kernel.gamma
    assert header.certificate["expected"]["low"] < header.certificate["expected"]["score"]


@pytest.mark.parametrize("name", ["data.model.fit.toml", "data.model.zarr"])
def test_the_file_and_the_model_repeat_the_fit_bit_by_bit(folder, tmp_path, name):
    how = ("--config", folder / name, "--set", "threads=1", "--model", tmp_path / "again")
    assert run("fit", "--store", folder / "data.zarr", *how) == 0
    first, again = (load_model(path) for path in (folder / "data.model.zarr", tmp_path / "again"))
    rows = Rows(table()[0])
    assert first.decision_function(rows).tobytes() == again.decision_function(rows).tobytes()
    assert [path.name for path in tmp_path.iterdir()] == ["again"]


def test_people_and_programs_are_told_what_was_chosen(folder, tmp_path, capfd):
    fit = ("fit", "--store", folder / "data.zarr", "--model", tmp_path / "m", *SMALL)
    assert run(*fit, "--json") == 0
    report = json.loads(capfd.readouterr().out)
    assert report["config"] == str(tmp_path / "m.fit.toml")
    assert report["metric"]["score"] >= report["metric"]["given_score"]
    assert {"score", "low", "high", "rows"} <= set(report["expected"])
    assert run(*fit, "--force") == 0
    told = capfd.readouterr().out
    for text in ("held-out rows", "search, with the defaults", "expected on new rows", "m.fit.toml --force"):
        assert text in told


def test_another_s_file_is_not_replaced(folder, tmp_path, capfd):
    mine = tmp_path / "m.fit.toml"
    mine.write_text("C = 3.0\n")
    fit = ("fit", "--store", folder / "data.zarr", "--model", tmp_path / "m", *SMALL, "--json")
    assert run(*fit) == 0
    out, err = capfd.readouterr()
    assert json.loads(out)["config"] is None
    assert f"{mine} belongs to another model and is kept: what was chosen is only in m" in err
    assert mine.read_text() == "C = 3.0\n"


def test_of_few_rows_nothing_is_chosen(tmp_path, capfd):
    write(tmp_path / "s", Rows(np.eye(20, dtype=np.float32)), np.arange(20) % 2)
    assert run("fit", "--store", tmp_path / "s", "--model", tmp_path / "m") == 0
    told = capfd.readouterr().out
    assert "Nothing was chosen" in told
    assert "20 rows are too few to choose by, expected at least 30" in told
