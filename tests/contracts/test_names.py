"""Columns have names: estimators and their models take rows whose columns are those of the fit, in their order."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from cases import ESTIMATORS
from contracts.layouts import labelled
from sklearn.base import clone

from streamsvm import ALFPGMSVR, DCSVC, BudgetedSVC, CuttingPlaneRanker, Store, load_model

NAMES = ("width", "age", "b", "a")
OF_EACH_CLASS = ("exact", "budgeted", "linear, planes", "compressed, polished", "many pairs", "chosen")
OTHER_MODELS = ("early", "landmarks", "exact, probable")
ALL = {name: ESTIMATORS[name] for name in (*OF_EACH_CLASS, *OTHER_MODELS)} | {
    "regression": ALFPGMSVR(gamma=0.5),
    "ranking": CuttingPlaneRanker(tol=1e-3),
}
TABLES = {
    "pandas": lambda X, names: pd.DataFrame(X, columns=list(names)),
    "Arrow": lambda X, names: pa.table(dict(zip(names, X.T, strict=True))),
    "Store": lambda X, names: Store.from_arrays(X, labelled("two")[1][: len(X)], feature_names=tuple(names)),
}
OTHERS = {
    "permuted": ((2, 1, 0, 3), NAMES, "must be in the same order"),
    "renamed": ((0, 1, 2, 3), ("width", "age", "B", "a"), "unseen at fit time:\n- B"),
}


def frame(X: np.ndarray, columns: Any = range(4), names: tuple[str, ...] = NAMES) -> pd.DataFrame:
    return pd.DataFrame(X[:, list(columns)], columns=[names[i] for i in columns])


@cache
def on_frame(name: str) -> Any:
    X, y = labelled("two")
    return clone(ALL[name]).fit(frame(X), X[:, 0] if name == "regression" else y)


@pytest.mark.parametrize("name", ALL)
class TestEstimators:
    def test_names_are_kept_also_in_the_saved_model(self, name, tmp_path):
        estimator, X = on_frame(name), labelled("two")[0]
        assert estimator.feature_names_in_.tolist() == list(NAMES)
        assert estimator.model_.feature_names == NAMES
        estimator.save(tmp_path / "model")
        model = load_model(tmp_path / "model")
        assert model.feature_names == NAMES
        expected = estimator.predict(frame(X))
        for rows in (X, frame(X), TABLES["Arrow"](X, NAMES)):
            np.testing.assert_array_equal(model.predict(rows), expected)

    @pytest.mark.parametrize(("columns", "names", "expected"), OTHERS.values(), ids=OTHERS)
    def test_other_columns_are_refused_in_the_words_of_scikit_learn(self, name, columns, names, expected):
        rows = frame(labelled("two")[0], columns, names)
        with pytest.raises(ValueError, match=expected):
            on_frame(name).predict(rows)
        with pytest.raises(ValueError, match=expected):
            on_frame(name).predict(TABLES["Store"](rows.to_numpy(), rows.columns))

    def test_its_model_finds_columns_by_name(self, name):
        model, X = on_frame(name).model_, labelled("two")[0]
        found = model.predict(frame(X))
        np.testing.assert_array_equal(model.predict(frame(X, (2, 1, 0, 3))), found)
        with pytest.raises(ValueError, match=f"X lacks column {NAMES[3]!r}, which the model was trained on"):
            model.decision_function(frame(X, (0, 1, 2)))

    def test_names_on_one_side_are_a_warning(self, name):
        X = labelled("two")[0][:10]
        with pytest.warns(UserWarning, match="X does not have valid feature names"):
            found = on_frame(name).predict(X)
        np.testing.assert_array_equal(found, on_frame(name).predict(frame(X)))


@pytest.mark.parametrize("table", TABLES)
def test_names_come_from_every_table(table):
    X, y = labelled("two")
    there = TABLES[table](X, NAMES)
    estimator = DCSVC().fit(there, None if table == "Store" else y)
    assert estimator.feature_names_in_.tolist() == list(NAMES)
    assert estimator.n_features_in_ == 4
    np.testing.assert_array_equal(estimator.predict(there), estimator.predict(frame(X)))
    assert not hasattr(estimator.fit(X, y), "feature_names_in_")
    assert estimator.model_.feature_names is None


def test_names_come_from_polars():
    polars = pytest.importorskip("polars")
    X, y = labelled("two")
    estimator = DCSVC().fit(polars.DataFrame(X, schema=list(NAMES)), y)
    assert estimator.feature_names_in_.tolist() == list(NAMES)
    assert estimator.model_.feature_names == NAMES


def test_names_of_folds_are_those_of_all_rows():
    """Probabilities are cross-validated on subsets of a store."""
    X, y = labelled("two")
    assert DCSVC(probability=True).fit(frame(X), y).model_.feature_names == NAMES
    assert TABLES["Store"](X, NAMES).subset(np.arange(5, 200)).feature_names == NAMES


def test_partial_fits_compare_names():
    X, y = labelled("two")
    svm = BudgetedSVC(gamma=0.5).partial_fit(frame(X[:100]), y[:100], classes=np.unique(y))
    svm.partial_fit(frame(X[100:]), y[100:])
    assert svm.model_.feature_names == NAMES
    with pytest.raises(ValueError, match="must be in the same order"):
        svm.partial_fit(frame(X, (1, 0, 2, 3)), y)


@pytest.mark.parametrize("values", [["red", "blue"], pd.Categorical(["red", "blue"])])
@pytest.mark.parametrize("table", ["pandas", "Arrow"])
def test_a_column_of_text_is_one_for_each_value(table, values):
    rows = pd.DataFrame({"size": [1.0, 2.0], "is_new": [True, False], "colour": values})
    store = Store.from_arrays(pa.Table.from_pandas(rows) if table == "Arrow" else rows)
    assert store.feature_names == ("size", "is_new", "colour=red", "colour=blue")
    np.testing.assert_array_equal(store.read(0, 2).X, [[1, 1, 1, 0], [2, 0, 0, 1]])


def test_a_frame_of_numbers_of_several_kinds_is_a_store():
    rows = pd.DataFrame({"size": [1.0, 2.0], "is_new": [True, False], "count": pd.array([3, 4], dtype="Int64")})
    store = Store.from_arrays(rows)
    np.testing.assert_array_equal(store.read(0, 2).X, [[1, 1, 3], [2, 0, 4]])
    assert store.feature_names == ("size", "is_new", "count")
