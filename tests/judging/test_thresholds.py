"""Thresholds chosen for a purpose: against every cut tried by hand, scikit-learn's curves, and whole fits."""

from __future__ import annotations

from typing import Any

import cases
import numpy as np
import pytest
from cases import labelled
from every_case import every_case
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import balanced_accuracy_score, f1_score, precision_recall_curve

from streamsvm.config import FitConfig, build_config
from streamsvm.data.folds import make_folds
from streamsvm.data.rows import Rows
from streamsvm.data.store import Store
from streamsvm.errors import ConfigError, DataError, ModelError
from streamsvm.events import Events, warn
from streamsvm.judging.probabilities import held_out
from streamsvm.judging.thresholds import choose_threshold, unmet
from streamsvm.metrics import MOST_SCORES, ScoreCounts
from streamsvm.models.files import load_model, save_model
from streamsvm.online import BSGDClassifier
from streamsvm.options.probability import ThresholdObjective
from streamsvm.parallel.engine import Engine
from streamsvm.train import plan, train, train_in_memory

N = 300
WISHES = ("f1", "balanced_accuracy", "precision=0.8", "recall=0.7", "precision=1.0", "recall=1.0")


def by_hand(wish: ThresholdObjective, positive: np.ndarray, f: np.ndarray, weight: np.ndarray) -> float:
    """The largest value of what is wished for, over every cut: 1 more where it is met, of precision or recall."""
    found = []
    for cut in np.unique(f):
        above = f >= cut
        hits, falls = weight[above & positive].sum(), weight[above & ~positive].sum()
        recall, precision = hits / weight[positive].sum(), hits / (hits + falls) if hits else 0.0
        spared = 1 - falls / weight[~positive].sum()
        own = {
            "f1": 2 * hits / (hits + falls + weight[positive].sum()),
            "balanced_accuracy": (recall + spared) / 2,
            "precision": precision,
            "recall": recall,
        }
        value = own[wish.score]
        if wish.least is not None and value >= wish.least:
            value = 1 + (recall if wish.score == "precision" else precision)
        found.append(value)
    return max(found)


@given(st.integers(0, 2**32 - 1), st.integers(2, 60), st.sampled_from(WISHES), st.booleans())
def test_every_cut_is_tried(seed, h, text, has_weights):
    rng, wish = np.random.default_rng(seed), ThresholdObjective.of(text)
    positive = np.append([True, False], rng.random(h - 2) < 0.4)
    f = np.round(rng.normal(size=h) + positive, int(rng.integers(0, 3)))
    weight = rng.integers(1, 4, h).astype(float) if has_weights else None
    told = choose_threshold(wish, positive, f, weight, 0)
    ones = np.ones(h) if weight is None else weight
    value = told[wish.score]
    if wish.least is not None and told["met"]:
        value = 1 + told["recall" if wish.score == "precision" else "precision"]
    assert value == pytest.approx(by_hand(wish, positive, f, ones))
    labels = f > told["value"]
    assert told["f1"] == pytest.approx(f1_score(positive, labels, sample_weight=weight))
    assert told["balanced_accuracy"] == pytest.approx(balanced_accuracy_score(positive, labels, sample_weight=weight))
    assert (unmet(told) is None) == told["met"]
    if weight is not None:  # a weight of 2 is the row twice
        times = weight.astype(int)
        again = choose_threshold(wish, np.repeat(positive, times), np.repeat(f, times), None, 0)
        assert again["value"] == told["value"]


def test_recall_at_precision_is_that_of_scikit_learns_curve():
    rng = np.random.default_rng(0)
    positive = rng.random(2000) < 0.2
    f = rng.normal(size=2000) + 1.5 * positive
    precision, recall, _ = precision_recall_curve(positive, f)
    for least in (0.5, 0.8, 0.9):
        told = choose_threshold(ThresholdObjective("precision", least), positive, f, None, 0)
        assert told["recall"] == pytest.approx(recall[precision >= least].max())
        told = choose_threshold(ThresholdObjective("recall", least), positive, f, None, 0)
        assert told["precision"] == pytest.approx(precision[recall >= least].max())


def test_scores_that_lost_bits_keep_their_side(monkeypatch):
    monkeypatch.setattr("streamsvm.metrics.MOST_SCORES", 50)
    rng = np.random.default_rng(1)
    f = rng.normal(size=4000) * np.exp(rng.normal(size=4000) * 3)
    counts = ScoreCounts()
    for some in np.split(np.arange(4000), 40):
        counts.add(some % 2 == 0, f[some])
    cuts, hits, falls = counts.above_cuts()
    assert len(cuts) <= 50 < MOST_SCORES
    assert np.all(np.diff(cuts) < 0)
    for cut, above, below in zip(cuts, hits, falls, strict=True):
        assert (np.count_nonzero(f[::2] > cut), np.count_nonzero(f[1::2] > cut)) == (above, below)


@pytest.mark.slow  # many draws
def test_expected_scores_are_those_of_new_rows():
    """The best of many cuts on few rows looks better than it is: the mean over many samples is what new rows score."""
    rng, looks, expected, new = np.random.default_rng(2), [], [], []

    def rows(h: int) -> tuple[np.ndarray, np.ndarray]:
        positive = rng.random(h) < 0.3
        return positive, rng.normal(size=h) + positive

    positive, f = rows(20_000)
    for seed in range(30):
        told = choose_threshold(ThresholdObjective("f1"), *rows(80), None, seed)
        looks.append(told["f1"])
        expected.append(told["expected"]["f1"]["score"])
        new.append(f1_score(positive, f > told["value"]))
    assert np.mean(looks) > np.mean(new) + 0.02
    assert abs(np.mean(expected) - np.mean(new)) < 0.02


def store(k: int = 2) -> Store:
    X, y = labelled(k, N)
    return Store.from_arrays(X, y)


def config(name: str = "dcsvm", wish: str = "recall=0.95", **values: Any) -> FitConfig:
    return cases.config(name, **{"probability": {"threshold": wish, "folds": 3}} | values)


def test_folds_are_those_of_plain_loops():
    found, plain = train_in_memory(store(), config())[0], config(probability={})
    fold, (X, y) = make_folds(store(), 3, True, 0).of, labelled(2, N)
    f = np.empty(N)
    for number in range(3):
        model, _ = train_in_memory(store().subset(np.flatnonzero(fold != number)), plain)
        f[fold == number] = model.decision_function(Rows(X[fold == number]))
    told = choose_threshold(ThresholdObjective("recall", 0.95), y == 1, f, None, 0)
    assert found.header.threshold == pytest.approx(told["value"], abs=1e-5)
    assert found.header.certificate["threshold"]["precision"] == pytest.approx(told["precision"])


@pytest.mark.parametrize("name", list(cases.SOLVERS))
def test_rows_that_are_kept_out_choose(name, tmp_path):
    """In memory and in files, where parts of an early model are no more."""
    X, y = labelled(2, N)
    how = config(name, holdout=100)
    model, report = train_in_memory(store(), how)
    ids = np.sort(np.random.default_rng([0, 26]).choice(N, 100, replace=False))
    f = model.decision_function(Rows(X[ids]))
    told = choose_threshold(ThresholdObjective("recall", 0.95), y[ids] == 1, f, None, 0)
    assert model.header.threshold == report["threshold"]["value"] == pytest.approx(told["value"])
    labels = f > model.header.threshold
    assert np.mean(labels[y[ids] == 1]) >= 0.95
    assert report["threshold"]["accuracy"] == pytest.approx(np.mean(labels == (y[ids] == 1)))
    assert report["expected"]["score"] == report["threshold"]["expected"]["accuracy"]["score"]
    np.testing.assert_array_equal(model.predict(Rows(X[ids])), model.classes[labels.astype(int)])
    train(store(), how, model_path=tmp_path / "m")
    there = load_model(tmp_path / "m")
    assert there.header.threshold == pytest.approx(model.header.threshold, abs=1e-6)
    save_model(there, tmp_path / "m")
    np.testing.assert_array_equal(load_model(tmp_path / "m").predict(Rows(X)), there.predict(Rows(X)))


def test_probabilities_stay_and_labels_are_those_of_the_threshold():
    X, _ = labelled(2, N)
    asked = {"method": "isotonic", "threshold": "recall=0.95", "folds": 3}
    both, _ = train_in_memory(store(), config(probability=asked))
    sure, _ = train_in_memory(store(), config(probability=asked | {"threshold": None}))
    alone, _ = train_in_memory(store(), config())
    np.testing.assert_array_equal(both.predict_proba(Rows(X)), sure.predict_proba(Rows(X)))
    np.testing.assert_array_equal(both.predict(Rows(X)), alone.predict(Rows(X)))
    assert np.any(both.predict(Rows(X)) != sure.predict(Rows(X)))


def test_what_cannot_be_met_is_told_and_the_nearest_is_taken():
    rng = np.random.default_rng(3)
    X, y = rng.normal(size=(N, 3)), np.arange(N) % 4 == 0
    rows, how = Store.from_arrays(X, y), config(wish="precision=1.0")
    with pytest.warns(UserWarning, match=r"precision=1.0: no threshold on 300 held-out rows reaches it.*nearest"):
        _, report = train_in_memory(rows, how, Events(warn))
    assert not report["threshold"]["met"]
    assert report["threshold"]["precision"] < 1


def test_a_held_out_store_chooses_for_a_model_that_is_there():
    X, y = labelled(2, 2 * N)
    model, _ = train_in_memory(store(), config(probability={}))
    asked = build_config(("t", {"probability": {"threshold": "f1"}})).probability
    found, n = held_out(model, Store.from_arrays(X[N:], y[N:]), asked, engine=Engine(1))
    assert n == N
    assert found.header.calibration is None
    told = choose_threshold(ThresholdObjective("f1"), y[N:] == 1, model.decision_function(Rows(X[N:])), None, 0)
    assert found.header.threshold == told["value"]
    np.testing.assert_array_equal(found.decision_function(Rows(X)), model.decision_function(Rows(X)))


@every_case(
    ("values", "text"),
    [
        (
            {"probability": {"threshold": "f2"}},
            "found 'f2', expected f1, balanced_accuracy, precision=NUMBER",
        ),
        ({"probability": {"threshold": "precision=1.2"}}, "above 0 and at most 1"),
        ({"probability": {"threshold": "recall=0"}}, "above 0 and at most 1"),
        ({"probability": {"threshold": "recall=nan"}}, "above 0 and at most 1"),
        ({"probability": {"threshold": "precision"}}, "found 'precision', expected"),
        ({"probability": {"threshold": "f1=0.9"}}, "found 'f1=0.9', expected"),
        ({"probability": {"threshold": 0.3}}, "found 0.3, expected"),
        (
            {"probability": {"threshold": "f1"}, "task": "regress"},
            "a threshold goes only with task classify",
        ),
        (
            {"probability": {"threshold": "f1"}, "solver": "cutting-plane", "kernel": {"name": "linear"}}
            | {"task": "ordinal"},
            "a threshold goes only with task classify or multilabel, found task 'ordinal'",
        ),
        ({"probability": {"threshold": "f1"}}, "threshold: found 3 classes, expected two; give --positive"),
        (
            {"probability": {"threshold": "f1_micro"}},
            "threshold f1_micro is for several labels a row, found task classify; expected another",
        ),
        (
            {"probability": {"threshold": "f1"}, "solver": "alfpgm", "kernel": {"name": "precomputed"}},
            "probability, threshold or interval",
        ),
    ],
)
def test_bad_input_is_one_line(values, text):
    with pytest.raises(ConfigError, match=text) as error:
        plan(store(3), build_config(("t", values)))
    assert "\n" not in str(error.value)


def test_rows_of_one_class_tell_nothing():
    with pytest.raises(DataError, match="needs held-out rows of both classes, found one only"):
        choose_threshold(ThresholdObjective("f1"), np.ones(3, bool), np.arange(3.0), None, 0)


def test_folds_are_planned_where_they_are_needed():
    assert plan(store(), config())["folds"] == 3
    assert "folds" not in plan(store(), config(holdout=100))
    assert plan(store(3), config(positive=("1",)))["folds"] == 3


def test_learning_goes_on_without_a_threshold_only():
    model, _ = train_in_memory(store(), config("bsgd", holdout=100, bsgd={"budget": 30}))
    with pytest.raises(ModelError, match="fit without --threshold"):
        BSGDClassifier.from_model(model)
