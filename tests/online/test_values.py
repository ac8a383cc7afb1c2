"""Regression and one class online: river's habits, units that do not matter, and one model through every door."""

from __future__ import annotations

import doctest
import pickle

import numpy as np
import pandas as pd
import pytest
from every_case import every_case
from online.rivers import checks_of, failures
from river import datasets, linear_model, metrics, neighbors, preprocessing, tree
from river.datasets import synth
from sklearn.metrics import roc_auc_score
from sklearn.svm import OneClassSVM

from streamsvm import load_model
from streamsvm.errors import ConfigError, DataError
from streamsvm.models.files import save_model
from streamsvm.online import BSGDClassifier, BSGDOneClass, BSGDRegressor, estimators

MODELS = {
    "regression": BSGDRegressor(budget=20),
    "regression, linear": BSGDRegressor(kernel="linear", lam=0.1, budget=20, strategy="remove", bias=True),
    "one class": BSGDOneClass(nu=0.1, budget=20),
}
BOUNDED = "check_bounded_memory_growth"


class Outliers(list):
    """Some in place of river's own, which has to be fetched: (features, whether it is one)."""

    def __init__(self, n: int = 20_000) -> None:
        rng = np.random.default_rng(0)
        out = rng.random(n) < 0.05
        X = np.where(out[:, None], rng.uniform(-6, 6, (n, 4)), rng.normal(size=(n, 4)))
        super().__init__((dict(zip("wxyz", map(float, x), strict=True)), bool(o)) for x, o in zip(X, out, strict=True))

    def take(self, n: int) -> list:
        return self[:n]


@pytest.fixture(autouse=True)
def _no_download(monkeypatch):
    monkeypatch.setattr(datasets, "CreditCard", Outliers)


@pytest.mark.parametrize("name", MODELS)
def test_rivers_own_checks(name):
    checks = [check for check in checks_of(MODELS[name]) if check.__name__ != BOUNDED]
    assert len(checks) > 15
    assert failures(MODELS[name], checks) == []


@pytest.mark.slow  # many events
@pytest.mark.parametrize("name", MODELS)
def test_rivers_own_check_of_memory(name):
    checks = [check for check in checks_of(MODELS[name]) if check.__name__ == BOUNDED]
    assert checks
    assert failures(MODELS[name], checks) == []


def test_the_examples_of_the_docstrings_are_true():
    assert doctest.testmod(estimators).failed == 0


def events(n: int = 300, seed: int = 0) -> list[tuple[dict, float]]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    y = np.sin(2 * X[:, 0]) + X[:, 1]
    return [(dict(zip("abc", map(float, x), strict=True)), float(t)) for x, t in zip(X, y, strict=True)]


def learn(model, some):
    for x, y in some:
        model.learn_one(x, y) if isinstance(model, BSGDRegressor) else model.learn_one(x)
    return model


def answer(model, x) -> float:
    return model.predict_one(x) if isinstance(model, BSGDRegressor) else model.score_one(x)


@pytest.mark.parametrize("way", ["saved", "pickled"])
@pytest.mark.parametrize(
    "model",
    [
        BSGDRegressor(budget=20, bias=True, average=True),
        BSGDRegressor(kernel="poly", gamma=0.5, degree=2, coef0=1.0, budget=20),
        BSGDOneClass(nu=0.2, budget=20),
    ],
)
def test_a_learner_goes_on_bit_by_bit(model, way, tmp_path):
    first = learn(model.clone(), events()[:150])
    save_model(first.to_model(), tmp_path / "m")
    loaded = load_model(tmp_path / "m")
    assert loaded.task == model.task
    again = pickle.loads(pickle.dumps(first)) if way == "pickled" else type(model).from_model(loaded)
    for learner in (first, again):
        learn(learner, events()[150:])
    assert [answer(first, x) for x, _ in events()] == [answer(again, x) for x, _ in events()]
    X = pd.DataFrame([x for x, _ in events()])
    decisions = first.to_model().decision_function(X)
    np.testing.assert_allclose(decisions, [first.decision_one(x)[0] for x, _ in events()], atol=1e-4)
    expected = model._get_params() | {"strategy": again.strategy}
    assert again._get_params() == expected


def test_the_models_of_another_task_are_refused():
    model = learn(BSGDRegressor(), events()).to_model()
    with pytest.raises(ConfigError, match="found a model of task regress, expected classify for BSGDClassifier"):
        BSGDClassifier.from_model(model)


def test_many_rows_at_once_are_rows_one_by_one():
    X, y = pd.DataFrame([x for x, _ in events()]), pd.Series([t for _, t in events()])
    one, many = learn(BSGDRegressor(budget=40), events()), BSGDRegressor(budget=40)
    for start in range(0, 300, 100):
        many.learn_many(X[start : start + 100], y[start : start + 100])
    np.testing.assert_allclose(many.predict_many(X), [one.predict_one(x) for x, _ in events()], atol=1e-3)
    with pytest.raises(DataError, match="found 2 targets, expected one for each of 300 rows"):
        many.learn_many(X, y[:2])


def error(model, some) -> float:
    """Mean of each event's, before it is learnt."""
    total, scaler = metrics.MAE(), preprocessing.StandardScaler()
    for x, y in some:
        scaler.learn_one(x)
        x = scaler.transform_one(x)
        total.update(y, model.predict_one(x))
        model.learn_one(x, y)
    return total.get()


def test_units_of_targets_do_not_matter():
    def far(y: float) -> float:
        return 1e6 * (y + 100)

    plain, other = (
        learn(BSGDRegressor(), events()),
        learn(BSGDRegressor(), [(x, far(y)) for x, y in events()]),
    )
    predicted = [other.predict_one(x) for x, _ in events()]
    np.testing.assert_allclose(predicted, [far(plain.predict_one(x)) for x, _ in events()], rtol=1e-5)


@pytest.mark.parametrize("name", ["trump", "chicks", "friedman", "friedman, drifting"])
@pytest.mark.slow  # thousands of events through several learners
def test_errors_are_below_those_of_rivers_regressors(name):
    """On streams of its own, each learner as it comes."""
    data = {
        "trump": datasets.TrumpApproval(),
        "chicks": datasets.ChickWeights(),
        "friedman": synth.Friedman(seed=1).take(1500),
        "friedman, drifting": synth.FriedmanDrift("gra", (500, 1000), seed=1).take(1500),
    }[name]
    numbers = [({k: float(v) for k, v in x.items() if not isinstance(v, str)}, float(y)) for x, y in data]
    theirs = (linear_model.LinearRegression(), neighbors.KNNRegressor(), tree.HoeffdingTreeRegressor())
    assert error(BSGDRegressor(), numbers) < min(error(model, numbers) for model in theirs)


@every_case("target", [float("nan"), float("inf"), 1e300, 10**400, "high", None, 1j])
def test_targets_that_are_none_change_nothing(target):
    model = learn(BSGDRegressor(), events()[:20])
    before = pickle.dumps(model._learner.to_state())
    with pytest.raises(DataError, match="found target .*, expected a finite number below 1e"):
        model.learn_one(events()[20][0], target)
    assert pickle.dumps(model._learner.to_state()) == before


def test_targets_that_are_constant_are_answered():
    model = learn(BSGDRegressor(), [(x, 1e9) for x, _ in events()])
    assert model.predict_one({"a": 50.0}) == pytest.approx(1e9)


@pytest.mark.parametrize("nu", [0.05, 0.3])
@pytest.mark.parametrize("budget", [30, 500])
def test_a_share_nu_is_outside_and_outliers_are_found_as_by_all_rows(nu, budget):
    some, model = Outliers(4000), BSGDOneClass(nu=nu, gamma=0.25, budget=budget)
    scores = []
    for x, _ in some:
        scores.append(model.score_one(x))
        model.learn_one(x)
    late, out = np.array(scores[2000:]), np.array([y for _, y in some])[2000:]
    assert np.mean(late > 0) == pytest.approx(nu, abs=0.015)
    X = np.array([list(x.values()) for x, _ in some])
    batch = OneClassSVM(nu=nu, gamma=0.25).fit(X[:2000])
    assert roc_auc_score(out, late) > roc_auc_score(out, -batch.decision_function(X[2000:])) - 0.05
    assert model.n_support <= budget
    assert late.max() <= 1.0


@every_case(
    ("make", "match"),
    [
        (lambda: BSGDOneClass(nu=0.0), "nu: found 0.0, expected a number above 0"),
        (lambda: BSGDOneClass(nu=1.5), "nu: found 1.5"),
        (lambda: BSGDRegressor(epsilon=-0.1), "epsilon: found -0.1"),
        (lambda: BSGDRegressor(max_features=0), "max_features: found 0"),
        (lambda: BSGDOneClass(budget=1), "budget: found 1"),
    ],
)
def test_bad_parameters_are_named(make, match):
    with pytest.raises(ConfigError, match=match):
        make()
