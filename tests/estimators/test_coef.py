"""coef_ and intercept_ of linear kernels: weights of the features as they were given."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse
from sklearn.svm import SVC

from streamsvm import ALFPGMSVC, DCSVC, DCSVR, AutoSVC, BudgetedSVC, CuttingPlaneSVC, DCOneClassSVM

X = np.random.default_rng(0).normal([1, 2, 3], [1, 2, 5], (90, 3))
TWO, THREE = (X[:, 0] + X[:, 1] / 4 > 1.5).astype(int), np.digitize(X[:, 0], [0.5, 1.5])
LINEAR = {
    "dcsvm": (DCSVC(kernel="linear"), TWO),
    "dcsvm, scaled": (DCSVC(kernel="linear", scale="standard", fit_intercept=True), TWO),
    "dcsvm, pairs": (DCSVC(kernel="linear", scale="minmax"), THREE),
    "dcsvm, rest": (DCSVC(kernel="linear", multi_class="ovr"), THREE),
    "alfpgm, scaled": (ALFPGMSVC(kernel="linear", scale="standard"), TWO),
    "cutting plane, scaled": (CuttingPlaneSVC(scale="standard"), THREE),
    "budgeted": (BudgetedSVC(kernel="linear", strategy="project", scale="standard", random_state=0), TWO),
    "regression": (DCSVR(kernel="linear", scale="standard"), X[:, 0]),
    "one class": (DCOneClassSVM(kernel="linear"), None),
}


@pytest.mark.parametrize("layout", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize("name", LINEAR)
def test_decisions_are_those_of_the_weights(name, layout):
    estimator, y = LINEAR[name]
    rows = layout(X)
    if layout is not np.asarray and estimator.scale in ("standard", "minmax"):
        rows = layout(np.abs(X))
        estimator = type(estimator)(**estimator.get_params() | {"scale": "maxabs"})
    estimator.fit(rows, y)
    said = rows @ estimator.coef_.T + estimator.intercept_
    model = estimator.model_
    found = model.binary_decisions(model._rows(rows))
    sign = -1 if model.is_pairwise and len(model.classes) > 2 else 1
    assert estimator.coef_.shape == (found.shape[1], 3)
    np.testing.assert_allclose(said, sign * found, rtol=1e-4, atol=1e-4)


def test_weights_are_those_of_scikit_learn():
    for y in (TWO, THREE):
        ours = DCSVC(kernel="linear", fit_intercept=True, tol=1e-6).fit(X, y)
        theirs = SVC(kernel="linear", tol=1e-6).fit(X, y)
        np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=1e-3)
        np.testing.assert_allclose(ours.intercept_, theirs.intercept_, atol=1e-3)


def test_other_models_have_none():
    for estimator in (DCSVC(), ALFPGMSVC(), DCSVC(kernel="linear", early=True, levels=1, part_rows=32)):
        assert not hasattr(estimator.fit(X, TWO), "coef_")
    assert not hasattr(AutoSVC(), "coef_")
