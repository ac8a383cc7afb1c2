"""One-vs-one bookkeeping against scikit-learn and the definition."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from private_sklearn import ovr_decision_function

from streamsvm.tasks.pairs import classes_of_pairs, n_pairs, pair_coefficients, pair_decisions, pairs, vote


@pytest.mark.parametrize("k", [3, 4, 7])
def test_votes_are_those_of_scikit_learn(k):
    decisions = np.random.default_rng(k).normal(size=(200, n_pairs(k)))
    expected = ovr_decision_function(decisions < 0, -decisions, k)
    # scikit-learn's pairs decide for the first class where positive, ours for the second
    flipped = ovr_decision_function(decisions > 0, decisions, k)
    found = vote(decisions, k)
    assert not np.allclose(flipped, expected)
    np.testing.assert_allclose(found, flipped, atol=1e-12)


def test_a_zero_decision_is_nobodys_vote():
    np.testing.assert_array_equal(vote(np.zeros((2, 3)), 3), np.zeros((2, 3)))


@pytest.mark.parametrize("k", [2, 3, 5])
def test_classes_of_pairs_are_in_the_order_of_decisions(k):
    assert list(zip(*classes_of_pairs(k), strict=True)) == list(combinations(range(k), 2))


@pytest.mark.parametrize("k", [2, 3, 5])
def test_coefficients_go_back_to_where_pairs_took_them(k):
    rng = np.random.default_rng(k)
    codes = rng.integers(0, k, 60)
    alpha = rng.random((60, k - 1))
    table = pair_coefficients(alpha, codes, k)
    for p, (pair, (i, j)) in enumerate(zip(pairs(codes, k, single=False), combinations(range(k), 2), strict=True)):
        np.testing.assert_array_equal(np.sort(np.unique(codes[pair.ids])), [i, j])
        np.testing.assert_array_equal(pair.y, np.where(codes[pair.ids] == j, 1, -1))
        signed = np.zeros(60)
        signed[pair.ids] = pair.coefficients(alpha[pair.places])
        np.testing.assert_allclose(table[:, p], signed, rtol=1e-6)


def test_classes_decide_as_pairs_do():
    rng, k = np.random.default_rng(0), 25
    codes, alpha, K = (
        rng.integers(0, k - 1, 90),
        rng.random((90, k - 1)),
        rng.random((7, 90)),
    )  # one class is absent
    found = pair_decisions(lambda ids, coef: K[:, ids] @ coef, 7, alpha, codes, k)
    np.testing.assert_allclose(found, K @ pair_coefficients(alpha, codes, k), rtol=1e-6, atol=1e-6)


def test_every_coefficient_belongs_to_one_pair():
    codes = np.repeat(np.arange(4), 3)
    used = np.zeros((12, 3), int)
    for pair in pairs(codes, 4, single=False):
        used[pair.ids, pair.columns] += 1
    np.testing.assert_array_equal(used, 1)


@pytest.mark.parametrize(("single", "expected"), [(False, 1), (True, 3)])
def test_pairs_without_one_of_their_classes(single, expected):
    codes = np.array([0, 0, 1])  # class 2 is absent: (0, 2) and (1, 2) have rows of one class only
    assert len(list(pairs(codes, 3, single=single))) == expected
