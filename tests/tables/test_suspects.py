"""What `check` says of columns and classes that look wrong."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from making import samples
from scipy import sparse
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine

from streamsvm.data.rows import Rows
from streamsvm.data.store import Store
from streamsvm.parallel.engine import Engine
from streamsvm.tables.checks import MOST_BYTES, ColumnSummary, check, sample_ids


def warnings_of(X, y, **more):
    return check(Store.from_arrays(X, y, **more), Engine(2))["warnings"]


@pytest.mark.parametrize("load", [load_breast_cancer, load_iris, load_wine])
def test_honest_tables_have_none(load):
    assert warnings_of(*load(return_X_y=True)) == []


@pytest.mark.parametrize("is_sparse", [False, True])
def test_each_kind_is_told_with_its_columns(is_sparse):
    """Columns 30 to 34 are added to honest ones."""
    X, y = load_breast_cancer(return_X_y=True)
    n, noise = len(y), np.random.default_rng(0).normal(size=len(y)) / 5
    X = np.column_stack([X, np.arange(n), y + noise, X[:, 3], np.ones(n), (y + noise) ** 2])
    names = [*map(str, range(30)), "id", "paid", "copy", "same", "squared"]
    warned = warnings_of(sparse.csr_array(X) if is_sparse else X, y, feature_names=names)
    assert [line.partition(":")[0] for line in warned] == [
        "columns that predict the label alone, as leaks do",
        "columns of whole numbers that differ from row to row, as ids do",
        "columns with a single value",
        "columns equal to an earlier one",
    ]
    leaks, *others = (line.partition(": ")[2] for line in warned)
    assert leaks.startswith("'paid' (ROC area 0.99")
    assert "'squared' (ROC area 0.99" in leaks
    assert others == ["'id'", "'same'", "'copy' (like '3')"]


def test_text_that_says_the_label_is_a_leak():
    """Each of six texts has one label, so none of their columns has all of it."""
    X, y = load_digits(n_class=3, return_X_y=True)
    texts = np.array([["a", "b"], ["c", "d"], ["e", "f"]])[y, np.arange(len(y)) % 2]
    [line] = [line for line in warnings_of(pd.DataFrame({"ink": X[:, 20], "who": texts}), y) if "leaks" in line]
    assert line.endswith("leaks do: 'who' (accuracy 1.0000)")


def test_cuts_between_several_classes_are_a_leak():
    X, y = load_iris(return_X_y=True)
    X[:, 2] = y + np.random.default_rng(0).uniform(0, 0.9, len(y))
    assert warnings_of(X, y) == ["columns that predict the label alone, as leaks do: 2 (accuracy 1.0000)"]


def test_a_rare_class_is_guessed_by_nobody():
    """Accuracy says nothing beside 97 % of one class; ROC areas do."""
    X, y = samples(2000, 3).X, np.arange(2000) % 33 == 0
    assert warnings_of(X, y) == []
    X[:, 1] += 1000 * y
    assert "1 (ROC area 1.0000)" in warnings_of(X, y)[0]


def test_missing_values_and_rare_classes():
    X, y = load_iris(return_X_y=True)
    X[::4, 1], X[0, 3], y[:4] = np.nan, np.nan, 7
    warned = warnings_of(pd.DataFrame(X, columns=["a", "b", "c", "d"]), y)
    assert warned == [
        "columns with missing values: 'b' (25 %), 'd' (0.67 %)",
        "classes with fewer than 5 rows: 7 (4)",
    ]


def test_numbers_to_predict_and_sets_have_no_classes():
    X = samples(40, 3).X
    for y in (np.arange(40), np.arange(40) / 3, [f"{i},{i + 1}" for i in range(40)]):
        assert warnings_of(X, y) == []


def test_rising_fractions_are_no_ids():
    x = np.sort(samples(60, 1).X[:, 0])
    assert warnings_of(np.stack([x, x[::-1] ** 2], axis=1), np.arange(60) % 2) == []


def test_times_are_no_ids():
    days = pd.date_range("2020-01-01", periods=60)
    X, y = samples(60, 1).X[:, 0], np.arange(60) % 2
    assert warnings_of(pd.DataFrame({"x": X, "day": days}), y) == []
    assert "ids do: 'day'" in warnings_of(pd.DataFrame({"x": X, "day": np.arange(60)}), y)[0]


def test_ten_are_named():
    [line] = warnings_of(np.column_stack([samples(30, 2).X, np.zeros((30, 15))]), np.arange(30) % 2)
    assert line == "columns with a single value: 2, 3, 4, 5, 6, 7, 8, 9, 10, 11 and 5 more"


def test_blocks_and_layouts_hash_alike():
    """-0 is 0, and what is not stored is 0, too."""
    X = np.random.default_rng(0).integers(-2, 3, (100, 7)).astype(np.float32)
    X[:, 5], X[3, 2] = X[:, 2], -0.0
    X[3, 5] = 0.0
    whole = ColumnSummary.of(Rows(X), 0).hashes
    parts = ColumnSummary.of(Rows(X[:33]), 0).merged(ColumnSummary.of(Rows(X[33:]), 33)).hashes
    there = ColumnSummary.of(Rows(sparse.csr_array(X)), 0).hashes
    np.testing.assert_array_equal(whole, parts)
    np.testing.assert_array_equal(whole, there)
    assert len(np.unique(whole)) == 6
    assert len(np.unique(ColumnSummary.of(Rows(X[::-1]), 0).hashes)) == 6


def test_the_sample_is_small_where_rows_are_wide():
    wide = Store.from_arrays(sparse.csr_array(np.ones((3000, 4000), np.float32)))
    assert len(sample_ids(wide)) * 12 * 4000 <= MOST_BYTES + 12 * 4000
    assert len(sample_ids(Store.from_arrays(np.ones((7, 2))))) == 7
