"""Doors to dask-ml: its splitters, scalers, wrappers and searches around the estimators, on dask arrays."""

from __future__ import annotations

import numpy as np
import pytest

from streamsvm import DCSVC, BudgetedSVC, Store
from streamsvm.data.rows import Rows
from streamsvm.data.statistics import moments_of

pytest.importorskip("dask_ml", reason="needs dask-ml: pip install dask-ml")

import dask
import dask.array as da
from dask_ml.metrics import accuracy_score
from dask_ml.model_selection import GridSearchCV, HyperbandSearchCV, KFold, train_test_split
from dask_ml.preprocessing import MinMaxScaler, StandardScaler
from dask_ml.wrappers import Incremental, ParallelPostFit
from distributed import Client
from making import write
from sklearn.pipeline import make_pipeline


@pytest.fixture
def data(tmp_path):
    """(X, y) in memory and as dask arrays, X of a store."""
    X = np.random.default_rng(0).normal(3.0, 2.0, (900, 4)).astype(np.float32)
    y = (X[:, 0] + X[:, 1] > 6).astype(int)
    write(tmp_path / "s.zarr", Rows(X), y, chunk_rows=200, step=200)
    lazy = da.from_zarr(str(tmp_path / "s.zarr"), component="X")
    return X, y, lazy, da.from_array(y, chunks=lazy.chunks[0])


def test_moments_of_a_stores_dask_array_are_ours(data):
    X, _, lazy, _ = data
    standard, minmax = StandardScaler().fit(lazy.astype(np.float64)), MinMaxScaler().fit(lazy)
    ours = moments_of(Rows(X))
    np.testing.assert_allclose(standard.mean_, ours.mean, rtol=1e-12)
    np.testing.assert_allclose(standard.var_, ours.m2 / ours.n, rtol=1e-12)
    np.testing.assert_array_equal(minmax.data_min_, ours.low)
    np.testing.assert_array_equal(minmax.data_max_, ours.high)


def test_split_scaled_fitted_and_scored(data):
    *_, lazy, labels = data
    X, X_test, y, y_test = train_test_split(lazy, labels, test_size=0.25, random_state=0, shuffle=True)
    svm = make_pipeline(StandardScaler(), DCSVC(C=10)).fit(X, y)
    predicted = ParallelPostFit(svm).predict(X_test)
    assert isinstance(predicted, da.Array)
    np.testing.assert_array_equal(predicted.compute(), svm.predict(X_test))
    assert accuracy_score(y_test, predicted) == svm.score(X_test, y_test) > 0.95


def test_folds_of_dask_arrays(data):
    *_, X, y = data
    folds = KFold(n_splits=3).split(X)
    assert min(DCSVC(C=10).fit(X[a], y[a]).score(X[b], y[b]) for a, b in folds) > 0.95


@pytest.mark.parametrize("labels", [[0, 1], ["no", "yes, it is"]], ids=["numbers", "text"])
def test_predictions_are_made_block_by_block(labels, data):
    X, y, lazy, _ = data
    svm = DCSVC(C=10, probability=True, random_state=0).fit(X, np.array(labels)[y])
    wrapped = ParallelPostFit(svm)
    assert wrapped.predict(lazy).chunks == (lazy.chunks[0],)
    np.testing.assert_array_equal(wrapped.predict(lazy).compute(), svm.predict(X))
    np.testing.assert_allclose(wrapped.predict_proba(lazy).compute(), svm.predict_proba(X), atol=1e-6)


def test_chunk_after_chunk_is_partial_fit(data):
    X, y, lazy, labels = data
    wrapped = Incremental(BudgetedSVC(gamma=0.5, budget=50), shuffle_blocks=False)
    wrapped.fit(lazy, labels, classes=[0, 1])
    wrapped.partial_fit(lazy, labels)
    alone = BudgetedSVC(gamma=0.5, budget=50)
    for start in (*range(0, 900, 200), *range(0, 900, 200)):
        alone.partial_fit(X[start : start + 200], y[start : start + 200], classes=[0, 1])
    np.testing.assert_array_equal(wrapped.estimator_.decision_function(X), alone.decision_function(X))
    assert wrapped.score(lazy, labels) == alone.score(X, y)


def test_a_grid_search(data):
    X, y, lazy, labels = data
    search = GridSearchCV(DCSVC(n_jobs=1), {"gamma": [0.1, 10.0]}, cv=3)
    assert search.fit(X, y).best_params_ == search.fit(lazy, labels).best_params_ == {"gamma": 0.1}


@pytest.mark.filterwarnings("ignore:nearly all values of the rbf kernel")  # of gammas that lose
def test_hyperband_on_partial_fit(data):
    """dask of 2026 lets no asynchronous client into `dask.persist`, which dask-ml calls, unless it is the scheduler."""
    X, y, lazy, labels = data
    options = {"gamma": [0.01, 0.1, 1.0, 100.0], "C": [0.1, 1.0, 10.0]}
    search = HyperbandSearchCV(
        BudgetedSVC(budget=50, random_state=0), options, max_iter=4, test_size=0.2, random_state=0
    )
    with (
        Client(processes=False, n_workers=1, threads_per_worker=2, dashboard_address=None) as client,
        dask.config.set(scheduler=client.get),
    ):
        search.fit(lazy, labels, classes=[0, 1])
    assert search.best_params_["gamma"] < 100
    assert search.best_score_ > 0.7
    assert (search.best_estimator_.predict(X) == y).mean() > 0.7


def test_a_store_and_its_dask_array_give_one_model(data, tmp_path):
    *_, lazy, labels = data
    by_store = DCSVC(C=10, random_state=0).fit(Store.open(tmp_path / "s.zarr"))
    by_array = DCSVC(C=10, random_state=0).fit(lazy, labels)
    np.testing.assert_array_equal(by_store.decision_function(lazy), by_array.decision_function(lazy))
