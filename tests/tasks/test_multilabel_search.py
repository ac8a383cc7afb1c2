"""What is chosen for label sets: one choice for all labels, by the mean of their accuracies."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
from label_sets import NAMES, command, config, rows, texts
from making import write
from sklearn import metrics as twin

from streamsvm import DCSVC, AutoSVC, Store, load_model
from streamsvm.choosing.metric_search import Trial
from streamsvm.choosing.trials import SampleTrials, TrialSettings, draw_samples
from streamsvm.config import build_config
from streamsvm.data.rows import Rows
from streamsvm.fits.prepare import prepare
from streamsvm.parallel.engine import Engine
from streamsvm.predict import evaluate
from streamsvm.search.options import completed
from streamsvm.train import train_in_memory

FEW: dict[str, Any] = {
    "task": "multilabel",
    "threads": 2,
    "kernel": {"name": "rbf"},
    "search": {"trials": 4},
    "metric": {"kind": "none"},
}


def columns() -> np.ndarray:
    """The rows, in units of their own."""
    return rows()[0] * np.float32([1, 100, 1, 0.01, 1])


@pytest.mark.parametrize("weight", [None, {"10": 4.0}, "balanced"])
def test_the_losses_of_a_trial_are_the_mean_of_those_of_each_label_alone(weight, monkeypatch):
    """And its gradients make a metric, by which columns of noise count little."""
    monkeypatch.setattr("streamsvm.choosing.sample_fits.TOL", 1e-4)
    X, Y = rows()
    X = np.hstack([X, np.random.default_rng(0).normal(size=X.shape).astype(np.float32)])
    searched = {"search": {"options": ["C", "gamma"]}, "metric": {"kind": "diagonal"}, "class_weight": weight}
    fit = config(**searched)

    def tried(y: np.ndarray, fit) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        data = prepare(Store.from_arrays(X, y, sample_weight=np.linspace(0.5, 2, len(X))), fit, Engine(1))
        samples = draw_samples(data, data.scaling, Engine(1))[0][:1]
        trials = SampleTrials(samples, TrialSettings(fit.kernel, None, samples[0].rows), Engine(1))
        trial, factor = Trial("rbf", math.nan, 2.0), np.ones((1, X.shape[1]))
        [found] = trials.tried(trials.n, factor, [trial], None)
        held = samples[0].held_out_data
        cost = held.upper[:, None] * held.targets.weights
        learned = trials.refitted(trials.n, factor, trial, found.alpha)[0]
        return found.losses * cost.mean(), cost.mean(), learned

    losses, cost, learned = tried(texts(Y), fit)
    alone, costs = [], []
    for column, has in enumerate(Y.T):
        own = weight if weight == "balanced" else {"1": (weight or {}).get(NAMES[column], 1.0)}
        update = {"task": "classify", "positive": ("1",), "class_weight": own}
        found = tried(has.astype(int), fit.model_copy(update=update))
        alone.append(found[0])
        costs.append(found[1])
    np.testing.assert_allclose(losses, np.mean(alone, axis=0), atol=1e-6)
    assert cost == pytest.approx(np.mean(costs))
    own, noise = np.split(learned, 2)
    assert own.mean() > 1.2 * noise.max()


def test_a_bare_fit_chooses_once_for_all_labels(tmp_path):
    Y = rows()[1]
    store = Store.from_arrays(columns(), texts(Y))
    model, report = train_in_memory(store, completed([("t", FEW)]))
    found, expected = report["metric"], report["expected"]
    assert (found["scoring"], expected["scoring"], found["scale"]) == ("label_accuracy",) * 2 + ("standard",)
    with pytest.warns(UserWarning, match="scale"):
        plain, _ = train_in_memory(store, completed([("t", {"task": "multilabel", "threads": 2})], searches=False))
    losses = [twin.hamming_loss(Y, own.codes_of(own.decision_function(columns()))) for own in (model, plain)]
    assert losses[0] < losses[1]
    assert expected["low"] < expected["score"] < expected["high"]


def test_fit_and_tune_say_what_they_choose(tmp_path, capfd, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "s.zarr", Rows(columns()), texts(rows()[1]))
    (tmp_path / "few.toml").write_text('task = "multilabel"\nsearch.trials = 3\nmetric.kind = "none"')
    words = ("--store", "s.zarr", "--config", "few.toml")
    status, said, told = command(capfd, "fit", *words)
    assert (status, "Label accuracy" in said) == (0, True), told
    config = load_model(tmp_path / "s.model.zarr").header.config
    best = json.loads(command(capfd, "tune", *words, "--json")[1])
    assert best["best"]["params"]["kernel.gamma"] == config["kernel"]["gamma"]
    assert best["scoring"] == "label_accuracy"


def test_partitions_learn_metrics(monkeypatch):
    """Of columns of which three tell of labels."""
    monkeypatch.setattr("streamsvm.fits.parts.LEAST_ROWS", 100)
    X = np.random.default_rng(0).normal(size=(3000, 15)).astype(np.float32)
    Y = np.column_stack([X[:, 0] > 0, X[:, 1] * X[:, 2] > 0, X[:, 0] + X[:, 1] > 0.5])
    found = {}
    for refits in (0, 2):
        own = {"levels": 1, "part_rows": 1500, "early": True, "part_metric": refits}
        store = Store.from_arrays(X[:2500], texts(Y[:2500]))
        model, _ = train_in_memory(store, config(kernel={"gamma": 0.05}, dcsvm=own, tol=0.1))
        told = model.codes_of(model.decision_function(X[2500:]))
        found[refits] = twin.hamming_loss(Y[2500:], told)
    assert found[2] < 0.7 * found[0]


def test_estimators_choose():
    Y = rows()[1].astype(int)
    svm = DCSVC(C="search", gamma="search", search_params={"trials": 3}, random_state=0).fit(rows()[0], Y)
    assert sorted(svm.chosen_) == ["C", "gamma"]
    assert svm.metric_["scoring"] == "label_accuracy"
    svm = AutoSVC(search_params={"trials": 3}, random_state=0).fit(columns(), Y)
    assert svm.predict(columns()).shape == Y.shape
    assert svm.chosen_["scale"] == "standard"


@pytest.mark.parametrize("holdout", [0, 200])
def test_under_balanced_accuracy_labels_are_weighted(holdout):
    """As in a fit with these weights from the start."""
    rng = np.random.default_rng(0)
    Y = rng.random((4500, 2)) < 0.08
    Y = np.column_stack([Y, rng.random(4500) < 0.5])
    X = (rng.normal(size=(4500, 3)) + Y).astype(np.float32)
    (X, new), (Y, truth) = np.split(X, [700]), np.split(Y, [700])
    store, by = Store.from_arrays(X, texts(Y)), {}
    for scoring in ("accuracy", "balanced_accuracy"):
        asked = FEW | {"search": {"scoring": scoring, "trials": 4, "sample": 500}, "holdout": holdout}
        model, report = train_in_memory(store, completed([("t", asked)]))
        by[scoring] = evaluate(model, Store.from_arrays(new, texts(truth)), engine=Engine(1)), report, model
    (plain, told, _), (balanced, report, model) = by.values()
    assert told["expected"]["scoring"] == "label_accuracy"
    assert balanced["balanced_accuracy"] > plain["balanced_accuracy"] + 0.05
    assert (report["metric"]["class_weight"], report["metric"]["scoring"]) == (
        "balanced",
        "balanced_accuracy",
    )
    assert report["expected"]["scoring"] == "balanced_accuracy"
    assert report["expected"]["score"] == pytest.approx(balanced["balanced_accuracy"], abs=0.1)
    again, _ = train_in_memory(store, build_config(("t", model.header.config | {"search": {"options": []}})))
    np.testing.assert_allclose(again.decision_function(new), model.decision_function(new), atol=1e-3)


def test_estimators_choose_weights():
    X, Y = rows()
    svm = DCSVC(class_weight="search", search_params={"trials": 2, "scoring": "balanced_accuracy"})
    svm.fit(X, Y.astype(int))
    assert svm.chosen_["class_weight"] in (None, "balanced")
