"""Parameters that are "search": chosen from the data, and told."""

from __future__ import annotations

import pickle
from functools import partial

import numpy as np
import pytest
from every_case import every_case
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV

from streamsvm import ALFPGMSVC, ALFPGMSVR, DCSVC, HSSSVC, BudgetedSVC, CuttingPlaneRanker, CuttingPlaneSVC
from streamsvm.errors import ConfigError

EVERY = ("C", "gamma", "kernel", "scale", "metric", "early")
OF_MOST = EVERY[:-1]


def data(n: int = 200, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Two columns that matter, and a wider one of noise."""
    X = np.random.default_rng(seed).normal(size=(n, 3)).astype(np.float32)
    return X * np.array([1, 1, 8], np.float32), (X[:, 0] * X[:, 1] > 0).astype(int)


@pytest.mark.parametrize(
    ("estimator", "names"),
    [
        (DCSVC, EVERY),
        (DCSVC, ("C",)),
        (DCSVC, ("kernel", "gamma")),
        (ALFPGMSVC, OF_MOST),
        (partial(HSSSVC, polish=1000), OF_MOST),
        (BudgetedSVC, ("scale", "metric", "gamma")),
        (CuttingPlaneSVC, ("C", "scale")),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, tuple) else getattr(value, "__name__", "HSSSVC"),
)
@pytest.mark.filterwarnings("ignore:held-out rows are predicted no better")  # a linear kernel does not separate them
@pytest.mark.slow  # searches
def test_what_is_search_is_chosen_and_nothing_else(estimator, names):
    X, y = data()
    svm = estimator(random_state=0).set_params(**dict.fromkeys(names, "search")).fit(X, y)
    config = svm.model_.header.config
    assert set(svm.chosen_) - {"kernel_params"} == set(names) == set(config["search"]["options"])
    assert {name: getattr(svm, name) for name in names} == dict.fromkeys(names, "search")
    assert svm.chosen_.get("C", 1.0) == config["C"]
    assert svm.chosen_.get("scale", "none") == config["scale"]
    assert svm.expected_["low"] <= svm.expected_["score"] <= svm.expected_["high"]
    assert svm.expected_["rows"] == len(X)


def test_what_is_chosen_beats_the_defaults_and_can_be_given():
    X, y = data()
    new, labels = data(seed=1)
    svm = DCSVC(C="search", gamma="search", kernel="search", scale="search", random_state=0).fit(X, y)
    assert svm.score(new, labels) > DCSVC().fit(X, y).score(new, labels) + 0.1
    again = DCSVC(**svm.chosen_, random_state=0).fit(X, y)
    np.testing.assert_allclose(again.decision_function(new), svm.decision_function(new), atol=1e-3)


def test_a_chosen_C_is_the_one_that_is_learned():
    X, y = data()
    svm = HSSSVC(C="search", polish=1000, random_state=0).fit(X, y)
    assert list(svm.path_) == [svm.C_] == [svm.chosen_["C"]]
    assert svm.C_ != 1.0


def test_numbers_to_regress_on():
    X, y = data()
    t = X[:, 0] ** 2 + X[:, 1]
    svm = ALFPGMSVR(C="search", gamma="search").fit(X, t)
    assert svm.expected_["scoring"] == "r2"
    assert svm.score(X, t) > ALFPGMSVR().fit(X, t).score(X, t)


@every_case(
    ("estimator", "match"),
    [
        (
            BudgetedSVC(C="search"),
            "BudgetedSVC: C is 'search', but solver bsgd has only these chosen: scale, ",
        ),
        (
            CuttingPlaneSVC(kernel="search"),
            "CuttingPlaneSVC: kernel is 'search', but solver cutting-plane has",
        ),
        (CuttingPlaneRanker(C="search"), "Ranker: C is 'search', but nothing is chosen for task ordinal"),
        (
            DCSVC(tol="search"),
            "DCSVC: tol is 'search', but solver dcsvm has only these chosen: early, scale, ",
        ),
        (DCSVC(kernel="search", gamma=0.5), "kernel is 'search', and gamma 0.5, which is of one kernel"),
        (ALFPGMSVC(C="search", kernel="precomputed"), "rows of features; found kernel precomputed"),
        (
            ALFPGMSVC(C="search", kernel=lambda a, b: a @ b.T),
            "rows of features; found kernel precomputed",
        ),
        (
            DCSVC(C="search", search_params={"time_budget": 1}),
            "DCSVC: time_budget: found 1, expected at least 5",
        ),
        (
            DCSVC(C="search", search_params={"sample": 5}),
            r"DCSVC: search_params\['sample'\]: found 5, expected",
        ),
        (DCSVC(C="search", search_params={"steps": 5}), "DCSVC: steps: unknown option"),
        (DCSVC(metric="diagonal", metric_params={"sample": 500}), "DCSVC: sample: unknown option"),
        (DCSVC(C="search", kernel="gauss"), "found kernel 'gauss', expected one of rbf"),
    ],
)
def test_what_cannot_be_chosen_is_said_in_one_line(estimator, match):
    with pytest.raises(ValueError, match=match) as found:
        estimator.fit(*data(60))
    assert "\n" not in str(found.value)


def test_what_needs_all_rows_is_not_chosen_from_some():
    with pytest.raises(ConfigError, match="gamma needs all rows: use fit first"):
        BudgetedSVC(gamma="search").partial_fit(*data(60), classes=[0, 1])


def test_a_gamma_that_is_given_keeps_the_kernel_along_with_a_metric():
    svm = DCSVC(metric="diagonal", gamma=0.5, metric_params={"iterations": 1}).fit(*data(60))
    assert set(svm.chosen_) == {"metric", "C"}


def test_a_metric_of_given_numbers_chooses_nothing():
    svm = DCSVC(metric="diagonal", metric_params={"factor": [1.0, 0.5, 0.0]}, gamma=0.5).fit(*data())
    assert not hasattr(svm, "chosen_")
    np.testing.assert_allclose(svm.feature_importances_, [0.8, 0.2, 0])


def test_choices_of_a_fit_before_are_gone():
    svm = DCSVC(C="search").fit(*data(60))
    assert hasattr(svm, "chosen_")
    svm.set_params(C=1.0).fit(*data(60))
    assert not any(hasattr(svm, name) for name in ("chosen_", "expected_", "metric_"))


def test_few_rows_are_learned_with_the_defaults_and_say_why():
    svm = DCSVC(C="search", scale="search").fit(*data(20))
    assert svm.chosen_ == {"C": 1.0, "scale": "none"}
    assert "too few" in svm.metric_["reason"]
    assert not hasattr(svm, "expected_")


def test_searches_are_cloned_pickled_and_searched_over():
    X, y = data(80)
    svm = DCSVC(C="search", search_params={"trials": 5}, random_state=0)
    assert clone(svm).get_params() == svm.get_params()
    fitted = pickle.loads(pickle.dumps(svm.fit(X, y)))
    assert (fitted.chosen_, fitted.expected_) == (svm.chosen_, svm.expected_)
    search = GridSearchCV(svm, {"scale": ["none", "standard"]}, cv=2).fit(X, y)
    assert search.best_params_["scale"] == "standard"
