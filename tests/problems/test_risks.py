"""Risks of linear functions against their twins: value, slope, the minimum along a line."""

from __future__ import annotations

import numpy as np
import pytest
import reference
from hypothesis import assume, given
from hypothesis import strategies as st

from streamsvm.data.pass_cache import HeldSamples
from streamsvm.data.rows import Rows
from streamsvm.data.samples import MemorySamples
from streamsvm.parallel.engine import Engine
from streamsvm.problems import pair_risk
from streamsvm.problems.hinge_risk import HingeRisk
from streamsvm.problems.pair_risk import PairRisk
from streamsvm.problems.passes import Passes


def quarters(rng, *shape) -> np.ndarray:
    """Numbers that float32 and sums hold exactly, ties and points on a margin among them."""
    return rng.integers(-8, 9, shape) / 4


def passes(X: np.ndarray, bias: float = 0.0) -> Passes:
    def none():
        raise AssertionError("all rows fit in memory")

    held = HeldSamples(MemorySamples(Rows(X.astype(np.float32))), 1 << 30, none)
    return Passes(held, Engine(2), bias)


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
    risk = HingeRisk(passes(X, bias), codes, k, upper)
    columns = np.arange(risk.columns)[:: 1 + (risk.columns > 2)]
    W = quarters(rng, risk.d, len(columns))
    F, values, slopes = risk.at(W, columns)
    with_bias = np.column_stack([X, np.full(len(X), bias)]) if bias else X
    for i, c in enumerate(columns):
        Y = np.where(codes == (1 if k == 2 else c), 1.0, -1.0)
        value, slope = reference.hinge_risk(with_bias, Y, upper, W[:, i])
        np.testing.assert_allclose(F[:, i], with_bias @ W[:, i], atol=1e-12)
        np.testing.assert_allclose(slopes[:, i], slope, atol=1e-9)
        assert values[i] == pytest.approx(value)
        assert risk.value(c, F[:, i].copy()) == pytest.approx(value)
        np.testing.assert_array_equal(risk.active(c, F[:, i]), Y * F[:, i] < 1)


@given(problems())
def test_pair_values_and_slopes(problem):
    rng, X, weight, ranks, groups = problem
    assume((np.outer(weight, weight) * reference.pairs_of(ranks, groups)).any())
    risk = PairRisk(passes(X), ranks, groups, weight, 1.5)
    w = quarters(rng, 3)
    F, values, slopes = risk.at(w[:, None], np.array([0]))
    value, slope = reference.pair_risk(X, ranks, groups, weight, 1.5, w)
    np.testing.assert_allclose(F[:, 0], X @ w, atol=1e-12)
    np.testing.assert_allclose(slopes[:, 0], slope, atol=1e-9)
    assert values[0] == pytest.approx(value)
    assert risk.total == pytest.approx((np.outer(weight, weight) * reference.pairs_of(ranks, groups)).sum())


def line(risk, f, df, slope, curvature):
    """The function that `step` minimises."""
    return lambda k: slope * k + curvature * k * k / 2 + risk.value(0, f + k * df)


@given(problems(), st.floats(-3, 3), st.floats(0.01, 3), st.sampled_from(["hinge", "pairs"]))
def test_the_step_is_the_lowest_of_the_line(problem, slope, curvature, kind):
    rng, X, weight, codes, groups = problem
    if kind == "hinge":
        risk = HingeRisk(passes(X), np.minimum(codes, 1), 2, weight)
    else:
        assume((np.outer(weight, weight) * reference.pairs_of(codes, groups)).any())
        risk = PairRisk(passes(X), codes, groups, weight, 1.0)
    f, df = quarters(rng, len(X)), quarters(rng, len(X))
    k = risk.step(0, f, df, slope, curvature, exact=True)
    value = line(risk, f, df, slope, curvature)
    grid = min(map(value, [*np.linspace(0, 10, 401), *(k * (1 + 1e-2 * np.arange(-3, 4)))]))
    tolerance = 1e-9 if kind == "hinge" else 1e-4
    assert k >= 0
    assert value(k) <= grid + tolerance * max(1.0, abs(grid))


def test_scores_so_large_that_a_margin_is_lost_in_them():
    risk = PairRisk(passes(np.zeros((6, 1))), np.arange(6) % 2, np.arange(6) // 4, np.ones(6), 1.0)
    f = 1e30 * np.array([1.0, 1.0, -1.0, 2.0, 3.0, -3.0])
    assert risk.value(0, f) > 1e29


def test_a_line_over_many_rows_is_searched_on_some(monkeypatch):
    monkeypatch.setattr(pair_risk, "LINE_ROWS", 500)
    rng = np.random.default_rng(0)
    X, groups = rng.normal(size=(4000, 3)), np.arange(4000) // 40
    ranks = (X @ [1, 2, 0] + rng.normal(size=4000) > 0.5).astype(int)
    for of_groups in (groups, np.zeros(4000, int)):
        risk = PairRisk(passes(X), ranks, of_groups, np.ones(4000), 1e-2)
        f, df = X @ np.array([0.3, 0.5, 0.1]), X @ np.array([0.2, 0.4, 0.1])
        about, exact = (risk.step(0, f, df, 0.0, 0.21, exact=e) for e in (False, True))
        assert about != exact
        assert about == pytest.approx(exact, rel=0.1)


def test_a_pass_is_counted_and_told():
    from streamsvm.events import Events, Progress

    records = []
    X = np.zeros((10, 2))
    there = passes(X)
    there._events = Events(records.append)
    HingeRisk(there, np.arange(10) % 2, 2, np.ones(10)).at(np.zeros((2, 1)), np.array([0]))
    assert there.count == 1
    assert records[-1].event == Progress("rows", 10, 10, facts={"pass": 1})
