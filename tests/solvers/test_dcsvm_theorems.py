"""The lemma and the theorems of Hsieh, Si and Dhillon 2014, by slow twins on small problems."""

from __future__ import annotations

import numpy as np
import pytest
import reference

from streamsvm.data.rows import Rows
from streamsvm.kernels.distance import RBF
from streamsvm.problems.dual import KernelDual
from streamsvm.solvers import blockws

N, C = 120, 2.0
PARTITIONS = {"by position in space": 0, "random": 1}


class Problem:
    """(1) of a set of rows, its solution, and that of partitions pi together."""

    def __init__(self, by: str, gamma: float, seed: int = 0) -> None:
        rng = np.random.default_rng(seed)
        X = rng.uniform(-2, 2, (N, 2)).astype(np.float32)
        self.y = np.where(np.floor(X[:, 0]) + np.floor(X[:, 1]) % 2 > 0, 1.0, -1.0)
        self.pi = rng.integers(0, 4, N) if PARTITIONS[by] else (X > 0) @ np.array([1, 2])
        self.kernel, self.rows, self.upper = RBF(gamma), Rows(X), np.full(N, C)
        self.K = reference.kernel_matrix(self.kernel, X, X)
        self.apart = self.pi[:, None] != self.pi
        self.Q = self.K * np.outer(self.y, self.y)
        self.whole = reference.solve_dual(self.Q, self.upper)

    @property
    def Q_bar(self) -> np.ndarray:
        """Of the kernel (3)."""
        return np.where(self.apart, 0.0, self.Q)

    def together(self, tol: float) -> np.ndarray:
        """a_bar, by the package's solver on each partition alone."""
        alpha = np.zeros(N)
        for part in np.unique(self.pi):
            ids = np.flatnonzero(self.pi == part)
            dual = KernelDual(self.kernel, self.rows.take(ids), self.y[ids], self.upper[ids])
            alpha[ids] = blockws.solve(dual, tol=tol).alpha
        return alpha

    def gap(self, alpha: np.ndarray) -> float:
        """f(a) - f(a*)."""
        return reference.dual_objective(self.Q, alpha) - reference.dual_objective(self.Q, self.whole)


@pytest.fixture(params=[(by, gamma) for by in PARTITIONS for gamma in (0.5, 5.0, 50.0)], ids=str)
def problem(request):
    return Problem(*request.param)


def test_partitions_solve_the_problem_of_the_divided_kernel(problem):
    """Lemma 1."""
    best = reference.dual_objective(problem.Q_bar, reference.solve_dual(problem.Q_bar, problem.upper))
    assert reference.dual_objective(problem.Q_bar, problem.together(1e-5)) == pytest.approx(best, rel=1e-5)


def test_they_are_near_the_whole_solution(problem):
    """Theorem 1: 0 <= f(a_bar) - f(a*) <= C^2 D(pi) / 2, |a* - a_bar|^2 <= C^2 D(pi) / sigma_n."""
    alpha, D = problem.together(1e-6), np.abs(problem.K[problem.apart]).sum()
    assert -1e-6 <= problem.gap(alpha) <= 0.5 * C**2 * D
    sigma = np.linalg.svd(problem.K, compute_uv=False)[-1]
    assert np.sum((problem.whole - alpha) ** 2) <= C**2 * D / sigma


def test_rows_of_a_large_gradient_are_no_support_vectors():
    """Theorem 2: a_bar_i = 0 with a gradient above C D(pi) (1 + sqrt(n) K_max / sqrt(sigma_n D(pi)))."""
    rng = np.random.default_rng(0)
    centres = 12.0 * np.array([[0, 0], [0, 1], [1, 0]])
    pi = rng.integers(0, 3, 60)
    X = centres[pi] + rng.uniform(-1, 1, (60, 2))
    y = np.where(X[:, 0] % 12 < 1, 1.0, -1.0)
    K = reference.kernel_matrix(RBF(1.0), X, X)
    Q, apart, upper = K * np.outer(y, y), pi[:, None] != pi, np.full(60, C)
    alpha, whole = (reference.solve_dual(M, upper) for M in (np.where(apart, 0, Q), Q))
    D, sigma = K[apart].sum(), np.linalg.svd(K, compute_uv=False)[-1]
    bound = C * D * (1 + np.sqrt(60) * K.max() / np.sqrt(sigma * D))
    gradient = np.where(apart, 0, Q) @ alpha - 1
    certain = (alpha == 0) & (gradient > bound)
    assert 0 < certain.sum() < 60
    assert (whole[certain] == 0).all()


def test_only_values_between_support_vectors_count(problem):
    """Theorem 3: theorem 1 with D of the support vectors of both solutions alone."""
    alpha = problem.together(1e-6)
    either = (alpha > 1e-9) | (problem.whole > 1e-9)
    D = np.abs(problem.K[problem.apart & np.outer(either, either)]).sum()
    assert problem.gap(alpha) <= 0.5 * C**2 * D + 1e-6
