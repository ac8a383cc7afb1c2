"""Duals whose variables of each sign keep their sum: small blocks, shrinking and parts, against a dense twin."""

from __future__ import annotations

import numpy as np
import pytest
import reference
from hypothesis import given, settings
from hypothesis import strategies as st

from streamsvm.data.rows import Rows
from streamsvm.kernels.distance import RBF
from streamsvm.problems.dual import DualQP, KernelDual, RepeatedDual
from streamsvm.solvers import blockws
from streamsvm.solvers.blockws import BlockState, SignsSolver
from streamsvm.solvers.sum_constraints import feasible

KERNEL = RBF(1.0)
TOL = 1e-3


def classes(nu: float, n: int = 300, seed: int = 0) -> tuple[DualQP, np.ndarray]:
    """With its Q."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 4)).astype(np.float32)
    y = np.where(X[:, 0] * X[:, 1] + 0.4 * rng.normal(size=n) > 0, 1.0, -1.0)
    dual = KernelDual(KERNEL, Rows(X), y, rng.choice([0.0, 0.5, 2.0], n, p=[0.1, 0.5, 0.4]), linear=0.0)
    dual.nu = nu
    return dual, y[:, None] * reference.kernel_matrix(KERNEL, X, X) * y


def regression(nu: float, n: int = 200) -> tuple[DualQP, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 2)).astype(np.float32)
    t, y = np.sin(2 * X[:, 0]) + 0.3 * rng.normal(size=n), np.repeat([1.0, -1.0], n)
    dual = RepeatedDual(KernelDual(KERNEL, Rows(X), np.ones(n), np.full(n, 2.0)), y, np.append(-t, t))
    dual.nu = nu / 2
    return dual, y[:, None] * np.tile(reference.kernel_matrix(KERNEL, X, X), (2, 2)) * y


def sums(problem: DualQP, alpha: np.ndarray) -> np.ndarray:
    return np.array([alpha[problem.y == sign].sum() for sign in (1.0, -1.0)])


def check(problem: DualQP, Q: np.ndarray, state: BlockState) -> None:
    """In the box with its sums, m - M at most TOL for each sign, the twin's optimum, and a gap that is honest."""
    a, upper, half = state.alpha, problem.upper, 0.5 * problem.nu * problem.upper.sum()
    assert np.all((a >= 0) & (a <= upper))
    np.testing.assert_allclose(sums(problem, a), half, rtol=1e-9)
    g = Q @ a + problem.linear
    for sign in (1.0, -1.0):
        members = problem.y == sign
        assert g[members & (a > 0)].max() - g[members & (a < upper)].min() <= 1.2 * TOL
    expected = reference.solve_in_signs(Q, np.zeros(len(a)) + problem.linear, upper, problem.y, half)
    best = 0.5 * expected @ Q @ expected + np.sum(problem.linear * expected)
    objective = 0.5 * a @ Q @ a + np.sum(problem.linear * a)
    assert objective == pytest.approx(best, abs=TOL * upper.sum())
    shifted = g + state.bias * problem.y - state.margin
    gap = a @ shifted + upper @ np.maximum(-shifted, 0)
    assert blockws.duality_gap(problem, state) == pytest.approx(gap, abs=1e-3)
    assert objective - best - 1e-6 <= gap <= TOL * upper.sum()


@pytest.mark.parametrize("block_rows", [16, 64, 2048])
@pytest.mark.parametrize("nu", [0.1, 0.5, 0.8])
def test_classes_reach_the_optimum_of_the_twin(nu, block_rows):
    problem, Q = classes(nu)
    solver = SignsSolver(TOL, block_rows)
    check(problem, Q, solver.solve(problem, solver.init(problem)))


@pytest.mark.parametrize("block_rows", [32, 2048])
@pytest.mark.parametrize("nu", [0.1, 0.5, 1.0])
def test_regression_reaches_the_optimum_of_the_twin(nu, block_rows):
    problem, Q = regression(nu)
    solver = SignsSolver(TOL, block_rows)
    check(problem, Q, solver.solve(problem, solver.init(problem)))


def test_shrinking_happens_and_is_undone(monkeypatch):
    problem, Q = classes(0.3, n=600)
    seen, shrink = [], SignsSolver._shrink

    def counted(*args):
        state = shrink(*args)
        seen.append(len(state.shrunk))
        return state

    monkeypatch.setattr(SignsSolver, "_shrink", counted)
    solver = SignsSolver(TOL, 32)
    state = solver.solve(problem, solver.init(problem))
    assert max(seen) > 0
    assert state.shrunk == ()
    check(problem, Q, state)


def test_more_rows_than_a_sub_block():
    problem, Q = classes(0.4, n=1300)
    solver = SignsSolver(TOL)
    state = solver.solve(problem, solver.init(problem))
    a, g = state.alpha, Q @ state.alpha
    assert all(
        g[(problem.y == s) & (a > 0)].max() - g[(problem.y == s) & (a < problem.upper)].min() <= 1.2 * TOL
        for s in (1, -1)
    )


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 99), st.floats(0.01, 0.6), st.sampled_from(["zero", "full", "random"]))
def test_any_start_becomes_feasible(seed, nu, kind):
    problem, _ = classes(nu, n=60, seed=seed)
    weights = sums(problem, problem.upper)
    problem.nu = min(nu, 2 * weights.min() / weights.sum())
    share = {"zero": 0.0, "full": 1.0, "random": np.random.default_rng(seed).random(60)}[kind]
    alpha = feasible(problem, share * problem.upper)
    assert np.all((alpha >= 0) & (alpha <= problem.upper))
    np.testing.assert_allclose(sums(problem, alpha), 0.5 * problem.nu * weights.sum(), rtol=1e-8)
