"""River's board: whole on two streams, gone on from, ranks as counted by hand, and who is on it."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score

PIPELINES = Path(__file__).resolve().parents[2] / "pipelines"
sys.path.insert(0, str(PIPELINES))
try:
    import river_board
    from areas import roc_area
    from board_models import LEFT_OUT, MODELS, OURS, Model, rivers
    from board_ranks import Board, critical_difference, whole
    from prequential import Told, prequential
    from river import dummy
    from tables import read
finally:
    sys.path.remove(str(PIPELINES))

STREAMS, CHOSEN = ("Phishing", "SEA"), (OURS, "GaussianNB", "NoChangeClassifier")


def board(out, *more):
    words = ["--data", out, "--out", out / "board", "--events", 200, "--limit-s", 60, "--seeds", 2]
    words += ["--only", ",".join(STREAMS), "--models", ",".join(CHOSEN), *more]
    river_board.main([str(word) for word in words])


def results(out):
    lines = (out / "board" / "results.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    folder = tmp_path_factory.mktemp("board")
    board(folder)
    return folder


@pytest.mark.slow  # the board's learners compile
def test_results_tables_and_a_page(out):
    found = results(out)
    ran = [(r["stream"], r["seed"], r["model"]) for r in found]
    assert ran == [(s, i, m) for s, i in (("Phishing", 1), ("SEA", 1), ("SEA", 2)) for m in CHOSEN]
    for r in found:
        assert r["outcome"] == "done"
        assert r["n"] == 200
        assert r["accuracy"] == pytest.approx(np.mean([share for _, share in r["curve"]]))
        assert [at for at, _ in r["memory"]] == list(range(20, 201, 20))
        assert 0 <= r["roc_auc"] <= 1
    seeds = [r["accuracy"] for r in found if (r["stream"], r["model"]) == ("SEA", OURS)]
    assert seeds[0] != seeds[1]
    assert f"| {OURS} |" in (out / "board" / "board.md").read_text(encoding="utf-8")
    page = (out / "board" / "board.html").read_text(encoding="utf-8")
    assert page.count("<svg") == 3 + len(STREAMS)


@pytest.mark.slow  # the board's learners compile
def test_what_is_there_is_not_run_again(out, monkeypatch):
    monkeypatch.setattr(river_board, "write", lambda out, records: None)
    before = (out / "board" / "results.jsonl").read_bytes()
    lines = before.splitlines(keepends=True)
    failed = json.loads(lines[1]) | {"outcome": "failed: by hand"}
    torn = [lines[0], json.dumps(failed).encode() + b"\n", *lines[2:-1], lines[-1][:40]]
    (out / "board" / "results.jsonl").write_bytes(b"".join(torn))
    board(out)
    found = results(out)
    assert len(found) == len(lines) + 1
    assert found[1]["outcome"] == "failed: by hand"
    whole, ended = [json.loads(line) for line in lines], found[:1] + found[2:]
    named = [[(r["stream"], r["model"], r["seed"], r["accuracy"]) for r in these] for these in (ended, whole)]
    assert sorted(named[0]) == sorted(named[1])


@pytest.mark.slow  # the board's learners compile
def test_figures_are_written_by_the_command_that_they_name(out, monkeypatch):
    figures, before = out / "figures.json", results(out)
    words = ["--data", out, "--out", figures, "--work", out / "board", "--events", 200, "--limit-s", 60]
    words += ["--seeds", 2, "--only", ",".join(STREAMS), "--models", ",".join(CHOSEN)]
    argv = ["river_board.py", *map(str, words)]
    monkeypatch.setattr(sys, "argv", argv)
    river_board.main(argv[1:])
    [run] = read(figures)
    assert [table.title for table in run.tables] == ["Models", "Streams"]
    assert [row["stream"] for row in run.tables[1].rows] == list(STREAMS)
    assert run.command.endswith(f"--only Phishing,SEA --models {','.join(CHOSEN)}")
    assert results(out) == before


@pytest.mark.slow  # the board's learners compile
def test_results_of_other_settings_are_not_gone_on_from(out, capsys):
    with pytest.raises(SystemExit):
        board(out, "--events", 100)
    assert "found {'events': 100" in capsys.readouterr().err


def test_an_unknown_model_and_an_absent_file_are_named(tmp_path, capsys):
    for more, said in (
        (("--models", "SVM"), "SVM: no such"),
        (("--only", "ijcnn1"), "ijcnn1.bz2 is not there"),
    ):
        with pytest.raises(SystemExit):
            board(tmp_path, *more)
        assert said in capsys.readouterr().err


class Late(dummy.NoChangeClassifier):
    def learn_one(self, x, y):
        raise ArithmeticError("too late")


def test_a_model_that_fails_is_a_result(monkeypatch, tmp_path):
    monkeypatch.setitem(MODELS, "Late", Model(Late))
    task = river_board.Task("SEA", 1, "Late")
    found = river_board.measured(task, data=tmp_path, n=50, limit_s=60.0)
    assert found["outcome"] == "failed: ArithmeticError: too late"
    good = river_board.measured(river_board.Task("SEA", 1, "GaussianNB"), data=tmp_path, n=50, limit_s=60.0)
    assert [cell["rank"] for cell in Board([found, good]).cells] == [2, 1]
    half = good | {"stream": "LED"}
    assert whole([found, good, half]) == [found, good]


def test_a_model_is_stopped_in_time(tmp_path):
    found = river_board.measured(river_board.Task("SEA", 1, "GaussianNB"), data=tmp_path, n=50, limit_s=0.0)
    assert found["outcome"] == "stopped after 1 of 50 events"
    assert found["n"] == 1


def test_events_are_predicted_before_they_are_learnt():
    events = [({"x": 0.0}, y) for y in (True, True, False, False, True)]
    told = prequential(dummy.NoChangeClassifier(), events)
    assert told.labels == [None, True, True, False, False]
    assert told.scores([False, True])["accuracy"] == pytest.approx(2 / 5)
    same = prequential(dummy.NoChangeClassifier(), events[:2])
    assert same.scores([True]) == {"accuracy": 0.5, "kappa": 0.0, "roc_auc": None}


@pytest.mark.parametrize("lacking", [(), (1,)])
def test_the_area_is_the_mean_over_the_classes_that_occur(lacking):
    rng = np.random.default_rng(0)
    codes, answers = rng.choice(np.setdiff1d(range(4), lacking), 200), rng.integers(0, 9, (200, 4)) / 9
    by_hand = [roc_auc_score(codes == code, answers[:, code]) for code in np.unique(codes)]
    assert roc_area(codes, answers) == pytest.approx(np.mean(by_hand))
    two = codes > 1
    expected = pytest.approx(roc_auc_score(two, answers[:, 0]))
    assert roc_area(two, answers[:, 0]) == roc_area(two, answers[:, [1, 0]]) == expected
    assert roc_area(np.zeros(5, int), np.ones((5, 3))) is None
    told = Told(list("abca"), list("abca"), [{"a": 1.0}, {"b": 1.0}, {"c": 0.5, "a": 0.5}, {"a": 0.9}])
    assert told.scores(list("abcd"))["roc_auc"] == 1.0


def test_every_classifier_of_rivers_is_on_the_board_or_left_out_for_a_reason():
    assert rivers() == {*MODELS, *LEFT_OUT} - {OURS}


TENTHS = st.lists(st.lists(st.integers(0, 10), min_size=4, max_size=4), min_size=1, max_size=5)


@given(TENTHS)
def test_mean_ranks_are_those_counted_by_hand(rows):
    known = {"kappa": None, "roc_auc": None, "events_per_s": 1.0, "memory": [], "outcome": "done"}
    results = [
        known | {"stream": f"{i}", "model": f"{j}", "seed": 1, "accuracy": tenths / 10}
        for i, row in enumerate(rows)
        for j, tenths in enumerate(row)
    ]
    found = Board(results)
    for j in range(4):
        by_hand = [1 + sum(o > row[j] for o in row) + (sum(o == row[j] for o in row) - 1) / 2 for row in rows]
        assert found.ranks(f"{j}").tolist() == by_hand


@pytest.mark.parametrize(("models", "q"), [(2, 1.960), (4, 2.569), (10, 3.164)])  # Demsar 2006, table 5
def test_the_critical_difference(models, q):
    streams = models * (models + 1)
    assert critical_difference(models, streams) == pytest.approx(q / 6**0.5, abs=1e-3)
