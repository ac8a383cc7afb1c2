"""Squared losses of DCSVC and DCSVR: LIBLINEAR's answers, and certificates from their own decision values."""

from __future__ import annotations

import numpy as np
import pytest
from cases import labelled
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.svm import LinearSVC, LinearSVR

from streamsvm import DCSVC, DCSVR
from streamsvm.data.rows import Rows
from streamsvm.errors import ConfigError

DIVIDED = {"levels": 1, "children": 3, "part_rows": 200, "random_state": 0}
SQUARED = {"loss": "squared_hinge", "tol": 1e-4}
SQUARED_EPSILON = {"loss": "squared_epsilon_insensitive", "tol": 1e-4, "epsilon": 0.1}


def numbers(n: int = 600) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 3)).astype(np.float32)
    return X, np.sin(2 * X[:, 0]) + X[:, 1] + 0.1 * rng.normal(size=n)


@pytest.mark.parametrize("k", [2, 3])
def test_linear_without_a_constant_it_is_liblinears_problem(k):
    X, y = labelled(k, 300)
    weight = np.random.default_rng(1).uniform(0, 3, len(X))
    for own in range(k) if k == 3 else [1]:
        one = (y == own).astype(int)
        theirs = LinearSVC(C=2.0, fit_intercept=False, tol=1e-8, max_iter=100_000).fit(X, one, weight)
        ours = DCSVC(C=2.0, kernel="linear", fit_intercept=False, **SQUARED).fit(X, one, weight)
        np.testing.assert_allclose(ours.decision_function(X), theirs.decision_function(X), atol=1e-3)


def test_linear_regression_without_errors_is_liblinears():
    """LIBLINEAR's has no constant here, and the labels need none."""
    X, t = numbers(300)
    X, t = np.concatenate([X, -X]), np.concatenate([t, -t])
    theirs = LinearSVR(
        C=2.0, epsilon=0.1, fit_intercept=False, loss=SQUARED_EPSILON["loss"], tol=1e-8, max_iter=100_000
    ).fit(X, t)
    ours = DCSVR(C=2.0, scale_targets=False, kernel="linear", **SQUARED_EPSILON).fit(X, t)
    np.testing.assert_allclose(ours.predict(X), theirs.predict(X), atol=2e-3)


@pytest.mark.parametrize("options", [{}, DIVIDED], ids=["whole", "divided"])
@pytest.mark.parametrize("bias", [False, True])
def test_what_the_decision_values_cost_is_the_dual_objective(bias, options):
    """The primal objective, from what the model says alone, is above the optimum, and the dual one below."""
    X, y = labelled(2)
    weight = np.random.default_rng(1).choice([0.0, 1.0, 3.0], len(X))
    model = DCSVC(C=2.0, gamma=0.5, fit_intercept=bias, **SQUARED, **options).fit(X, y, weight)
    coef, own = model.dual_coef_[0], X[model.support_]
    norm = coef @ rbf_kernel(own, own, gamma=0.5) @ coef
    errors = np.maximum(0, 1 - np.where(y == 1, 1, -1) * model.decision_function(X))
    primal = 0.5 * norm + 2.0 * weight @ errors**2
    assert primal == pytest.approx(-model.objective_, rel=1e-4)
    assert 0 <= model.dual_gap_ <= 1e-4 * primal
    assert not bias or abs(coef.sum()) < 1e-6 * np.abs(coef).sum()


@pytest.mark.parametrize("options", [{}, DIVIDED], ids=["whole", "divided"])
def test_what_the_values_cost_is_the_dual_objective(options):
    X, t = numbers()
    model = DCSVR(C=3.0, scale_targets=False, gamma=0.5, **SQUARED_EPSILON, **options).fit(X, t)
    coef, own = model.dual_coef_[0], X[model.support_]
    norm = coef @ rbf_kernel(own, own, gamma=0.5) @ coef
    errors = np.maximum(0, np.abs(t - model.predict(X)) - 0.1)
    assert 0.5 * norm + 3.0 * errors @ errors == pytest.approx(-model.objective_, rel=1e-4)
    assert 0 <= model.dual_gap_ <= 1e-4 * abs(model.objective_)


def test_early_parts_are_problems_of_their_own():
    X, y = labelled(2)
    early = DCSVC(C=2.0, gamma=0.5, early=True, **SQUARED, **DIVIDED).fit(X, y)
    parts = early.model_.partition.assign(Rows(X))
    assert len(early.model_.present) > 2
    for part in range(len(early.model_.present)):
        here = parts == part
        if len(np.unique(y[here])) == 2:
            alone = DCSVC(C=2.0, gamma=0.5, **SQUARED).fit(X[here], y[here])
            np.testing.assert_allclose(early.decision_function(X[here]), alone.decision_function(X[here]), atol=2e-3)


def test_C_is_chosen_for_the_loss_that_is_asked_for():
    X, y = labelled(2, 900)
    plain, squared = (
        DCSVC(C="search", gamma=0.5, loss=loss, search_params={"trials": 2}, random_state=0).fit(X, y)
        for loss in ("hinge", "squared_hinge")
    )
    assert squared.score(X, y) > 0.75
    assert squared.objective_ != plain.objective_


def test_another_loss_is_refused_in_one_line():
    X, y = labelled(2, 100)
    with pytest.raises(ConfigError, match="loss: found 'hinges', expected 'hinge' or 'squared_hinge'"):
        DCSVC(loss="hinges").fit(X, y)
    with pytest.raises(ConfigError, match="expected 'epsilon_insensitive' or 'squared_epsilon_insensitive'"):
        DCSVR(loss="hinge").fit(X, y)
