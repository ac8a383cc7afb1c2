"""Probabilities on the command line: made by fit or calibrate, written by predict, scored by evaluate."""

from __future__ import annotations

import csv
import json

import numpy as np
import pytest
import zarr
from making import write

from streamsvm.cli.app import app, exit_status
from streamsvm.data.rows import Rows
from streamsvm.models.files import load_model


def run(*args):
    return exit_status(lambda: app([*map(str, args)], standalone_mode=False))


def made(folder, name, seed, labels=("ant", "bee", "cat"), **columns):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(300, 3)).astype(np.float32)
    y = np.array(labels)[np.digitize(X[:, 0] + 0.5 * rng.normal(size=300), [-0.5, 0.5][: len(labels) - 1])]
    write(folder / name, Rows(X), y, step=100, chunk_rows=100)
    return folder / name


@pytest.fixture
def train(tmp_path):
    return made(tmp_path, "train", 0)


@pytest.fixture
def test(tmp_path):
    return made(tmp_path, "test", 1)


def evaluated(capfd, *args):
    capfd.readouterr()
    assert run("evaluate", *args, "--json") == 0
    return json.loads(capfd.readouterr().out)


@pytest.mark.slow  # several commands
def test_fit_with_probabilities_then_predict_and_evaluate(tmp_path, train, test, capfd):
    how = ("--no-search", "--gamma", 1, "--probability", "isotonic", "--set", "probability.folds=3")
    assert run("fit", "--store", train, "--model", tmp_path / "m", *how, "--json") == 0
    assert "folds" in json.loads(capfd.readouterr().out)["seconds_by_phase"]
    of = ("--model", tmp_path / "m", "--store", test)
    assert run("predict", *of, "--out", tmp_path / "p.csv", "--proba") == 0
    with (tmp_path / "p.csv").open(newline="") as file:
        header, *rows = csv.reader(file)
    assert header == ["label", "probability_ant", "probability_bee", "probability_cat"]
    proba = np.array([row[1:] for row in rows], float)
    assert [row[0] for row in rows] == np.array(["ant", "bee", "cat"])[proba.argmax(axis=1)].tolist()
    assert run("predict", *of, "--out", tmp_path / "p.zarr", "--proba", "--workers", 1) == 0
    np.testing.assert_allclose(zarr.open_group(tmp_path / "p.zarr", mode="r")["probability"][:], proba, rtol=1e-5)
    result = evaluated(capfd, *of)
    assert 0 < result["brier"] < 0.6
    assert 0 < result["log_loss"] < 1.0
    assert 0 < result["ece"] < 0.15
    assert sum(row["count"] for row in result["reliability"]) == 300
    assert run("evaluate", *of) == 0
    assert "Reliability" in capfd.readouterr().out


def test_calibrate_adds_to_a_model_in_its_place_or_beside_it(tmp_path, train, test, capfd):
    model, other = tmp_path / "m", tmp_path / "other"
    assert run("fit", "--store", train, "--model", model, "--no-search", "--gamma", 1) == 0
    of = ("--model", model, "--store", test)
    assert run("predict", *of, "--out", tmp_path / "p.csv", "--proba") == 2
    assert "`streamsvm calibrate --model M --store HELDOUT` adds them" in capfd.readouterr().err
    assert not (tmp_path / "p.csv").exists()
    plain = evaluated(capfd, *of)
    assert run("calibrate", *of, "--out", other, "--method", "isotonic", "--json") == 0
    told = json.loads(capfd.readouterr().out)
    assert (told["model"], told["method"], told["n"]) == (str(other), "isotonic", 300)
    assert "brier" not in evaluated(capfd, *of)
    assert run("calibrate", *of) == 0
    for path in (model, other):
        result = evaluated(capfd, "--model", path, "--store", test)
        assert result["ece"] < 0.1
        assert result["accuracy"] > plain["accuracy"] - 0.05
    assert sorted(p.name for p in tmp_path.iterdir()) == ["m", "other", "test", "train"]


def test_what_cannot_be_calibrated_is_one_line(tmp_path, train, test, capfd):
    ranks = tmp_path / "ranks"
    linear = ("--solver", "cutting-plane", "--kernel", "linear")
    assert run("fit", "--store", train, "--model", ranks, *linear, "--task", "ordinal") == 0
    capfd.readouterr()
    assert run("calibrate", "--model", ranks, "--store", test) == 2
    assert (
        capfd.readouterr().err
        == "error: probabilities go only with task classify or multilabel, found task 'ordinal'\n"
    )
    assert (
        run(
            "fit",
            "--store",
            train,
            "--model",
            tmp_path / "no",
            *linear,
            "--task",
            "ordinal",
            "--probability",
            "sigmoid",
        )
        == 2
    )
    assert "found task 'ordinal'" in capfd.readouterr().err
    assert run("fit", "--store", train, "--model", tmp_path / "m", "--no-search") == 0
    two = made(tmp_path, "two", 2, ("ant", "bee"))
    capfd.readouterr()
    assert run("calibrate", "--model", tmp_path / "m", "--store", two) == 2
    assert capfd.readouterr().err == "error: probabilities need rows of all 3 classes, found 2\n"


def test_costs_of_fit_or_calibrate_are_what_evaluate_judges(tmp_path, train, test, capfd):
    how = ("--no-search", "--gamma", 1, "--probability", "sigmoid", "--set", "probability.folds=2")
    fit = ("fit", "--store", train, "--model", tmp_path / "m", *how)
    assert run(*fit, "--costs", "ant>bee=9,ant>cat=9") == 0
    of = ("--model", tmp_path / "m", "--store", test)
    result = evaluated(capfd, *of)
    assert result["per_class"][0]["recall"] > 0.9
    assert result["cost"] < result["cost_of_likeliest"]
    assert run("calibrate", *of, "--costs", "cat>bee=9", "--out", tmp_path / "other", "--json") == 0
    told = json.loads(capfd.readouterr().out)
    assert (told["method"], told["n"]) == (None, 0)
    assert load_model(tmp_path / "other").costs.tolist() == [[0, 1, 1], [1, 0, 1], [1, 9, 0]]
    for command in ((*fit, "--force"), ("calibrate", *of)):
        assert run(*command, "--costs", "ant>dog=2") == 2
        expected = "error: costs ant>dog: no such label dog; the labels are ant, bee, cat\n"
        assert capfd.readouterr().err.endswith(expected)
        assert run(*command, "--costs", "ant>bee=2", "--threshold", "f1") == 2
        assert "both decide between labels; leave one out" in capfd.readouterr().err


def test_snapshots_of_a_stream_bring_their_probabilities(tmp_path, capfd):
    lines = [json.dumps({"x": {"0": i % 7, "1": i % 3}, "y": "yes" if i % 7 > 3 else "no"}) for i in range(200)]
    (tmp_path / "events").write_text("\n".join(lines))
    assert run("stream", "--model", tmp_path / "m", "--input", tmp_path / "events", "--scale", "none") == 0
    model = load_model(tmp_path / "m")
    rows = Rows(np.array([[i % 7, i % 3] for i in range(200)], np.float32))
    rows = Rows(np.pad(rows.dense(), ((0, 0), (0, model.d - 2))))
    proba = model.predict_proba(rows)
    assert model.predict(rows).tolist() == model.labels(model.decision_function(rows)).tolist()
    assert set(model.classes[proba.argmax(axis=1)]) == {"yes", "no"}


def test_a_threshold_of_fit_or_calibrate_is_what_evaluate_judges(tmp_path, capfd):
    stores = [made(tmp_path, name, seed, ("ant", "bee")) for seed, name in enumerate(("train", "test"))]
    how = ("--no-search", "--gamma", 1, "--set", "holdout=120", "--threshold", "recall=0.95")
    fit = ("fit", "--store", stores[0], "--model", tmp_path / "m", *how)
    assert run(*fit, "--run-dir", tmp_path / "run") == 0
    assert " for recall=0.95, by 120 held-out rows" in capfd.readouterr().out
    told = json.loads((tmp_path / "run" / "result.json").read_text())["threshold"]
    assert load_model(tmp_path / "m").header.threshold == told["value"]
    of = ("--model", tmp_path / "m", "--store", stores[1])
    bee = evaluated(capfd, *of)["per_class"][1]
    assert bee["recall"] == pytest.approx(0.95, abs=0.06)
    capfd.readouterr()
    assert run("calibrate", *of, "--threshold", "precision=0.95", "--out", tmp_path / "other", "--json") == 0
    found = json.loads(capfd.readouterr().out)
    assert found["method"] is None
    there = evaluated(capfd, "--model", tmp_path / "other", "--store", stores[1])
    assert there["per_class"][1]["precision"] == found["threshold"]["precision"] >= 0.95  # the rows that told
    assert "brier" not in there
    assert run("calibrate", *of, "--threshold", "f3") == 2
    assert capfd.readouterr().err.startswith("error: --threshold: found 'f3', expected f1, balanced_accuracy,")
    assert run(*fit, "--force", "--solver", "dcsvm", "--task", "oneclass") == 2
    assert "error: " in capfd.readouterr().err
