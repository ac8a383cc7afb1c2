"""Metrics: scaled rows under L are those that L'x says, forth and back, dense and sparse."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import sparse

from streamsvm.data.metric import Metric
from streamsvm.data.rows import Rows
from streamsvm.data.scaling import Scaling
from streamsvm.errors import ConfigError

d = 5
finite = st.floats(-8, 8, width=32)
roots = arrays(np.float64, d, elements=st.sampled_from([0.0, 0.25, 1.0, 3.0])).filter(np.any)


def scaling(metric: Metric, kind: str = "standard") -> Scaling:
    return Scaling(kind, np.arange(d, dtype=float), np.linspace(0.5, 2, d), metric)


@given(arrays(np.float32, (4, d), elements=finite), roots)
def test_a_diagonal_metric_weighs_columns_and_leaves_out_those_of_no_weight(X, factor):
    scaled_by = scaling(Metric(factor))
    expected = ((X.astype(float) - scaled_by.offset) * scaled_by.scale * factor)[:, factor > 0]
    rows = scaled_by.apply(Rows(X))
    assert rows.d == scaled_by.width == np.count_nonzero(factor)
    np.testing.assert_allclose(rows.X, expected, rtol=1e-6, atol=1e-6)


@given(arrays(np.float32, (4, d), elements=finite), arrays(np.float64, (d, 2), elements=finite))
def test_a_full_metric_is_a_product(X, factor):
    scaled_by = scaling(Metric(factor))
    expected = (X.astype(float) - scaled_by.offset) * scaled_by.scale @ factor
    np.testing.assert_allclose(scaled_by.apply(Rows(X)).X, expected, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("factor", [np.ones(d), np.ones((d, 2))], ids=["diagonal", "full"])
def test_rows_under_a_metric_are_contiguous(factor):
    """As all dense rows are: functions would be compiled once more for others."""
    assert Metric(factor).of_rows(Rows(np.ones((4, d), np.float32))).dense().flags.c_contiguous


@given(arrays(np.float32, (4, d), elements=finite), roots)
def test_sparse_rows_are_as_dense_ones(X, factor):
    scaled_by = Scaling("maxabs", np.zeros(d), np.linspace(0.5, 2, d), Metric(factor))
    rows = scaled_by.apply(Rows(sparse.csr_array(X)))
    assert rows.is_sparse
    np.testing.assert_allclose(rows.dense(), scaled_by.apply(Rows(X)).X, rtol=1e-6, atol=1e-6)


def test_a_full_metric_does_not_fill_sparse_rows():
    scaled_by = Scaling("none", np.zeros(d), np.ones(d), Metric(np.ones((d, 2))))
    with pytest.raises(ConfigError, match="a full metric would fill a sparse store; use a diagonal one"):
        scaled_by.apply(Rows(sparse.csr_array(np.eye(d, dtype=np.float32))))


@pytest.mark.parametrize(
    "factor", [np.array([1.0, 0, 2, 0.5, 0]), np.arange(10.0).reshape(d, 2)], ids=["diagonal", "full"]
)
def test_derivatives_come_back_by_the_chain_rule(factor):
    own, rng = scaling(Metric(factor)), np.random.default_rng(0)
    X, g, h = rng.normal(size=(3, d)), rng.normal(size=(3, own.width)), 1e-2
    by_raw = own.pull_back(g, Rows(X))
    for f in range(d):
        step = np.zeros(d)
        step[f] = h
        ahead, behind = (own.apply(Rows(X + sign * step)).X.astype(float) for sign in (1, -1))
        np.testing.assert_allclose(by_raw[:, f], ((ahead - behind) * g).sum(axis=1) / (2 * h), atol=1e-3)


@pytest.mark.parametrize(
    "factor", [np.array([1.0, 0, 2, 0.5, 0]), np.arange(10.0).reshape(d, 2)], ids=["diagonal", "full"]
)
def test_importances_are_the_diagonal_of_M_and_files_keep_it(factor):
    metric = Metric(factor)
    M = metric.matrix @ metric.matrix.T
    np.testing.assert_allclose(metric.importances, np.diag(M) / np.trace(M))
    scaled_by = scaling(metric)
    again = Scaling.from_arrays(scaled_by.kind, scaled_by.to_arrays())
    np.testing.assert_array_equal(again.metric.factor, factor)
    wide = scaled_by.wider(d + 2)
    assert wide.width == scaled_by.width
    assert not wide.metric.importances[d:].any()


@pytest.mark.parametrize("factor", [np.linspace(1, 2, d), np.array([1.0, 0, 2, 0.5, 0])], ids=["whole", "left out"])
@pytest.mark.parametrize("kind", ["standard", "none"])
def test_rows_come_back_in_the_columns_that_count(kind, factor):
    X = np.arange(10.0).reshape(2, d)
    scaled_by = scaling(Metric(factor)) if kind == "standard" else Scaling.none(d).under(Metric(factor))
    expected = np.where(factor > 0, X, np.nan)
    np.testing.assert_allclose(scaled_by.undone(scaled_by.apply(Rows(X))), expected, rtol=1e-5, atol=1e-5)


def test_a_constant_column_has_its_value_and_mixed_ones_have_none():
    constant = Scaling("standard", np.array([7.0, 3.0]), np.array([0.0, 1.0]), Metric(np.array([0.0, 1.0])))
    np.testing.assert_array_equal(constant.undone(Rows(np.ones((1, 1)))), [[7.0, 4.0]])
    assert scaling(Metric(np.eye(d))).undone(Rows(np.ones((1, d)))) is None


@pytest.mark.parametrize("shape", [(40, d), (3, d)], ids=["many rows", "few rows"])
def test_M_is_the_mean_outer_product_of_gradients(shape):
    G = np.random.default_rng(0).normal(size=shape) * np.array([3.0, 1, 0.5, 0.1, 1e-5])
    M = G.T @ G / np.trace(G.T @ G) * d
    factor = Metric.of_gradients(G, rank=d).factor
    np.testing.assert_allclose(factor @ factor.T, M, atol=1e-4)
    np.testing.assert_allclose(Metric.of_gradients(G).factor ** 2, np.append(np.diag(M)[:-1], 0), atol=1e-6)
    best = Metric.of_gradients(G, rank=1).matrix  # the first principal direction
    first = np.linalg.svd(G)[2][0]
    np.testing.assert_allclose(abs(best[:, 0] @ first), np.linalg.norm(best))


def test_gradients_of_0_leave_all_columns_alike():
    assert np.array_equal(Metric.of_gradients(np.zeros((4, d)), rank=2).factor, np.ones(d))


@given(arrays(np.float32, (4, d), elements=finite), roots)
def test_rows_are_mapped_as_a_scaling_does_it(X, factor):
    metric = Metric(factor)
    expected = Scaling("none", np.zeros(d), np.ones(d), metric).apply(Rows(X))
    np.testing.assert_allclose(metric.of_rows(Rows(X)).X, expected.X, rtol=1e-6, atol=1e-6)
    assert metric.of_rows(Rows(sparse.csr_array(X))).is_sparse


@pytest.mark.parametrize("factor", [np.array([1.0, 0.5, 0.0, 3.0, 2.0]), np.arange(10.0).reshape(d, 2)])
@pytest.mark.parametrize("layout", ["dense", "csr", "uint8"])
def test_weights_that_follow_a_metric_are_part_of_it(factor, layout):
    """Rows times weights are those that the longer metric maps to; gradients come back through both."""
    X = np.random.default_rng(0).integers(0, 9, (6, d)).astype(np.uint8 if layout == "uint8" else np.float32)
    rows = Rows(sparse.csr_array(X)) if layout == "csr" and factor.ndim == 1 else Rows(X)
    scaled_by = Scaling("none", np.zeros(d), np.ones(d), Metric(factor))
    weights = np.linspace(0.5, 2, scaled_by.width)
    actual = scaled_by.apply(rows).times(weights)
    assert actual.X.dtype == np.float32
    np.testing.assert_allclose(scaled_by.times(weights).apply(rows).dense(), actual.dense(), rtol=1e-6)
    G = np.random.default_rng(1).normal(size=(6, scaled_by.width))
    np.testing.assert_allclose(scaled_by.times(weights).pull_back(G, rows), scaled_by.pull_back(G * weights, rows))


def test_weights_of_rows_without_a_metric_are_one():
    own, weights = Scaling.none(d), np.linspace(0.5, 2, d)
    rows = Rows(np.random.default_rng(0).integers(0, 9, (6, d)).astype(np.uint8))
    np.testing.assert_allclose(own.times(weights).apply(rows).X, rows.times(weights).X, rtol=1e-6)
