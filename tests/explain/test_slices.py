"""Scores of the rows of each value of a text column."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits
from sklearn.preprocessing import scale

from streamsvm import DCSVC, BudgetedSVR
from streamsvm.cli.app import app, exit_status
from streamsvm.data.store import Store
from streamsvm.errors import ConfigError
from streamsvm.explain.slices import OTHER, evaluate_sliced
from streamsvm.parallel.engine import Engine
from streamsvm.predict import evaluate

WARDS = np.array(["east", "north", "west", ""])


def frame_of(load):
    """Real columns beside a ward; a quarter of the rows have none."""
    X, y = load(return_X_y=True)
    frame = pd.DataFrame(scale(X), columns=[f"x{i}" for i in range(X.shape[1])])
    wards = WARDS[np.random.default_rng(0).integers(0, 4, len(y))]
    return frame.assign(ward=pd.Series(wards).replace("", None)), y


@pytest.mark.parametrize(
    ("load", "estimator"),
    [
        (load_breast_cancer, DCSVC(C=10, probability=True)),
        (load_digits, DCSVC(C=10)),
        (load_diabetes, BudgetedSVR()),
    ],
)
def test_each_value_is_scored_as_its_rows_alone_are(load, estimator):
    frame, y = frame_of(load)
    model, store = estimator.fit(frame, y).model_, Store.from_arrays(frame, y)
    store.blocks = lambda: Store.blocks(store, 100)  # several
    assert len(store.blocks()) > 4
    found = evaluate_sliced(model, store, ["ward"], engine=Engine(2))
    whole = evaluate(model, store, engine=Engine(2))
    assert {name: found[name] for name in whole} == whole
    assert [row["n"] for row in found["slices"]["ward"]] == sorted(
        (row["n"] for row in found["slices"]["ward"]), reverse=True
    )
    assert {row["value"] for row in found["slices"]["ward"]} == {"east", "north", "west", OTHER}
    for row in found["slices"]["ward"]:
        own = frame["ward"].isna() if row["value"] == OTHER else frame["ward"] == row["value"]
        alone = evaluate(model, store.subset(np.flatnonzero(own)), engine=Engine(2))
        assert row.pop("value")
        assert row == pytest.approx({name: alone[name] for name in row}, rel=1e-4)
        assert "r2" in row or "accuracy" in row


@pytest.mark.parametrize(
    ("column", "message"),
    [
        ("no", "--slice no: the data has no such column; it has 'x0', 'x1'"),
        ("id", "--slice id: has 150 values, expected at most 100: a column of categories"),
    ],
)
def test_refusals(column, message):
    frame, y = frame_of(load_breast_cancer)
    model = DCSVC().fit(frame, y).model_
    if column == "id":
        frame["id"] = [f"r{i % 150}" for i in range(len(y))]
    with pytest.raises(ConfigError, match=message):
        evaluate_sliced(model, Store.from_arrays(frame, y), [column], engine=Engine(1))


def test_a_store_without_text():
    X, y = load_digits(return_X_y=True)
    with pytest.raises(
        ConfigError, match="--slice a: the data has no such column; it has numbers from 0 to 63"
    ):
        evaluate_sliced(DCSVC().fit(X, y).model_, Store.from_arrays(X, y), ["a"], engine=Engine(1))


def test_labels_that_the_model_does_not_know_have_no_scores():
    frame, y = frame_of(load_digits)
    model = DCSVC().fit(frame, y).model_
    y[frame["ward"] == "east"] = 77
    found = evaluate_sliced(model, Store.from_arrays(frame, y), ["ward"], engine=Engine(1))
    [row] = [row for row in found["slices"]["ward"] if row["value"] == "east"]
    assert row["n"] == np.sum(frame["ward"] == "east")
    assert row["accuracy"] is None


def test_on_the_command_line_with_a_store_a_file_and_a_run(tmp_path, capfd):
    frame, y = frame_of(load_breast_cancer)
    frame.assign(label=y).to_csv(tmp_path / "t.csv", index=False)

    def run(*words):
        status = exit_status(lambda: app([*map(str, words)], standalone_mode=False))
        return status, *capfd.readouterr()

    model, folder = tmp_path / "m", tmp_path / "run"
    fit = ("fit", tmp_path / "t.csv", "--label", "label", "--model", model, "--no-search")
    assert run(*fit, "--scale", "standard", "--run-dir", folder)[0] == 0
    asked = ("evaluate", "--model", model, "--slice", "ward")
    status, out, _ = run(*asked, tmp_path / "t.csv", "--json", "--run-dir", folder)
    of_file = json.loads(out)
    assert (status, [*of_file["slices"]], len(of_file["slices"]["ward"])) == (0, ["ward"], 4)
    assert json.loads((folder / "evaluation.json").read_text())["slices"] == of_file["slices"]
    assert json.loads(run(*asked, "--store", tmp_path / "t.zarr", "--json")[1])["slices"] == of_file["slices"]
    assert "By ward" in run(*asked, tmp_path / "t.csv")[1]
    assert run("report", folder, "--out", tmp_path / "r.html")[0] == 0
    assert "By ward" in (tmp_path / "r.html").read_text()
    status, out, err = run("evaluate", "--model", model, "--slice", "no", tmp_path / "t.csv")
    assert (status, out, err.count("\n")) == (2, "", 1)
