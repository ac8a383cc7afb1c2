"""Probabilities and thresholds of label sets: of each label, those that it would have alone."""

from __future__ import annotations

import itertools
import json
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from label_sets import NAMES, K, command, config, rows, texts
from making import write
from sklearn import metrics as twin
from sklearn.base import clone
from stepwise import killed_and_resumed

from streamsvm import DCSVC, BudgetedSVC, CuttingPlaneSVC, Store, load_model
from streamsvm.config import ProbabilityConfig
from streamsvm.data.folds import assign_folds
from streamsvm.data.rows import Rows
from streamsvm.errors import ConfigError, DataError
from streamsvm.exchange.onnx import onnx_model
from streamsvm.explain.decisions import gradients
from streamsvm.explain.importances import importances
from streamsvm.explain.rows import explain_rows
from streamsvm.judging.probabilities import held_out
from streamsvm.judging.thresholds import choose_threshold, choose_thresholds
from streamsvm.models.calibration import calibrate
from streamsvm.models.files import save_model
from streamsvm.options.probability import ThresholdObjective
from streamsvm.parallel.engine import Engine
from streamsvm.predict import evaluate
from streamsvm.tasks.weights import label_costs
from streamsvm.train import train_in_memory

EARLY = {"levels": 1, "part_rows": 100, "early": True}


def halves() -> tuple[tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]:
    X, Y = rows()
    return (X[::2], Y[::2]), (X[1::2], Y[1::2])


def calibrated(wanted: dict, **options):
    """A model of half of the rows, with what the other half says."""
    (X, Y), (more, has) = halves()
    model, _ = train_in_memory(Store.from_arrays(X, texts(Y)), config(**options))
    found, n = held_out(model, Store.from_arrays(more, texts(has)), ProbabilityConfig(**wanted), engine=Engine(2))
    assert n == len(more)
    return found


@pytest.mark.parametrize("method", ["sigmoid", "isotonic"])
@pytest.mark.parametrize("options", [{}, {"class_weight": "balanced"}, {"dcsvm": EARLY}])
def test_probabilities_are_those_of_each_label_alone(method, options):
    (X, _), (more, has) = halves()
    model = calibrated({"method": method}, **options)
    p, f = model.predict_proba(X), model.decision_function(more)
    assert p.shape == (len(X), K)
    weighted = "class_weight" in options  # which decisions know, and probabilities do not
    has_labels = model.decision_function(X) > 0 if weighted else p > 0.5
    np.testing.assert_array_equal(model.predict(X), texts(has_labels))
    if model.header.calibration.by_part is None:
        for column, own in enumerate(has.T):
            alone = calibrate(f[:, [column]], own.astype(int), 2, method=method, pairwise=False)
            expected = alone.probabilities(model.decision_function(X)[:, [column]], 2, pairwise=False)
            np.testing.assert_allclose(p[:, column], expected[:, 1], atol=1e-9)


@pytest.mark.parametrize("wanted", [{"method": "sigmoid"}, {"method": "isotonic"}, {"threshold": "f1"}])
@pytest.mark.parametrize("options", [{}, {"dcsvm": EARLY}])
def test_saved_and_exported_they_say_the_same(wanted, options, tmp_path):
    (X, _), _ = halves()
    model = calibrated(wanted, **options)
    save_model(model, tmp_path / "m.zarr")
    loaded = load_model(tmp_path / "m.zarr")
    for ours, again in zip(model.answers(Rows(X)), loaded.answers(Rows(X)), strict=True):
        np.testing.assert_array_equal(ours, again)
    np.testing.assert_array_equal(loaded.predict(X), model.predict(X))
    session = pytest.importorskip("onnxruntime").InferenceSession(onnx_model(model).SerializeToString())
    np.testing.assert_array_equal(session.run(["label"], {"X": X})[0], model.codes_of(*model.answers(Rows(X))))
    if "method" in wanted:
        [p] = session.run(["probabilities"], {"X": X})
        steepest = 1e-6 if wanted["method"] == "sigmoid" else 1e-5  # a step multiplies how far decisions are off
        np.testing.assert_allclose(p, model.predict_proba(X), atol=steepest)


@pytest.mark.parametrize("wish", ["f1", "recall=0.9"])
def test_thresholds_are_those_of_each_label_alone(wish):
    _, (more, has) = halves()
    model = calibrated({"threshold": wish})
    f = model.decision_function(more)
    told = model.header.certificate["threshold"]
    for column, (own, label) in enumerate(zip(told["labels"], NAMES, strict=True)):
        expected = choose_threshold(ThresholdObjective.of(wish), has[:, column], f[:, column], None, 0)
        assert own == {"label": label} | {name: expected[name] for name in own if name != "label"}
    np.testing.assert_array_equal(model.codes_of(f), f > told["value"])
    found = evaluate(model, Store.from_arrays(more, texts(has)), engine=Engine(1))
    assert found["f1_macro"] == pytest.approx(np.mean([own["f1"] for own in told["labels"]]))
    if wish == "f1":
        assert found["f1_macro"] >= twin.f1_score(has, f > 0, average="macro")


@given(st.integers(0, 2**32 - 1), st.integers(3, 9), st.booleans())
def test_micro_thresholds_are_the_best_of_all_combinations(seed, h, has_weights):
    """Labels that all rows have, or none, among them: these are told above 0."""
    rng, k = np.random.default_rng(seed), 3
    has = rng.random((h, k)) < rng.choice([0.0, 0.3, 0.6, 1.0], k)
    f = np.round(rng.normal(size=(h, k)) + has - 0.5, int(rng.integers(0, 3)))
    weight = rng.integers(1, 4, h).astype(float) if has_weights else None
    with mock.patch("streamsvm.judging.thresholds.DRAWS", 2):
        told = choose_thresholds(ThresholdObjective.of("f1_micro"), has, f, weight, 0)

    def score(thresholds) -> float:
        above, rows = f > thresholds, np.ones(h) if weight is None else weight
        return 2 * (rows @ (has & above)).sum() / max(1, (rows @ (has + above.astype(int))).sum())

    free = has.any(axis=0) & ~has.all(axis=0)
    cuts = [[-10.0, *own] if is_free else [0.0] for own, is_free in zip(f.T, free, strict=True)]
    told_f1 = twin.f1_score(has, f > told["value"], average="micro", sample_weight=weight, zero_division=0)
    assert told["f1_micro"] == pytest.approx(told_f1)
    assert told["f1_micro"] == pytest.approx(max(score(cut) for cut in itertools.product(*cuts)))
    assert [own["met"] for own in told["labels"]] == free.tolist()
    assert np.array(told["value"])[~free].tolist() == [0.0] * np.count_nonzero(~free)


def test_micro_thresholds_of_a_model():
    _, (more, has) = halves()
    model, alone = calibrated({"threshold": "f1_micro"}), calibrated({"threshold": "f1"})
    store, told = Store.from_arrays(more, texts(has)), model.header.certificate["threshold"]
    found, macro = (evaluate(own, store, engine=Engine(1)) for own in (model, alone))
    assert found["f1_micro"] == pytest.approx(told["f1_micro"])
    assert found["f1_micro"] >= macro["f1_micro"]
    for own, row in zip(told["labels"], found["per_class"], strict=True):
        assert (own["label"], own["f1"]) == (row["label"], pytest.approx(row["f1"]))
    expected = told["expected"]["f1_micro"]
    assert expected["low"] < expected["score"] < told["f1_micro"]  # the best looks better than it is


def test_scores_of_probabilities_are_those_of_scikit_learn():
    _, (more, has) = halves()
    model = calibrated({"method": "sigmoid"})
    found, p = (
        evaluate(model, Store.from_arrays(more, texts(has)), engine=Engine(1)),
        model.predict_proba(more),
    )
    losses = [twin.log_loss(own, values) for own, values in zip(has.T, p.T, strict=True)]
    assert [row["log_loss"] for row in found["per_class"]] == pytest.approx(losses)
    assert found["log_loss"] == pytest.approx(np.mean(losses))
    assert found["accuracy"] == np.mean(((p > 0.5) == has).all(axis=1))


def test_labels_are_those_of_the_least_expected_cost(tmp_path):
    (X, Y), (more, has) = halves()
    costs = {"2": {"rest": 6.0}, "rest": {"10": 3.0}}
    model = calibrated({"method": "sigmoid", "costs": costs})
    p, told = model.predict_proba(X), model.codes_of(*model.answers(Rows(X)))
    false, missed = np.array([1.0, 3.0, 1.0]), np.array([6.0, 1.0, 1.0])
    np.testing.assert_array_equal(told, p * missed > (1 - p) * false)
    assert (told != (p > 0.5)).any()
    save_model(model, tmp_path / "m.zarr")
    np.testing.assert_array_equal(load_model(tmp_path / "m.zarr").predict(X), texts(told))
    session = pytest.importorskip("onnxruntime").InferenceSession(onnx_model(model).SerializeToString())
    np.testing.assert_array_equal(session.run(["label"], {"X": X})[0], told)
    found = evaluate(model, Store.from_arrays(X, texts(Y)), engine=Engine(1))
    for name, answer in (("cost", told), ("cost_of_likeliest", p > 0.5)):
        expected = np.where(answer & ~Y, false, 0) + np.where(Y & ~answer, missed, 0)
        assert found[name] == pytest.approx(expected.sum(axis=1).mean())
    svm = DCSVC(C=2.0, gamma=0.2, random_state=0, probability=True, costs={(0, "rest"): 6, ("rest", 1): 3})
    p = svm.fit(X, Y.astype(int)).predict_proba(more)
    np.testing.assert_array_equal(svm.predict(more), p * missed > (1 - p) * false)
    store = Store.from_arrays(more, texts(has))
    with pytest.raises(ConfigError, match="costs 11>rest: expected LABEL>rest"):
        held_out(model, store, ProbabilityConfig(costs={"11": {"rest": 2}}), engine=Engine(1))
    with pytest.raises(ConfigError, match="costs: found a label 'rest', which stands for all others here"):
        label_costs(costs, np.array(["2", "rest"]))
    again, n = held_out(model, store, ProbabilityConfig(threshold="f1"), engine=Engine(1))
    assert (again.costs, n) == (None, len(more))


def test_folds_spread_each_label():
    X, Y = rows()
    Y = Y.copy()
    Y[np.flatnonzero(Y[:, 0])[10:], 0] = False
    of = assign_folds(Store.from_arrays(X, texts(Y)), 5, True, 0, in_sets=True)
    counts = np.stack([np.bincount(of[own], minlength=5) for own in Y.T])
    assert counts[0].tolist() == [2] * 5
    assert (counts[1:].max(axis=1) - counts[1:].min(axis=1) < 12).all()
    Y[np.flatnonzero(Y[:, 0])[1:], 0] = False
    with pytest.raises(DataError, match="less than two rows of label 2, expected at least two of each"):
        assign_folds(Store.from_arrays(X, texts(Y)), 5, True, 0, in_sets=True)


def test_killed_and_resumed_the_folds_are_the_same(tmp_path):
    X, Y = rows()
    store = write(tmp_path / "s", Rows(X), texts(Y), step=100, chunk_rows=100)
    wanted = {"method": "sigmoid", "threshold": "f1", "folds": 3}
    fit = config(probability=wanted, checkpoint_every="1 step", tol=1e-6)  # several steps a fold
    killed_and_resumed(store, fit, tmp_path)
    models = [load_model(tmp_path / name) for name in ("whole", "m")]
    np.testing.assert_array_equal(*(model.predict_proba(X) for model in models))
    np.testing.assert_array_equal(*(model.header.threshold for model in models))


def test_a_label_that_the_rows_say_nothing_of():
    (X, Y), (more, has) = halves()
    has = has.copy()
    has[:, 2] = False
    model, _ = train_in_memory(Store.from_arrays(X, texts(Y)), config())
    store = Store.from_arrays(more, texts(has))
    with pytest.raises(DataError, match="probabilities need rows of all 3 labels, found 2"):
        held_out(model, store, ProbabilityConfig(method="sigmoid"), engine=Engine(1))
    with pytest.warns(UserWarning, match=r"for 1 of 3 labels \(30\); they are decided at the nearest, or at 0"):
        found, _ = held_out(model, store, ProbabilityConfig(threshold="f1"), engine=Engine(1))
    assert found.header.threshold[2] == 0


def test_from_a_store_to_probabilities(tmp_path, capfd, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (X, Y), (more, has) = halves()
    write(tmp_path / "s.zarr", Rows(X), texts(Y))
    write(tmp_path / "t.zarr", Rows(more), texts(has))
    fit = "fit --store s.zarr --task multilabel --C 2 --gamma 0.2 --no-search --model m.zarr --force"
    assert command(capfd, *fit.split(), "--threshold", "recall=0.8", "--set", "holdout=40")[::2] == (0, "")
    status, said, _ = command(capfd, *fit.split(), "--probability", "sigmoid", "--threshold", "f1")
    assert status == 0
    assert "threshold of 10" in said
    calibrate = "calibrate --model m.zarr --store t.zarr"
    assert "f1 micro" in command(capfd, *calibrate.split(), "--threshold", "f1_micro")[1]
    assert command(capfd, *calibrate.split(), "--threshold", "precision=0.8")[0] == 0
    assert json.loads(command(capfd, *calibrate.split(), "--json")[1])["method"] == "sigmoid"
    predict = "predict --model m.zarr --store t.zarr --out p.csv --proba"
    assert command(capfd, *predict.split())[0] == 0
    header, *_ = (tmp_path / "p.csv").read_text().splitlines()
    assert header == "label,probability_2,probability_10,probability_30"
    scored = command(capfd, "evaluate", "--model", "m.zarr", "--store", "t.zarr")
    assert scored[0] == 0
    assert "log loss" in scored[1]


@pytest.mark.parametrize("options", [{}, {"dcsvm": EARLY}, {"solver": "cutting-plane", "kernel": {"name": "linear"}}])
def test_a_label_is_explained_as_in_a_fit_of_it_alone(options):
    (X, Y), (more, _) = halves()
    fit = config(**options)
    model, _ = train_in_memory(Store.from_arrays(X, texts(Y)), fit)
    alone = fit.model_copy(update={"task": "classify", "positive": ("1",)})
    for label, has in zip(NAMES, Y.T, strict=True):
        own, _ = train_in_memory(Store.from_arrays(X, has.astype(int)), alone)
        np.testing.assert_allclose(gradients(model, Rows(more), label), gradients(own, Rows(more)), atol=5e-3)
        found, expected = (importances(m, Rows(more), at).values for m, at in ((model, label), (own, None)))
        np.testing.assert_allclose(found, expected, atol=5e-3)
        asked = Store.from_arrays(more), np.arange(3), np.ones(X.shape[1])
        several = {"shapley": "solver" not in options, "support": 0 if "solver" in options else 2}
        for mine, twin_ in zip(
            explain_rows(model, *asked, **several, label=label),
            explain_rows(own, *asked, **several),
            strict=True,
        ):
            assert mine.for_class == label
            assert mine.decision == pytest.approx(twin_.decision, abs=5e-3)
            assert (mine.shapley is None) or mine.shapley.tolist() == pytest.approx(twin_.shapley, abs=5e-3)
            assert [one.distance for one in mine.nearest] == pytest.approx([one.distance for one in twin_.nearest])
    spread = importances(model, Rows(more)).values
    assert spread.sum() == pytest.approx(1)


def test_explain_names_the_label(tmp_path, capfd, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (X, Y), _ = halves()
    write(tmp_path / "s.zarr", Rows(X), texts(Y))
    save_model(train_in_memory(Store.from_arrays(X, texts(Y)), config())[0], tmp_path / "m.zarr")
    words = ("explain", "--model", "m.zarr", "--store", "s.zarr", "--of-label", "10", "--rows", "0", "--json")
    [row] = json.loads(command(capfd, *words)[1])["rows"]
    assert (row["answer"], row["for_class"]) == (texts(Y)[0], "10")
    assert {vector["label"] for vector in row["support_by_weight"]} <= {"10", None}
    model, _ = train_in_memory(Store.from_arrays(X, Y[:, 0].astype(int)), config(task="classify"))
    save_model(model, tmp_path / "one.zarr")
    words = ("explain", "--model", "one.zarr", "--of-label", "1")
    assert "label is 1: found a model of task classify, whose rows have one answer" in command(capfd, *words)[2]


ESTIMATORS = {
    "exact": DCSVC(C=2.0, gamma=0.2, random_state=0),
    "budgeted": BudgetedSVC(C=2.0, gamma=0.2, budget=100, random_state=0),
    "planes": CuttingPlaneSVC(C=2.0, random_state=0),
}


@pytest.mark.parametrize("name", ESTIMATORS)
def test_estimators(name):
    """Also of columns that are 0, or 1, in all rows."""
    X, Y = rows()
    Y = np.column_stack([Y, np.zeros(len(Y)), np.ones(len(Y))]).astype(np.int8)
    estimator = clone(ESTIMATORS[name]).set_params(probability=True).fit(X, Y)
    p = estimator.predict_proba(X)
    assert p.shape == Y.shape
    np.testing.assert_array_equal(estimator.predict(X), p > 0.5)
    assert p[:, K].max() == 0
    assert p[:, K + 1].min() > 0.98
    for own, values in zip(Y.T[:K], p.T, strict=False):
        assert twin.log_loss(own, values) < twin.log_loss(own, np.full(len(own), own.mean()))
    estimator = clone(ESTIMATORS[name]).set_params(threshold="f1").fit(X, Y[:, :K])
    np.testing.assert_array_equal(estimator.predict(X), estimator.decision_function(X) > estimator.threshold_["value"])


@pytest.mark.parametrize("estimator", [BudgetedSVC(gamma=0.2, random_state=0), CuttingPlaneSVC()])
def test_estimators_of_logistic_loss_have_probabilities(estimator):
    X, Y = rows()
    svm = clone(estimator).set_params(loss="logistic").fit(X, Y.astype(int))
    np.testing.assert_allclose(svm.predict_proba(X), 1 / (1 + np.exp(-svm.decision_function(X))), atol=1e-6)
    np.testing.assert_array_equal(svm.predict(X), svm.decision_function(X) > 0)
