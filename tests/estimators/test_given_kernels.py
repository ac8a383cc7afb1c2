"""Kernel values that are given, as a matrix or by a function, and kernels that are not positive semidefinite."""

from __future__ import annotations

import numpy as np
import pytest
from contracts.layouts import labelled
from sklearn.base import clone
from sklearn.datasets import load_iris
from sklearn.metrics.pairwise import laplacian_kernel, rbf_kernel
from sklearn.model_selection import GridSearchCV
from sklearn.svm import SVC, SVR

from streamsvm import ALFPGMSVC, ALFPGMSVR, DCSVC, BudgetedSVC, Store, load_model

IRIS = load_iris(return_X_y=True)


def near(X, Y) -> np.ndarray:
    return laplacian_kernel(X, Y, gamma=0.3)


@pytest.fixture(scope="module")
def halves() -> tuple[np.ndarray, ...]:
    """X and y to learn from, and X to be asked."""
    X, y = IRIS
    return X[::2], y[::2], X[1::2]


class TestMatrices:
    @pytest.mark.parametrize("dtype", [np.float64, np.float32])
    def test_decisions_are_those_of_svc(self, halves, dtype):
        X, y, asked = halves
        K, there = near(X, X).astype(dtype), near(asked, X).astype(dtype)
        libsvm = SVC(kernel="precomputed", C=3.0, tol=1e-5).fit(K, y)
        ours = ALFPGMSVC(kernel="precomputed", C=3.0, tol=1e-5).fit(K, y)
        np.testing.assert_allclose(ours.decision_function(there), libsvm.decision_function(there), atol=1e-3)
        np.testing.assert_array_equal(ours.predict(there), libsvm.predict(there))
        np.testing.assert_array_equal(ours.support_, libsvm.support_)
        np.testing.assert_allclose(ours.dual_coef_, libsvm.dual_coef_, atol=1e-3)
        assert ours.support_vectors_.shape == libsvm.support_vectors_.shape == (0, 0)

    def test_values_of_a_regression_are_those_of_svr(self, halves):
        X, _, asked = halves
        libsvm, ours = (
            made(kernel="precomputed", C=3.0, tol=1e-5).fit(near(X, X), X[:, 0]) for made in (SVR, ALFPGMSVR)
        )
        np.testing.assert_allclose(ours.predict(near(asked, X)), libsvm.predict(near(asked, X)), atol=1e-3)

    @pytest.mark.parametrize("kernel", ["rbf", "laplacian", "poly"])
    def test_a_matrix_is_as_good_as_the_kernel_itself(self, kernel):
        X, y = labelled("three")
        K = rbf_kernel(X, X, gamma=0.5) if kernel == "rbf" else laplacian_kernel(X, X, gamma=0.5)
        K = (0.5 * X.astype(np.float64) @ X.T + 1) ** 2 if kernel == "poly" else K
        by_name = ALFPGMSVC(kernel=kernel, gamma=0.5, degree=2, coef0=1.0, tol=1e-4).fit(X, y)
        given = ALFPGMSVC(kernel="precomputed", tol=1e-4).fit(K, y)
        np.testing.assert_allclose(given.decision_function(K), by_name.decision_function(X), atol=5e-3)

    def test_columns_of_rows_that_are_no_support_vectors_need_not_be_known(self, halves):
        X, y, asked = halves
        K, there = near(X, X), near(asked, X)
        svm = ALFPGMSVC(kernel="precomputed").fit(K, y)
        expected = svm.decision_function(there)
        there[:, np.setdiff1d(np.arange(len(X)), svm.support_)] = 0
        np.testing.assert_allclose(svm.decision_function(there), expected, atol=1e-6)

    def test_a_search_takes_rows_and_columns_apart(self):
        X, y = IRIS
        search = GridSearchCV(ALFPGMSVC(kernel="precomputed"), {"C": [0.01, 1.0]}, error_score="raise")
        assert search.fit(near(X, X), y).best_score_ > 0.9

    def test_a_store_of_values_and_the_saved_model(self, halves, tmp_path):
        X, y, asked = halves
        svm = ALFPGMSVC(kernel="precomputed").fit(Store.from_arrays(near(X, X), y))
        svm.save(tmp_path / "model")
        model = load_model(tmp_path / "model")
        np.testing.assert_array_equal(model.predict(near(asked, X)), svm.predict(near(asked, X)))

    @pytest.mark.parametrize(
        ("svm", "said"),
        [
            (ALFPGMSVC(kernel="precomputed"), "X is 75 x 4; expected a square matrix"),
            (
                ALFPGMSVC(kernel="precomputed", scale="minmax"),
                "columns are not features; expected scale 'none'",
            ),
            (
                ALFPGMSVC(kernel="precomputed", probability=True),
                "expected scale 'none', and no metric, gaps, mark_gaps, probability, threshold or interval",
            ),
            (
                DCSVC(kernel="precomputed"),
                "need not be positive semidefinite; found solver dcsvm, expected alfpgm",
            ),
        ],
    )
    def test_what_does_not_go_is_one_line(self, halves, svm, said):
        with pytest.raises(ValueError, match=said):
            clone(svm).fit(*halves[:2])


class TestFunctions:
    @pytest.mark.parametrize("made", [ALFPGMSVC, ALFPGMSVR])
    def test_a_function_is_asked_with_the_rows_of_fit(self, halves, made):
        X, y, asked = halves
        svm = made(kernel=near, tol=1e-5).fit(X, y)
        given = made(kernel="precomputed", tol=1e-5).fit(near(X, X), y)
        np.testing.assert_array_equal(svm.predict(asked), given.predict(near(asked, X)))
        assert clone(svm).fit(X, y).score(X, y) == svm.score(X, y)

    def test_rows_may_be_anything_that_it_takes(self):
        def shared(a, b):
            return np.array([[len(set(s) & set(t)) for t in b] for s in a])

        words, labels = ["abc", "abd", "ab", "xyz", "xyw", "xy"] * 2, ["first"] * 3 + ["last"] * 3
        svm = ALFPGMSVC(kernel=shared).fit(words, labels * 2)
        np.testing.assert_array_equal(svm.predict(["ab", "wxy"]), ["first", "last"])

    def test_what_does_not_go_is_one_line(self, halves, tmp_path):
        X, y, _ = halves
        svm = ALFPGMSVC(kernel=near).fit(X, y)
        with pytest.raises(ValueError, match="kernel is a function, which no model keeps"):
            svm.save(tmp_path / "model")
        with pytest.raises(ValueError, match="takes rows in memory; found a Store"):
            clone(svm).fit(Store.from_arrays(X, y))
        with pytest.raises(ValueError, match="X is 75 x 4; expected a square matrix"):
            ALFPGMSVC(kernel=lambda a, b: a).fit(X, y)


class TestIndefinite:
    @pytest.mark.parametrize(("gamma", "coef0"), [(0.1, -0.5), (0.5, 0.0), (2.0, -3.0)])
    def test_it_ends_about_where_libsvm_does(self, gamma, coef0):
        X, y = labelled("two")
        options = {"kernel": "sigmoid", "gamma": gamma, "coef0": coef0, "C": 1.0, "tol": 1e-4}
        libsvm, ours = SVC(**options).fit(X, y), ALFPGMSVC(**options).fit(X, y)
        assert ours.fit_status_ == 0
        assert ours.score(X, y) == pytest.approx(libsvm.score(X, y), abs=0.05)
        if gamma == 0.1:  # nearly a linear kernel: one minimum
            np.testing.assert_allclose(ours.decision_function(X), libsvm.decision_function(X), atol=1e-2)

    @pytest.mark.parametrize("svm", [DCSVC(kernel="sigmoid"), BudgetedSVC(kernel="sigmoid", strategy="remove")])
    def test_other_solvers_refuse_it(self, svm):
        with pytest.raises(ValueError, match="'sigmoid', which need not be positive semidefinite; found solver"):
            svm.fit(*labelled("two"))
