"""What scikit-learn hands on to fits and scores, and the names of columns that it compares."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from every_case import every_case
from sklearn import config_context
from sklearn.base import clone
from sklearn.metrics import accuracy_score
from sklearn.model_selection import GridSearchCV, GroupKFold, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from streamsvm import ALFPGMSVC, DCSVC, DCSVR, AutoSVC, BudgetedSVC, CuttingPlaneRanker, CuttingPlaneSVC, DCOneClassSVM

CLASSIFIERS = [DCSVC(), ALFPGMSVC(), BudgetedSVC(random_state=0), CuttingPlaneSVC()]


@pytest.fixture(autouse=True)
def routing():
    with config_context(enable_metadata_routing=True):
        yield


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(120, 3)).astype(np.float32)
    y = (X[:, 0] + 0.8 * rng.normal(size=120) > 0).astype(int)
    return X, y, np.where(y == 1, 5.0, 0.2), np.arange(120) % 12


@pytest.mark.parametrize("svm", CLASSIFIERS, ids=lambda e: type(e).__name__)
def test_weights_reach_the_fit_in_a_pipeline(svm, rows):
    X, y, weight, _ = rows
    asks = clone(svm).set_fit_request(sample_weight=True)
    found = make_pipeline(StandardScaler().set_fit_request(sample_weight=False), asks).fit(X, y, sample_weight=weight)
    scaled = StandardScaler().fit_transform(X)
    expected = clone(svm).fit(scaled, y, sample_weight=weight)
    np.testing.assert_array_equal(found.decision_function(X), expected.decision_function(scaled))
    plain = clone(svm).fit(scaled, y)
    assert not np.array_equal(found.decision_function(X), plain.decision_function(scaled))


def test_weights_reach_fits_and_scores_of_searches(rows):
    X, y, weight, groups = rows
    svm = DCSVC().set_fit_request(sample_weight=True, groups=False).set_score_request(sample_weight=True)
    folds = GroupKFold(3)
    params = {"sample_weight": weight, "groups": groups}
    found = cross_validate(svm, X, y, cv=folds, params=params)["test_score"]
    expected = []
    for here, there in folds.split(X, y, groups):
        fitted = DCSVC().fit(X[here], y[here], sample_weight=weight[here])
        expected.append(accuracy_score(y[there], fitted.predict(X[there]), sample_weight=weight[there]))
    assert found.tolist() == expected
    search = GridSearchCV(svm, {"C": [1.0]}, cv=folds).fit(X, y, **params)
    assert search.best_score_ == pytest.approx(np.mean(expected))


def test_groups_reach_the_folds_inside_those_outside(rows):
    X, y, _, groups = rows
    svm = DCSVC(probability=True, random_state=0).set_fit_request(groups=True)
    found = cross_validate(svm, X, y, cv=GroupKFold(2), params={"groups": groups}, return_estimator=True)
    here, there = next(GroupKFold(2).split(X, y, groups))
    expected = DCSVC(probability=True, random_state=0).fit(X[here], y[here], groups=groups[here])
    np.testing.assert_array_equal(found["estimator"][0].predict_proba(X[there]), expected.predict_proba(X[there]))


@every_case(
    ("svm", "asks"),
    [
        (DCSVC(), {"sample_weight", "groups"}),
        (AutoSVC(), {"sample_weight", "groups"}),
        (DCSVR(), {"sample_weight", "groups"}),
        (CuttingPlaneRanker(), {"sample_weight", "qid"}),
        (DCOneClassSVM(), {"sample_weight"}),
    ],
    ids=lambda e: type(e).__name__,
)
def test_what_a_fit_may_ask_for(svm, asks):
    assert {*svm.get_metadata_routing().fit.requests} == asks


class TestNames:
    """Of columns, as scikit-learn compares them."""

    @pytest.fixture
    def svm(self, rows):
        X, y, *_ = rows
        return DCSVC().fit(pd.DataFrame(X, columns=["a", "b", "c"]), y)

    def test_are_kept(self, svm, rows):
        assert svm.feature_names_in_.tolist() == ["a", "b", "c"]
        svm.fit(*rows[:2])
        assert not hasattr(svm, "feature_names_in_")

    def test_that_rows_have_not(self, svm, rows):
        with pytest.warns(UserWarning, match="X does not have valid feature names, but DCSVC was fitted with"):
            svm.predict(rows[0])

    def test_that_the_fit_had_not(self, rows):
        X, y, *_ = rows
        with pytest.warns(UserWarning, match="X has feature names, but DCSVC was fitted without"):
            DCSVC().fit(X, y).predict(pd.DataFrame(X, columns=["a", "b", "c"]))

    @pytest.mark.parametrize(
        ("names", "told"),
        [("abz", "unseen at fit time"), ("ba", "now missing"), ("cba", "same order"), ("abcd", "unseen")],
    )
    def test_that_are_others(self, names, told, svm, rows):
        X = pd.DataFrame(rows[0], columns=["a", "b", "c"]).assign(d=0.0).rename(columns={"c": names[2:3] or "c"})
        with pytest.raises(ValueError, match=f"feature names should match(.*\n)*.*{told}"):
            svm.predict(X.loc[:, ~X.columns.duplicated()].reindex(columns=[*names]))

    def test_are_all_text_or_none(self, rows):
        X, y, *_ = rows
        with pytest.raises(TypeError, match="Feature names are only supported if all input features have string"):
            DCSVC().fit(pd.DataFrame(X, columns=["a", 1, 2]), y)
