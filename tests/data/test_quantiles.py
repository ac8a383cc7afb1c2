"""The quantile scaling against scikit-learn's QuantileTransformer, np.interp and finite differences."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from making import samples
from scipy.stats import norm
from sklearn.preprocessing import QuantileTransformer

from streamsvm import DCSVC, HSSSVC, BudgetedSVC
from streamsvm.config import FitConfig, build_config
from streamsvm.data.metric import Metric
from streamsvm.data.rows import Rows
from streamsvm.data.scaling import Scaling, from_quantiles
from streamsvm.data.statistics import moments_of
from streamsvm.data.store import Store
from streamsvm.errors import ConfigError
from streamsvm.fits.prepare import prepare
from streamsvm.parallel.engine import Engine
from streamsvm.train import train_in_memory


def learned(X, all_rows=None) -> Scaling:
    return from_quantiles(Rows(X), moments_of(Rows(X if all_rows is None else all_rows)))


def tailed(seed=0, n=3000):
    """Columns with heavy tails, with many zeros, of two values, and constant."""
    rng = np.random.default_rng(seed)
    zeros = np.where(rng.random(n) < 0.6, 0.0, rng.lognormal(1, 2, n))
    return np.column_stack([rng.standard_cauchy(n), zeros, rng.random(n) < 0.3, np.full(n, 7.0)])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_agrees_with_scikit_learn_between_the_outer_quantiles(dtype):
    X = tailed().astype(dtype)
    expected = QuantileTransformer(n_quantiles=1000, output_distribution="normal").fit_transform(X)
    scaled = learned(X).apply(Rows(X)).X
    assert scaled.dtype == np.float32
    inside = np.abs(expected) < 2.5
    assert inside[:, 0].mean() > 0.98
    apart = np.abs(scaled - expected)[inside]
    assert np.quantile(apart, 0.99) < 0.02
    assert apart.max() < 0.3  # next to the many zeros


@pytest.mark.parametrize("dtype", ["uint8", "float32", "float64"])
def test_is_linear_between_the_quantiles_and_constant_beyond(dtype):
    X = samples(700, 5, dtype).X
    scaling = learned(X[:400], X)
    new = np.concatenate([X, X[:3] + 40, X.max(axis=0, keepdims=True)]).astype(dtype)
    scaled = scaling.apply(Rows(new)).X
    for column, knots, heights in zip(range(5), scaling.quantiles.knots, scaling.quantiles.heights, strict=True):
        own, at = np.unique(knots, return_index=True)
        expected = np.interp(new[:, column].astype(np.float64), own, heights[at])
        np.testing.assert_allclose(scaled[:, column], expected, rtol=1e-6, atol=1e-6)


def test_rows_that_share_a_value_have_the_middle_of_their_levels():
    X = tailed()
    scaled = learned(X).apply(Rows(X)).X
    zero, one = (X[:, 2] == value for value in (0, 1))
    np.testing.assert_allclose(scaled[zero, 2], norm.ppf(zero.mean() / 2), atol=0.01)
    np.testing.assert_allclose(scaled[one, 2], norm.ppf(1 - one.mean() / 2), atol=0.01)
    assert not scaled[:, 3].any()
    assert not learned(X).apply(Rows(X + 5)).X[:, 3].any()


@given(st.integers(0, 1000), st.integers(1, 600), st.integers(1, 3))
def test_is_monotone_and_has_ends(seed, n, decimals):
    rng = np.random.default_rng(seed)
    X = np.round(rng.standard_cauchy((n, 1)) * 10.0 ** rng.integers(-2, 3), decimals)
    scaling = learned(X[: max(1, n // 2)], X)
    new = np.sort(np.concatenate([X, X + 0.01, [[-1e9], [1e9]]]), axis=0)
    scaled = scaling.apply(Rows(new)).X
    assert (np.diff(scaled, axis=0) >= 0).all()
    assert np.abs(scaled).max() < 4


def test_rare_values_are_not_lost_where_the_sample_has_none():
    X = np.zeros((500, 1))
    X[499] = 3.0
    scaled = learned(X[:100], X).apply(Rows(X)).X
    assert scaled[499] - scaled[0] > 2


@pytest.mark.parametrize("metric", [None, Metric(np.array([2.0, 0.5, 1.0, 0.0])), Metric(np.eye(4)[:, :2] + 0.5)])
def test_gradients_are_pulled_back_by_the_chain_rule(metric):
    X, h = tailed(), 1e-6
    scaling = learned(X)
    scaling = scaling if metric is None else scaling.under(metric)
    at = X[5:25] + 0.0123  # away from knots
    weights = np.arange(1.0, scaling.width + 1)

    def value(X):  # of float64 throughout
        Z = scaling.quantiles.normal(X)
        return (Z if metric is None else Z @ metric.matrix) @ weights

    actual = scaling.pull_back(np.broadcast_to(weights, (20, scaling.width)), Rows(at))
    for column, step in enumerate(h * np.eye(4)):
        np.testing.assert_allclose(
            actual[:, column], (value(at + step) - value(at - step)) / (2 * h), rtol=1e-3, atol=1e-6
        )


def test_at_a_quantile_the_slope_is_that_to_its_right():
    X, h = tailed(), 1e-6
    quantiles = learned(X).quantiles
    at = quantiles.knots[:, 5:-1:20].T  # zeros that many rows share, too
    expected = (quantiles.normal(at + h) - quantiles.normal(at)) / h
    np.testing.assert_allclose(quantiles.slopes(at), expected, rtol=1e-3, atol=1e-6)
    assert not quantiles.slopes(quantiles.knots[:, -1:].T).any()


def test_undone_rows_are_those_that_were_scaled():
    X = tailed()
    scaling = learned(X)
    at = np.argsort(X[:, 0])[100:-100]  # the float32 of what they become tells tails from each other no closer
    np.testing.assert_allclose(scaling.undone(scaling.apply(Rows(X[at]))), X[at], rtol=1e-3, atol=1e-4)
    undone = scaling.under(Metric(np.array([1.0, 2.0, 0.0, 1.0]))).undone(
        scaling.under(Metric(np.array([1.0, 2.0, 0.0, 1.0]))).apply(Rows(X[at]))
    )
    np.testing.assert_allclose(undone[:, 1], X[at, 1], rtol=1e-3, atol=1e-4)
    assert np.isnan(undone[:, 2]).all()


def test_arrays_there_and_back_and_damaged_ones():
    X = tailed()
    scaling = learned(X)
    arrays = scaling.to_arrays()
    again = Scaling.from_arrays("quantile", arrays)
    np.testing.assert_array_equal(again.apply(Rows(X)).X, scaling.apply(Rows(X)).X)
    wider = again.wider(6).apply(Rows(np.hstack([X, X[:, :2]]))).X
    np.testing.assert_array_equal(wider[:, :4], scaling.apply(Rows(X)).X)
    assert not wider[:, 4:].any()
    with pytest.raises(ValueError, match=r"found quantiles of shape \(3, 256\), expected 4 columns"):
        Scaling.from_arrays("quantile", arrays | {"quantiles": arrays["quantiles"][:3]})


def test_comes_from_a_store_and_not_from_sparse_rows():
    X, config = tailed(n=400)[:, :3].astype(np.float32), FitConfig(scale="quantile")
    y = np.arange(400) % 2
    data = prepare(Store.from_arrays(X, y), config, Engine(1))
    np.testing.assert_allclose(data.scaling.apply(Rows(X)).X, learned(X).apply(Rows(X)).X, atol=1e-6)
    rows = samples(40, 6, is_sparse=True)
    with pytest.raises(ConfigError, match="quantile scaling would fill a sparse store; use maxabs"):
        prepare(Store.from_arrays(rows.X, y[:40]), config, Engine(1))


def test_gamma_is_that_of_scaled_rows():
    X = tailed()
    data = prepare(Store.from_arrays(X, np.arange(3000) % 2), FitConfig(scale="quantile"), Engine(1))
    scaled = data.scaling.apply(Rows(X)).X
    assert data.kernel.gamma == pytest.approx(1 / (4 * scaled.var()), rel=0.02)


def test_gaps_are_filled_first():
    X = tailed(n=400)
    y = (X[:, 0] > 0).astype(int)
    X[::7, 1] = np.nan
    config = build_config(("test", {"scale": "quantile", "gaps": "median", "kernel": {"gamma": 0.3}}))
    model, _ = train_in_memory(Store.from_arrays(X, y), config)
    filled = np.where(np.isnan(X), np.nanmedian(X, axis=0), X)
    twin, _ = train_in_memory(Store.from_arrays(filled, y), config)
    np.testing.assert_allclose(model.decision_function(X), twin.decision_function(filled), atol=1e-5)


@pytest.mark.parametrize("estimator", [DCSVC, HSSSVC, BudgetedSVC])
def test_estimators_learn_from_rows_that_went_through(estimator):
    X = tailed(n=400)
    y = np.log1p(np.abs(X[:, 0])) > np.log1p(X[:, 1])
    fitted = estimator(scale="quantile", gamma=0.3, random_state=0).fit(X, y)
    twin = estimator(gamma=0.3, random_state=0).fit(learned(X).apply(Rows(X)).X, y)
    expected = twin.decision_function(learned(X).apply(Rows(X)).X)
    np.testing.assert_allclose(fitted.decision_function(X), expected, atol=5e-3)
