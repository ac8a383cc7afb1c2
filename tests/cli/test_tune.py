"""`streamsvm tune`: the table, its files, and mistakes in the grid."""

from __future__ import annotations

import csv
import json

import numpy as np
import pytest
import zarr
from every_case import every_case
from making import write

from streamsvm.cli.app import FAILED, OK, app, exit_status
from streamsvm.data.rows import Rows

TOML = """
scale = "minmax"
[tune]
folds = 3
[tune.grid]
C = { low = 0.5, high = 8, points = 3 }
kernel.gamma = [0.5, "scale"]
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(120, 3)).astype(np.float32)
    write("rows.zarr", Rows(X), np.where(X[:, 0] * X[:, 1] > 0, "up", "down"), 50)
    (tmp_path / "t.toml").write_text(TOML)
    return tmp_path


def run(*words):
    return exit_status(
        lambda: app(["tune", "--store", "rows.zarr", "--config", "t.toml", *words], standalone_mode=False)
    )


def test_table_files_and_model(folder, capsys):
    files = ("--out", "t.csv", "--heat-map", "t.png", "--model", "best.zarr")
    assert run("--json", *files) == OK
    found = json.loads(capsys.readouterr().out)
    assert {(r["C"], r["kernel.gamma"]) for r in found["results"]} == {
        (C, gamma) for C in (0.5, 2.0, 8.0) for gamma in (0.5, "scale")
    }
    assert found["best"]["score"] == found["results"][0]["mean_score"] == max(r["mean_score"] for r in found["results"])
    assert found["refit"]["n"] == 120
    with (folder / "t.csv").open() as file:
        table = list(csv.DictReader(file))
    assert [float(row["mean_score"]) for row in table] == [r["mean_score"] for r in found["results"]]
    assert float(table[0]["score_2"]) == found["results"][0]["fold_scores"][2]
    assert (folder / "t.png").read_bytes().startswith(b"\x89PNG")
    assert run("--set", "tune.search=halving", "--set", "tune.folds=2", "--out", "t.zarr", "--heat-map", "t.svg") == OK
    printed = capsys.readouterr().out
    assert "Best first" in printed
    group = zarr.open_group("t.zarr", mode="r")
    assert group["fold_scores"].shape == (6, 2)
    assert set(group["kernel.gamma"][:]) == {"0.5", "scale"}
    assert "<svg" in (folder / "t.svg").read_text()


def test_the_run_has_the_seconds_that_the_terminal_says_and_the_model_on_all_rows(folder, capsys):
    assert run("--json", "--run-dir", "run", "--model", "best.zarr") == OK
    found = json.loads(capsys.readouterr().out)
    result = json.loads((folder / "run" / "result.json").read_text())
    assert result["seconds"] == found["seconds"] > found["seconds_search"]
    assert sum(result["seconds_by_phase"].values()) == pytest.approx(found["seconds"])
    assert result["n_support"] == found["refit"]["n_support"]


@every_case(
    ("before", "after", "message"),
    [
        (
            "kernel.gamma",
            "kernel.gama",
            "t.toml: tune: grid: kernel.gama: unknown option; did you mean kernel.gamma?",
        ),
        ('[0.5, "scale"]', "[]", "tune: grid: kernel.gamma: found [], expected a list of values"),
        ('[0.5, "scale"]', "[0.5, -1]", "tune.grid: kernel.gamma: found -1, expected a number above 0"),
        ("points = 3", "points = 1", "C: points: found 1, expected a number at least 2"),
        ("folds", "fold", "t.toml: tune: fold: unknown option; did you mean folds?"),
        ("[tune]\nfolds = 3\n[tune.grid]", "[grid]", "t.toml: grid: unknown option"),
        ("folds = 3", "folds = 1000", "tune.folds is 1000, more than the store's 120 rows"),
        (
            'kernel.gamma = [0.5, "scale"]',
            "bsgd.merge = [600]",
            "merge is 600, expected at most the budget, 500",
        ),
    ],
)
def test_mistakes_are_named(folder, capsys, before, after, message):
    (folder / "t.toml").write_text(TOML.replace(before, after))
    assert run() == FAILED
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--out", "t.txt"], "--out t.txt: expected a name ending in .csv, .json or .zarr"),
        (["--heat-map", "t.gif"], "--heat-map t.gif: expected a name ending in .png or .svg"),
        (["--resume"], "--resume needs the --run-dir"),
    ],
)
def test_names_are_checked_first(folder, capsys, words, message):
    assert run(*words) == FAILED
    assert message in capsys.readouterr().err


def test_a_heat_map_needs_two_options(folder, capsys):
    (folder / "t.toml").write_text(TOML.replace('kernel.gamma = [0.5, "scale"]', ""))
    assert run("--heat-map", "t.png") == FAILED
    assert "--heat-map: found C alone with several values, expected two options" in capsys.readouterr().err


@pytest.mark.parametrize("words", [["--config", "t.toml"], ["--set", "search.trials=3"]], ids=["table", "bare"])
@pytest.mark.parametrize("model", [[], ["--model", "best.zarr"]], ids=["search", "model"])
def test_a_search_that_has_ended_is_not_resumed(folder, capsys, words, model):
    """Nothing is fitted, written or replaced again; tables and pictures may be asked for."""

    def tune(*more):
        command = ["tune", "--store", "rows.zarr", "--run-dir", "run", "--json", *words, *model, *more]
        assert exit_status(lambda: app(command, standalone_mode=False)) == OK
        return capsys.readouterr()

    first = json.loads(tune().out)
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}
    again = tune("--resume", "--out", "t.csv")
    assert json.loads(again.out) == first
    assert "the search in run has ended: nothing is left to resume" in again.err
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert (folder / "t.csv").exists()
    other = tune("--resume", "--set", "tol=0.01")
    assert "has ended" not in other.err
