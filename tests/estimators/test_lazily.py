"""Answers for dask arrays are dask arrays: those of numpy, made where the blocks are, when they are asked for."""

from __future__ import annotations

import dask.array as da
import numpy as np
import pytest
from cases import ESTIMATORS, PROBABLE
from contracts.layouts import labelled
from distributed import Client, LocalCluster
from scipy import sparse
from sklearn.base import clone

from streamsvm import ALFPGMSVC, ALFPGMSVR, CuttingPlaneRanker
from streamsvm.errors import DataError

NAMES = ("exact", "early", "linear, planes")


def fitted(name, classes="three"):
    X, y = labelled(classes)
    return X, y, clone({**ESTIMATORS, **PROBABLE}[name]).fit(X, y)


PAIRS = [  # a scaling is "chosen" that sparse rows do not take
    # slow: the others take the same road
    pytest.param(name, layout, marks=() if name in NAMES else pytest.mark.slow)
    for name in ESTIMATORS
    for layout in ((70, 2), "CSR")
    if (name, layout) != ("chosen", "CSR")
]


@pytest.mark.parametrize(("name", "layout"), PAIRS)
def test_they_are_those_of_numpy(name, layout):
    X, _, estimator = fitted(name)
    rows = da.from_array(X, chunks=(70, X.shape[1]) if layout == "CSR" else layout)
    rows = rows.map_blocks(sparse.csr_matrix) if layout == "CSR" else rows
    for ask in (estimator.decision_function, estimator.predict):
        there, here = ask(rows), ask(X)
        assert isinstance(there, da.Array)
        assert (there.shape, there.dtype) == (here.shape, here.dtype)
        assert there.chunks[0] == rows.chunks[0]
        same = np.testing.assert_allclose if here.dtype.kind == "f" else np.testing.assert_array_equal
        same(there.compute(), here, **({"rtol": 1e-4, "atol": 1e-5} if here.dtype.kind == "f" else {}))


@pytest.mark.slow  # four solvers
def test_probabilities_scores_and_the_other_tasks():
    X, y, estimator = fitted("linear, planes, probable")
    rows = da.from_array(X, chunks=(70, X.shape[1]))
    np.testing.assert_allclose(estimator.predict_proba(rows), estimator.predict_proba(X), rtol=1e-6)
    np.testing.assert_allclose(estimator.predict_log_proba(rows), estimator.predict_log_proba(X), rtol=1e-6)
    assert estimator.score(rows, da.from_array(y, chunks=50)) == estimator.score(X, y)
    grades = (X[:, 0] > 0).astype(int)
    for other in (ALFPGMSVR(gamma=0.5), CuttingPlaneRanker(tol=1e-2)):
        other.fit(X, grades)
        assert isinstance(other.predict(rows), da.Array)
        np.testing.assert_allclose(other.predict(rows), other.predict(X), rtol=1e-4, atol=1e-5)
        assert other.score(rows, grades) == pytest.approx(other.score(X, grades))
    pairs = ALFPGMSVC(gamma=0.5, decision_function_shape="ovo").fit(*labelled("three"))
    assert pairs.decision_function(rows).shape == (len(X), 3)


def test_nothing_is_read_before_they_are_asked_for_and_sizes_need_not_be_known(monkeypatch):
    X, _, estimator = fitted("exact")
    read = []
    blocks = da.from_array(X, chunks=(70, X.shape[1])).map_blocks(
        lambda block: read.append(len(block)) or block, dtype=X.dtype, meta=X[:0]
    )
    some = blocks[blocks[:, 0] > 1]  # of sizes that nobody knows; a block may be empty
    labels = estimator.predict(some)
    assert read == []
    np.testing.assert_array_equal(labels.compute(), estimator.predict(X[X[:, 0] > 1]))
    none = estimator.predict(blocks[blocks[:, 0] > 1e9])
    assert none.compute().shape == (0,)


def test_a_row_that_is_no_number_is_an_error_when_it_is_read():
    X, _, estimator = fitted("exact")
    rows = da.from_array(np.where(np.arange(len(X))[:, None] == 80, np.nan, X), chunks=(70, X.shape[1]))
    answers = estimator.predict(rows)
    with pytest.raises(DataError, match="nan"):
        answers.compute()
    with pytest.raises(ValueError, match="features"):
        estimator.predict(rows[:, 1:])


@pytest.mark.slow  # a cluster
def test_on_a_cluster_rows_stay_with_the_workers():
    X, y, estimator = fitted("exact")
    with LocalCluster(n_workers=1, processes=False, dashboard_address="127.0.0.1:0") as cluster:
        with Client(cluster) as client:
            kept = client.persist(da.from_array(X, chunks=(70, X.shape[1])))
            labels = estimator.predict(kept)
            models = [key for key in labels.__dask_graph__() if str(key).startswith(type(estimator.model_).__name__)]
            assert len(models) == 1
            right = (labels == da.from_array(y, chunks=70)).mean().compute()
    assert right == estimator.score(X, y)
