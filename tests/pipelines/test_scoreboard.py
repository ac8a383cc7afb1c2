"""The scoreboard: searches that end in time, ranks, sets with text columns, results that are gone on from."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

PIPELINES = Path(__file__).resolve().parents[2] / "pipelines"
sys.path.insert(0, str(PIPELINES))
try:
    import scoreboard
    import tables
    from scoreboard_data import SETS, problem
    from scoreboard_peers import PEERS, Peer, log
    from scoreboard_ranks import scores, summary, with_ranks
    from scoreboard_search import Search, Trial, parts, rungs
finally:
    sys.path.remove(str(PIPELINES))


def record(name, peer, accuracy):
    found = {"set": name, "peer": peer}
    return found | ({"accuracy": accuracy, "outcome": "done"} if accuracy else {"outcome": "not finished: late"})


BY_HAND = {  # HistGradientBoosting, LightGBM, streamsvm, SVC
    "a": (0.9, 0.8, 0.95, 0.7),
    "b": (0.9, 0.95, 0.9, None),
    "c": (0.5, 0.6, 0.7, 0.7),
}
NAMES = ("HistGradientBoosting", "LightGBM", "streamsvm", "SVC")


def test_scores_are_a_row_for_each_set_with_those_who_are_first():
    known = {"n": 10, "seconds": 1.5}
    numbers = [{"set": "d", "peer": "SVC", "r2": 0.5, "outcome": "done"} | known]
    by_hand = [
        record(name, peer, accuracy) | known
        for name, found in BY_HAND.items()
        for peer, accuracy in zip(NAMES, found, strict=True)
    ]
    accuracy, r2 = scores(with_ranks([*by_hand, *numbers]))
    assert [row["first"] for row in accuracy.rows] == ["streamsvm", "LightGBM", "streamsvm, SVC"]
    assert accuracy.rows[1]["SVC"] is None
    assert accuracy.rows[1]["streamsvm, s"] == 1.5
    assert (r2.title, r2.rows[0]["SVC"], r2.rows[0]["LightGBM"]) == ("R2", "0.500", None)


@pytest.fixture(scope="module")
def ranked():
    return with_ranks([record(name, *pair) for name, row in BY_HAND.items() for pair in zip(NAMES, row, strict=True)])


def test_ranks_are_shared_by_equals_and_last_without_figures(ranked):
    ranks = {name: [r["rank"] for r in ranked if r["set"] == name] for name in BY_HAND}
    assert ranks == {"a": [2, 3, 1, 4], "b": [2.5, 1, 2.5, 4], "c": [4, 3, 1.5, 1.5]}


def test_mean_ranks_and_wins(ranked):
    rows = {row["peer"]: row for row in summary(ranked).rows}
    assert [*rows] == ["streamsvm", "LightGBM", "HistGradientBoosting", "SVC"]
    ours, svc = rows["streamsvm"], rows["SVC"]
    assert float(ours["mean rank"]) == pytest.approx(5 / 3)
    assert (ours["first"], svc["first"]) == (2, 1)
    assert (ours["above HistGradientBoosting"], ours["above LightGBM"]) == ("2 of 3", "2 of 3")
    assert rows["LightGBM"]["above LightGBM"] == ""
    assert svc["finished"] == "2 of 3"
    assert "b, SVC: not finished: late" in summary(ranked).notes


class Clock:
    """Seconds that only fits take: rows / 1000 times the configuration's."""

    def __init__(self):
        self.now, self.fits = 0.0, []

    def __call__(self):
        return self.now

    def evaluate(self, config, rows):
        seconds = config["slow"] * rows / 1000
        self.now += seconds
        self.fits.append(rows)
        return Trial(config, rows, -abs(config["slow"] - 2), seconds)


@pytest.mark.parametrize("seconds", [20, 100, 1000])
def test_searches_end_in_time_and_the_last_fit_too(seconds):
    clock = Clock()
    peer = Peer(
        "sklearn",
        None,
        {"slow": 1.0},
        {"slow": log(0.5, 4)},
        cost=lambda config: config["slow"],
        fixed_rows=0,
    )
    found = Search(peer, clock.evaluate, folds=1, seconds=seconds, clock=clock).run([500, 2000, 8000], 10_000)
    last_fit = found.best.config["slow"] * found.rows / 1000
    assert clock.now + last_fit <= seconds
    assert found.rows == 10_000
    assert found.n_trials == len(clock.fits)
    if seconds == 1000:
        assert found.best.rows == 8000
        assert abs(found.best.config["slow"] - 2) < 0.1


def test_where_all_rows_would_be_late_fewer_are_fitted():
    clock = Clock()
    peer = Peer("sklearn", None, {"slow": 1.0}, {}, power=2, fixed_rows=0)
    found = Search(peer, clock.evaluate, folds=1, seconds=5, clock=clock).run([1000, 4000], 100_000)
    assert 1000 < found.rows < 4000


def test_few_rows_are_held_out_once_each_and_many_once():
    y = np.arange(90) % 3
    folds = parts(y, is_regression=False, seed=0)
    assert sorted(np.concatenate([held for _, held in folds])) == [*range(90)]
    (fitted, held), *more = parts(np.arange(10_000) % 3, is_regression=False, seed=0)
    assert (len(fitted), len(held), more) == (8000, 2000, [])
    assert not set(fitted) & set(held)


def test_rungs_grow_to_all_rows():
    assert rungs(372_000, 1) == [23_250, 93_000, 372_000]
    assert rungs(372_000, 2)[0] < 8000
    assert rungs(100, 1) == [100]


def test_configurations_begin_with_the_defaults_and_are_the_same_for_a_seed():
    for peer in PEERS.values():
        drawn = peer.configs(20, 3)
        assert drawn[0] == peer.first
        assert drawn == peer.configs(20, 3) != peer.configs(20, 4)


def test_capped_sets_keep_all_classes():
    y = np.array(["common"] * 950 + ["rare"] * 50)
    few = problem(np.zeros((1000, 2)), y).capped(40)
    assert len(few.y) == 40
    assert set(few.y) == set(few.y_test) == {0, 1}


def test_text_columns_are_codes_of_both_files_and_weights_are_left_out(tmp_path):
    for name, sectors in (("census", ["b", None, "a"]), ("census.t", ["c", "a"])):
        n = len(sectors)
        columns = {"age": [*range(n)], "sector": pa.array(sectors, pa.string()), "unknown": [0.5] * n}
        income = ["' - 50000.'", "' 50000+.'", "' - 50000.'"][:n]
        pq.write_table(pa.table(columns | {"income_50k": income}), tmp_path / f"{name}.parquet")
    found = SETS["census"](tmp_path)
    assert found.is_text.tolist() == [False, True]
    assert found.X.tolist() == [[0, 2], [1, 0], [2, 1]]
    assert found.X_test.tolist() == [[0, 3], [1, 1]]
    assert (found.y.tolist(), found.y_test.tolist()) == ([0, 1, 0], [0, 1])


def quickly(folder, *words):
    peers = "streamsvm,LinearSVC,RandomForest"
    scoreboard.main(
        [
            "--quick",
            "--data",
            str(folder),
            "--out",
            str(folder / "out"),
            "--peers",
            peers,
            "--seconds",
            "0.4",
            *words,
        ]
    )


@pytest.mark.slow  # processes
def test_a_quick_run_writes_results_and_tables_and_goes_on_from_them(tmp_path, capsys, monkeypatch):
    quickly(tmp_path, "--sets", "breast_cancer")
    kept = (tmp_path / "out" / "results.jsonl").read_text(encoding="utf-8")
    found = [json.loads(line) for line in kept.splitlines()]
    assert [r["peer"] for r in found] == ["streamsvm", "LinearSVC", "RandomForest"]
    assert all(r["accuracy"] > 0.85 and r["roc_auc"] > 0.9 and r["log_loss"] < 0.6 for r in found)
    assert all(r["n"] == 300 and r["model_bytes"] > 0 and r["configs"] > 0 for r in found)
    with (tmp_path / "out" / "scoreboard.csv").open(encoding="utf-8") as file:
        assert sum(float(row["rank"]) for row in csv.DictReader(file)) == 6
    assert "### breast_cancer: 2 classes, 300 rows" in (tmp_path / "out" / "scoreboard.md").read_text(encoding="utf-8")

    with pytest.raises(SystemExit):
        quickly(tmp_path, "--sets", "breast_cancer")
    assert "--resume continues from it" in capsys.readouterr().err
    monkeypatch.setattr(scoreboard, "measure", lambda *args, **options: pytest.fail("measured again"))
    quickly(tmp_path, "--sets", "breast_cancer", "--resume")
    figures = ("--out", str(tmp_path / "board.json"), "--work", str(tmp_path / "out"))
    quickly(tmp_path, "--sets", "breast_cancer", "--resume", *figures)
    [run] = tables.read(tmp_path / "board.json")
    assert [table.title for table in run.tables][:2] == ["Accuracy", "Mean ranks"]
    assert run.tables[0].rows[0].keys() == {
        "set",
        "rows",
        "streamsvm",
        "streamsvm, s",
        "LinearSVC",
        "RandomForest",
        "first",
    }
    assert (tmp_path / "out" / "results.jsonl").read_text(encoding="utf-8") == kept
    assert "### Mean ranks" in capsys.readouterr().out


@pytest.mark.slow  # processes
def test_regression_and_many_classes(tmp_path):
    quickly(tmp_path, "--sets", "diabetes,iris", "--peers", "streamsvm,LinearSVC")
    kept = (tmp_path / "out" / "results.jsonl").read_text(encoding="utf-8")
    found = [json.loads(line) for line in kept.splitlines()]
    assert all(r["r2"] > 0 and 20 < r["mae"] < 70 for r in found[:2])
    assert all(r["accuracy"] > 0.85 and r["roc_auc"] > 0.9 for r in found[2:])


def test_who_is_not_installed_is_named(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(scoreboard.EVERYONE, "LightGBM", Peer("no_such_package", None, {}, {}))
    quickly(tmp_path, "--sets", "iris", "--peers", "LightGBM,LinearSVC")
    out = capsys.readouterr().out
    assert "LightGBM: not installed, left out" in out
    assert "iris, LinearSVC: accuracy" in out


def test_an_absent_file_is_named(tmp_path, capsys):
    with pytest.raises(SystemExit):
        quickly(tmp_path, "--sets", "letter")
    assert "letter.bz2 is not there; --sets chooses others" in capsys.readouterr().err


def followed(code, limits):
    child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    try:
        return scoreboard._followed(child, limits)
    finally:
        child.kill()
        child.communicate()


def test_processes_that_are_late_are_ended():
    with pytest.raises(TimeoutError, match="search and fit took over 1 s"):
        followed("print(1, flush=True); import time; time.sleep(60)", {"ready": 60, "fitted": 1})
    with pytest.raises(EOFError):
        followed("print(1)", {"ready": 60, "fitted": 60})


@pytest.mark.slow  # each process imports everything
def test_processes_are_measured(tmp_path):
    words = ["--out", str(tmp_path), "--sets", "iris", "--seconds", "10", "--cores", "1"]
    scoreboard.main([*words, "--peers", "LinearSVC"])
    found = json.loads((tmp_path / "results.jsonl").read_text(encoding="utf-8"))
    assert found["outcome"] == "done"
    assert 0 <= found["peak_bytes"] < 1 << 30
    assert found["us_per_row"] > 0
