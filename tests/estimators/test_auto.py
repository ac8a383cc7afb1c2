"""AutoSVC: scikit-learn's contract, and what `streamsvm fit` chooses."""

from __future__ import annotations

import pickle

import dask.array as da
import numpy as np
import pytest
from every_case import every_case
from scipy import sparse
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from streamsvm import DCSVC, AutoSVC, Store, load_model
from streamsvm.config import FitConfig
from streamsvm.search.options import completed


def data(n: int = 200, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Columns in units that are far apart, and one of noise."""
    X = np.random.default_rng(seed).normal(size=(n, 3)).astype(np.float32)
    return X * np.array([1, 1000, 1], np.float32), (X[:, 0] * X[:, 1] > 0).astype(int)


def test_it_is_what_the_command_line_makes_of_no_options():
    X, y = data()
    svm = AutoSVC(random_state=0).fit(X, y)
    config = svm.model_.header.config
    bare = completed([]).model_dump(mode="json")
    assert config["search"] == bare["search"]
    assert set(config["search"]["options"]) - {"multiclass"} == set(svm.chosen_) - {"kernel_params"}  # few classes
    new, labels = data(1000, seed=1)
    assert svm.score(new, labels) > 0.85
    assert svm.expected_["low"] <= svm.score(new, labels) <= svm.expected_["high"]


def test_what_is_chosen_is_told_under_names_of_parameters():
    X, y = data()
    svm = AutoSVC(random_state=0).fit(X, y)
    given = {name: value for name, value in svm.chosen_.items() if name not in ("solver", "metric")}
    assert set(given) <= set(DCSVC().get_params())
    assert svm.chosen_["scale"] != "none"
    assert svm.metric_["score"] >= svm.metric_["given_score"]


@pytest.mark.parametrize("as_rows", [sparse.csr_array, lambda X: da.from_array(X, chunks=(64, 3))])
def test_rows_of_any_kind(as_rows):
    X, y = data()
    X /= [1, 1000, 1]
    svm = AutoSVC(random_state=0).fit(as_rows(X), y)
    assert svm.classes_.tolist() == [0, 1]
    assert svm.predict(as_rows(X)).shape == y.shape
    assert svm.score(X, y) > 0.85


def test_a_store_brings_its_labels_and_is_not_ranked():
    X, y = data()
    store = Store.from_arrays(X, y, qid=np.arange(len(X)) // 10)
    svm = AutoSVC(random_state=0).fit(store)
    assert svm.model_.header.config["task"] == "classify"
    assert svm.score(store) > 0.85


@every_case(
    ("options", "match"),
    [
        ({"time_budget": "soon"}, "AutoSVC: time_budget: found 'soon', expected a time like 60s"),
        ({"time_budget": 1}, "AutoSVC: time_budget: found 1, expected at least 5 s"),
        ({"search_params": {"trials": 0}}, r"AutoSVC: search_params\['trials'\]: found 0, expected"),
        ({"search_params": {"steps": 5}}, "AutoSVC: search.steps: unknown option|AutoSVC: steps: unknown"),
        ({"class_weight": "even"}, "class_weight: "),
        ({"scoring": "f1"}, "scoring.*: found 'f1', expected 'accuracy', 'balanced_accuracy' or 'log_loss'"),
        ({"memory_limit": "much"}, "memory_limit: "),
    ],
)
def test_parameters_are_checked_when_fitting(options, match):
    estimator = AutoSVC(**options)  # not before
    with pytest.raises(ValueError, match=match) as found:
        estimator.fit(*data())
    assert "\n" not in str(found.value)
    assert not hasattr(estimator, "classes_")


def test_a_score_to_compare_by_is_a_parameter():
    X, y = data(60)
    svm = AutoSVC(scoring="balanced_accuracy", search_params={"trials": 1}, random_state=0).fit(X, y)
    assert svm.expected_["scoring"] == "balanced_accuracy"
    assert svm.chosen_["class_weight"] in (None, "balanced")


def test_a_time_budget_is_that_of_the_configuration():
    svm = AutoSVC("2m", memory_limit="8GiB", class_weight="balanced").fit(*data(60))
    config = FitConfig.model_validate(svm.model_.header.config)
    assert config.search.time_budget == 120
    assert config.memory_limit == 8 << 30
    assert config.class_weight == "balanced"


@pytest.mark.slow  # folds of a search
def test_text_labels_weights_and_probabilities(tmp_path):
    X, y = data(120)
    labels = np.array(["no", "yes"])[y]
    svm = AutoSVC(probability=True, random_state=0).fit(X, labels, sample_weight=np.ones(len(X)))
    assert svm.predict_proba(X).shape == (len(X), 2)
    np.testing.assert_array_equal(svm.classes_[svm.predict_proba(X).argmax(axis=1)], svm.predict(X))
    svm.save(tmp_path / "model")
    model = load_model(tmp_path / "model")
    assert model.header.certificate["expected"] == svm.expected_


@pytest.mark.slow  # searches in a search
def test_clones_pickles_pipelines_and_searches():
    X, y = data(90)
    svm = AutoSVC(60, search_params={"trials": 4}, random_state=0)
    assert clone(svm).get_params() == svm.get_params()
    fitted = pickle.loads(pickle.dumps(svm.fit(X, y)))
    np.testing.assert_array_equal(fitted.predict(X), svm.predict(X))
    assert fitted.chosen_ == svm.chosen_ == clone(svm).fit(X, y).chosen_
    assert cross_val_score(make_pipeline(StandardScaler(), clone(svm)), X, y, cv=2).min() > 0.6
    search = GridSearchCV(svm, {"class_weight": [None, "balanced"]}, cv=2).fit(X, y)
    assert search.best_score_ > 0.6
