"""Folds: every row is held out once, classes keep their shares, queries stay whole."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamsvm import Store
from streamsvm.errors import ConfigError, DataError
from streamsvm.tune.folds import make_folds


@given(
    sizes=st.lists(st.integers(2, 40), min_size=1, max_size=4),
    count=st.integers(2, 6),
    share=st.floats(0.05, 1.0),
    seed=st.integers(0, 9),
)
def test_classes_keep_their_shares(sizes, count, share, seed):
    y = np.repeat(np.arange(len(sizes)), sizes)
    store = Store.from_arrays(np.zeros((max(len(y), count), 1)), np.resize(y, max(len(y), count)))
    if store.n != len(y):
        return
    folds = make_folds(store, count, True, seed)
    held = np.concatenate([folds.members(fold)[1] for fold in range(count)])
    np.testing.assert_array_equal(np.sort(held), np.arange(store.n))
    table = np.array([np.bincount(y[folds.of == fold], minlength=len(sizes)) for fold in range(count)])
    assert np.ptp(table, axis=0).max() <= 1
    assert np.ptp(table.sum(axis=1)) <= 1
    few = folds.joins < share
    for label, size in enumerate(sizes):
        assert few[y == label].sum() == max(np.ceil(share * size - 1e-9), min(count, size))
    train, held = folds.members(0, share)
    assert not few[np.setdiff1d(np.arange(store.n), np.concatenate([train, held]))].any()


def test_more_rows_hold_the_fewer_ones():
    folds = make_folds(Store.from_arrays(np.zeros((100, 1)), np.arange(100) % 3), 5, True, 0)
    (a, b), (c, d) = folds.members(2, 0.2), folds.members(2, 0.7)
    assert set(a) < set(c)
    assert set(b) < set(d)


def test_queries_stay_whole():
    qid = np.repeat(np.arange(30), np.arange(1, 31))
    store = Store.from_arrays(np.zeros((len(qid), 1)), np.zeros(len(qid)), qid=qid)
    folds = make_folds(store, 4, False, 0)
    assert all(
        len(np.unique(folds.of[qid == q])) == len(np.unique(folds.joins[qid == q])) == 1 for q in range(30)
    )
    assert np.ptp(np.bincount(folds.of)) < 10
    with pytest.raises(ConfigError, match="tune.folds is 31, more than the store's 30 queries"):
        make_folds(store, 31, False, 0)


def test_too_few_rows():
    with pytest.raises(ConfigError, match="tune.folds is 5, more than the store's 4 rows"):
        make_folds(Store.from_arrays(np.zeros((4, 1)), np.arange(4) % 2), 5, True, 0)
    with pytest.raises(DataError, match="class 7 has one row only"):
        make_folds(Store.from_arrays(np.zeros((4, 1)), np.array([3, 3, 3, 7])), 2, True, 0)
