"""The solvers that the recipe of the paper on divide and conquer writes out, next to scikit-learn's and to formulas."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.svm import SVC

from streamsvm.data.rows import Rows
from streamsvm.kernels.distance import RBF

PIPELINES = Path(__file__).resolve().parents[2] / "pipelines"
with pytest.MonkeyPatch.context() as patch:
    patch.syspath_prepend(str(PIPELINES))
    import dcsvm_peers
    import dcsvm_published

C, GAMMA = 4.0, 0.5


def data(n=400):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 5)).astype(np.float32)
    return X, np.where(X[:, 0] * X[:, 1] + 0.3 * rng.normal(size=n) > 0, 1, -1)


def test_lasvm_is_near_the_solution_after_a_pass():
    """It ends at the solution of the rows that it kept: nearly all support vectors of LIBSVM's."""
    X, y = data()
    predict, facts = dcsvm_peers.lasvm({"C": C, "gamma": GAMMA})(X, y)
    svc = SVC(C=C, gamma=GAMMA).fit(X, y)
    assert np.mean(predict(X) == svc.predict(X)) > 0.95
    assert facts["n_support"] == pytest.approx(svc.n_support_.sum(), rel=0.1)


def test_a_cascade_ends_with_support_vectors_of_the_levels_below():
    X, y = data()
    levels = list(dcsvm_peers.cascaded(Rows(X), y.astype(float), RBF(GAMMA), C, 2))
    assert [level for level, _ in levels] == [2, 1, 0]
    for (_, below), (_, above) in zip(levels, levels[1:], strict=False):
        assert set(np.flatnonzero(above)) <= set(np.flatnonzero(below))


def test_hadamard_is_its_own_inverse():
    X = np.random.default_rng(0).normal(size=(3, 8))
    H = dcsvm_peers.hadamard(np.eye(8))
    np.testing.assert_array_equal(H @ H.T, 8 * np.eye(8))
    np.testing.assert_allclose(dcsvm_peers.hadamard(X), X @ H)


def test_fastfood_features_multiply_to_kernel_values():
    X, _ = data(60)
    Z = dcsvm_peers.FastFood(GAMMA, 20_000).fit(X).transform(X)
    np.testing.assert_allclose(Z @ Z.T, rbf_kernel(X, gamma=GAMMA), atol=0.05)


def test_published_tables_are_complete():
    assert {name: len(points) for name, points in dcsvm_published.GRIDS.items()} == dict.fromkeys(
        ("ijcnn1", "webspam", "covtype", "census"), 25
    )
    assert dcsvm_published.TABLE_3["covtype"]["LIBSVM"] == (83_631, 96.15)
    assert dcsvm_published.GRIDS["ijcnn1"][12] == [98.8, 7.0, 98.8, 43.5, 98.8, 111.6]
    assert dcsvm_published.GRIDS["covtype"][14][4:] == [None, 300_000]
