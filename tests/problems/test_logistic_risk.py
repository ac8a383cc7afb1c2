"""Logistic losses against NumPy's: value, slope, the way along a line, whatever the size of scores."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from making import passes_over
from scipy.optimize import minimize_scalar

from streamsvm.problems.row_risk import LOGISTIC_STEPS, LogisticRisk, OneVsRestTerms


@given(st.integers(0, 10**6), st.sampled_from([1.0, 1e3, 1e200]), st.sampled_from([0.0, 2.0]))
def test_values_slopes_and_lines_are_numpys(seed, size, bias):
    rng = np.random.default_rng(seed)
    X, upper, codes = rng.normal(size=(40, 3)).astype(np.float32), rng.random(40), rng.integers(0, 3, 40)
    risk = LogisticRisk(passes_over(X, codes, upper, bias=bias), OneVsRestTerms(3))
    W, Q = size * rng.normal(size=(2, risk.d, 3))
    Z = np.column_stack([X, np.full(40, bias)]).astype(np.float64) if bias else X.astype(np.float64)
    for c, view in enumerate(risk.at(np.arange(3), W, Q, [risk.start()] * 3)):
        y = np.where(codes == c, 1.0, -1.0)
        w, q = W[:, c], Q[:, c]
        losses = np.logaddexp(0, -y * (Z @ (w + LOGISTIC_STEPS[:, None] * (q - w)).T).T)
        np.testing.assert_allclose(view.risks, losses @ upper, rtol=1e-10)
        assert view.value == pytest.approx(np.logaddexp(0, -y * (Z @ q)) @ upper, rel=1e-10)
        slope = -y * upper * np.exp(-np.logaddexp(0, y * (Z @ q)))
        np.testing.assert_allclose(view.slope, Z.T @ slope, rtol=1e-9, atol=1e-9)
    assert risk.support(W, []) == 40


def test_the_best_step_is_near_the_lowest_point_of_the_line():
    """All but 3 % of what it would gain."""
    rng = np.random.default_rng(0)
    X, codes, upper = rng.normal(size=(2000, 3)), np.arange(2000) % 2, rng.random(2000)
    X[:, 0] += codes
    risk, w = LogisticRisk(passes_over(X, codes, upper), OneVsRestTerms(2)), np.zeros(3)
    signs, X = 2 * codes - 1, X.astype(np.float32).astype(np.float64)
    for scale in (0.3, 1.0, 4.0):
        q = scale * np.array([1.0, 0.1, -0.1])
        [view] = risk.at(np.array([0]), w[:, None], q[:, None], [risk.start()])

        def phi(k, q=q):
            return k * k * float(q @ q) / 2 + float(np.logaddexp(0, -k * signs * (X @ q)) @ upper)

        best = minimize_scalar(phi, bracket=(0, 1 / scale), tol=1e-12).fun
        [(k, value, _)] = view.lowest(0.0, float(q @ q))
        assert value == pytest.approx(phi(k) - k * k * float(q @ q) / 2)
        assert best <= phi(k) <= best + 0.03 * (phi(0.0) - best)
