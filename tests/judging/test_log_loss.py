"""The log loss as the score of a search: what it compares, and what it expects of the model."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer, load_wine
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split

from streamsvm import DCSVC, AutoSVC
from streamsvm.data.store import Store
from streamsvm.errors import ConfigError
from streamsvm.fits.prepare import prepare
from streamsvm.judging.log_loss import SLOPES, constant_log_loss, likelihoods, log_losses, probability_losses
from streamsvm.parallel.engine import Engine
from streamsvm.search.options import completed
from streamsvm.train import train_in_memory

FAST = {"search_params": {"trials": 2}, "random_state": 0}


def d2(codes, p):
    return 1 - log_loss(codes, p, labels=np.arange(p.shape[1])) / constant_log_loss(codes, np.ones(len(codes)))


def obvious(f, code, k, pairwise, slope):
    """The log-probability of one row's class, pair by pair."""
    values = np.ones(k)
    if pairwise:
        for (i, j), u in zip(combinations(range(k), 2), slope * f, strict=True):
            values[i] *= (1 / (1 + np.exp(u))) ** (2 / k)
            values[j] *= (1 / (1 + np.exp(-u))) ** (2 / k)
    else:
        values = 1 / (1 + np.exp(-slope * f))
    return np.log(values[code] / values.sum())


@pytest.mark.parametrize("pairwise", [True, False])
@pytest.mark.parametrize("k", [3, 5])
def test_likelihoods_of_many_classes(k, pairwise):
    rng = np.random.default_rng(0)
    f, codes = rng.normal(size=(20, k * (k - 1) // 2 if pairwise else k)), rng.integers(0, k, 20)
    found = likelihoods(f.astype(np.float32), codes, k, pairwise=pairwise)
    wanted = [[obvious(row, code, k, pairwise, slope) for slope in SLOPES] for row, code in zip(f, codes, strict=True)]
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("k", [2, 4])
def test_decisions_that_say_nothing_are_as_good_as_the_frequencies_and_sure_ones_perfect(k):
    rng = np.random.default_rng(0)
    codes = rng.choice(k, 2000, p=np.arange(1, k + 1) / np.arange(1, k + 1).sum())
    store = Store.from_arrays(rng.normal(size=(2000, 2)), codes)
    data = prepare(store, completed([("t", {"search": {"options": ["C"]}})]), Engine(1)).dual_data
    guesses = rng.normal(size=(2000, 1 if k == 2 else k * (k - 1) // 2)) * 1e-3
    score = 1 - log_losses(likelihoods(guesses, codes, k, pairwise=True), data).mean()
    assert -0.2 * (k > 2) - 0.01 < score < 0.01
    pairs = [np.where(codes == i, -9.0, np.where(codes == j, 9.0, 0.0)) for i, j in combinations(range(k), 2)]
    assert 1 - log_losses(likelihoods(np.column_stack(pairs), codes, k, pairwise=True), data).mean() > 0.98


def test_losses_of_probabilities_are_those_of_scikit_learn():
    rng = np.random.default_rng(0)
    p = rng.dirichlet(np.ones(3), 50)
    codes = rng.integers(0, 3, 50)
    assert 1 - probability_losses(p, codes).mean() == pytest.approx(d2(codes, p))


@pytest.mark.parametrize("load", [load_breast_cancer, load_wine])
def test_a_search_by_it_has_probabilities_and_says_what_to_expect_of_them(load):
    X, X_test, y, y_test = train_test_split(*load(return_X_y=True), test_size=0.4, random_state=0)
    svm = AutoSVC(scoring="log_loss", **FAST).fit(X, y)
    assert svm.expected_["scoring"] == "d2_log_loss"
    assert svm.expected_["folds"]
    assert svm.expected_["low"] < d2(y_test, svm.predict_proba(X_test)) < svm.expected_["high"]


def test_rows_that_the_fit_has_not_seen_say_what_to_expect():
    X, y = load_breast_cancer(return_X_y=True)
    options = {"search": {"scoring": "log_loss", "sample": 200, "trials": 1}, "holdout": 150, "seed": 0}
    model, report = train_in_memory(Store.from_arrays(X, y), completed([("t", options)]))
    expected = report["expected"]
    assert (expected["scoring"], expected["model"], expected["rows"]) == ("d2_log_loss", True, 150)
    assert expected["score"] > 0.7
    assert model.header.calibration is not None


def test_it_is_for_one_label_a_row():
    X, _ = load_wine(return_X_y=True)
    labels = np.column_stack([X[:, 0] > 13, X[:, 1] > 2]).astype(int)
    with pytest.raises(ConfigError, match="search.scoring is log_loss, which is for one label a row"):
        AutoSVC(scoring="log_loss").fit(X, labels)
    options = {"task": "regress", "search": {"scoring": "log_loss", "options": ["C"]}}
    with pytest.raises(ConfigError, match="'log_loss', which is for classes; found task 'regress'"):
        train_in_memory(Store.from_arrays(X, X[:, 0]), completed([("t", options)]))
    assert not hasattr(DCSVC(), "predict_proba")
    assert callable(DCSVC(C="search", search_params={"scoring": "log_loss"}).predict_proba)
