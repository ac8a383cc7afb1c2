"""The ULV factor against the inverse of the whole matrix."""

from __future__ import annotations

import numpy as np
import pytest
from hss.compressed import ANY_RANK, ENGINE, cancer, compressed, dense, in_order, rbf, roll, tolerances
from pairwise import pairwise

from streamsvm.errors import ConfigError
from streamsvm.hss.matrix import HSSMatrix, factorise
from streamsvm.parallel.engine import Engine

BETAS = [1e-2, 1.0, 100.0]


def matrix(rows, h: float = 1.0, *, dtype=np.float64, leaf: int = 32, **wanted) -> HSSMatrix:
    _, rows = in_order(rows, leaf)
    kernel = rbf(h)
    entries = lambda a, b: kernel.exact(rows.take(a), rows.take(b))  # noqa: E731
    return compressed(rows, entries, tolerances(**wanted), leaf=leaf, dtype=dtype)


def check_solves(made: HSSMatrix, beta: float, accuracy: float) -> None:
    factor = factorise(made, beta, ENGINE)
    V = np.random.default_rng(0).normal(size=(made.tree.n, 3))
    X = np.linalg.solve(dense(made) + beta * np.eye(made.tree.n), V)
    allowed = accuracy * np.abs(X).max()
    np.testing.assert_allclose(factor.solve(V), X, rtol=0, atol=allowed)
    np.testing.assert_allclose(factor.solve(V[:, 1]), X[:, 1], rtol=0, atol=allowed)
    np.testing.assert_array_equal(factor.solve(V, threads=2), factor.solve(V))


@pytest.mark.parametrize(("make", "h", "beta"), pairwise([roll, cancer], [0.1, 1, 10], BETAS))
def test_solves_are_those_of_the_dense_matrix(make, h, beta):
    check_solves(matrix(make(), h), beta, 1e-10)


@pytest.mark.parametrize(("rtol", "max_rank"), [(0.9, ANY_RANK), (0.1, 1), (1e-6, ANY_RANK)])
def test_definite_matrices_are_factorised_at_every_tolerance(rtol, max_rank):
    made = matrix(roll(), rtol=rtol, max_rank=max_rank)
    assert np.linalg.eigvalsh(dense(made) + 1e-6 * np.eye(made.tree.n))[0] > 0
    factorise(made, 1e-6, ENGINE)
    check_solves(made, 1e-2, 1e-10)


def test_least_squares_matrix_of_a_fine_tolerance():
    check_solves(matrix(roll(), rtol=1e-6, definite=False), 0.1, 1e-10)


@pytest.mark.parametrize("beta", [1.0, 100.0])
def test_single_precision(beta):
    made = matrix(cancer(), dtype=np.float32)
    check_solves(made, beta, 1e-4)
    assert 2 * factorise(made, beta, ENGINE).nbytes == factorise(matrix(cancer()), beta, ENGINE).nbytes


@pytest.mark.parametrize(("n", "leaf"), [(1, 32), (2, 32), (3, 2), (31, 32), (33, 32), (37, 2), (100, 3)])
def test_trees_of_any_shape(n, leaf):
    check_solves(matrix(cancer(n), leaf=leaf), 0.5, 1e-10)


def test_threads_do_not_matter():
    made = matrix(cancer())
    V = np.random.default_rng(0).normal(size=made.tree.n)
    one, two = (factorise(made, 1.0, Engine(threads)).solve(V) for threads in (1, 2))
    np.testing.assert_array_equal(one, two)


@pytest.mark.parametrize("leaf", [16, 64])
def test_an_indefinite_matrix_asks_for_a_larger_beta(leaf):
    _, rows = in_order(cancer(64), leaf)
    A = np.random.default_rng(0).normal(size=(64, 64))
    A = A + A.T
    made = compressed(rows, lambda a, b: A[np.ix_(a, b)], tolerances(1e-6, definite=False), leaf=leaf)
    least = -np.linalg.eigvalsh(dense(made))[0]
    assert least > 1
    with pytest.raises(ConfigError, match=r"beta = 0\.5 is not positive definite.*larger beta"):
        factorise(made, 0.5, ENGINE)
    check_solves(made, 1.1 * least, 1e-9)
