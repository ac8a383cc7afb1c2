"""What every batch estimator keeps to, on numpy and on stores. A new estimator is one more line in cases.ESTIMATORS.

How the other layouts become a store is in test_layouts.py.
"""

from __future__ import annotations

import pickle
from functools import cache
from itertools import product

import numpy as np
import pytest
from cases import ESTIMATORS, PROBABLE
from contracts.layouts import LAYOUTS, labelled
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV

from streamsvm import ALFPGMSVR, HSSSVR, BudgetedSVC, CuttingPlaneRanker, Store, load_model

ON_STORES = [  # dense ones give the same bits, sparse ones sums in another order
    *((name, "CSR Store") for name in ESTIMATORS if name != "chosen"),  # for whom other scalings are tried
    *((name, "Store") for name in ("exact", "early", "chosen", "budgeted")),
    *((name, "Store") for name in ("linear, planes", "compressed, polished")),
    *((name, "dask, column chunks") for name in ("exact, divided", "many pairs", "landmarks")),
]
SEARCHED = {  # one of each class
    "DCSVC": ESTIMATORS["early"],
    "BudgetedSVC": ESTIMATORS["budgeted"],
    "CuttingPlaneSVC": ESTIMATORS["linear, planes"],
    "HSSSVC": ESTIMATORS["compressed, polished"],
    "ALFPGMSVC": ESTIMATORS["many pairs"],
    "probable": PROBABLE["linear, planes, probable"],
    "ALFPGMSVR": ALFPGMSVR(gamma=0.5),
    "HSSSVR": HSSSVR(gamma=0.5, polish=1000, random_state=0),
    "CuttingPlaneRanker": CuttingPlaneRanker(tol=1e-3),
}
ONE_OF_EACH = ("exact", "budgeted", "linear, planes", "compressed, polished", "many pairs", "chosen")  # class
TWO_CLASSES = (  # of each kind of model, with and without probabilities
    *ONE_OF_EACH,
    "early",
    "committee",
    "against the rest",
    "landmarks",
    "exact, probable",
    "early, probable",
    "budgeted, logistic",
)


@cache
def on_numpy(name: str, classes: str):
    """Fitted on two threads."""
    return clone(ESTIMATORS[name]).set_params(n_jobs=2).fit(*labelled(classes))


def codes(decision: np.ndarray) -> np.ndarray:
    return (decision > 0).astype(int) if decision.ndim == 1 else decision.argmax(axis=1)


LONG = ("budgeted", "budgeted, merged at once", "many pairs, against the rest")  # seconds of single rows


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow) if name in LONG else name for name in ESTIMATORS]
)
def test_a_row_alone_is_decided_as_among_others(name):
    """To the rounding of float32 kernel values, which some BLAS makes in another way for one row."""
    estimator, X = on_numpy(name, "three"), labelled("three")[0][:10]
    alone = np.concatenate([estimator.decision_function(row[None]) for row in X])
    np.testing.assert_allclose(alone, estimator.decision_function(X), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("name", "layout"), ON_STORES)
def test_a_store_gives_the_model_of_numpy(name, layout, tmp_path):
    X, y = labelled("three")
    there, same = LAYOUTS[layout](X, y, tmp_path), on_numpy(name, "three")
    estimator = clone(ESTIMATORS[name]).fit(there, None if isinstance(there, Store) else y)
    expected, found = same.decision_function(X), estimator.decision_function(there)
    if layout == "CSR Store":  # sums in another order: equal within the tolerance
        tolerance = 3 * getattr(estimator, "tol", 1e-3 * np.abs(expected).max())
        np.testing.assert_allclose(found, expected, atol=tolerance)
    else:
        # not to the last bit: of a few rows BLAS adds up in another order on some processors
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(estimator.decision_function(X), found, atol=1e-5)
    deciding = estimator.predict_proba(there) if name in PROBABLE else found
    np.testing.assert_array_equal(estimator.predict(there), estimator.classes_[codes(deciding)])
    assert estimator.score(there, y) == np.mean(estimator.predict(there) == y)
    assert estimator.objective_ == pytest.approx(same.objective_, rel=1e-4)


@pytest.mark.parametrize("name", SEARCHED)
@pytest.mark.slow  # searches
def test_scikit_learn_searches_over_it(name):
    X, y = labelled("two")
    classifies = name not in ("ALFPGMSVR", "HSSSVR", "CuttingPlaneRanker")
    y = y if classifies else np.round(X[:, 0], 1)
    search = GridSearchCV(SEARCHED[name], {"C": [0.01, 2.0]}, cv=2, error_score="raise").fit(X, y)
    scores = search.cv_results_["mean_test_score"]
    assert search.best_score_ == scores.max() > (0.4 if classifies else 0.0)
    assert search.best_estimator_.C == search.best_params_["C"]
    assert search.score(X, y) == search.best_estimator_.score(X, y)


@pytest.mark.parametrize(("name", "classes"), [*product(ESTIMATORS, ["three"]), *product(TWO_CLASSES, ["two"])])
class TestModels:
    def test_saved_and_pickled_decisions_are_equal_bit_by_bit(self, name, classes, tmp_path):
        estimator, (X, _) = on_numpy(name, classes), labelled(classes)
        expected = estimator.decision_function(X)
        estimator.save(tmp_path / "model")
        loaded, rows = load_model(tmp_path / "model"), Store.from_arrays(X).read(0, len(X))
        np.testing.assert_array_equal(loaded.decision_function(rows), expected)
        np.testing.assert_array_equal(loaded.predict(rows), estimator.predict(X))
        copy = pickle.loads(pickle.dumps(estimator))
        np.testing.assert_array_equal(copy.decision_function(X), expected)

    def test_shapes_and_labels(self, name, classes):
        estimator, (X, y) = on_numpy(name, classes), labelled(classes)
        assert estimator.decision_function(X).shape == ((260,) if classes == "two" else (260, 3))
        np.testing.assert_array_equal(estimator.classes_, np.unique(y))
        assert estimator.predict(X).dtype == y.dtype
        assert estimator.score(X, y) > 0.5 + 0.2 * ("linear" not in name)
        if not isinstance(estimator, BudgetedSVC):
            assert 0 <= estimator.dual_gap_ < 0.02 * abs(estimator.objective_)


@pytest.mark.parametrize("name", ESTIMATORS)
def test_seed_decides_the_model_and_threads_do_not(name):
    X, y = labelled("three")
    again = clone(ESTIMATORS[name]).set_params(n_jobs=1).fit(X, y)
    np.testing.assert_array_equal(again.decision_function(X), on_numpy(name, "three").decision_function(X))


@pytest.mark.parametrize("name", PROBABLE)
def test_probabilities(name):
    estimator, (X, y) = on_numpy(name, "three"), labelled("three")
    proba = estimator.predict_proba(X)
    assert proba.shape == (260, 3)
    np.testing.assert_allclose(proba.sum(axis=1), 1)
    np.testing.assert_allclose(estimator.predict_log_proba(X), np.log(proba))
    np.testing.assert_allclose(proba.mean(axis=0), np.unique(y, return_counts=True)[1] / 260, atol=0.1)


def test_probabilities_are_there_where_they_are_asked_for():
    assert {name for name in ESTIMATORS if hasattr(ESTIMATORS[name], "predict_proba")} == set(PROBABLE)


@pytest.mark.parametrize("name", ONE_OF_EACH)
class TestErrors:
    def test_an_unknown_kind_of_probability(self, name):
        with pytest.raises(ValueError, match="probability: found 'magic'"):
            clone(ESTIMATORS[name]).set_params(probability="magic").fit(*labelled("two"))

    def test_a_threshold_for_nothing(self, name):
        with pytest.raises(ValueError, match="threshold: found 'f2', expected f1, "):
            clone(ESTIMATORS[name]).set_params(threshold="f2").fit(*labelled("two"))
        with pytest.raises(ValueError, match="threshold: found 3 classes, expected two"):
            clone(ESTIMATORS[name]).set_params(threshold="f1").fit(*labelled("three"))

    def test_unfitted(self, name):
        with pytest.raises(NotFittedError):
            clone(ESTIMATORS[name]).predict(labelled("two")[0])

    def test_other_number_of_columns(self, name):
        with pytest.raises(ValueError, match=r"X has 3 features, but \w+ is expecting 4 features as input"):
            on_numpy(name, "three").predict(labelled("three")[0][:, :3])


@pytest.mark.parametrize(
    ("name", "layout"),
    [*product([n for n in ESTIMATORS if n not in PROBABLE], ["Store"]), *product(ONE_OF_EACH, ["CSR Store"])],
)
def test_a_value_that_is_no_number(name, layout, tmp_path):
    """Rows of a store are looked at by those who read them."""
    X, y = labelled("two")[0].copy(), labelled("two")[1]
    X[133, 2] = np.nan
    with pytest.raises(ValueError, match=r"row 133, column 2 \(chunk \d\) is nan"):
        clone(ESTIMATORS[name]).fit(LAYOUTS[layout](X, y, tmp_path))
