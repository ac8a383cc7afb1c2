"""Risks of linear functions against their twins: value, slope, the minimum along a line."""

from __future__ import annotations

import numpy as np
import pytest
import reference
from hypothesis import assume, given
from hypothesis import strategies as st
from making import passes_over as passes
from scipy.optimize import minimize_scalar

from streamsvm.problems import pair_risk
from streamsvm.problems.pair_risk import PairRisk
from streamsvm.problems.row_risk import HINGE_STEPS, NOTHING, HingeRisk, OneVsRestTerms, TubeTerms


def quarters(rng, *shape) -> np.ndarray:
    """Numbers that float32 and sums hold exactly, ties and points on a margin among them."""
    return rng.integers(-8, 9, shape) / 4


@st.composite
def problems(draw):
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    n = draw(st.integers(2, 40))
    X, weight = quarters(rng, n, 3), rng.integers(0, 4, n) / 2
    return (
        rng,
        X,
        weight,
        rng.integers(0, draw(st.integers(2, 5)), n),
        rng.integers(0, draw(st.integers(1, 4)), n),
    )


@given(problems(), st.sampled_from([0.0, 1.0, 2.5]))
def test_hinge_values_and_slopes(problem, bias):
    rng, X, upper, codes, _ = problem
    k = max(2, int(codes.max()) + 1)
    risk = HingeRisk(passes(X, codes, upper, bias=bias), OneVsRestTerms(k))
    columns = np.arange(risk.columns)[:: 1 + (risk.columns > 2)]
    W, Q = quarters(rng, 2, risk.d, len(columns))
    views = risk.at(columns, W, Q, [risk.start()] * len(columns))
    with_bias = np.column_stack([X, np.full(len(X), bias)]) if bias else X
    active = np.zeros(len(X), bool)
    for i, c in enumerate(columns):
        Y = np.where(codes == (1 if k == 2 else c), 1.0, -1.0)
        value, slope = reference.hinge_risk(with_bias, Y, upper, Q[:, i])
        np.testing.assert_allclose(views[i].slope, slope, atol=1e-9)
        assert views[i].value == pytest.approx(value)
        active |= Y * (with_bias @ Q[:, i]) < 1
    if len(columns) == risk.columns:
        assert risk.support(Q, []) == np.count_nonzero(active)


@given(problems(), st.sampled_from([0.0, 0.5]), st.sampled_from([0.0, 2.0]))
def test_values_slopes_and_lines_of_numbers(problem, epsilon, bias):
    rng, X, upper, _, _ = problem
    t = quarters(rng, len(X))
    risk = HingeRisk(passes(X, t, upper, bias=bias), TubeTerms(epsilon))
    w, q = quarters(rng, 2, risk.d)
    [view] = risk.at(np.array([0]), w[:, None], q[:, None], [risk.start()])
    with_bias = np.column_stack([X, np.full(len(X), bias)]) if bias else X
    value, slope = reference.epsilon_risk(with_bias, t, upper, epsilon, q)
    assert view.value == pytest.approx(value)
    np.testing.assert_allclose(view.slope, slope, atol=1e-9)
    along = [reference.epsilon_risk(with_bias, t, upper, epsilon, w + k * (q - w))[0] for k in HINGE_STEPS[::9]]
    np.testing.assert_allclose(view.risks[::9], along, rtol=1e-12, atol=1e-12 * max(1.0, *along))
    outside = np.abs(with_bias @ q - t) > epsilon
    assert risk.support(q[:, None], []) == np.count_nonzero(outside)


@given(problems())
def test_pair_values_and_slopes(problem):
    rng, X, weight, ranks, groups = problem
    assume((np.outer(weight, weight) * reference.pairs_of(ranks, groups)).any())
    risk = PairRisk(passes(X), ranks, groups, weight, 1.5)
    w = quarters(rng, 3)
    [view] = risk.at(np.array([0]), np.zeros((3, 1)), w[:, None], [risk.start()])
    value, slope = reference.pair_risk(X, ranks, groups, weight, 1.5, w)
    np.testing.assert_allclose(view.scores, X @ w, atol=1e-12)
    np.testing.assert_allclose(view.slope, slope, atol=1e-9)
    assert view.value == pytest.approx(value)
    assert risk.total == pytest.approx((np.outer(weight, weight) * reference.pairs_of(ranks, groups)).sum())


def along(risk, slope, curvature):
    """The function that `lowest` minimises; risk: of k."""
    return lambda k: slope * k + curvature * k * k / 2 + risk(k)


@given(problems(), st.floats(-30, 3), st.floats(0.01, 3), st.integers(-8, 4))
def test_the_step_is_the_best_of_all_steps_by_their_risks_alone(problem, slope, curvature, power):
    """What each row adds to sums decides as all losses at each step do; nothing is lost where a row bends on a step."""
    rng, X, upper, codes, _ = problem
    w, q = quarters(rng, 3), quarters(rng, 3)
    q = w + (q - w) * 2.0**power
    signs = np.where(codes == 1, 1.0, -1.0)
    [view] = HingeRisk(passes(X, codes, upper), OneVsRestTerms(2)).at(np.array([0]), w[:, None], q[:, None], [NOTHING])
    f, df = X @ w, X @ (q - w)
    risks = np.maximum(0.0, 1 - signs * (f + HINGE_STEPS[:, None] * df)) @ upper
    np.testing.assert_allclose(view.risks, risks, rtol=1e-12, atol=1e-12 * max(1.0, max(risks)))
    [(k, value, _)] = view.lowest(slope, curvature)
    phi = slope * HINGE_STEPS + curvature / 2 * HINGE_STEPS**2 + risks
    place = HINGE_STEPS.tolist().index(k)
    assert phi[place] <= phi.min() + 1e-12 * max(1.0, abs(phi.min()))
    assert value == view.risks[place]


def test_steps_are_near_the_lowest_point_of_the_line():
    """All but 1e-4 of what it would gain."""
    rng = np.random.default_rng(0)
    X, codes, upper = rng.normal(size=(2000, 3)), np.arange(2000) % 2, rng.random(2000)
    X[:, 0] += codes
    risk, w = HingeRisk(passes(X, codes, upper), OneVsRestTerms(2)), np.zeros(3)
    for scale in (0.01, 1.0, 70.0):
        q = scale * np.array([1.0, 0.1, -0.1])
        [view] = risk.at(np.array([0]), w[:, None], q[:, None], [NOTHING])
        curvature = float(q @ q)
        phi = along(lambda k, q=q: reference.hinge_risk(X, 2 * codes - 1, upper, k * q)[0], 0.0, curvature)
        best = minimize_scalar(phi, bracket=(0, 1 / scale), tol=1e-12).fun
        [(k, _, _)] = view.lowest(0.0, curvature)
        assert best <= phi(k) <= best + 3e-4 * (phi(0.0) - best)


@given(problems(), st.floats(-3, 3), st.floats(0.01, 3))
def test_the_last_step_of_pairs_is_the_lowest_of_the_line(problem, slope, curvature):
    rng, X, weight, codes, groups = problem
    assume((np.outer(weight, weight) * reference.pairs_of(codes, groups)).any())
    risk = PairRisk(passes(X), codes, groups, weight, 1.0)
    f, df = quarters(rng, len(X)), quarters(rng, len(X))
    *_, (k, value, scores) = risk.lowest(f, df, slope, curvature)
    phi = along(lambda k: risk._scale * risk._loss(f + k * df)[0], slope, curvature)
    grid = min(map(phi, [*np.linspace(0, 10, 401), *(k * (1 + 1e-2 * np.arange(-3, 4)))]))
    assert k >= 0
    assert phi(k) <= grid + 1e-4 * max(1.0, abs(grid))
    np.testing.assert_array_equal(scores, f + k * df)
    assert value == risk._scale * risk._loss(scores)[0]


def test_scores_so_large_that_a_margin_is_lost_in_them():
    risk = PairRisk(passes(np.zeros((6, 1))), np.arange(6) % 2, np.arange(6) // 4, np.ones(6), 1.0)
    f = 1e30 * np.array([1.0, 1.0, -1.0, 2.0, 3.0, -3.0])
    assert risk._loss(f)[0] > 1e29


def test_a_line_over_many_rows_is_searched_on_some(monkeypatch):
    monkeypatch.setattr(pair_risk, "LINE_ROWS", 500)
    rng = np.random.default_rng(0)
    X, groups = rng.normal(size=(4000, 3)), np.arange(4000) // 40
    ranks = (X @ [1, 2, 0] + rng.normal(size=4000) > 0.5).astype(int)
    for of_groups in (groups, np.zeros(4000, int)):
        risk = PairRisk(passes(X), ranks, of_groups, np.ones(4000), 1e-2)
        f, df = X @ np.array([0.3, 0.5, 0.1]), X @ np.array([0.2, 0.4, 0.1])
        about, exact = (k for k, _, _ in risk.lowest(f, df, 0.0, 0.21))
        assert about != exact
        assert about == pytest.approx(exact, rel=0.1)


def test_a_pass_is_counted_and_told():
    from streamsvm.events import Events, Progress

    records = []
    there = passes(np.zeros((10, 2)), np.arange(10) % 2, np.ones(10))
    there._events = Events(records.append)
    HingeRisk(there, OneVsRestTerms(2)).at(np.array([0]), np.zeros((2, 1)), np.zeros((2, 1)), [NOTHING])
    assert there.count == 1
    told = [
        record.event for record in records if isinstance(record.event, Progress)
    ]  # slow tasks tell of themselves, too
    assert told[-1] == Progress("rows", 10, 10, facts={"pass": 1})
