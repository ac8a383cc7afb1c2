"""Folds: every row is held out once, classes keep their shares, queries stay whole, scikit-learn assigns."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from sklearn.model_selection import StratifiedKFold

from streamsvm import Store
from streamsvm.data.folds import assign_folds, draw_groups, make_folds
from streamsvm.errors import ConfigError, DataError


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
    assert all(len(np.unique(folds.of[qid == q])) == len(np.unique(folds.joins[qid == q])) == 1 for q in range(30))
    assert np.ptp(np.bincount(folds.of)) < 10
    with pytest.raises(ConfigError, match="tune.folds is 31, more than the store's 30 queries"):
        make_folds(store, 31, False, 0)


def test_too_few_rows():
    with pytest.raises(ConfigError, match="tune.folds is 5, more than the store's 4 rows"):
        make_folds(Store.from_arrays(np.zeros((4, 1)), np.arange(4) % 2), 5, True, 0)
    with pytest.raises(ConfigError, match="probability.folds is 5, more than the store's 4 rows"):
        assign_folds(Store.from_arrays(np.zeros((4, 1)), np.arange(4) % 2), 5, True, 0, option="probability.folds")
    with pytest.raises(DataError, match="less than two rows of label 7"):
        make_folds(Store.from_arrays(np.zeros((4, 1)), np.array([3, 3, 3, 7])), 2, True, 0)


@given(
    st.integers(2, 7),
    st.lists(st.integers(2, 12), min_size=2, max_size=5),
    st.integers(0, 9),
    st.booleans(),
)
def test_rows_that_weigh_are_even_in_every_class(count, sizes, seed, weighted):
    y = np.random.default_rng(seed).permutation(np.repeat(np.arange(len(sizes)), sizes))
    assume(len(y) >= count)
    weight = np.ones(len(y))
    if weighted:
        first = np.unique(y, return_index=True)[1]
        last = [np.flatnonzero(y == c)[-1] for c in set(y)]
        weight[np.setdiff1d(np.arange(0, len(y), 3), [*first, *last])] = 0
    of = make_folds(Store.from_arrays(np.zeros((len(y), 1)), y, sample_weight=weight), count, True, seed).of
    table = np.array([[np.count_nonzero((of == f) & (y == c) & (weight > 0)) for f in range(count)] for c in set(y)])
    assert np.all(np.ptp(table, axis=1) <= 1)
    assert np.ptp(np.bincount(of, minlength=count)) <= 1
    assert np.all(table.sum(axis=1, keepdims=True) - table > 0)  # each fold's fit meets every class


def test_a_class_of_one_row_is_told():
    X = np.zeros((5, 1))
    with pytest.raises(DataError, match="less than two rows of label b, expected at least two"):
        make_folds(Store.from_arrays(X, np.array(["a", "a", "b", "c", "c"])), 2, True, 0)
    y = np.array([1, 1, 2, 3, 4])  # labels of the rest may be rare, positive ones may not
    assert np.bincount(make_folds(Store.from_arrays(X, y), 2, True, 0, positive=("1",)).of[:2]).max() == 1
    with pytest.raises(DataError, match="less than two rows of label 3"):
        make_folds(Store.from_arrays(X, y), 2, True, 0, positive=("3",))
    weighted = Store.from_arrays(X, np.array([1, 1, 2, 2, 2]), sample_weight=np.array([1, 0, 1, 1, 1]))
    with pytest.raises(DataError, match="less than two rows of label 1"):
        make_folds(weighted, 2, True, 0)


def test_queries_stay_whole_and_labels_keep_their_shares():
    rng = np.random.default_rng(0)
    qid = np.repeat(np.arange(60), rng.integers(1, 8, 60))
    y = np.where(rng.random(len(qid)) < 0.1, "rare", np.where(qid % 2, "odd", "even"))
    folds = make_folds(Store.from_arrays(np.zeros((len(qid), 1)), y, qid=qid), 3, True, 0)
    assert all(len(np.unique(folds.of[qid == q])) == len(np.unique(folds.joins[qid == q])) == 1 for q in qid)
    for label in np.unique(y):
        counts = np.bincount(folds.of[y == label], minlength=3)
        assert np.ptp(counts) <= 0.3 * counts.max()
    of_one = np.where(qid == 7, "alone", "other")
    with pytest.raises(DataError, match="queries in one fold only with rows of label alone"):
        make_folds(Store.from_arrays(np.zeros((len(qid), 1)), of_one, qid=qid), 3, True, 0)


@pytest.mark.parametrize("stratified", [True, False])
@pytest.mark.parametrize("queries", [True, False])
def test_the_seed_alone_decides(stratified, queries):
    y = np.arange(90) % 3
    store = Store.from_arrays(np.zeros((90, 1)), y, qid=np.arange(90) // 3 if queries else None)
    one, same, other = (make_folds(store, 4, stratified, seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(one.of, same.of)
    np.testing.assert_array_equal(one.joins, same.joins)
    assert np.any(one.of != other.of)


def test_labels_are_dealt_as_by_scikit_learn():
    y = np.repeat([0, 1, 2], [50, 30, 7])
    folds = make_folds(Store.from_arrays(np.zeros((87, 1)), y), 5, True, 0)
    theirs = [np.bincount(y[held]) for _, held in StratifiedKFold(5).split(y, y)]
    np.testing.assert_array_equal([np.bincount(y[folds.of == fold]) for fold in range(5)], theirs)


@pytest.mark.parametrize("stratified", [True, False])
def test_groups_stay_whole_whatever_they_are_called(stratified):
    rng = np.random.default_rng(0)
    group = rng.integers(0, 40, 400)
    y, X = rng.integers(0, 2, 400), np.zeros((400, 1))
    folds = make_folds(Store.from_arrays(X, y, group=group), 4, stratified, 0)
    assert all(len(np.unique(folds.of[group == g])) == len(np.unique(folds.joins[group == g])) == 1 for g in group)
    assert np.ptp(np.bincount(folds.of)) < 40
    named = make_folds(Store.from_arrays(X, y, group=np.char.add("g", (100 + group).astype(str))), 4, stratified, 0)
    np.testing.assert_array_equal(named.of, folds.of)
    with pytest.raises(ConfigError, match="tune.folds is 41, more than the store's 40 groups"):
        make_folds(Store.from_arrays(X, y, group=group), 41, stratified, 0)


def test_rows_are_together_by_way_of_queries_and_groups():
    """Queries 0 and 1 share group a, 1 and 2 group b."""
    store = Store.from_arrays(np.zeros((6, 1)), qid=[0, 1, 1, 2, 3, 4], group=["a", "a", "b", "b", "c", "c"])
    groups_found = store.connected_groups
    assert len(set(groups_found[:4])) == len(set(groups_found[4:])) == 1
    assert groups_found[0] != groups_found[4]


@given(st.lists(st.integers(1, 9), min_size=1, max_size=20), st.integers(1, 60), st.booleans(), st.integers(0, 9))
def test_whole_groups_by_chance(sizes, count, at_least, seed):
    groups = np.random.default_rng(seed).permutation(np.repeat(np.arange(len(sizes)), sizes))
    assume(count <= len(groups))
    ids = draw_groups(groups, count, np.random.default_rng(seed), at_least=at_least)
    rest = np.setdiff1d(np.arange(len(groups)), ids)
    assert not set(groups[ids]) & set(groups[rest])
    if at_least:
        assert count <= len(ids) < count + max(sizes)
    else:
        assert len(ids) <= count or len(set(groups[ids])) == 1
