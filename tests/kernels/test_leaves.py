"""Leaves of a k-d tree, and products of narrow kernels that leave out rows far away."""

from __future__ import annotations

import numpy as np
import pytest
import reference
from kernels.made import EVERY, rows
from scipy import sparse

from streamsvm.data.rows import Rows
from streamsvm.kernels import leaves as leaves_module
from streamsvm.kernels.distance import RBF, Cauchy, Distances, Matern
from streamsvm.kernels.leaves import NEGLIGIBLE, Leaves, near_rows
from streamsvm.problems.dual import KernelDual
from streamsvm.solvers.blockws import solve

NARROW = [RBF(40.0), Matern(60.0, 0.5), Matern(60.0, 2.5)]


def grouped(m: int, seed: int) -> Rows:
    """Rows of eight kinds, one-hot, with two numbers each."""
    rng = np.random.default_rng(seed)
    return Rows(np.hstack([np.eye(8)[rng.integers(0, 8, m)], rng.random((m, 2))]).astype(np.float32))


@pytest.mark.parametrize(
    "X",
    [
        np.random.default_rng(0).normal(size=(1000, 3)),
        np.random.default_rng(1).integers(0, 2, (1000, 4)),
        np.zeros((300, 2)),
        np.exp(np.random.default_rng(2).normal(size=(500, 1)) * 20),
        np.ones((1, 1)),
    ],
    ids=["normal", "binary", "equal", "heavy", "one"],
)
def test_each_row_is_in_one_leaf_and_in_its_box(X):
    X = X.astype(np.float32)
    leaves = Leaves.of(Rows(X), 32)
    assert sorted(leaves.order) == list(range(len(X)))
    for leaf in range(len(leaves)):
        members = leaves.members(leaf)
        assert 0 < len(members) <= 32
        np.testing.assert_array_equal(leaves.low[leaf], X[members].min(axis=0))
        np.testing.assert_array_equal(leaves.high[leaf], X[members].max(axis=0))


def test_rows_near_a_box_are_those_of_boxes_within_the_radius():
    X = np.random.default_rng(3).random((600, 2)).astype(np.float32)
    leaves, low, high = Leaves.of(Rows(X), 16), np.float32([0.2, 0.3]), np.float32([0.4, 0.4])
    near, varying = leaves.near(low, high, 0.01)
    gaps = np.maximum(np.maximum(low - X, X - high), 0)
    assert set(np.flatnonzero((gaps**2).sum(axis=1) < 0.01)) <= set(near.tolist())
    assert len(near) < 300


@pytest.mark.parametrize("kernel", [kernel for kernel in EVERY if isinstance(kernel, Distances)], ids=str)
def test_values_beyond_the_radius_are_negligible(kernel):
    radius = kernel.sq_radius(NEGLIGIBLE) ** 0.5
    assert np.isfinite(radius) == (not isinstance(kernel, Cauchy))
    if np.isfinite(radius):
        for d in (1, 3):
            away = Rows(np.full((1, d), 1.0001 * radius / d**0.5))
            assert kernel.exact(Rows(np.zeros((1, d))), away)[0, 0] <= NEGLIGIBLE


@pytest.mark.parametrize("shape", [(), (3,), (20,)], ids=str)
@pytest.mark.parametrize("kernel", NARROW, ids=str)
def test_products_leave_out_far_rows_alone(kernel, shape, monkeypatch):
    monkeypatch.setattr(leaves_module, "MANY_VALUES", 0)
    a, b = grouped(1200, 4), grouped(700, 5)
    coef = np.random.default_rng(6).normal(size=(len(b), *shape))
    expected = reference.kernel_matrix(kernel, a.X, b.X) @ coef
    finish, computed = type(kernel).finish_float64, []
    monkeypatch.setattr(
        type(kernel),
        "finish_float64",
        lambda self, tile, *norms: computed.append(tile.size) or finish(self, tile, *norms),
    )
    np.testing.assert_allclose(kernel.in_float64().apply(a, b, coef, 2), expected, atol=1e-11)
    assert 0 < sum(computed) <= 0.3 * len(a) * len(b)
    assert np.abs(kernel.apply(a, b, coef, 2) - expected).max() < 1e-5 * np.abs(coef).sum(axis=0).max()


def test_products_of_which_many_rows_are_near_are_whole():
    a = grouped(4096, 7)
    radius = RBF(40.0).sq_radius(NEGLIGIBLE)
    assert near_rows(radius, a, a).share() < 0.3
    assert near_rows(RBF(1.0).sq_radius(NEGLIGIBLE), a, a) is None
    assert near_rows(radius, a, a.take(slice(100))) is None  # few
    assert near_rows(np.inf, a, a) is None
    noise = Rows(np.random.default_rng(10).normal(size=(4096, 50)).astype(np.float32))  # no leaf of it is compact
    assert near_rows(60.0, noise, noise) is None
    assert near_rows(radius, a, Rows(sparse.csr_array(a.X))) is None
    assert near_rows(radius, a, rows(4096, 10, "uint8", 0)) is None


@pytest.mark.parametrize("bias", [False, True])
def test_an_exact_solution_is_the_same(bias, monkeypatch):
    data, rng = grouped(3000, 8), np.random.default_rng(9)
    y = np.where(np.sin(20 * data.X[:, -1]) + rng.normal(size=3000) > 0, 1.0, -1.0)
    dual = KernelDual(RBF(40.0), data, y, np.full(3000, 10.0))
    whole = solve(dual, tol=1e-3, bias=bias)
    monkeypatch.setattr(leaves_module, "MANY_VALUES", 0)
    near = solve(KernelDual(RBF(40.0), data, y, dual.upper), tol=1e-3, bias=bias)
    Q = reference.kernel_matrix(dual.kernel, data.X, data.X) * y * y[:, None]
    least = [0.5 * state.alpha @ Q @ state.alpha - state.alpha.sum() for state in (whole, near)]
    assert least[0] == pytest.approx(least[1], rel=1e-6)
    assert near.violation <= 1e-3
