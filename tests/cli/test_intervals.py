"""Intervals on the command line: `fit --interval`, `predict`, `evaluate`, and what of it a report shows."""

from __future__ import annotations

import csv
import json

import numpy as np
import pytest
import zarr
from every_case import every_case
from making import write

from streamsvm.cli.app import app, exit_status
from streamsvm.data.rows import Rows
from streamsvm.report.html import contents
from streamsvm.report.parts import Facts, Plot
from streamsvm.report.read import read_run

FIT = ("fit", "--task", "regress", "--no-search", "--scale", "standard", "--set", "epsilon=0.2")


def run(*words):
    return exit_status(lambda: app([*map(str, words)], standalone_mode=False))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Stores, a model with intervals, and one without."""
    folder = tmp_path_factory.mktemp("intervals")
    rng = np.random.default_rng(0)
    X = rng.normal(size=(900, 2)).astype(np.float32)
    t = 5 * X[:, 0] + rng.normal(size=900)
    for name, rows in (("s", slice(0, 600)), ("t", slice(600, 900))):
        write(folder / name, Rows(X[rows]), t[rows], step=100, chunk_rows=100)
    own = ("--interval", 0.9, "--run-dir", folder / "run")
    assert run(*FIT, "--store", folder / "s", "--model", folder / "m", *own) == 0
    assert run(*FIT, "--store", folder / "s", "--model", folder / "plain") == 0
    return folder


def test_predictions_have_their_ends_in_every_file(folder, capfd):
    def told(out, *more):
        words = ("predict", "--model", folder / "m", "--store", folder / "t", "--out", folder / out, *more)
        assert run(*words) == 0
        return folder / out

    with told("p.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == ["value", "lower", "upper"]
    value, lower, upper = (np.array([float(row[name]) for row in rows]) for name in rows[0])
    np.testing.assert_allclose((lower + upper) / 2, value)
    group = zarr.open_group(told("p.zarr", "--interval", 0.5), mode="r")
    assert set(group) == {"value", "lower", "upper"}
    assert np.all(group["upper"][:] < upper)
    np.testing.assert_array_equal(np.load(told("p.npy")), value)
    both = np.load(told("q.npy", "--interval", 0.9))
    np.testing.assert_array_equal(both, np.stack([lower, upper], axis=1))
    with told("q.csv", "--decision").open() as file:
        assert next(csv.reader(file)) == ["value", "decision", "lower", "upper"]


def test_evaluate_tells_errors_and_coverage(folder, capfd):
    assert run("evaluate", "--model", folder / "m", "--store", folder / "t", "--json") == 0
    found = json.loads(capfd.readouterr().out)
    assert found["root_mean_squared_error"] == pytest.approx(found["mean_squared_error"] ** 0.5)
    assert found["interval"] == 0.9
    assert 0.8 < found["coverage"] < 0.98
    assert found["mean_width"] == pytest.approx(2 * 1.65, rel=0.2)
    assert not {"points", "coverages"} & set(found)
    assert run("evaluate", "--model", folder / "plain", "--store", folder / "t", "--json") == 0
    assert "coverage" not in json.loads(capfd.readouterr().out)


def test_evaluate_tells_the_coverage_of_the_level_that_predict_writes(folder, capfd):
    of = ("--model", folder / "m", "--store", folder / "t", "--interval", 0.5)
    assert run("evaluate", *of, "--json") == 0
    found = json.loads(capfd.readouterr().out)
    assert run("predict", *of, "--out", folder / "half.npy") == 0
    lower, upper = np.load(folder / "half.npy").T
    t = zarr.open_group(folder / "t", mode="r")["y"][:]
    assert found["interval"] == 0.5
    assert found["coverage"] == np.mean((lower <= t) & (t <= upper))
    assert found["mean_width"] == pytest.approx(np.mean(upper - lower))


@pytest.mark.parametrize(
    ("model", "level", "message"),
    [
        ("plain", 0.9, "the model has no intervals"),
        ("m", 0.999, "expected at most 0.99"),
        ("m", 1, "below 1"),
    ],
)
def test_evaluate_tells_of_no_interval_that_is_not_there(folder, model, level, message, capfd):
    words = ("evaluate", "--model", folder / model, "--store", folder / "t", "--interval", level)
    assert run(*words) == 2
    err = capfd.readouterr().err
    assert message in err
    assert err.count("\n") == 1


def test_tune_compares_points_by_their_errors(folder, capfd):
    table = 'task = "regress"\ninterval = 0.9\n[tune]\nfolds = 2\nscoring = "{}"\n[tune.grid]\nC = [0.1, 10]\n'
    scores = []
    for scoring in ("r2", "neg_mean_squared_error", "neg_root_mean_squared_error", "neg_mean_absolute_error"):
        (folder / "t.toml").write_text(table.format(scoring))
        assert run("tune", "--store", folder / "s", "--config", folder / "t.toml", "--json") == 0
        scores.append(json.loads(capfd.readouterr().out)["best"]["score"])
    assert 0.9 < scores[0] < 1
    assert all(-2 < score < -0.5 for score in scores[1:])


def test_a_page_shows_rows_that_were_kept_out_and_then_those_of_evaluate(folder, capfd):
    def shown():
        parts = dict((section.id, list(parts)) for section, parts in contents([read_run(folder / "run")]))
        facts, *plots = parts["predictions"]
        assert isinstance(facts, Facts)
        return facts.values, {part.name: part for part in plots if isinstance(part, Plot)}

    facts, plots = shown()
    assert list(plots) == ["predicted", "residual", "histogram"]
    assert facts["rows of"] == "the fit, not learned from"
    points = plots["residual"].figure.axes[0].lines[0]
    assert len(points.get_xdata()) == 129
    words = ("evaluate", "--model", folder / "m", "--store", folder / "t", "--run-dir", folder / "run")
    assert run(*words) == 0
    facts, plots = shown()
    assert list(plots) == ["predicted", "residual", "histogram", "coverage"]
    assert facts["rows of"].endswith("/t")
    assert facts["interval"] == 0.9
    assert len(plots["residual"].figure.axes[0].lines[0].get_xdata()) == 300
    half = plots["residual"].figure.axes[0].lines[-1].get_ydata()[0]
    assert facts["width"] == pytest.approx(2 * half)


@every_case(
    ("words", "message"),
    [
        ((*FIT, "--interval", 0), "error: --interval: found 0, expected a number above 0"),
        ((*FIT, "--interval", 1), "error: --interval: found 1, expected less than 1"),
        ((*FIT, "--interval", "wide"), "error: --interval: found 'wide', expected a number"),
        ((*FIT, "--interval", 0.999), "error: interval is 0.999, which needs 999 held-out rows"),
        (
            ("fit", "--no-search", "--task", "classify", "--interval", 0.9),
            "interval is read by task regress only",
        ),
    ],
)
def test_what_cannot_be_is_one_line(folder, words, message, capfd):
    assert run(*words, "--store", folder / "s", "--model", folder / "none") == 2
    err = capfd.readouterr().err
    assert message in err
    assert err.count("\n") == 1
    assert not (folder / "none").exists()


@pytest.mark.parametrize(
    ("model", "out", "more", "message"),
    [
        (
            "plain",
            "n.csv",
            ("--interval", 0.9),
            "error: the model has no intervals: `streamsvm fit --task regress",
        ),
        (
            "m",
            "n.csv",
            ("--interval", 0.999),
            "needs 999 held-out rows, and there were 129: expected at most 0.99",
        ),
        ("m", "n.csv", ("--interval", 1), "error: interval is 1, expected a level above 0 and below 1"),
        (
            "m",
            "n.npy",
            ("--interval", 0.9, "--decision"),
            "found --decision and --interval, expected one of them",
        ),
    ],
)
def test_what_no_model_can_tell_is_one_line(folder, model, out, more, message, capfd):
    words = ("predict", "--model", folder / model, "--store", folder / "t", "--out", folder / out, *more)
    assert run(*words) == 2
    err = capfd.readouterr().err
    assert message in err
    assert err.count("\n") == 1
    assert not (folder / out).exists()
