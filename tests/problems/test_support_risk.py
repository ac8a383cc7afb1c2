"""One class: its risk, and the threshold by counted scores, to the last bit."""

from __future__ import annotations

import numpy as np
import pytest
import reference
from hypothesis import given
from hypothesis import strategies as st
from making import passes_over

from streamsvm.problems.row_risk import RHO, SLACK, SupportRisk, _number, _ordered


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=2, max_size=20))
def test_scores_become_numbers_in_their_order_and_back(values):
    f = np.array(values)
    order = _ordered(f)
    np.testing.assert_array_equal(np.argsort(order, kind="stable"), np.argsort(f, kind="stable"))
    np.testing.assert_array_equal([_number(one) for one in order], f)


@given(st.integers(0, 9999), st.integers(1, 40), st.floats(0.01, 1.0), st.booleans())
def test_the_threshold_is_the_best_of_all(seed, n, nu, ties):
    rng = np.random.default_rng(seed)
    X = rng.integers(-3, 4, (n, 1)) / 2 if ties else rng.normal(size=(n, 1))
    X, weight = X.astype(np.float32).astype(np.float64), rng.integers(1, 4, n) / 2
    risk = SupportRisk(passes_over(X, np.zeros(n, int), weight, bias=RHO), nu)
    w = rng.normal(size=1)
    rho, f = risk.threshold(w), X @ w
    assert weight[f < rho].sum() <= risk.reward * (1 + 1e-9)
    nearby = [reference.one_class_primal(X, weight, nu, w, value) for value in f]
    primal = reference.one_class_primal(X, weight, nu, w, rho)
    assert primal <= min(nearby) + 3 * SLACK * weight.sum() * np.abs(f).max()


def test_value_and_slope_are_those_of_the_primal():
    rng = np.random.default_rng(0)
    X, weight, nu = rng.normal(size=(50, 3)).astype(np.float32).astype(np.float64), rng.random(50), 0.3
    risk = SupportRisk(passes_over(X, np.zeros(50, int), weight, bias=RHO), nu)
    assert risk.reward == pytest.approx(nu * weight.sum())
    q = np.append(rng.normal(size=3), 0.4)
    [view] = risk.at(np.array([0]), 0 * q[:, None], q[:, None], [risk.start()])
    below = X @ q[:3] < 0.4
    primal = reference.one_class_primal(X, weight, nu, q[:3], 0.4)
    assert view.value == pytest.approx(primal - q[:3] @ q[:3] / 2 + 0.4 * risk.reward)
    expected = np.append(-X.T @ (weight * below), weight[below].sum())
    np.testing.assert_allclose(view.slope, expected, atol=1e-9)
    assert risk.support(q[:, None], []) == np.count_nonzero(below)
