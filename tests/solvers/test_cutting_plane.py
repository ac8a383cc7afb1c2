"""Cutting planes: the small problem by its optimality conditions, the whole by twins and certificates."""

from __future__ import annotations

import numpy as np
import pytest
import reference
from hypothesis import given
from hypothesis import strategies as st
from making import passes_over as passes
from sklearn.linear_model import LogisticRegression
from sklearn.svm import LinearSVC

from streamsvm.problems.pair_risk import PairRisk
from streamsvm.problems.row_risk import HingeRisk, LogisticRisk, MultilabelTerms, OneVsRestTerms
from streamsvm.solvers.cutting_plane import Bundle, BundleState, CuttingPlane, simplex_qp
from streamsvm.solvers.loop import run
from streamsvm.tasks.ordinal import rank_thresholds

N = 300


def data(k: int = 2) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N, 5)).astype(np.float32).astype(np.float64)
    f = X @ [1.0, -2.0, 0.5, 0.0, 0.3] + rng.normal(size=N)
    return X, np.digitize(f, np.quantile(f, np.arange(1, k) / k))


def hinge(k: int = 2, C: float = 0.5) -> HingeRisk:
    X, codes = data(k)
    return HingeRisk(passes(X, codes, np.full(N, C)), OneVsRestTerms(k))


def logistic(C: float) -> LogisticRisk:
    X, codes = data()
    return LogisticRisk(passes(X, codes, np.full(N, C), bias=1.0), OneVsRestTerms(2))


def pairs(C: float = 0.5) -> PairRisk:
    X, ranks = data(3)
    return PairRisk(passes(X), ranks, np.arange(N) // 50, np.ones(N), C)


@given(st.integers(1, 12), st.integers(1, 6), st.floats(-3, 6), st.integers(0, 999))
def test_the_small_problem_is_solved(T, d, scale, seed):
    rng = np.random.default_rng(seed)
    A, b = 10**scale * rng.normal(size=(T, d)), 10**scale * rng.random(T)
    H = A @ A.T
    a = simplex_qp(H, b)
    g = H @ a - b
    assert np.all(a >= 0)
    assert a.sum() <= 1 + 1e-12
    # at the best point no plane is below the value that those in use share, 0 being the slack's
    assert a @ g - min(g.min(), 0.0) <= 1e-7 * b.max() + 1e-12 * H.max()


@pytest.mark.parametrize("method", ["ocas", "plain"])
@pytest.mark.parametrize("C", [1e-3, 0.5, 3.0])
def test_hinge_against_the_dual_twin(method, C):
    X, codes = data()
    best = reference.linear_svm(np.where(codes == 1, 1, -1)[:, None] * X, np.full(N, C))
    solver, problem = CuttingPlane(1e-5, method), hinge(C=C)
    state = run(solver, problem, stop=solver.done)
    assert state.bound <= best * (1 + 1e-7)
    assert best <= state.objective * (1 + 1e-7)
    assert state.objective <= best * (1 + 1.1e-5)
    w = state.columns[0].w
    value, _ = reference.hinge_risk(X, np.where(codes == 1, 1, -1), np.full(N, C), w)
    assert state.objective == pytest.approx(0.5 * w @ w + value, rel=1e-9)


@pytest.mark.parametrize("C", [1e-3, 0.5, 30.0])
def test_logistic_losses_against_liblinear(C):
    X, codes = data()
    peer = LogisticRegression(C=C, solver="liblinear", tol=1e-10, max_iter=1000).fit(X, codes)
    w, Z, y = np.append(peer.coef_[0], peer.intercept_), np.column_stack([X, np.ones(N)]), 2 * codes - 1
    best = 0.5 * w @ w + C * np.logaddexp(0, -y * (Z @ w)).sum()
    solver, problem = CuttingPlane(1e-5), logistic(C)
    state = run(solver, problem, stop=solver.done)
    assert state.bound <= best * (1 + 1e-7)
    assert best * (1 - 1e-7) <= state.objective <= best * (1 + 1.1e-5)
    w = state.columns[0].w
    value = C * np.logaddexp(0, -y * (Z @ w)).sum()
    assert state.objective == pytest.approx(0.5 * w @ w + value, rel=1e-9)


@pytest.mark.parametrize("method", ["ocas", "plain"])
def test_pairs_against_the_dual_twin(method):
    X, ranks = data(3)
    i, j = np.nonzero(reference.pairs_of(ranks, np.arange(N) // 50))
    solver, problem = CuttingPlane(1e-4, method), pairs(0.02)
    state = run(solver, problem, stop=solver.done)
    w = state.columns[0].w
    value, _ = reference.pair_risk(X, ranks, np.arange(N) // 50, np.ones(N), 0.02, w)
    assert state.objective == pytest.approx(0.5 * w @ w + value, rel=1e-9)
    # all pairs, listed: the problem that the solver never writes down
    C = 0.02 * N / len(i)
    liblinear = LinearSVC(C=C, loss="hinge", fit_intercept=False, tol=1e-8, max_iter=100_000)
    D = X[i] - X[j]
    liblinear.fit(np.vstack([D, -D[:1]]), np.append(np.ones(len(D)), -1))
    v = liblinear.coef_[0]
    best = 0.5 * v @ v + C * np.maximum(0, 1 - D @ v).sum()
    assert state.bound <= best * (1 + 1e-6)
    assert state.objective <= best * (1 + 2e-4)


CASES = [(C, epsilon) for C in (1.0, 10.0, 100.0) for epsilon in (1e-1, 1e-2, 1e-3)]  # C as in the paper


def of_rows(C: float):
    """A problem, a finder of the most violated constraint, and the largest norm R of lemma 2."""
    X, codes = data()
    problem = HingeRisk(passes(X, codes, np.full(N, C / N)), OneVsRestTerms(2))
    R = np.linalg.norm(X, axis=1).max()
    return problem, lambda w: reference.most_violated_by_rows(X, 2 * codes - 1, w), R


def of_pairs(C: float):
    X, ranks = data(3)
    problem = PairRisk(passes(X), ranks, np.zeros(N, int), np.ones(N), C / N)
    R = 2 * np.linalg.norm(X, axis=1).max()
    return problem, lambda w: reference.most_violated_by_pairs(X, ranks + 1, w), R


@given(st.integers(0, 999))
def test_pairs_that_algorithm_2_counts_are_those_of_the_list(seed):
    rng = np.random.default_rng(seed)
    X, ranks, w = rng.integers(-2, 3, (20, 2)) / 2, rng.integers(1, 4, 20), rng.normal(size=2)
    pairs_above = reference.pairs_of(ranks, np.zeros(20))
    if not pairs_above.any():
        return
    i, j = np.nonzero(pairs_above)
    D = X[i] - X[j]
    c = D @ w < 1
    a, b = reference.most_violated_by_pairs(X, ranks, w)
    np.testing.assert_allclose(a, c @ D / len(D), atol=1e-12)
    assert b == pytest.approx(c.mean())


@pytest.mark.parametrize("make", [of_rows, of_pairs])
@pytest.mark.parametrize(("C", "epsilon"), CASES)
def test_plain_planes_and_epsilon_are_the_papers_algorithms(make, C, epsilon):
    """Iteration by iteration; theorems 3 and 5, and lemma 2."""
    problem, most_violated, R = make(C)
    w, xi, needed, iterations = reference.cutting_planes(most_violated, 5, C, epsilon)
    solver = CuttingPlane(method="plain", epsilon=epsilon)
    [bundle] = run(solver, problem, stop=solver.done).columns
    assert len(bundle.b) == iterations <= max(2 / epsilon, 8 * C * R**2 / epsilon**2)
    assert bundle.weight == pytest.approx(C)
    assert bundle.excess == pytest.approx(needed - xi, rel=1e-4, abs=1e-6)
    assert bundle.excess <= epsilon
    exact = CuttingPlane(1e-7)
    best = run(exact, make(C)[0], stop=exact.done)
    assert 0.5 * w @ w + C * xi <= best.objective * (1 + 1e-6)
    assert best.bound * (1 - 1e-6) <= bundle.objective <= best.objective + C * epsilon


@pytest.mark.parametrize("make", [of_rows, of_pairs])
@pytest.mark.parametrize(("C", "epsilon"), CASES)
def test_with_the_line_search_epsilon_bounds_the_gap(make, C, epsilon):
    steps = {}
    for method in ("ocas", "plain"):
        solver = CuttingPlane(method=method, epsilon=epsilon)
        state = run(solver, make(C)[0], stop=solver.done)
        [bundle], steps[method] = state.columns, state.steps
        assert bundle.gap <= C * epsilon
    assert steps["ocas"] <= steps["plain"]


def test_epsilon_is_of_the_weighted_mean_loss_of_each_column():
    """Classes weigh differently, and the closed columns stay as they are."""
    X, codes = data(3)
    sets, factors = np.eye(3, dtype=bool), np.array([[1.0, 1.0, 0.5], [4.0, 1.0, 2.0]])
    upper = np.linspace(0.1, 1.0, N)
    problem = HingeRisk(passes(X, codes, upper), MultilabelTerms(sets, factors))
    solver = CuttingPlane(epsilon=1e-3)
    state = run(solver, problem, stop=solver.done)
    for c, bundle in enumerate(state.columns):
        weights = upper * np.where(codes == c, factors[1, c], factors[0, c])
        assert bundle.weight == pytest.approx(weights.sum())
        assert bundle.excess == pytest.approx(bundle.gap / weights.sum())
        assert bundle.excess <= 1e-3
        best = reference.linear_svm(np.where(codes == c, 1, -1)[:, None] * X, weights)
        assert bundle.objective <= best + 1e-3 * weights.sum()


def test_the_line_search_needs_fewer_planes_where_losses_weigh_much():
    steps = {}
    for method in ("ocas", "plain"):
        solver, problem = CuttingPlane(1e-3, method), hinge(C=1000.0)
        steps[method] = run(solver, problem, stop=solver.done).steps
    assert 1.5 * steps["ocas"] < steps["plain"]


def test_columns_share_passes_and_closed_ones_cost_nothing():
    problem, solver = hinge(4), CuttingPlane(1e-4)
    alone = []
    state = solver.init(problem)
    while not solver.done(state):
        alone.append(sum(map(solver.is_open, state.columns)))
        state = solver.step(problem, state)
    assert problem._passes.count == state.steps == len(alone)
    assert alone[0] == 4
    assert alone[-1] < 4
    for c, bundle in enumerate(state.columns):
        X, codes = data(4)
        best = reference.linear_svm(np.where(codes == c, 1, -1)[:, None] * X, np.full(N, 0.5))
        assert bundle.bound <= best * (1 + 1e-7)
        assert bundle.objective <= best * (1 + 1.1e-4)


def test_objective_never_rises_and_the_bound_never_falls():
    solver = CuttingPlane(1e-5)
    seen = []
    for problem in (hinge(C=20.0), pairs()):
        seen.clear()
        run(solver, problem, stop=solver.done, on_step=lambda s: seen.append((s.objective, s.bound)))
        objectives, bounds = np.array(seen).T
        assert np.all(np.diff(objectives) <= 0)
        assert np.all(np.diff(bounds) >= 0)
        assert np.all(bounds <= objectives)


def test_planes_that_no_longer_improve_the_gap_are_the_end():
    """float32 planes of rows at 1e6 differ by rounding alone."""
    X, codes = data()
    problem = HingeRisk(passes(X + 1e6, codes, np.full(N, 1e4)), OneVsRestTerms(2))
    solver = CuttingPlane(1e-3)
    state = run(solver, problem, stop=lambda state: solver.has_ended(state) or state.steps >= 400)
    assert state.steps < 400
    assert not solver.done(state)
    assert solver.has_ended(BundleState.from_arrays(state.to_arrays()))


@pytest.mark.parametrize("make", [lambda: hinge(3), lambda: logistic(0.5), pairs])
@pytest.mark.parametrize("method", ["ocas", "plain"])
@pytest.mark.parametrize("epsilon", [None, 1e-6])
def test_from_a_saved_state_it_goes_on_bit_by_bit(make, method, epsilon):
    solver, problem = CuttingPlane(1e-5, method, epsilon=epsilon), make()
    state = solver.init(problem)
    for _ in range(6):
        state = solver.step(problem, state)
    saved = {name: np.array(array) for name, array in state.to_arrays().items()}
    again = BundleState.from_arrays(saved)
    for _ in range(5):
        state, again = solver.step(problem, state), solver.step(problem, again)
    expected = state.to_arrays()
    for name, array in again.to_arrays().items():
        np.testing.assert_array_equal(array, expected[name])


@given(st.integers(0, 9999), st.integers(1, 30), st.integers(2, 5))
def test_thresholds_make_the_least_absolute_error(seed, n, k):
    rng = np.random.default_rng(seed)
    f, ranks, weight = rng.integers(0, 12, n) / 2, rng.integers(0, k, n), rng.integers(0, 3, n) * 1.0
    thresholds = rank_thresholds(f, ranks, k, weight)
    assert np.all(thresholds[1:] >= thresholds[:-1])
    borders = np.arange(-0.25, 6, 0.5)

    def wrong(r: int, threshold: float) -> float:
        return float(weight @ ((f > threshold) != (ranks > r)))

    for r in range(k - 1):
        assert wrong(r, thresholds[r]) == min(wrong(r, border) for border in borders)
    predicted = np.searchsorted(thresholds, f)
    assert weight @ np.abs(predicted - ranks) == pytest.approx(sum(wrong(r, thresholds[r]) for r in range(k - 1)))


@pytest.mark.parametrize("method", ["ocas", "plain"])
def test_where_memory_is_short_planes_become_one_and_the_optimum_is_the_same(method):
    found, most = [], []
    for planes in (None, 12):
        solver, counts = CuttingPlane(1e-5, method, most_planes=planes), list[int]()
        state = run(
            solver,
            hinge(C=3.0),
            stop=solver.has_ended,
            on_step=lambda state, counts=counts: counts.append(state.planes),
        )
        assert solver.done(state)
        found.append(state)
        most.append(max(counts))
    assert most[1] <= 12 < most[0]
    assert found[1].objective == pytest.approx(found[0].objective, rel=2e-5)
    assert found[1].bound <= found[0].objective


def test_planes_stay_in_their_space_as_some_come_and_go():
    """Copies of all sizes left gaps in memory. Planes are those of arrays that are stacked."""
    rng, spaces, expected = np.random.default_rng(0), set[int](), np.empty((0, 6), np.float32)
    bundle = Bundle(w=np.zeros(6), f=np.zeros(0), target=np.zeros(6))
    for step in range(200):
        a = rng.normal(size=6)
        bundle.add(np.zeros(6), 1.0, a)
        expected = np.vstack([expected, a.astype(np.float32)])
        if len(bundle.b) > 40:
            mask = rng.random(len(bundle.b)) < 0.8
            bundle._keep(mask)
            expected = expected[mask]
        spaces.add(bundle.A.__array_interface__["data"][0])
        np.testing.assert_array_equal(bundle.A, expected)
        assert len(bundle.A) == len(bundle.b) == len(bundle.H), step
    assert len(spaces) < 20
    [again] = BundleState.from_arrays(BundleState([bundle], 1).to_arrays()).columns
    for each in (bundle, again):
        each.add(np.zeros(6), 1.0, a)
    np.testing.assert_array_equal(again.A, bundle.A)
