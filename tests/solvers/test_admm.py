"""ADMM for the dual with a bias, against whole systems of equations and libsvm."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest
import reference
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_breast_cancer
from sklearn.preprocessing import scale
from sklearn.svm import SVC

from streamsvm.kernels.distance import RBF
from streamsvm.solvers.admm import ADMM, RELAX, ADMMState, balanced, draw_margin, intercept, paper_beta
from streamsvm.solvers.loop import run

N, COLUMNS = 200, 3
KERNEL = RBF(0.02)
CS = np.array([0.1, 1.0, 10.0])


@dataclass
class Dense:
    """The oracle by whole matrices."""

    K: np.ndarray
    y: np.ndarray
    upper: np.ndarray
    inverses: dict[float, np.ndarray] = field(default_factory=dict)

    def solve(self, beta: float, V: np.ndarray) -> np.ndarray:
        if beta not in self.inverses:
            self.inverses[beta] = np.linalg.inv(self.K + beta * np.eye(len(self.K)))
        return self.inverses[beta] @ V


def problem(y: np.ndarray | None = None, Cs: np.ndarray = CS) -> Dense:
    """Columns of one problem that differ in C, or in their signs too."""
    data = load_breast_cancer()
    X = scale(data.data[:N])
    if y is None:
        y = np.repeat(np.where(data.target[:N] == 1, 1.0, -1.0)[:, None], len(Cs), axis=1)
    return Dense(reference.kernel_matrix(KERNEL, X, X), y, np.tile(Cs, (N, 1)))


def random_signs() -> Dense:
    return problem(np.random.default_rng(0).choice([-1.0, 1.0], size=(N, COLUMNS)))


def objective(made: Dense, z: np.ndarray, c: int) -> float:
    return reference.dual_objective(np.outer(made.y[:, c], made.y[:, c]) * made.K, z[:, c])


def best(made: Dense, c: int) -> SVC:
    """libsvm's answer for a column."""
    model = SVC(C=made.upper[0, c], kernel="precomputed", tol=1e-8)
    return model.fit(made.K, made.y[:, c])


def best_objective(made: Dense, c: int) -> float:
    model, z = best(made, c), np.zeros((N, made.y.shape[1]))
    z[model.support_, c] = np.abs(model.dual_coef_[0])
    return objective(made, z, c)


def steps(solver: ADMM, made: Dense, count: int, state: ADMMState | None = None) -> ADMMState:
    last = count + (state.steps if state else 0)
    return run(solver, made, state, stop=lambda s: s.steps >= last)


def twin_step(K, y, upper, beta, z, mu):
    """One column: x by the whole system with y'x = 0, then z and mu as printed, over-relaxed."""
    n = len(y)
    Q = np.outer(y, y) * K
    system = np.block([[Q + beta * np.eye(n), y[:, None]], [y[None], np.zeros((1, 1))]])
    x = np.linalg.solve(system, np.append(1 + mu + beta * z, 0.0))[:n]
    ahead = RELAX * x + (1 - RELAX) * z
    new = np.clip(ahead - mu / beta, 0, upper)
    return x, new, mu - beta * (ahead - new)


@pytest.mark.parametrize("beta", [0.1, 1.0, 50.0])
@pytest.mark.parametrize("make", [problem, random_signs])
def test_steps_are_those_of_the_twin(make, beta):
    made = make()
    solver = ADMM(beta)
    state = solver.init(made)
    twins = [(np.zeros(N), np.zeros(N)) for _ in CS]
    for _ in range(15):
        before, state = state, solver.step(made, state)
        x = np.empty((N, COLUMNS))
        for c, (z, mu) in enumerate(twins):
            x[:, c], *twins[c] = twin_step(made.K, made.y[:, c], made.upper[:, c], beta, z, mu)
        z, mu = (np.stack(both, axis=1) for both in zip(*twins, strict=True))
        np.testing.assert_allclose(state.z, z, rtol=0, atol=1e-10)
        np.testing.assert_allclose(state.mu, mu, rtol=0, atol=1e-10)
        size = np.maximum(np.linalg.norm(x, axis=0), np.linalg.norm(z, axis=0))
        np.testing.assert_allclose(state.primal, np.linalg.norm(x - z, axis=0) / size, rtol=1e-6)
        moved = beta * np.linalg.norm(z - before.z, axis=0)
        dual = moved / np.maximum(np.linalg.norm(mu, axis=0), N**0.5)
        np.testing.assert_allclose(state.dual, dual, rtol=1e-6, atol=1e-12)
    assert state.steps == 15
    assert state.residual == max(state.primal.max(), state.dual.max())


def test_x_is_on_the_hyperplane():
    made, solver = random_signs(), ADMM(1.0)
    state = steps(solver, made, 3)
    for _ in range(5):
        before, state = state, solver.step(made, state)
        ahead = state.z - (state.mu - before.mu) / state.beta  # the multipliers' step, undone
        x = (ahead - (1 - RELAX) * before.z) / RELAX
        assert np.abs((made.y * x).sum(axis=0)).max() < 1e-9


@pytest.mark.parametrize(
    ("solver", "count"), [(ADMM(1.0), 1500), (ADMM(100.0, 10), 600), (ADMM(1e-3, 10), 600)]
)
def test_converges_to_libsvms_objective(solver, count):
    made = problem()
    state = steps(solver, made, count)
    assert state.residual < 1e-3
    assert (state.beta != solver.beta) == bool(solver.balance_every)
    z = balanced(state.z, made.y)
    for c in range(COLUMNS):
        expected = best_objective(made, c)
        assert abs(objective(made, z, c) - expected) < 1e-3 * abs(expected)


def test_intercept_of_a_solution_is_libsvms():
    made = problem()
    z = balanced(steps(ADMM(1.0), made, 1500).z, made.y)
    rng = np.random.default_rng(0)
    for c in range(COLUMNS):
        ids = draw_margin(z[:, c], made.upper[:, c], 500, rng)
        f = made.K @ (made.y * z)[:, c]
        b = intercept(f[ids], made.y[ids, c], z[ids, c], made.upper[ids, c])
        assert b == pytest.approx(best(made, c).intercept_[0], abs=0.02)


def test_columns_do_not_know_of_each_other():
    made = random_signs()
    together = steps(ADMM(1.0), made, 20)
    for c in range(COLUMNS):
        column = slice(c, c + 1)
        alone = steps(ADMM(1.0), Dense(made.K, made.y[:, column], made.upper[:, column]), 20)
        np.testing.assert_allclose(alone.z, together.z[:, column], rtol=0, atol=1e-11)


def test_a_beta_of_its_own_is_kept_and_a_new_one_is_a_power_of_the_grid():
    made = problem()
    steps(ADMM(100.0), made, 30)
    assert set(made.inverses) == {100.0}
    made.inverses.clear()
    state = steps(ADMM(100.0, 10), made, 31)
    assert set(made.inverses) > {100.0}
    exponent = 2 * np.log10(state.beta)
    assert exponent == pytest.approx(round(exponent))
    np.testing.assert_allclose(state.w, made.solve(state.beta, np.ones(N)))


@pytest.mark.parametrize("solver", [ADMM(1.0), ADMM(100.0, 5)])
def test_from_a_saved_state_it_goes_on_bit_by_bit(solver):
    made = random_signs()
    state = steps(solver, made, 12)
    saved = {name: np.array(array) for name, array in state.to_arrays().items()}
    expected = steps(solver, made, 10, state).to_arrays()
    for name, array in steps(solver, made, 10, ADMMState.from_arrays(saved)).to_arrays().items():
        np.testing.assert_array_equal(array, expected[name])


@pytest.mark.parametrize(
    ("n", "beta"),
    [(1, 10), (9_999, 10), (10_000, 100), (100_000, 100), (100_001, 1e3), (10**6, 1e3), (10**6 + 1, 1e4)],
)
def test_papers_betas(n, beta):
    assert paper_beta(n) == beta


@given(st.integers(0, 9999), st.integers(1, 20), st.integers(1, 4), st.floats(0, 1))
def test_balanced_is_feasible(seed, n, columns, share):
    rng = np.random.default_rng(seed)
    y = np.where(rng.random((n, columns)) < share, 1.0, -1.0)
    z = np.maximum(rng.normal(size=(n, columns)), 0)
    found = balanced(z, y)
    assert np.all(found >= 0)
    assert np.all(found <= z)
    assert np.all(np.abs((y * found).sum(axis=0)) <= 1e-7 * z.sum(axis=0))
    sums = np.stack([np.where(y > 0, z, 0).sum(axis=0), np.where(y < 0, z, 0).sum(axis=0)])
    np.testing.assert_allclose(found.sum(axis=0), 2 * sums.min(axis=0), rtol=1e-7, atol=1e-12)
    np.testing.assert_allclose(balanced(found, y), found, atol=1e-12)


def test_rows_are_drawn_by_their_distance_from_the_bounds():
    z, upper = np.array([0.0, 2.0, 1.0, 0.02, 4.0]), np.array([2.0, 2.0, 2.0, 2.0, 8.0])
    counts = np.bincount(draw_margin(z, upper, 20_000, np.random.default_rng(0)), minlength=5)
    assert counts[[0, 1]].tolist() == [0, 0]
    assert counts[2] == pytest.approx(counts[4], rel=0.1)
    assert 0 < counts[3] < counts[2] / 10


@pytest.mark.parametrize("z", [0.0, 1.0])
def test_any_rows_are_drawn_where_no_vector_is_on_the_margin(z):
    found = draw_margin(np.full(5, z), np.ones(5), 200, np.random.default_rng(0))
    assert set(found.tolist()) == set(range(5))


def test_intercept_is_the_mean_over_margin_vectors():
    y, f = np.array([1.0, -1.0, 1.0]), np.array([0.5, -0.2, 0.1])
    assert intercept(f, y, np.full(3, 0.5), np.ones(3)) == pytest.approx(np.mean(y - f))


@settings(max_examples=2 * settings.default.max_examples)
@given(st.integers(0, 9999), st.integers(2, 15))
def test_intercept_without_margin_vectors_is_the_middle_of_the_valid(seed, n):
    """Bounds that an optimal z, all at 0 or upper, allows b: y (f + b) is at least 1 at 0, and at most 1 at upper."""
    rng = np.random.default_rng(seed)
    y, upper, f = rng.choice([-1.0, 1.0], n), rng.random(n) + 0.1, rng.normal(size=n)
    b = rng.normal()
    y[:2] = 1, -1
    f[:2] = 2 - b, -2 - b  # both classes have a row beyond its margin
    z = np.where(y * (f + b) >= 1, 0.0, upper)
    low = max(1 - f[i] if y[i] > 0 else -1 - f[i] for i in range(n) if (y[i] > 0) == (z[i] == 0))
    high = min(1 - f[i] if y[i] > 0 else -1 - f[i] for i in range(n) if (y[i] > 0) != (z[i] == 0))
    assert low <= b <= high
    assert intercept(f, y, z, upper) == pytest.approx((low + high) / 2)
