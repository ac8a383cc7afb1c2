"""What `fit` says of what it chose, from reports that are made up."""

from __future__ import annotations

import numpy as np
import pytest

from streamsvm.cli.app import app
from streamsvm.cli.choices import choices, print_fit, scores, times
from streamsvm.data.rows import Rows
from streamsvm.data.writer import StoreWriter
from streamsvm.search.options import completed

METRIC = {
    "kind": "diagonal",
    "kernel": "laplacian",
    "C": 10 / 9,
    "gamma": 0.2206248,
    "scale": "standard",
    "columns": 3,
    "importances": [["height", 0.6], ["slope", 0.3], ["a", 0.06], ["b", 0.04]],
    "scoring": "accuracy",
    "score": 0.8777,
    "plain_score": 0.8601,
    "given_score": 0.8294,
    "rungs": [{"rows": 1500}, {"rows": 12000}],
}
EXPECTED = {"scoring": "accuracy", "score": 0.88, "low": 0.861, "high": 0.895, "rows": 3000, "model": False}
REPORT = {
    "solver": "dcsvm",
    "n": 15000,
    "d": 10,
    "exact": True,
    "gamma": 0.2206248,
    "metric": METRIC,
    "expected": EXPECTED,
    "seconds": 6.1,
    "seconds_by_phase": {
        "start": 0.7,
        "compile": 0.4,
        "search": 4.0,
        "regions": 0.6,
        "top": 0.3,
        "save": 0.1,
    },
    "model": "m.zarr",
    "config": "m.fit.toml",
}
BARE = completed([])


def test_what_was_chosen_is_said_option_by_option():
    assert choices(REPORT, BARE) == {
        "kernel": "laplacian",
        "gamma": "0.2206",
        "C": "1.111",
        "scale": "standard",
        "metric": "diagonal: 3 of 10 columns count, most: height (60.0 %), slope (30.0 %), a (6.0 %)",
        "prediction": "exact: the whole problem is solved",
    }


def test_a_gap_is_next_to_its_objective_and_converged_next_to_tol(capsys):
    report = REPORT | {"objective": -2000.0, "gap": 1.0, "converged": False}
    print_fit(report, BARE, ["streamsvm", "fit"])
    said = " ".join(capsys.readouterr().out.split())
    assert "gap 1, 0.0005 of the objective converged no, to tol 0.001" in said
    print_fit(report | {"gap": None, "converged": None}, BARE, ["streamsvm", "fit"])  # a solver of passes
    assert "to tol" not in capsys.readouterr().out


def test_options_that_were_given_are_marked():
    found = choices(REPORT, completed([("flags", {"C": 3.0, "dcsvm": {"early": True}})]))
    assert found["C"] == "1.111 (not searched)"
    assert "prediction" not in found


def test_why_there_is_no_metric_and_no_exact_fit():
    metric = METRIC | {"kind": "none", "reason": "held-out rows are predicted equally well without one"}
    found = choices(REPORT | {"metric": metric, "exact": False}, BARE)
    assert found["metric"] == "none: held-out rows are predicted equally well without one"
    assert found["prediction"].startswith("early: an exact fit would take too long")


def test_scores_are_percent_and_compared():
    assert scores(REPORT) == {
        "search, as chosen": "87.8 %",
        "search, without the metric": "86.0 %",
        "search, with the defaults": "82.9 %",
        "expected on new rows": "88.0 %, by 3,000 held-out rows of the search",
        "19 of 20 such tests": "86.1 % to 89.5 %",
    }
    same = METRIC | {"plain_score": METRIC["score"], "given_score": METRIC["score"]}
    assert list(scores(REPORT | {"metric": same, "expected": None})) == ["search, as chosen"]


def test_a_score_of_a_regression_is_no_share():
    metric = METRIC | {"scoring": "r2"}
    assert scores(REPORT | {"metric": metric, "expected": None})["search, as chosen"] == "0.8777"


def test_rows_that_were_kept_out_are_named():
    found = scores(REPORT | {"expected": EXPECTED | {"model": True}})["expected on new rows"]
    assert found == "88.0 %, by 3,000 rows kept out of the fit"


def test_dense_regions_are_scored_on_their_own():
    metric = METRIC | {"regions": [{"score": 0.9}, {"score": 0.92}]}
    assert scores(REPORT | {"metric": metric})["search, in dense regions"] == "92.0 %"


def test_seconds_are_parted():
    assert times(REPORT) == "6.1 s: start 0.7 s, compile 0.4 s, search 4.6 s, fit 0.4 s"
    assert times({"seconds": 1.0}) == "1.0 s"


def test_all_lines_fit_a_terminal(capsys):
    print_fit(REPORT, BARE, ["streamsvm", "fit", "--store", "s.zarr"])
    out = capsys.readouterr().out
    assert max(len(line.rstrip()) for line in out.splitlines()) <= 100
    head = "Chosen by fits on up to 12,000 of 15,000 rows, compared on 3,000 held-out rows"
    assert out.splitlines()[0] == head
    assert "repeat: streamsvm fit --store s.zarr --config m.fit.toml --force" in out


def test_where_nothing_could_be_chosen_the_reason_is_said(capsys):
    print_fit(REPORT | {"metric": {"kind": "none", "reason": "too few rows"}}, BARE, ["streamsvm", "fit"])
    assert "Nothing was chosen" in capsys.readouterr().out


@pytest.mark.slow  # two fits: the command that was printed is run
def test_the_command_that_is_printed_repeats_the_fit(tmp_path, capfd, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 3)).astype(np.float32)
    with StoreWriter(tmp_path / "s.zarr", d=3, dtype="float32") as writer:
        writer.append(Rows(X), (X[:, 0] * X[:, 1] > 0).astype(int))
    app(["fit", "--store", "s.zarr"], standalone_mode=False)
    first = capfd.readouterr().out
    [repeat] = [line for line in first.splitlines() if line.startswith("repeat: streamsvm ")]
    app(repeat.split()[2:], standalone_mode=False)
    again = capfd.readouterr().out

    def told(text, name):
        return [line.split() for line in text.splitlines() if line.startswith(name)]

    for name in ("objective", "support vectors", "gap"):
        assert told(first, name) == told(again, name) != []
