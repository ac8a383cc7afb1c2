"""The card of a model: what it does, of what it was made, how good it is, where it ends."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from every_case import every_case
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits
from sklearn.preprocessing import scale

from streamsvm import ALFPGMSVR, DCSVC
from streamsvm.cli.app import app, exit_status
from streamsvm.models.files import load_model
from streamsvm.online import BSGDClassifier
from streamsvm.report.card import card


def status_of(*words):
    return exit_status(lambda: app([*map(str, words)], standalone_mode=False))


def run(capfd, *words):
    return status_of(*words), *capfd.readouterr()


def cells(text, section):
    """The rows of all tables of a section."""
    own = text.split(f"\n## {section}\n")[1].split("\n## ")[0]
    return [line.strip("| ").split(" | ") for line in own.splitlines() if line.startswith("|")]


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    """A table with text and gaps, a model of it, and the run that made it and has its scores by ward."""
    folder = tmp_path_factory.mktemp("card")
    X, y = load_breast_cancer(return_X_y=True)
    frame = pd.DataFrame(scale(X[:, :3]), columns=["radius", "texture", "perimeter"])
    frame["ward"] = np.array(["east", "a|b", "west"])[np.arange(len(y)) % 3]
    frame.iloc[::9, 1] = np.nan
    frame.assign(label=np.array(["bad", "good"])[y]).to_csv(folder / "t.csv", index=False)
    fit = ("fit", folder / "t.csv", "--label", "label", "--model", folder / "m.zarr", "--no-search", "--C", 7)
    kept = ("--gaps", "mean", "--set", "holdout=100", "--run-dir", folder / "run")
    evaluate = ("evaluate", "--model", folder / "m.zarr", "--store", folder / "t.zarr", "--slice", "ward")
    assert status_of(*fit, *kept) == 0
    assert status_of(*evaluate, "--run-dir", folder / "run") == 0
    return folder


def test_a_card_with_its_run(fitted, capfd):
    out = fitted / "card.md"
    words = ("report", fitted / "run", "--model", fitted / "m.zarr", "--out", out, "--json")
    status, told, _ = run(capfd, *words)
    assert (status, json.loads(told)["out"]) == (0, str(out))
    text, model = out.read_text(), load_model(fitted / "m.zarr")
    assert text.startswith("# Model card: m.zarr\n")
    assert ["classes", "bad, good"] in cells(text, "What it does")
    assert ["radius", "number", "", f"{model.header.scaling.fill[0]:.6g}"] in cells(text, "Columns")
    assert ["ward", "text", "east, a\\|b, west", "0 for each"] in cells(text, "Columns")
    assert ["fingerprint", model.header.fingerprint] in cells(text, "Data")
    assert ["rows", "569"] in cells(text, "Data")
    assert ["C", "7"] in cells(text, "Options")
    assert {"objective", "gap", "tol"} <= {row[0] for row in cells(text, "How exact")}
    assert "from 100 rows, by the model itself" in text
    scores = json.loads((fitted / "run" / "evaluation.json").read_text())
    assert ["accuracy", f"{scores['accuracy']:.6g}"] in cells(text, "Scores")
    assert "By ward:" in text
    assert {"east", "a\\|b", "west"} <= {row[0] for row in cells(text, "Scores")}
    assert "A text that is not listed above counts as 0" in text


def test_a_card_of_the_model_alone(fitted, capfd):
    out = fitted / "alone.md"
    assert run(capfd, "report", "--model", fitted / "m.zarr", "--out", out)[0] == 0
    assert "## Scores" not in out.read_text()
    assert "## What to expect" in out.read_text()


def test_columns_without_names_and_rows_without_gaps():
    text = card(DCSVC().fit(*load_digits(return_X_y=True)).model_, "digits")
    assert "- 64 columns of numbers without names." in text
    assert "- Rows must have 64 columns. Infinite values are refused." in text
    assert "Missing numbers are refused" in text
    assert ["classes", "0, 1, 2, 3, 4, 5, 6, 7, 8, 9"] in cells(text, "What it does")


def test_a_regression_has_no_classes():
    X, y = load_diabetes(return_X_y=True, as_frame=True)
    text = card(ALFPGMSVR(C=10).fit(X, y).model_, "diabetes")
    assert ["task", "regress"] in cells(text, "What it does")
    assert "classes" not in text
    assert ["bmi", "number", "refused"] in cells(text, "Columns")


def test_names_stay_in_their_cells():
    X, y = load_digits(return_X_y=True)
    frame = pd.DataFrame(X[:, :2], columns=["a|b\nc", "<script>"])
    text = card(DCSVC().fit(frame, y).model_, "m")
    assert "| a\\|b c | number |" in text
    assert "<script>" not in text


@every_case(
    ("words", "message"),
    [
        (["--out", "r.html"], "found no run, expected a RUN_DIR, or --model MODEL for the card of a model"),
        (["run", "--out", "r.pdf"], "--out r.pdf: expected a name ending in .html or .md, or --format"),
        (["--model", "m.zarr", "--out", "r.html"], "r.html: expected a name ending in .md"),
        (["run", "run", "--model", "m.zarr", "--out", "r.md"], "found 2 runs, expected the run that made"),
        (
            ["run", "--model", "m.zarr", "--out", "r.md", "--plots", "p"],
            "--plots applies to a page, found a card",
        ),
    ],
)
def test_refusals(fitted, capfd, monkeypatch, words, message):
    monkeypatch.chdir(fitted)
    status, out, err = run(capfd, "report", *words)
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert message in err
    assert not any((fitted / name).exists() for name in ("r.html", "r.md", "p"))


@pytest.mark.parametrize(
    ("task", "score"),
    [("classify", "accuracy"), ("regress", "mean absolute error"), ("oneclass", "outliers")],
)
def test_a_card_of_a_stream(tmp_path, task, score, capfd):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(60, 2)), columns=["temp", "wind"])
    frame["y"] = frame["temp"].round(2) if task == "regress" else np.where(frame["temp"] > 0, 1, -1)
    frame.to_csv(tmp_path / "e.csv", index=False)
    one = ("--lam", "1e-4", "--gamma", "scale") if task == "classify" else ()
    events = ("--input", tmp_path / "e.csv", "--format", "csv", "--task", task, *one)
    status, _, told = run(capfd, "stream", "--model", tmp_path / "m", *events)
    assert status == 0
    assert run(capfd, "report", "--model", tmp_path / "m", "--out", tmp_path / "c.md")[0] == 0
    text, counted = (tmp_path / "c.md").read_text(), json.loads(told.splitlines()[-1])
    assert ["wind", "number", f"{frame['wind'].mean():.6g}"] in cells(text, "Columns")  # the scaled value is 0
    assert {("events", "60"), ("learned", "60"), ("bad", "0")} < set(map(tuple, cells(text, "Data")))
    heads, _, values = cells(text, "Scores")
    value = dict(zip(heads, values, strict=True))[score]
    assert float(value) == pytest.approx(counted[score.replace(" ", "_")], rel=1e-4)
    assert "Events may have any of these columns" in text
    assert "Missing numbers are refused" not in text


@pytest.mark.parametrize(
    ("model", "value"),
    [(BSGDClassifier(), "4.5"), (BSGDClassifier(lam=1e-4, gamma=0.5), "0 in events, refused in stores")],
    ids=["pool", "single learner"],
)
def test_a_card_without_scaling_says_what_takes_the_place_of_a_missing_feature(model, value):
    for i in range(10):
        model.learn_one({"temp": float(i)}, i > 5)
    assert cells(card(model.to_model(), "m"), "Columns")[2:] == [["temp", "number", value]]
