"""Squared losses: a ridge in place of bounds, against the dense problem and a solver of nonnegative least squares."""

from __future__ import annotations

import numpy as np
import pytest
import reference
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.linalg import cholesky, solve_triangular
from scipy.optimize import nnls

from streamsvm.data.rows import Rows
from streamsvm.kernels.distance import RBF
from streamsvm.problems.dual import KernelDual, RepeatedDual, SquaredDual
from streamsvm.solvers import blockws
from streamsvm.solvers.blockws import BlockSolver

N = 240


def problem(seed: int = 0, n: int = N, c: float = 2.0) -> tuple[SquaredDual, np.ndarray, np.ndarray]:
    """With Q + D and the costs; a tenth of the rows cost nothing."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3)).astype(np.float32)
    y = np.where(X[:, 0] * X[:, 1] + 0.3 * rng.normal(size=n) > 0, 1.0, -1.0)
    cost = c * rng.choice([0.0, 0.5, 3.0], n, p=[0.1, 0.5, 0.4])
    Q = y[:, None] * reference.kernel_matrix(RBF(0.5), X, X) * y
    D = np.divide(0.5, cost, out=np.zeros(n), where=cost > 0)
    return SquaredDual(KernelDual(RBF(0.5), Rows(X), y, cost)), Q + np.diag(D), cost


def test_the_oracle_is_that_of_the_ridged_matrix():
    p, Q, _ = problem()
    ids, delta = np.array([9, 1, 100, 239]), np.array([0.5, -0.2, 1.0, 0.1])
    np.testing.assert_allclose(p.gram(ids), Q[np.ix_(ids, ids)], atol=2e-6)
    np.testing.assert_allclose(p.diagonal(ids), Q.diagonal()[ids], atol=2e-6)
    for rows in (None, np.array([1, 2, 9, 50]), np.array([0]), np.array([100])):
        expected = (Q[:, ids] @ delta)[slice(None) if rows is None else rows]
        np.testing.assert_allclose(p.apply(ids, delta, rows), expected, atol=1e-5)


@pytest.mark.parametrize(("c", "block_rows"), [(0.01, 2048), (2.0, 2048), (2.0, 32), (100.0, 64)])
def test_it_reaches_the_optimum_of_nonnegative_least_squares(c, block_rows):
    p, Q, cost = problem(c=c)
    members = np.flatnonzero(cost)
    R = cholesky(Q[np.ix_(members, members)])
    best = nnls(R, solve_triangular(R, np.ones(len(members)), trans="T"))[0]
    solver = BlockSolver(2e-4, block_rows)
    state = solver.solve(p, solver.init(p))
    assert not state.alpha[cost == 0].any()
    objective = reference.dual_objective(Q[np.ix_(members, members)], best)
    assert blockws.objective(p, state) == pytest.approx(objective, rel=1e-5)
    np.testing.assert_allclose(state.alpha[members], best, atol=2e-3 * best.max())
    assert 0 <= blockws.duality_gap(p, state) <= 1e-3 * abs(objective)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32 - 1), st.floats(-1, 1), st.booleans())
def test_the_gap_is_primal_less_dual_at_any_point(seed, b, paired):
    """paired: two variables a row, as of regression."""
    rng = np.random.default_rng(seed)
    p, Q, cost = problem(seed % 5, n=12)
    linear: np.ndarray | float = -1.0
    if paired:
        once = KernelDual(RBF(0.5), p._dual.rows, np.ones(12), cost)
        y, linear, cost = np.repeat([1.0, -1.0], 12), rng.normal(size=24), np.tile(cost, 2)
        K = reference.kernel_matrix(RBF(0.5), once.rows.X, once.rows.X)
        p = SquaredDual(RepeatedDual(once, y, linear))
        D = np.divide(0.5, cost, out=np.zeros(24), where=cost > 0)
        Q = y[:, None] * np.tile(K, (2, 2)) * y + np.diag(D)
    a = np.where(cost > 0, rng.exponential(size=len(cost)), 0.0)
    first = int(np.flatnonzero((p.y > 0) & (cost > 0))[0])
    last = int(np.flatnonzero((p.y < 0) & (cost > 0))[-1])
    a[first if p.y @ a < 0 else last] += abs(p.y @ a)  # y'a = 0
    h = (Q @ a - p.ridge * a) + linear + p.y * b
    norm = a @ (Q @ a - p.ridge * a)
    primal = 0.5 * norm + cost @ np.maximum(-h, 0) ** 2
    dual = -(0.5 * a @ Q @ a + np.sum(linear * a))
    gap = p.gap(a, Q @ a + linear + p.y * b)
    assert gap == pytest.approx(primal - dual, abs=1e-9 * (1 + abs(primal)))
    assert gap >= 0
