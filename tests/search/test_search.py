"""Searches: both ways give the same scores, nothing is lost or done twice, the best one wins."""

from __future__ import annotations

import json

import numpy as np
import pytest
from sklearn.metrics import f1_score
from sklearn.model_selection import GridSearchCV, PredefinedSplit

from streamsvm import DCSVC, Store, load_model, unread
from streamsvm.config import validated
from streamsvm.data.folds import SUBSET_STREAM, draw_ids, make_folds
from streamsvm.errors import ConfigError
from streamsvm.events import Events, Warned
from streamsvm.search import search as searches
from streamsvm.search.options import TuneConfig, points
from streamsvm.search.search import tune

GRID = {"C": [0.5, 5.0], "kernel": {"gamma": [0.3, 1.5]}}


def store(classes=2, n=300, **columns):
    rng = np.random.default_rng(classes)
    X = rng.normal(size=(n, 3)).astype(np.float32)
    y = np.digitize(X[:, 0] * X[:, 1] + 0.3 * rng.normal(size=n), [0.1, 0.8][: classes - 1])
    return Store.from_arrays(X, np.array(["a", "b", "c"])[y], **columns)


def searched(rows, base=None, grid=GRID, **options):
    tried = validated(TuneConfig, ("tune", {"grid": grid, "folds": 3, **options.pop("tune", {})}))
    return tune(rows, tried, points(tried, ("base", base or {})), **options)


def by_point(found):
    return {tuple(r[name] for name in found["best"]["params"]): r["fold_scores"] for r in found["results"]}


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize(
    ("base", "apart"),
    [
        ({"solver": "dcsvm", "tol": 1e-5}, 0.0),
        ({"solver": "dcsvm", "class_weight": {"a": 3.0}, "tol": 1e-5}, 0.0),
        ({"solver": "alfpgm"}, 0.0),
        ({"solver": "alfpgm", "multiclass": "rest"}, 0.0),
        ({"solver": "admm-hss", "hss": {"leaf": 50, "rtol": 1e-6, "atol": 1e-6, "iterations": 300}}, 0.02),
    ],
    ids=["dcsvm", "weights", "alfpgm", "against the rest", "admm-hss"],
)
@pytest.mark.slow  # a fit for each fold and value
def test_folds_as_bounds_and_fit_by_fit_give_the_same_scores(base, apart, classes):
    rows = store(classes)
    shared, plain = (by_point(searched(rows, base, tune={"share": share})) for share in (True, False))
    assert shared.keys() == plain.keys()
    for point, scores in plain.items():
        np.testing.assert_allclose(shared[point], scores, atol=apart + 1e-12)


@pytest.mark.parametrize("columns", [{}, {"qid": np.arange(300) // 7}], ids=["rows", "queries"])
@pytest.mark.parametrize("asked", [False, True])
def test_of_many_rows_some_are_compared_and_the_model_is_of_all(asked, columns, monkeypatch, tmp_path):
    rows, told = store(**columns), list[str]()
    if not asked:
        monkeypatch.setattr(searches, "MOST_ROWS", 120)
    more = {"tune": {"rows": 120}} if asked else {}
    events = Events(lambda record: told.append(record.event))
    found = searched(rows, {"solver": "dcsvm"}, **more, model_path=tmp_path / "m", events=events)
    assert all(113 <= record["rows"] <= 120 for record in found["results"])
    assert found["refit"]["n"] == 300
    said = [event.message for event in told if isinstance(event, Warned) and "tune.rows" in event.message]
    assert len(said) == (0 if asked else 1)
    ids = draw_ids(300, 120, np.random.default_rng([0, SUBSET_STREAM]))
    if not columns:
        assert by_point(found) == by_point(searched(rows.subset(ids), {"solver": "dcsvm"}))


def test_numbers_by_chance_are_different_and_rise():
    for n, count in ((10, 10), (10, 6), (1000, 1), (10**12, 5000)):
        ids = draw_ids(n, count, np.random.default_rng(0))
        assert len(ids) == count == len(np.unique(ids))
        assert ids[0] >= 0
        assert ids[-1] < n
        assert np.all(np.diff(ids) > 0)
    many = np.concatenate([draw_ids(20, 5, np.random.default_rng(seed)) for seed in range(2000)])
    assert np.abs(np.bincount(many) / 500 - 1).max() < 0.2


def test_the_same_as_a_scikit_learn_search():
    rows = store()
    folds = make_folds(rows, 3, True, 0)
    X = rows.read(0, rows.n).dense()
    grid = {"C": [0.5, 5.0], "gamma": [0.3, 1.5]}
    theirs = GridSearchCV(DCSVC(tol=1e-6), grid, cv=PredefinedSplit(folds.of)).fit(X, rows.y)
    ours = searched(rows, {"tol": 1e-6})
    assert ours["best"]["params"]["C"] == theirs.best_params_["C"]
    assert ours["best"]["params"]["kernel.gamma"] == theirs.best_params_["gamma"]
    assert ours["best"]["score"] == pytest.approx(theirs.best_score_)
    means = sorted(theirs.cv_results_["mean_test_score"])
    np.testing.assert_allclose(sorted(r["mean_score"] for r in ours["results"]), means)


@pytest.mark.parametrize(
    ("base", "grid"),
    [
        ({"solver": "bsgd", "kernel": {"gamma": 1.0}}, {"bsgd.budget": [10, 50], "bsgd.merge": [2, 4]}),
        (
            {"solver": "cutting-plane", "kernel": {"name": "linear"}},
            {"C": {"low": 0.1, "high": 10, "points": 3}},
        ),
        ({"dcsvm": {"early": True, "levels": 1}}, {"C": [1.0]}),
    ],
    ids=["bsgd", "cutting-plane", "early"],
)
def test_every_solver_can_be_tuned(base, grid):
    found = searched(store(), base, grid)
    assert found["best"]["score"] > 0.5
    assert [r["rank"] for r in found["results"]] == list(range(1, 1 + len(found["results"])))


def test_natural_scores_of_tasks():
    rng = np.random.default_rng(0)
    X = rng.random((200, 2)).astype(np.float32)
    curve = Store.from_arrays(X, np.sin(5 * X[:, 0]))
    found = searched(curve, {"solver": "alfpgm", "task": "regress", "alfpgm": {"epsilon": 0.01}}, {"C": [1.0, 100.0]})
    assert found["scoring"] == "r2"
    assert found["best"]["score"] > 0.9
    queries = Store.from_arrays(X, (X[:, 0] * 3).astype(int), qid=np.arange(200) // 10)
    linear = {"solver": "cutting-plane", "kernel": {"name": "linear"}}
    found = searched(queries, linear, {"C": [0.1, 1.0]})
    assert found["scoring"] == "ndcg"
    assert found["best"]["score"] > 0.9
    grades = Store.from_arrays(X, (X[:, 0] * 3).astype(int))
    found = searched(grades, linear | {"task": "ordinal"}, {"C": [0.1, 10.0]})
    assert -1 < found["best"]["score"] <= 0


def test_other_scores():
    rows = store(3)
    folds = make_folds(rows, 3, True, 0)
    found = searched(rows, grid={"C": [5.0]}, tune={"scoring": "f1_macro"})
    X = rows.read(0, rows.n).dense()
    for fold, score in enumerate(found["results"][0]["fold_scores"]):
        train, held = folds.members(fold)
        expected = DCSVC(C=5.0).fit(X[train], rows.y[train]).predict(X[held])
        assert score == pytest.approx(f1_score(rows.y[held], expected, average="macro"), abs=0.02)
    assert searched(store(), grid={"C": [5.0]}, tune={"scoring": "roc_auc"})["best"]["score"] > 0.7
    with pytest.raises(
        ConfigError, match="tune.scoring is 'roc_auc', which these labels do not have; they have accuracy"
    ):
        searched(rows, grid={"C": [5.0]}, tune={"scoring": "roc_auc"})


def test_the_best_point_is_trained_on_all_rows(tmp_path):
    rows = store()
    found = searched(rows, model_path=tmp_path / "model")
    config = load_model(tmp_path / "model").header.config
    assert found["refit"]["n"] == rows.n
    assert config["C"] == found["best"]["params"]["C"]
    assert config["kernel"]["gamma"] == found["best"]["params"]["kernel.gamma"]


class TestHalving:
    GRID = {"C": [0.01, 0.1, 1.0, 10.0, 100.0], "kernel.gamma": [0.01, 1.0]}

    def test_rows_grow_while_points_get_fewer(self):
        found = searched(store(), grid=self.GRID, tune={"search": "halving"})
        rows = [r["rows"] for r in found["results"]]
        expected = 2 * [300] + 2 * [100] + 6 * [33]
        np.testing.assert_allclose(rows, expected, atol=6)  # every class has whole rows in every fold
        full = searched(store(), grid=self.GRID)
        assert found["best"]["score"] >= full["best"]["score"] - 0.08

    def test_smallest_rows(self):
        found = searched(store(), grid=self.GRID, tune={"search": "halving", "smallest_rows": 60, "factor": 5})
        np.testing.assert_allclose([r["rows"] for r in found["results"]], 2 * [300] + 8 * [60], atol=6)
        with pytest.raises(ConfigError, match="tune.smallest_rows is 301, more than the store's 300 rows"):
            searched(store(), grid=self.GRID, tune={"search": "halving", "smallest_rows": 301})


class TestInterrupted:
    def test_what_was_known_is_not_done_again(self, tmp_path, monkeypatch):
        whole = searched(store())
        kept = searches.ScoreTable.add
        count = 0

        def killed(self, outcome, share):
            nonlocal count
            count += 1
            if count > 7:
                raise KeyboardInterrupt
            kept(self, outcome, share)

        with monkeypatch.context() as patch:
            patch.setattr(searches.ScoreTable, "add", killed)
            with pytest.raises(KeyboardInterrupt):
                searched(store(), run_dir=tmp_path)
        with (tmp_path / "scores.jsonl").open("a") as file:
            file.write('{"event": "score", "poi')  # torn by a kill
        added = []
        monkeypatch.setattr(searches.ScoreTable, "add", lambda *args: (added.append(args[1]), kept(*args)))
        again = searched(store(), run_dir=tmp_path, resume=True)
        assert len(added) == 12 - 7
        assert by_point(again) == by_point(whole)
        assert json.loads((tmp_path / "tune.json").read_text()) == again["results"]
        added.clear()
        searched(store(), run_dir=tmp_path, resume=True)
        assert not added

    def test_scores_of_folds_that_were_dealt_in_another_way_are_replaced(self, tmp_path):
        whole, path = searched(store(), run_dir=tmp_path), tmp_path / "scores.jsonl"
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        del lines[0]["folds"]  # as before scikit-learn dealt them
        for line in lines[1:]:
            line["score"] = 2.0
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
        told = []
        again = searched(store(), run_dir=tmp_path, resume=True, events=Events(told.append))
        assert by_point(again) == by_point(whole)
        [message] = [record.event.message for record in told if isinstance(record.event, Warned)]
        assert message.endswith("which this one replaces; its folds were split differently")

    def test_another_search_is_refused_and_told_apart(self, tmp_path):
        searched(store(), run_dir=tmp_path)
        with pytest.raises(ConfigError, match=r"another store or configuration \(scale was none, is minmax\)"):
            searched(store(), {"scale": "minmax"}, run_dir=tmp_path, resume=True)
        with pytest.raises(ConfigError, match=r"\(store was"):
            searched(store(3), run_dir=tmp_path, resume=True)
        with pytest.raises(ConfigError, match=r"\(tune.folds was 3, is 4\)"):
            searched(store(), run_dir=tmp_path, resume=True, tune={"folds": 4})
        with pytest.warns(UserWarning, match="which this one replaces; --resume would continue from them"):
            searched(store(), {"tol": 0.01}, run_dir=tmp_path)  # without --resume it starts anew

    def test_scores_to_another_tol_are_replaced(self, tmp_path):
        """They are of other fits, and a table compares fits to one tolerance."""
        searched(store(), {"tol": 0.5}, run_dir=tmp_path)
        with pytest.warns(UserWarning, match=r"which this one replaces; its tol was 0.5, and is 0.001 now"):
            again = searched(store(), run_dir=tmp_path, resume=True)
        assert by_point(again) == by_point(searched(store()))


@pytest.mark.parametrize(
    ("base", "share"),
    [
        ({"tol": 1e-30}, True),
        ({"tol": 1e-30}, False),
        ({"solver": "alfpgm", "tol": 1e-30}, True),
        ({"solver": "admm-hss", "hss": {"leaf": 50, "iterations": 1}}, True),
        ({"solver": "admm-hss", "hss": {"leaf": 50, "iterations": 1}}, False),
        ({"solver": "cutting-plane", "kernel": {"name": "linear"}, "cutting_plane": {"passes": 2}}, True),
    ],
    ids=["folds together", "fold by fold", "alfpgm", "admm-hss", "admm-hss fold by fold", "cutting-plane"],
)
def test_fits_on_folds_that_do_not_converge_are_counted_and_said_once(base, share, tmp_path):
    rows, told = store(n=90), list[str]()
    options = {"tune": {"share": share}, "grid": {"C": [1e4]}, "run_dir": tmp_path}
    events = Events(lambda record: told.append(record.event))
    found = searched(rows, base, **options, events=events)
    assert found["not_converged"] == 3
    [said] = [event for event in told if isinstance(event, Warned) and event.about == "convergence"]
    assert said.message.startswith("not converged: 3 of 3 fits on folds, the first of them at C 10000.0, ")
    again = searched(rows, base, **options, resume=True, events=events)
    assert again["not_converged"] == 3
    assert searched(rows, grid={"C": [1.0]})["not_converged"] == 0


def test_what_points_do_not_read_is_asked_once_for_each(monkeypatch):
    asked, unread_of = [], unread.unread
    monkeypatch.setattr(unread, "unread", lambda config: asked.append(config) or unread_of(config))
    assert len(points(TuneConfig(grid={"C": [1.0, 2.0], "kernel.gamma": [0.5, 1.0]}))) == 4
    assert len(asked) == 4


@pytest.mark.parametrize("share", [True, False])
def test_points_that_fail_are_dropped_and_counted(share):
    rows, told = store(), list[str]()
    rows = Store.from_arrays(1e20 * rows.read(0, 300).X, rows.y)
    grid = {"scale": ["none", "standard"], "C": [1.0, 10.0]}
    events = Events(lambda record: told.append(record.event))
    found = searched(rows, grid=grid, tune={"share": share}, events=events)
    assert [(record["scale"], record["rank"]) for record in found["results"]] == [
        ("standard", 1),
        ("standard", 2),
    ]
    assert found["failed"] == 2
    [said] = [event.message for event in told if isinstance(event, Warned) and "points" in event.message]
    assert said.startswith("2 of 4 points failed and were dropped, the first of them (scale none, C 1.0) as")
    halved = searched(rows, grid=grid, tune={"share": share, "search": "halving"}, events=events)
    assert halved["best"]["params"]["scale"] == "standard"
    with pytest.raises(ConfigError, match="scale the features"):
        searched(rows, grid={"scale": ["none"], "C": [1.0, 10.0]}, tune={"share": share})
