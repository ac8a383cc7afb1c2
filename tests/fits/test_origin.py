"""Fits of rows far from the origin: as right as those of centred rows, or with a warning that they are not."""

import numpy as np
import pytest

from streamsvm import ALFPGMSVC, DCSVC, DCSVR, HSSSVC, BudgetedSVC, DCOneClassSVM
from streamsvm.data.rows import Rows
from streamsvm.fits.prepare import rounded_columns
from streamsvm.tasks.pairs import pair_coefficients

N = 120


def rows(seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    X = np.random.default_rng(seed).normal(size=(N, 4))
    return X, (X[:, 0] + X[:, 1] > 0).astype(int)


@pytest.mark.parametrize("offset", [500.0, 5e3, 1e6])
@pytest.mark.parametrize(
    "estimator",
    [
        DCSVC(kernel="linear", C=5),
        ALFPGMSVC(kernel="linear", C=5),
        HSSSVC(kernel="linear", C=5, polish=1000),
    ],
    ids=lambda made: type(made).__name__,
)
def test_a_linear_fit_with_a_free_bias_is_the_same_anywhere(estimator, offset):
    X, y = rows()
    here = estimator.fit(X, y).decision_function(X)
    there = estimator.fit(X + offset, y).decision_function(X + offset)
    np.testing.assert_allclose(there, here, rtol=2e-3, atol=5e-3)


def test_units_of_rows_far_away_do_not_matter():
    X, y = rows()
    there = DCSVC(kernel="linear", C=5e10, scale="maxabs").fit(X + 1e5, y)
    assert there.score(X + 1e5, y) >= 0.95


def test_a_linear_regression_is_the_same_anywhere():
    X, _ = rows()
    t = X @ [1.0, -2.0, 0.5, 0.0]
    here, there = (DCSVR(kernel="linear", C=5, tol=1e-4).fit(X + offset, t).predict(X + offset) for offset in (0, 1e6))
    np.testing.assert_allclose(there, here, atol=1e-3)


def test_a_few_broken_values_do_not_hide_where_the_rows_are():
    X, y = rows()
    X[:2, 3] = 1e5
    with pytest.warns(UserWarning, match="column 3 has a range"):
        there = DCSVC(kernel="rbf", gamma=0.5, C=5).fit(X + 1e4, y)
    assert there.score(X + 1e4, y) >= 0.97


def test_rows_near_the_origin_are_left_where_they_are():
    X, y = rows()
    assert DCSVC(kernel="linear", C=5).fit(X + 10, y).model_.header.scaling.kind == "none"


@pytest.mark.parametrize("estimator", [DCOneClassSVM(kernel="linear"), BudgetedSVC(kernel="linear", strategy="remove")])
def test_what_depends_on_the_origin_says_so_far_from_it(estimator):
    X, y = rows()
    with pytest.warns(UserWarning, match="times their spread from the origin"):
        estimator.fit(X + 1e4, y)


def test_float32_columns_that_lost_differences_are_named():
    X = rows()[0]
    X[:, 2] += 1e6
    X[3, 2] = np.nan  # a gap
    assert "column 2 is stored as float32, whose steps at 1e+06" in rounded_columns(Rows(X.astype(np.float32)))
    assert rounded_columns(Rows(X)) is None  # as float64
    assert rounded_columns(Rows(np.rint(X).astype(np.float32))) is None  # whole numbers


@pytest.mark.parametrize("k", [2, 20])
def test_decisions_of_large_coefficients_are_float64(k):
    X = np.random.default_rng(0).normal(size=(300, 3))
    target = X[:, 0] * X[:, 1] + 0.5 * np.random.default_rng(1).normal(size=300)
    y = np.digitize(target, np.quantile(target, np.arange(1, k) / k))
    model = DCSVC(C=1e4, gamma=0.1).fit(X, y).model_
    kernel, rows = model.header.kernel, Rows(X.astype(np.float32))
    coef = pair_coefficients(model.alpha, model.codes, k, np.float64)
    exact = kernel.exact(rows, model.support) @ coef + model.intercept
    np.testing.assert_allclose(model.binary_decisions(rows), exact, atol=1e-8)
