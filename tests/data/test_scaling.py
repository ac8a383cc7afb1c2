"""Scaling against scikit-learn's and dask-ml's scalers, and its statistics against NumPy."""

from __future__ import annotations

from functools import reduce

import numpy as np
import pytest
from every_case import every_case
from hypothesis import given, settings
from hypothesis import strategies as st
from making import samples
from scipy import sparse
from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, RobustScaler, StandardScaler

from streamsvm.config import FitConfig
from streamsvm.data.rows import Rows
from streamsvm.data.scaling import NORMAL, Scaling, from_moments, from_quartiles, require_zeros_kept
from streamsvm.data.statistics import merge, moments_of, variance
from streamsvm.data.store import Store
from streamsvm.errors import ConfigError
from streamsvm.fits.prepare import prepare
from streamsvm.parallel.engine import Engine

PEERS = {"minmax": MinMaxScaler, "standard": StandardScaler, "maxabs": MaxAbsScaler}


def fit(X: object, kind: str, max_rows: int = 7) -> Scaling:
    store = Store.from_arrays(X)
    return from_moments(kind, reduce(merge, [moments_of(store.read(*block)) for block in store.blocks(max_rows)]))


def values(seed: int, n: int = 50, d: int = 4) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, d)) * 10.0 ** rng.integers(-3, 4, d) + rng.normal(size=d) * 100


@pytest.mark.parametrize("kind", PEERS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_agrees_with_scikit_learn(kind, dtype):
    X = values(1).astype(dtype)
    expected = PEERS[kind]().fit_transform(X.astype(np.float64))
    scaled = fit(X, kind).apply(Rows(X))
    assert scaled.X.dtype == np.float32
    np.testing.assert_allclose(scaled.X, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", ["minmax", "standard"])
@pytest.mark.filterwarnings("ignore")
def test_agrees_with_dask_ml(kind):
    preprocessing = pytest.importorskip("dask_ml.preprocessing", reason="needs the extra dask-ml")
    import dask.array as da

    X = values(2)
    peer = {"minmax": preprocessing.MinMaxScaler, "standard": preprocessing.StandardScaler}[kind]()
    expected = peer.fit_transform(da.from_array(X, chunks=(9, 4))).compute()
    np.testing.assert_allclose(fit(X, kind).apply(Rows(X)).X, expected, rtol=1e-5, atol=1e-6)


def test_uint8_minmax():
    X = samples(30, 5, "uint8").X
    np.testing.assert_allclose(fit(X, "minmax").apply(Rows(X)).X, MinMaxScaler().fit_transform(X), rtol=1e-6)


def test_sparse_maxabs_stays_sparse():
    rows = samples(40, 6, is_sparse=True)
    rows.X.data[::2] *= -1
    scaled = fit(rows.X, "maxabs").apply(rows)
    assert scaled.is_sparse
    np.testing.assert_allclose(scaled.dense(), MaxAbsScaler().fit_transform(rows.dense()), rtol=1e-6)


@pytest.mark.parametrize("kind", ["minmax", "standard"])
def test_sparse_is_never_filled(kind):
    rows = samples(40, 6, is_sparse=True)
    with pytest.raises(ConfigError, match="use maxabs"):
        require_zeros_kept(kind)
    with pytest.raises(ConfigError, match="use maxabs"):
        Scaling(kind, np.ones(6), np.ones(6)).apply(rows)


@pytest.mark.parametrize("kind", ["minmax", "standard"])
def test_constant_features_become_zero(kind):
    X = np.column_stack([np.full(50, 0.1), np.full(50, 1e6 / 3), np.zeros(50), np.arange(50.0)])
    scaling = fit(X, kind)
    assert not scaling.apply(Rows(X)).X[:, :3].any()
    assert not scaling.apply(Rows(X + 5)).X[:, :3].any()
    assert scaling.apply(Rows(X)).X[:, 3].any()


def test_none_changes_the_type_only():
    X = values(3).astype(np.float32)
    assert Scaling.none(4).apply(Rows(X)).X is X
    assert Scaling.none(4).apply(Rows(X.astype(np.float64))).X.dtype == np.float32


def test_arrays_there_and_back():
    scaling = fit(values(4), "standard")
    again = Scaling.from_arrays("standard", scaling.to_arrays())
    np.testing.assert_array_equal(again.offset, scaling.offset)
    np.testing.assert_array_equal(again.scale, scaling.scale)


@settings(max_examples=30)
@given(seed=st.integers(0, 1000), n=st.integers(1, 60), cut=st.integers(1, 59), is_sparse=st.booleans())
def test_statistics_merge_exactly(seed, n, cut, is_sparse):
    X = samples(n, 3, "float64", seed=seed).X + (0 if is_sparse else 1e6)
    parts = [p for p in (X[:cut], X[cut:]) if len(p)]
    moments = reduce(merge, [moments_of(Rows(sparse.csr_array(p) if is_sparse else p)) for p in parts])
    assert moments.n == n
    np.testing.assert_array_equal(moments.low, X.min(axis=0))
    np.testing.assert_array_equal(moments.high, X.max(axis=0))
    np.testing.assert_allclose(moments.mean, X.mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(moments.m2, n * X.var(axis=0), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("kind", [*PEERS, "none"])
def test_undone_rows_are_those_that_were_scaled(kind):
    X = np.column_stack([values(5), np.full(50, 7.0)])
    X[:, 4] = 0 if kind == "maxabs" else 7  # the one constant that it knows
    scaling = Scaling.none(5) if kind == "none" else fit(X, kind)
    np.testing.assert_allclose(scaling.undone(scaling.apply(Rows(X))), X, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("kind", ["minmax", "standard", "robust"])
def test_zeros_are_zeros_once_undone(kind):
    rng = np.random.default_rng(0)
    X = rng.random((300, 4)) * (rng.random((300, 4)) < [0.5, 0.01, 0.99, 0.3])
    scaling = robust(X) if kind == "robust" else fit(X, kind)
    undone = scaling.undone(scaling.apply(Rows(X.astype(np.float32))))
    assert (undone[X == 0] == 0).all()
    assert (undone[X != 0] != 0).all()


@pytest.mark.parametrize("kind", [*PEERS, "none"])
def test_gradients_are_pulled_back_by_the_chain_rule(kind):
    """Of f(x) = |x'|^2, by central differences, which are exact for it."""
    X, h = values(6, n=5), 1e-3
    scaling = Scaling.none(4) if kind == "none" else fit(values(6), kind)
    scaled = (X - scaling.offset) * scaling.scale
    actual = scaling.pull_back(2 * scaled, Rows(X))
    for f in range(4):
        ends = [((X + step - scaling.offset) * scaling.scale) ** 2 for step in (h * np.eye(4)[f], -h * np.eye(4)[f])]
        expected = (ends[0] - ends[1]).sum(axis=1) / (2 * h)
        np.testing.assert_allclose(actual[:, f], expected, rtol=1e-4, atol=1e-6)


def robust(X: np.ndarray) -> Scaling:
    return from_quartiles(Rows(X), fit(X, "standard"))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_robust_agrees_with_scikit_learn_and_has_the_variance_of_normal_columns(dtype):
    X = values(5, n=400).astype(dtype)
    scaled = robust(X).apply(Rows(X)).X
    expected = NORMAL * RobustScaler().fit_transform(X.astype(np.float64))
    np.testing.assert_allclose(scaled, expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(scaled.std(axis=0), 1, atol=0.15)


def test_robust_of_outliers_leaves_the_others_apart():
    X = np.random.default_rng(6).normal(size=(400, 2))
    X[0, 0] = 1e6
    assert fit(X, "standard").apply(Rows(X)).X[1:, 0].std() < 1e-3
    np.testing.assert_allclose(robust(X).apply(Rows(X)).X[1:].std(axis=0), 1, atol=0.1)


def test_robust_is_standard_where_quartiles_agree_and_constant_columns_become_0():
    X = np.zeros((80, 3))
    X[:8, 0] = 5.0  # a tenth: quartiles are all 0
    X[:, 1] = 7.0
    X[:, 2] = np.arange(80)
    found, standard = robust(X), fit(X, "standard")
    assert (found.offset[0], found.scale[0]) == (standard.offset[0], standard.scale[0])
    scaled = found.apply(Rows(X)).X
    assert not scaled[:, 1].any()
    assert abs(scaled[:, 2].mean()) < 1e-6
    assert found.kind == "robust"


def test_robust_comes_from_a_sample_of_a_store_and_not_from_sparse_rows():
    X = values(7, n=300).astype(np.float32)
    scaling = prepare(Store.from_arrays(X, np.arange(300) % 2), FitConfig(scale="robust"), Engine(1)).scaling
    np.testing.assert_allclose(scaling.offset, np.median(X.astype(np.float64), axis=0))
    rows = samples(40, 6, is_sparse=True)
    with pytest.raises(ConfigError, match="robust scaling would fill a sparse store; use maxabs"):
        prepare(Store.from_arrays(rows.X, np.arange(40) % 2), FitConfig(scale="robust"), Engine(1))


@every_case("offset", [0.0, 1e6, 1e8, -1e9, 1e11])
@every_case("layout", ["dense", "gaps", "sparse"])
def test_variance_is_that_of_numpy_however_far_from_zero(offset, layout):
    X = offset + values(3, d=2) / 100
    if layout == "gaps":
        X[::9, 1] = np.nan
    rows = sparse.csr_array(X) if layout == "sparse" else X
    moments = reduce(merge, [moments_of(Rows(rows[lo : lo + 7])) for lo in range(0, len(X), 7)])
    means = np.nanmean(X, axis=0)
    X = np.where(np.isnan(X), means, X)
    assert variance(moments.filled(means)) == pytest.approx(X.var(), rel=1e-4)


@pytest.mark.parametrize("value", [0.1, 1e8 + 0.1])
def test_a_constant_column_of_many_rows_becomes_0(value):
    X = np.column_stack([np.arange(20_000.0), np.full(20_000, value)])  # its mean is rounded
    assert fit(X, "standard", max_rows=20_000).scale[1] == 0
