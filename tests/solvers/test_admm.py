"""ADMM for duals with a bias, against whole systems of equations and libsvm."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest
import reference
from every_case import every_case
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_breast_cancer
from sklearn.preprocessing import scale
from sklearn.svm import SVC, SVR

from streamsvm.kernels.distance import RBF
from streamsvm.solvers.admm import (
    ADMM,
    RELAX,
    ADMMColumns,
    ADMMState,
    balanced,
    certificate,
    draw_margin,
    intercept,
    paper_beta,
)
from streamsvm.solvers.loop import run

N, COLUMNS = 200, 3
KERNEL = RBF(0.02)
CS = np.array([0.1, 1.0, 10.0])


@dataclass
class Dense:
    """The oracle by whole matrices."""

    K: np.ndarray
    columns: ADMMColumns
    inverses: dict[float, np.ndarray] = field(default_factory=dict)

    def solve(self, beta: float, V: np.ndarray) -> np.ndarray:
        if beta not in self.inverses:
            self.inverses[beta] = np.linalg.inv(self.K + beta * np.eye(len(self.K)))
        return self.inverses[beta] @ V


def data() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """X, its kernel matrix, and labels."""
    found = load_breast_cancer()
    X = scale(found.data[:N])
    return X, reference.kernel_matrix(KERNEL, X, X), np.where(found.target[:N] == 1, 1.0, -1.0)


def problem(y: np.ndarray | None = None, Cs: np.ndarray = CS) -> Dense:
    """Columns of one classification that differ in C, or in their signs too."""
    _, K, labels = data()
    y = np.repeat(labels[:, None], len(Cs), axis=1) if y is None else y
    upper = np.tile(Cs, (N, 1))
    return Dense(K, ADMMColumns(y, np.where(y < 0, -upper, 0.0), np.where(y > 0, upper, 0.0)))


def random_signs() -> Dense:
    return problem(np.random.default_rng(0).choice([-1.0, 1.0], size=(N, COLUMNS)))


def regression() -> Dense:
    """Columns of one regression that differ in C."""
    X, K, _ = data()
    t = scale(X[:, 0] ** 2 + X[:, 1])
    upper = np.tile(CS, (N, 1))
    return Dense(K, ADMMColumns(np.repeat(t[:, None], len(CS), axis=1), -upper, upper, 0.1))


def objective(made: Dense, z: np.ndarray, c: int) -> float:
    v, of = z[:, c], made.columns
    return 0.5 * v @ made.K @ v - of.target[:, c] @ v + of.epsilon * np.abs(v).sum()


def best(made: Dense, c: int) -> SVC | SVR:
    """libsvm's answer for a column."""
    options = {"C": made.columns.upper[:, c].max(), "kernel": "precomputed", "tol": 1e-8}
    model = SVR(epsilon=made.columns.epsilon, **options) if made.columns.epsilon else SVC(**options)
    return model.fit(made.K, made.columns.target[:, c])


def best_objective(made: Dense, c: int) -> float:
    model, z = best(made, c), np.zeros(made.columns.target.shape)
    z[model.support_, c] = model.dual_coef_[0]
    return objective(made, z, c)


def steps(solver: ADMM, made: Dense, count: int, state: ADMMState | None = None) -> ADMMState:
    last = count + (state.steps if state else 0)
    return run(solver, made, state, stop=lambda s: s.steps >= last)


def twin_step(K, beta, z, mu, t, lower, upper, epsilon):
    """One column: x by the whole system with e'x = 0, then z row by row, and mu as printed, over-relaxed."""
    n = len(t)
    system = np.block([[K + beta * np.eye(n), np.ones((n, 1))], [np.ones((1, n)), np.zeros((1, 1))]])
    x = np.linalg.solve(system, np.append(t + mu + beta * z, 0.0))[:n]
    ahead = RELAX * x + (1 - RELAX) * z
    # of each row the best of the ends, of 0, and of the minima on either side of 0
    center = ahead - mu / beta
    candidates = [lower, upper, np.clip(0.0, lower, upper)]
    candidates += [np.clip(center - side * epsilon / beta, lower, upper) for side in (-1, 1)]
    costs = [epsilon * np.abs(u) + beta / 2 * (u - center) ** 2 for u in candidates]
    new = np.choose(np.argmin(costs, axis=0), candidates)
    return x, new, mu - beta * (ahead - new)


@pytest.mark.parametrize("beta", [0.1, 1.0, 50.0])
@pytest.mark.parametrize("make", [problem, random_signs, regression])
def test_steps_are_those_of_the_twin(make, beta):
    made = make()
    solver = ADMM(beta)
    state = solver.init(made)
    twins = [(np.zeros(N), np.zeros(N)) for _ in CS]
    for _ in range(15):
        before, state = state, solver.step(made, state)
        x = np.empty((N, COLUMNS))
        for c, (z, mu) in enumerate(twins):
            of = made.columns
            bounds = (array[:, c] for array in (of.target, of.lower, of.upper))
            x[:, c], *twins[c] = twin_step(made.K, beta, z, mu, *bounds, of.epsilon)
        z, mu = (np.stack(both, axis=1) for both in zip(*twins, strict=True))
        np.testing.assert_allclose(state.z, z, rtol=0, atol=1e-10)
        np.testing.assert_allclose(state.mu, mu, rtol=0, atol=1e-10)
        size = np.maximum(np.linalg.norm(x, axis=0), np.linalg.norm(z, axis=0))
        np.testing.assert_allclose(state.primal, np.linalg.norm(x - z, axis=0) / size, rtol=1e-6)
        moved = beta * np.linalg.norm(z - before.z, axis=0)
        dual = moved / np.maximum(np.linalg.norm(mu, axis=0), np.linalg.norm(made.columns.target, axis=0))
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
        assert np.abs(x.sum(axis=0)).max() < 1e-9


@pytest.mark.parametrize(("solver", "count"), [(ADMM(1.0), 1500), (ADMM(100.0, 10), 600), (ADMM(1e-3, 10), 600)])
@pytest.mark.parametrize("make", [problem, regression])
def test_converges_to_libsvms_objective(solver, count, make):
    made = make()
    state = steps(solver, made, count)
    assert state.residual < 2e-3
    assert (state.beta != solver.beta) == bool(solver.balance_every)
    z = balanced(state.z)
    for c in range(COLUMNS):
        expected = best_objective(made, c)
        assert abs(objective(made, z, c) - expected) < 1e-3 * abs(expected)


@pytest.mark.parametrize("make", [problem, regression])
def test_intercept_and_gap_of_a_solution_are_libsvms(make):
    made = make()
    of, z = made.columns, balanced(steps(ADMM(1.0), made, 1500).z)
    rng, f, bias = np.random.default_rng(0), made.K @ z, np.empty(COLUMNS)
    for c in range(COLUMNS):
        ids = draw_margin(z[:, c], np.maximum(of.upper, -of.lower)[:, c], 500, rng)
        bounds = of.lower[ids, c], of.upper[ids, c]
        bias[c] = intercept((of.target - f)[ids, c], z[ids, c], bounds, of.epsilon)
        assert bias[c] == pytest.approx(best(made, c).intercept_[0], abs=0.02)
        column = slice(c, c + 1)
        found, gap = certificate(of.take(column), z[:, column], f[:, column], bias[column])
        assert found == pytest.approx(objective(made, z, c))
        rounding = 1e-9 * abs(found)
        assert found - gap - rounding <= best_objective(made, c) <= found + 1e-6 * abs(found)
        assert gap < 1e-2 * abs(found)


def test_columns_do_not_know_of_each_other():
    made = random_signs()
    together = steps(ADMM(1.0), made, 20)
    for c in range(COLUMNS):
        column = slice(c, c + 1)
        alone = steps(ADMM(1.0), Dense(made.K, made.columns.take(column)), 20)
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


@every_case(
    ("n", "beta"),
    [(1, 10), (9_999, 10), (10_000, 100), (100_000, 100), (100_001, 1e3), (10**6, 1e3), (10**6 + 1, 1e4)],
)
def test_papers_betas(n, beta):
    assert paper_beta(n) == beta


@given(st.integers(0, 9999), st.integers(1, 20), st.integers(1, 4), st.floats(0, 1))
def test_balanced_is_feasible(seed, n, columns, share):
    rng = np.random.default_rng(seed)
    y = np.where(rng.random((n, columns)) < share, 1.0, -1.0)
    z = y * np.maximum(rng.normal(size=(n, columns)), 0)
    feasible = balanced(z)
    assert np.all(y * feasible >= 0)
    assert np.all(np.abs(feasible) <= np.abs(z))
    assert np.all(np.abs(feasible.sum(axis=0)) <= 1e-7 * np.abs(z).sum(axis=0))
    sums = np.stack([np.maximum(z, 0).sum(axis=0), np.maximum(-z, 0).sum(axis=0)])
    np.testing.assert_allclose(np.abs(feasible).sum(axis=0), 2 * sums.min(axis=0), rtol=1e-7, atol=1e-12)
    np.testing.assert_allclose(balanced(feasible), feasible, atol=1e-12)


def test_rows_are_drawn_by_their_distance_from_the_bounds():
    z, upper = np.array([0.0, 2.0, 1.0, 0.02, 4.0]), np.array([2.0, 2.0, 2.0, 2.0, 8.0])
    counts = np.bincount(draw_margin(z, upper, 20_000, np.random.default_rng(0)), minlength=5)
    assert counts[[0, 1]].tolist() == [0, 0]
    assert counts[2] == pytest.approx(counts[4], rel=0.1)
    assert 0 < counts[3] < counts[2] / 10


@pytest.mark.parametrize("z", [0.0, 1.0])
def test_any_rows_are_drawn_where_no_vector_is_on_the_margin(z):
    ids = draw_margin(np.full(5, z), np.ones(5), 200, np.random.default_rng(0))
    assert set(ids.tolist()) == set(range(5))


@pytest.mark.parametrize("epsilon", [0.0, 0.2])
def test_intercept_is_the_mean_over_margin_vectors(epsilon):
    z, error = np.array([0.5, -0.5, 0.5]), np.array([0.5, -0.8, 0.9])
    bias = intercept(error, z, (-np.ones(3), np.ones(3)), epsilon)
    assert bias == pytest.approx(np.mean(error - epsilon * np.sign(z)))


@settings(max_examples=2 * settings.default.max_examples)
@given(st.integers(0, 9999), st.integers(2, 15), st.sampled_from([0.0, 0.3]))
def test_intercept_without_margin_vectors_is_the_middle_of_the_valid(seed, n, epsilon):
    """b that an optimal z, all at 0 or a bound, allows: t - f - b is beyond epsilon where z is at a bound, and within
    it, or on the other side of a bound of 0, at 0."""
    rng = np.random.default_rng(seed)
    upper = rng.random(n) + 0.1
    y, b = rng.choice([-1.0, 1.0], n), rng.normal()
    y[:2] = 1, -1
    r = rng.normal(size=n)  # t - f - b
    r[:2] = 1, -1  # b has an end on either side
    if epsilon:
        bounds = -upper, upper
        z = np.where(np.abs(r) < epsilon, 0.0, np.sign(r) * upper)
        ends = np.concatenate([r + b - epsilon, r + b + epsilon])  # where a row's state would change
    else:
        bounds = np.where(y > 0, 0.0, -upper), np.where(y > 0, upper, 0.0)
        z = np.where(y * r > 0, y * upper, 0.0)
        ends = r + b
    expected = (ends[ends <= b].max() + ends[ends >= b].min()) / 2
    assert intercept(r + b, z, bounds, epsilon) == pytest.approx(expected)
