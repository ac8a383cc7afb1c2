"""Columns that count are found, whatever their units."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from explain.made import animals, made
from making import write

from streamsvm import DCSVC
from streamsvm.data.rows import Rows
from streamsvm.data.store import Store
from streamsvm.errors import DataError, ModelError
from streamsvm.explain.importances import importances, importances_table
from streamsvm.explain.rows import rows_tables
from streamsvm.online import BSGDClassifier
from streamsvm.predict import rows_at


def test_units_do_not_count():
    X, y = animals(2)
    model = made("dcsvm", 2)
    other = DCSVC(C=5.0, gamma=0.5, scale="standard").fit(X * [1, 1e-3, 1, 1e3], y).model_
    found = [importances(svm, Rows(rows)).values for svm, rows in ((model, X), (other, X * [1, 1e-3, 1, 1e3]))]
    np.testing.assert_allclose(found[0], found[1], rtol=0.02)


def test_names_are_those_of_the_columns_and_the_largest_come_first():
    X, y = animals(2)
    frame = pd.DataFrame(X, columns=["warm", "loud", "old", "red"])
    model = DCSVC(C=5.0, gamma=0.5, scale="standard").fit(frame, y).model_
    found = importances(model, frame)
    assert found.names == ("warm", "loud", "old", "red")
    assert {name for name, _ in found.ordered(2)} == {"warm", "loud"}
    assert [value for _, value in found.ordered()] == sorted(found.values, reverse=True)


def test_a_constant_column_counts_nothing():
    X, y = animals(2)
    X = np.column_stack([X, np.full(300, 3.0, np.float32)])
    assert importances(DCSVC(scale="minmax").fit(X, y).model_, X).values[4] == 0


def test_rows_are_taken_from_all_over_a_store_always_the_same_ones():
    X = np.tile(animals(2)[0], (5, 1))
    first, again = (importances(made("dcsvm", 2), Store.from_arrays(X)) for _ in range(2))
    assert first.source == "1,000 rows"
    np.testing.assert_array_equal(first.values, again.values)
    np.testing.assert_allclose(first.values, importances(made("dcsvm", 2), Rows(X)).values, atol=0.03)


def test_a_model_without_support_vectors_and_rows_that_are_not_finite():
    model, X = made("dcsvm", 2), animals(2)[0].copy()
    empty = replace(model, support=model.support.take(slice(0, 0)), alpha=model.alpha[:0], codes=model.codes[:0])
    with pytest.raises(ModelError, match="no support vectors: its answer does not depend on the row"):
        importances(empty)
    X[7, 2] = np.nan
    with pytest.raises(DataError, match="row 7, column 2 .chunk 0. is nan; expected finite numbers"):
        importances(model, X)


def test_a_row_that_is_not_finite_is_named_by_its_place_in_the_store(tmp_path):
    X = animals(2)[0].copy()
    X[77, 1] = np.inf
    store = write(tmp_path / "s", Rows(X), chunk_rows=50)
    with pytest.raises(DataError, match="row 77, column 1 .chunk 1. is inf; expected finite numbers"):
        rows_at(made("dcsvm", 2), store.subset(np.arange(60, 90)), np.array([3, 17, 20]))


def test_a_stream_has_the_columns_that_it_has_met():
    """Its rows have more, for those to come."""
    online = BSGDClassifier(lam=1e-4, gamma="scale", budget=50)
    online.learn_one({"warm": 0.0, "loud": 100.0}, "ant")
    for x, y in zip(*animals(2), strict=True):
        online.learn_one({"warm": float(x[0]), "loud": float(x[1]), "old": float(x[2])}, str(y))
    model = online.to_model()
    assert model.d > 3
    found = importances(model)
    assert found.names == ("loud", "warm", "old")
    assert found.values.shape == (3,)
    assert [record["feature"] for record in importances_table(model, None)["importances"]][2] == "old"
    frame = pd.DataFrame(animals(2)[0][:5, [2, 0, 1]], columns=["old", "warm", "loud"])
    (row,) = rows_tables(model, Store.from_arrays(frame), [3], shapley=True, support=1)
    values = {feature["feature"]: feature["value"] for feature in row["features"]}
    assert values == frame.iloc[3].to_dict()
    assert set(row["support_by_weight"][0]["values"]) == {"warm", "loud", "old"}
