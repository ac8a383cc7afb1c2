"""`groups` of fit: rows of one group are held out together, as in a store with groups."""

from __future__ import annotations

import dask.array as da
import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

from streamsvm import ALFPGMSVC, DCSVC, DCSVR, AutoSVC, BudgetedSVC, BudgetedSVR, CuttingPlaneSVC, Store
from streamsvm.data import folds

KEPT_OUT = [  # whose fits hold rows out, each in another way
    DCSVC(probability=True, gamma=0.5, random_state=0),
    DCSVC(C="search", search_params={"trials": 2}, random_state=0),
    ALFPGMSVC(probability="isotonic", gamma=0.5, random_state=0),
    CuttingPlaneSVC(threshold="f1", random_state=0),
    BudgetedSVC(probability=True, gamma=0.5, random_state=0),
    AutoSVC(search_params={"trials": 2}, random_state=0),
    DCSVR(interval=0.8, gamma=0.5, random_state=0),
    BudgetedSVR(interval=0.8, gamma=0.5, random_state=0),
]


@pytest.fixture(scope="module")
def rows():
    """Ten customers with thirty rows, alike among themselves, and a label by chance for half of them."""
    rng = np.random.default_rng(0)
    customer = np.repeat(np.arange(10), 30)
    X = (rng.normal(size=(10, 3))[customer] + 0.3 * rng.normal(size=(300, 3))).astype(np.float32)
    y = rng.permutation(np.arange(10) % 2)[customer]
    return X, y, np.array([f"customer {number}" for number in customer])


def answers(estimator, X):
    """What held-out rows have told, and what it answers."""
    told = {name: getattr(estimator, name, None) for name in ("chosen_", "expected_", "threshold_")}
    ask = "predict_proba" if hasattr(estimator, "predict_proba") else "predict"
    ask = "predict_interval" if hasattr(estimator, "predict_interval") else ask
    return told, getattr(estimator, ask)(X)


def are_same(found, expected):
    return found[0] == expected[0] and np.array_equal(found[1], expected[1])


@pytest.mark.filterwarnings("ignore:held-out rows are predicted no better")  # labels are by chance
@pytest.mark.parametrize("estimator", KEPT_OUT, ids=str)
def test_they_are_those_of_a_store(estimator, rows):
    X, y, customer = rows
    expected = answers(clone(estimator).fit(Store.from_arrays(X, y, group=customer)), X)
    assert are_same(answers(clone(estimator).fit(X, y, groups=customer), X), expected)
    assert not are_same(answers(clone(estimator).fit(X, y), X), expected)


def test_of_every_kind(rows):
    X, y, customer = rows
    svm = CuttingPlaneSVC(probability=True, random_state=0)
    expected = clone(svm).fit(X, y, groups=customer).predict_proba(X)
    numbers = np.unique(customer, return_inverse=True)[1]
    for groups in (
        [*customer],
        pd.Series(customer),
        pd.Series(customer, dtype="category"),
        pd.Series(numbers, dtype="Int64"),
        da.from_array(numbers, chunks=100),
    ):
        np.testing.assert_array_equal(clone(svm).fit(X, y, groups=groups).predict_proba(X), expected)
    few = (y[:, None] == [0, 1]).astype(int)
    there = DCSVC(gamma=0.5).fit(X, few, groups=customer)
    np.testing.assert_array_equal(there.predict(X), DCSVC(gamma=0.5).fit(X, few).predict(X))


def test_no_fold_learns_from_rows_of_a_group_that_it_holds_out(rows, monkeypatch):
    X, y, customer = rows
    found = []

    def watched(store, *args, **kwargs):
        of = fold_of(store, *args, **kwargs)
        found.append(pd.Series(of).groupby(customer).nunique().tolist())
        return of

    fold_of = folds.assign_folds
    for module in (
        "streamsvm.judging.probabilities",
        "streamsvm.judging.thresholds",
        "streamsvm.data.folds",
    ):
        monkeypatch.setattr(f"{module}.assign_folds", watched, raising=False)
    CuttingPlaneSVC(probability=True).fit(X, y, groups=customer)
    assert found == [[1] * 10]


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        (["a"] * 299, "X has 300 rows but group has 299; expected as many"),
        ([["a", "b"]] * 300, "1d array|should be a 1d"),
        ([None] + ["a"] * 299, "the group of row 0 is missing; every row needs one"),
        ([np.nan] + [1.0] * 299, "the group of row 0 is missing; every row needs one"),
    ],
)
def test_bad_ones_are_one_line(groups, message, rows):
    X, y, _ = rows
    with pytest.raises(ValueError, match=message) as error:
        DCSVC(probability=True).fit(X, y, groups=groups)
    assert "\n" not in str(error.value)


def test_a_store_brings_its_own(rows):
    X, y, customer = rows
    with pytest.raises(ValueError, match="brings its own y, sample_weight, qid and group"):
        DCSVC().fit(Store.from_arrays(X, y), groups=customer)


def test_a_single_one_leaves_nothing_to_learn_from(rows):
    X, y, _ = rows
    with pytest.raises(ValueError, match="more than the store's 1 groups"):
        DCSVC(probability=True).fit(X, y, groups=["a"] * 300)
