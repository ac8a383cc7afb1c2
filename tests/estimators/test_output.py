"""Answers as series and data frames: `set_output(predict=...)`."""

from __future__ import annotations

import dask.array as da
import numpy as np
import pandas as pd
import polars as pl
import pytest
from every_case import every_case
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV

from streamsvm import ALFPGMSVC, DCSVC, DCSVR, BudgetedSVC, CuttingPlaneRanker, DCOneClassSVM
from streamsvm.errors import ConfigError

RNG = np.random.default_rng(0)
X = pd.DataFrame(RNG.normal(size=(90, 2)), columns=["a", "b"], index=np.arange(90) * 3 + 7)
CLASSES = pd.Series(np.where(X.a > 0.6, "high", np.where(X.a < -0.6, "low", "middle")), index=X.index)
SETS = np.column_stack([X.a > 0, X.b > 0]).astype(int)
CASES = {
    "classes": (
        DCSVC(probability=True),
        CLASSES,
        ("predict", "decision_function", "predict_proba", "predict_log_proba"),
    ),
    "two classes": (BudgetedSVC(random_state=0), X.a > 0, ("predict", "decision_function")),
    "pairs": (ALFPGMSVC(decision_function_shape="ovo"), CLASSES, ("decision_function",)),
    "labels": (DCSVC(), SETS, ("predict", "decision_function")),
    "values": (DCSVR(interval=0.8), X.a + X.b, ("predict", "predict_interval")),
    "outliers": (DCOneClassSVM(nu=0.2), None, ("predict", "decision_function", "score_samples")),
    "order": (CuttingPlaneRanker(), np.digitize(X.a, [-0.6, 0.6]), ("predict", "decision_function")),
}
COLUMNS = {"classes": ["high", "low", "middle"], "pairs": ["high, low", "high, middle", "low, middle"]}
COLUMNS |= {"labels": [0, 1], "values": ["lower", "upper"]}


@every_case("name", CASES)
def test_answers_have_the_index_of_the_rows_and_the_names_of_classes(name):
    estimator, y, methods = CASES[name]
    svm = clone(estimator).fit(X, y)
    for method in methods:
        answers = getattr(svm.set_output(predict="default"), method)(X[:9])
        assert isinstance(answers, np.ndarray)
        framed = getattr(svm.set_output(predict="pandas"), method)(X[:9])
        assert isinstance(framed, pd.Series if answers.ndim == 1 else pd.DataFrame)
        assert framed.index.equals(X.index[:9])
        np.testing.assert_array_equal(framed.to_numpy(), answers)
        if answers.ndim == 2:
            assert list(framed.columns) == COLUMNS[name]
        others = getattr(svm.set_output(predict="polars"), method)(pl.from_pandas(X[:9]))
        assert isinstance(others, pl.Series if answers.ndim == 1 else pl.DataFrame)
        np.testing.assert_array_equal(others.to_numpy(), answers)


def test_clones_and_searches_keep_the_container_and_scores_are_the_same():
    y = X.a > 0
    plain = DCSVC().fit(X, y)
    svm = clone(DCSVC().set_output(predict="pandas")).fit(X, y)
    assert isinstance(svm.predict(X), pd.Series)
    assert svm.predict(X[:0]).empty
    assert svm.score(X, y) == plain.score(X, y)
    search = GridSearchCV(svm, {"C": [1.0, 10.0]}, cv=2).fit(X, y)
    assert isinstance(search.predict(X), pd.Series)


def test_answers_for_dask_arrays_stay_dask_arrays():
    svm = DCSVC().fit(X.to_numpy(), X.a > 0).set_output(predict="polars")
    assert isinstance(svm.predict(da.from_array(X.to_numpy(), chunks=(30, 2))), da.Array)


def test_other_containers_are_refused(monkeypatch):
    with pytest.raises(ConfigError, match="predict: found 'arrow', expected 'default' or 'pandas' or 'polars'"):
        DCSVC().set_output(predict="arrow")
    monkeypatch.setattr("streamsvm.estimators.base.find_spec", lambda name: None)
    with pytest.raises(ImportError, match="needs polars: pip install polars"):
        DCSVC().set_output(predict="polars")
