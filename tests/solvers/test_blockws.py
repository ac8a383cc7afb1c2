"""The exact dual solver against the dense twin, by certificate and from every kind of start."""

from __future__ import annotations

import bz2
import itertools
from dataclasses import replace

import numpy as np
import pytest
import reference
from pairwise import pairwise
from scipy import sparse
from scipy.spatial.distance import pdist
from sklearn.datasets import load_breast_cancer
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from streamsvm.data.rows import Rows
from streamsvm.kernels.distance import RBF
from streamsvm.kernels.inner import Linear, Poly
from streamsvm.problems.dual import KernelDual
from streamsvm.solvers import blockws, descent, loop
from streamsvm.solvers.blockws import BlockSolver, BlockState
from streamsvm.solvers.descent import block_descent

KERNELS = {
    "rbf": RBF(1.0),
    "narrow": RBF(50.0),
    "wide": RBF(0.05),
    "poly": Poly(0.5, 3, 1.0),
    "linear": Linear(),
}


def problem(n=300, kernel="rbf", C=1.0, seed=0, layout="dense", d=4) -> KernelDual:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)).astype(np.float32)
    y = np.where(X[:, 0] * X[:, 1] + 0.4 * rng.normal(size=n) > 0, 1.0, -1.0)
    rows = Rows(sparse.csr_array(np.where(np.abs(X) > 0.5, X, 0)) if layout == "csr" else X)
    return KernelDual(KERNELS[kernel], rows, y, np.full(n, C))


def Q_of(p: KernelDual) -> np.ndarray:
    return p.y[:, None] * reference.kernel_matrix(p.kernel, p.rows.X, p.rows.X) * p.y


def solve(p: KernelDual, tol=1e-3, block_rows=blockws.BLOCK, alpha=None, max_rounds=20_000, bias=False):
    solver = BlockSolver(tol, block_rows, bias)
    return loop.run(
        solver,
        p,
        solver.init(p, alpha),
        stop=lambda s: solver.has_ended(s, max_rounds),
    )


def check(p: KernelDual, state, tol=1e-3) -> None:
    """In the box, within tol of the KKT conditions, 1e-4 of the twin's optimum, and an honest gap."""
    Q = Q_of(p)
    assert np.all((state.alpha >= 0) & (state.alpha <= p.upper))
    assert reference.kkt_violation(Q, state.alpha, p.upper) <= 1.1 * tol
    best = reference.dual_objective(Q, reference.solve_dual(Q, p.upper))
    assert reference.dual_objective(Q, state.alpha) == pytest.approx(best, rel=1e-4, abs=1e-9)
    assert blockws.objective(p, state) == pytest.approx(best, rel=1e-4, abs=1e-9)
    gap = blockws.duality_gap(p, state)
    assert gap == pytest.approx(reference.duality_gap(Q, state.alpha, p.upper), abs=1e-4 * abs(best) + 1e-9)
    assert 0 <= gap <= tol * p.upper.sum()


def check_bias(p: KernelDual, state, tol=1e-3) -> None:
    """In the box with y'a = 0, m - M <= tol, 1e-4 of the twin's optimum, its b, and an honest gap."""
    Q, scale = Q_of(p), float(p.upper.sum())
    assert np.all((state.alpha >= 0) & (state.alpha <= p.upper))
    assert abs(p.y @ state.alpha) <= 1e-9 * state.alpha.sum()
    m, M = reference.levels(Q, state.alpha, p.upper, p.y)
    assert m - M <= 1.1 * tol
    assert min(m, M) - tol <= state.bias <= max(m, M) + tol
    a, b = reference.solve_dual_with_bias(Q, p.upper, p.y)
    best = reference.dual_objective(Q, a)
    assert reference.dual_objective(Q, state.alpha) == pytest.approx(best, rel=1e-4, abs=1e-9)
    assert blockws.objective(p, state) == pytest.approx(best, rel=1e-4, abs=1e-9)
    if np.any((a > 0) & (a < p.upper)):
        assert state.bias == pytest.approx(b, abs=1e-2)
    hinge = p.upper @ np.maximum(1 - Q @ state.alpha - p.y * state.bias, 0)
    gap = hinge + 0.5 * state.alpha @ Q @ state.alpha + reference.dual_objective(Q, state.alpha)
    assert blockws.duality_gap(p, state) == pytest.approx(gap, abs=1e-4 * abs(best) + 1e-9)
    assert -1e-9 * scale <= blockws.duality_gap(p, state) <= tol * scale


@pytest.mark.parametrize("layout", ["dense", "csr"])
@pytest.mark.parametrize("kernel", KERNELS)
def test_reaches_the_optimum_of_the_twin(kernel, layout):
    p = problem(kernel=kernel, layout=layout)
    check(p, blockws.solve(p, tol=1e-3))


@pytest.mark.parametrize("C", [1e-4, 0.1, 100.0])
def test_small_and_large_C(C):
    p = problem(C=C)
    check(p, blockws.solve(p, tol=1e-3))


def test_tiny_C_puts_every_row_at_its_bound():
    p = problem(C=1e-6)
    np.testing.assert_array_equal(blockws.solve(p, tol=1e-3).alpha, p.upper)


@pytest.mark.parametrize("block_rows", [8, 32, 128])
def test_small_blocks_with_and_without_shrinking_agree(block_rows):
    """Shrinking starts above two blocks of rows: 300 rows shrink with all of these."""
    p = problem(C=10.0, kernel="narrow")
    check(p, solve(p, block_rows=block_rows))


@pytest.mark.parametrize("bias", [False, True])
def test_shrinking_happens_and_is_undone(monkeypatch, bias):
    p, seen = problem(n=600, C=1.0), []
    original = BlockSolver._shrink

    def spy(self, problem, state):
        shrunk = original(self, problem, state)
        seen.append(len(shrunk.shrunk))
        return shrunk

    monkeypatch.setattr(BlockSolver, "_shrink", spy)
    state = solve(p, block_rows=32, bias=bias)
    assert max(seen) > 0
    assert state.active is None
    assert state.shrunk == ()
    (check_bias if bias else check)(p, state)


def test_sub_blocks_of_a_large_block():
    p = problem(n=1100, C=5.0)
    assert len(p.y) > 2 * blockws.SUBBLOCK
    check(p, blockws.solve(p, tol=1e-3))


def test_warm_start_reaches_the_same_optimum_in_fewer_rounds():
    p = problem(n=500, C=10.0)
    cold = solve(p, block_rows=64)
    start = cold.alpha * np.random.default_rng(1).choice([0.95, 1.0], len(p.y))
    warm = solve(p, block_rows=64, alpha=start)
    assert warm.rounds < cold.rounds
    check(p, warm)
    assert solve(p, block_rows=64, alpha=cold.alpha).rounds == 0


def test_start_outside_the_box_is_clipped():
    p = problem(n=100)
    check(p, blockws.solve(p, np.linspace(-3, 5, 100), tol=1e-3))


def test_rows_with_zero_upper_bound_stay_out():
    p = problem()
    p.upper[::3] = 0.0
    state = blockws.solve(p, tol=1e-3)
    assert not state.alpha[::3].any()
    check(p, state)
    members = np.flatnonzero(p.upper)
    small = KernelDual(p.kernel, p.rows.take(members), p.y[members], p.upper[members])
    alone = blockws.objective(small, blockws.solve(small, tol=1e-3))
    assert alone == pytest.approx(blockws.objective(p, state), rel=1e-4)


def test_different_bounds_per_row():
    p = problem()
    p.upper[:] = np.random.default_rng(0).uniform(0.01, 5, len(p.y))
    check(p, blockws.solve(p, tol=1e-3))


@pytest.mark.parametrize("C", [1.0, 30.0])
def test_duplicates_with_opposite_labels(C):
    half = problem(n=120, C=C)
    rows = Rows(np.concatenate([half.rows.X, half.rows.X]))
    p = KernelDual(half.kernel, rows, np.concatenate([half.y, -half.y]), np.full(240, C))
    state = blockws.solve(p, tol=1e-3)
    check(p, state)
    # no function tells them apart: f = 0, every row loses 1
    np.testing.assert_allclose(state.alpha, C)


@pytest.mark.parametrize("side", [-1.0, 1.0])
def test_rows_of_one_class_only(side):
    p = problem(n=90)
    p.y[:] = side
    check(p, blockws.solve(p, tol=1e-3))


@pytest.mark.parametrize("n", [1, 2, 3])
def test_very_few_rows(n):
    p = problem(n=n)
    check(p, blockws.solve(p, tol=1e-3))


def test_zero_rows_under_the_linear_kernel_are_losses_at_the_bound():
    """K(x, x) = 0: the coordinate has no curvature and goes to its bound."""
    p = problem(n=60, kernel="linear")
    p.rows.X[:5] = 0
    p = KernelDual(p.kernel, Rows(p.rows.X.copy()), p.y, p.upper)
    state = blockws.solve(p, tol=1e-3)
    np.testing.assert_array_equal(state.alpha[:5], p.upper[:5])
    check(p, state)


@pytest.mark.parametrize("tol", [0.1, 1e-2, 1e-4])
def test_tolerance_is_kept(tol):
    p = problem(C=10.0)
    state = blockws.solve(p, tol=tol)
    assert reference.kkt_violation(Q_of(p), state.alpha, p.upper) <= 1.1 * tol


def test_steps_report_the_violation_and_lower_the_objective():
    p, solver, objectives = problem(n=400, C=10.0), BlockSolver(1e-3, 256), []
    state = solver.init(p)
    Q = Q_of(p)
    while not solver.is_solved(state):
        objectives.append(reference.dual_objective(Q, state.alpha))
        assert state.violation == pytest.approx(reference.kkt_violation(Q, state.alpha, p.upper), abs=1e-4)
        state = solver.step(p, state)
    assert np.all(np.diff(objectives) < 1e-6)


def test_out_of_rounds_is_the_last_state():
    p = problem(C=100.0)
    state = blockws.solve(p, tol=1e-12, max_rounds=5)
    assert state.rounds == 5
    assert not BlockSolver(1e-12).is_solved(state)
    assert blockws.duality_gap(p, state) < 1e-3 * abs(blockws.objective(p, state))


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(("n", "size"), [(200, 200), (600, 128)])
def test_a_block_that_cannot_reach_its_tolerance_ends_where_it_gains_nothing(n, size, bias):
    """All that it gains comes from the first sub-blocks; a hundred thousand would take minutes."""
    p = problem(n=n, C=1e4)
    y = p.y.astype(np.float32) if bias else None
    Q, upper = p.gram(np.arange(n)).copy(), p.upper.astype(np.float64 if bias else np.float32)

    def ended(tol: float, objective: float) -> tuple[int, float]:
        g, a = np.full(n, -1, np.float32), np.zeros_like(upper)
        taken = block_descent(Q, g, a, upper, y, None, (np.float32(tol), size, 100_000, objective))
        return taken, reference.dual_objective(Q.astype(np.float64), a.astype(np.float64))

    solved = ended(1e-3, 0.0)
    for objective in (0.0, solved[1]):
        taken, found = ended(1e-30, objective)
        assert solved[0] <= taken < 5000
        assert found == pytest.approx(solved[1], rel=1e-5)


def twins(pairs: int, C: float) -> KernelDual:
    """Rows that come in pairs of nearly the same, some of which have opposite labels."""
    rng = np.random.default_rng(0)
    X = np.repeat(rng.normal(size=(pairs, 4)), 2, axis=0) + 0.01 * rng.normal(size=(2 * pairs, 4))
    y = np.where(X[:, 0] * X[:, 1] > 0, 1.0, -1.0)
    y[rng.random(2 * pairs) < 0.1] *= -1
    return KernelDual(RBF(1.0), Rows(X.astype(np.float32)), y, np.full(2 * pairs, C))


@pytest.mark.parametrize("block_rows", [64, 128])
def test_near_twins_meet_in_a_block(block_rows):
    """Where each enters in turn to undo what the other gained, it takes 2,000 and 1,000 rounds."""
    p = twins(300, C=1000.0)
    state = solve(p, block_rows=block_rows)
    assert state.violation <= 1e-3
    assert state.rounds <= 300
    np.testing.assert_array_equal(BlockState.from_arrays(state.to_arrays()).recent, state.recent)


def test_a_state_saved_without_recent_violations_goes_on():
    p, solver = twins(100, C=10.0), BlockSolver(1e-3, 32)
    arrays = solver.solve(p, solver.init(p), max_rounds=5).to_arrays()
    del arrays["recent"]
    state = solver.solve(p, BlockState.from_arrays(arrays))
    assert solver.is_solved(state)


def test_descent_moves_two_rows_where_one_alone_gets_nowhere():
    """Each of two rows with K = 1 - 1e-3 and opposite labels would move the other by a thousandth of its way."""
    rng = np.random.default_rng(0)
    A = rng.normal(size=(10, 4))
    X = np.concatenate([A, A + 0.016 * rng.normal(size=(10, 4))]).astype(np.float32)
    p = KernelDual(RBF(1.0), Rows(X), np.repeat([1.0, -1.0], 10), np.full(20, 1e3))
    Q, upper = p.gram(np.arange(20)).copy(), p.upper.astype(np.float32)
    g, a = np.full(20, -1, np.float32), np.zeros(20, np.float32)
    block_descent(Q, g, a, upper, None, None, (np.float32(1e-2), 20, 8, 0.0))
    assert reference.kkt_violation(Q.astype(np.float64), a.astype(np.float64), p.upper) <= 1.1e-2
    best = reference.dual_objective(Q, reference.solve_dual(Q.astype(np.float64), p.upper))
    assert reference.dual_objective(Q, a) == pytest.approx(best, rel=1e-3)


def test_the_best_of_two_rows_is_no_worse_than_any_on_a_grid():
    rng = np.random.default_rng(0)
    for _ in range(200):
        q = rng.uniform(-1, 1)
        Q, g, upper = np.array([[1.0, q], [q, 1.0]]), rng.normal(size=2), rng.uniform(0.1, 2, 2)
        a = upper * rng.choice([0.0, 0.3, 1.0], 2)
        arrays = (each.astype(np.float32) for each in (np.diag(Q), g, a, upper))
        best = descent._best_pair.py_func(descent.SubBlockVariables(*arrays), 0, 1, np.float32(q))
        grid = np.stack(np.meshgrid(*(np.linspace(0, u, 101) for u in upper)), axis=-1).reshape(-1, 2)
        change = np.vstack([grid, best]) - a
        values = change @ g + 0.5 * np.sum(change @ Q * change, axis=1)
        assert np.all((np.array(best) >= 0) & (best <= upper * (1 + 1e-6)))
        assert values[-1] <= values[:-1].min() + 1e-5


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("kernel", ["rbf", "linear", "poly"])
def test_what_no_step_improves_is_the_end(bias, kernel):
    p, tol = problem(n=200, kernel=kernel, C=10.0), 1e-30
    state = blockws.solve(p, tol=tol, bias=bias)
    assert state.is_rounded
    assert not state.shrunk
    assert tol < state.violation < 1e-3
    assert state.in_float64
    assert blockws.duality_gap(p, state) < 1e-4 * abs(blockws.objective(p, state))
    assert BlockState.from_arrays(state.to_arrays()).is_rounded


class Stuck(BlockSolver):
    """Blocks of active rows never move while some rows are left out, as if float32 lost all steps."""

    def solve_block(self, problem, state, block):
        new, moved = super().solve_block(problem, state, block)
        if state.shrunk:
            return state.alpha[block], np.zeros(len(block), bool)
        return new, moved


@pytest.mark.parametrize("bias", [False, True])
def test_a_stall_of_the_active_rows_goes_on_with_all(bias):
    p, violations = problem(n=600, C=10.0), []
    solver = Stuck(1e-3, 32, bias)
    state = solver.solve(p, solver.init(p), on_step=lambda s: violations.append(s.shrinks_below))
    assert solver.is_solved(state)
    stalls = [below for below in dict.fromkeys(violations) if np.isfinite(below)]
    assert stalls
    assert all(late <= 0.5 * early for early, late in itertools.pairwise(stalls))
    whole = blockws.solve(p, tol=1e-3, bias=bias)
    assert blockws.objective(p, state) == pytest.approx(blockws.objective(p, whole), rel=1e-4)


class Idle(BlockSolver):
    """Each step but the first is undone, and the gradient does not show it: nothing is ever gained."""

    def solve_block(self, problem, state, block):
        new, moved = super().solve_block(problem, state, block)
        return (new, moved) if state.rounds == 0 else (np.nextafter(state.alpha[block], -state.rounds % 2), moved)


def test_steps_that_gain_nothing_are_the_end():
    p = problem(n=300, C=10.0)
    solver = Idle(1e-6, 64)
    state = solver.solve(p, solver.init(p), max_rounds=5000)
    assert state.is_rounded
    assert blockws.MOST_IDLE < state.rounds < 5000


@pytest.mark.parametrize(("n", "C"), [(20, 1e5), (60, 1e4), (60, 3e4)])
def test_coefficients_too_large_for_float32_are_solved_in_float64(n, C):
    """Steps of less than 2^-24 of a coefficient are lost in float32: what no longer moves would never reach tol."""
    p = problem(n=n, kernel="linear", C=C)
    state = blockws.solve(p, tol=1e-3, max_rounds=300)
    assert state.in_float64
    assert BlockState.from_arrays(state.to_arrays()).in_float64
    assert reference.kkt_violation(Q_of(p), state.alpha, p.upper) <= 1.001e-3
    assert blockws.objective(p, state) == pytest.approx(reference.dual_objective(Q_of(p), state.alpha), rel=1e-9)


def test_a_problem_beyond_reach_ends_with_its_last_state(monkeypatch):
    """K of a polynomial far from the origin has a condition number of 1e16 and more."""
    monkeypatch.setattr(blockws, "MOST_UNSOLVED", 2)  # 50 take as long as it may wait: seconds
    p = problem(n=200, C=100.0)
    p = KernelDual(Poly(0.25, 2, 1.0), Rows(p.rows.X + 1000), p.y, p.upper)
    state = blockws.solve(p, tol=1e-3, bias=True)
    assert state.is_rounded
    assert state.in_float64
    assert state.rounds < 20
    assert blockws.objective(p, state) < 0


@pytest.mark.parametrize("bias", [False, True])
def test_a_certificate_that_float32_cannot_give_holds_in_float64(bias):
    p = problem(n=200, kernel="wide", C=3e3)
    state = blockws.solve(p, tol=1e-3, bias=bias)
    Q = Q_of(p)
    if bias:
        m, M = reference.levels(Q, state.alpha, p.upper, p.y)
        assert m - M <= 1.5e-3
    else:
        assert reference.kkt_violation(Q, state.alpha, p.upper) <= 1.5e-3


def test_coefficients_that_float32_resolves_stay_in_float32():
    assert not blockws.solve(problem(n=400, C=10.0), tol=1e-3).in_float64


def libsvm_rows(path, n: int, d: int) -> tuple[np.ndarray, np.ndarray]:
    X, y = np.zeros((n, d), np.float32), np.empty(n)
    with bz2.open(path, "rt") as lines:
        for i, line in zip(range(n), lines, strict=False):
            label, *entries = line.split()
            y[i] = float(label)
            for entry in entries:
                index, value = entry.split(":")
                X[i, int(index) - 1] = float(value)
    return X, np.where(y > 0, 1.0, -1.0)


@pytest.mark.parametrize(("name", "d", "gamma", "C"), [("ijcnn1.bz2", 22, 2.0, 32.0), ("a9a.bz2", 123, 1 / 32, 8.0)])
def test_real_data(shared_data, name, d, gamma, C):
    X, y = libsvm_rows(shared_data(name), 300, d)
    p = KernelDual(RBF(gamma), Rows(X), y, np.full(len(y), C))
    state = blockws.solve(p, tol=1e-3)
    check(p, state)
    p.rows = Rows(sparse.csr_array(X))
    of_sparse = blockws.objective(p, blockws.solve(p, tol=1e-3))
    assert of_sparse == pytest.approx(blockws.objective(p, state), rel=1e-5)


@pytest.mark.parametrize("C", [1e-4, 0.1, 10.0])
@pytest.mark.parametrize("kernel", KERNELS)
def test_with_bias_reaches_the_optimum_of_the_twin(kernel, C):
    p = problem(n=150, kernel=kernel, C=min(C, 1.0) if kernel == "poly" else C)
    check_bias(p, blockws.solve(p, tol=1e-3, bias=True))


def test_without_bias_there_is_none():
    assert blockws.solve(problem(), tol=1e-3).bias == 0.0


@pytest.mark.parametrize("block_rows", [8, 32, 128])
def test_small_blocks_with_bias_agree(block_rows):
    p = problem(C=10.0, kernel="narrow")
    check_bias(p, solve(p, block_rows=block_rows, bias=True))


def test_sub_blocks_of_a_large_block_with_bias():
    p = problem(n=1100, C=5.0)
    assert len(p.y) > 2 * blockws.SUBBLOCK
    check_bias(p, blockws.solve(p, tol=1e-3, bias=True))


def cancer(unbalanced: bool) -> tuple[np.ndarray, np.ndarray]:
    """Wisconsin breast cancer, standardised; unbalanced: 30 of its 212 malignant rows."""
    X, target = load_breast_cancer(return_X_y=True)
    X, y = StandardScaler().fit_transform(X).astype(np.float32), np.where(target == 1, 1.0, -1.0)
    members = np.sort(np.r_[np.flatnonzero(y > 0), np.flatnonzero(y < 0)[: 30 if unbalanced else None]])
    return X[members], y[members]


@pytest.mark.parametrize(
    ("kernel", "C", "unbalanced", "weighted"),
    pairwise([RBF(1 / 30), Linear()], [0.01, 1.0, 50.0], [False, True], [False, True]),
    ids=str,
)
def test_libsvm_agrees(kernel, C, unbalanced, weighted):
    X, y = cancer(unbalanced)
    weight = np.random.default_rng(0).uniform(0.1, 3, len(y)) if weighted else np.ones(len(y))
    p = KernelDual(kernel, Rows(X), y, C * weight)
    state = solve(p, tol=1e-4, block_rows=100, bias=True)
    svc = SVC(C=C, kernel=kernel.name, gamma=kernel.to_attrs().get("gamma", 1.0), tol=1e-4).fit(X, y, weight)
    a = np.zeros(len(y))
    a[svc.support_] = np.abs(svc.dual_coef_[0])
    assert blockws.objective(p, state) == pytest.approx(reference.dual_objective(Q_of(p), a), rel=3e-5)
    assert state.bias == pytest.approx(svc.intercept_[0], abs=1e-2)
    assert abs(p.y @ state.alpha) <= 1e-9 * state.alpha.sum()
    assert 0 <= blockws.duality_gap(p, state) <= 1e-4 * p.upper.sum()


def test_bias_of_a_solution_is_the_mean_over_free_support_vectors():
    p = problem(n=200)
    state = blockws.solve(p, tol=1e-3, bias=True)
    free = (state.alpha > 0) & (state.alpha < p.upper)
    assert state.bias == pytest.approx(np.mean(-p.y[free] * state.gradient[free]), abs=1e-12)


def test_infeasible_start_with_bias_is_made_feasible():
    p = problem(n=300, C=10.0)
    start = np.random.default_rng(0).uniform(-5, 15, len(p.y)) * (1 + (p.y > 0))
    solver = BlockSolver(1e-3, bias=True)
    state = solver.init(p, start)
    assert np.all((state.alpha >= 0) & (state.alpha <= p.upper))
    assert abs(p.y @ state.alpha) <= 1e-12 * state.alpha.sum()
    np.testing.assert_allclose(state.gradient, Q_of(p) @ state.alpha - 1, atol=1e-2)
    check_bias(p, solve(p, alpha=start, bias=True))
    check_bias(p, solve(p, alpha=np.where(p.y > 0, start, 0.0), bias=True))  # nothing of one class


def test_warm_start_with_bias_reaches_the_same_optimum_in_fewer_rounds():
    p = problem(n=500, C=10.0)
    cold = solve(p, block_rows=64, bias=True)
    start = cold.alpha * np.random.default_rng(1).choice([0.95, 1.0], len(p.y))
    warm = solve(p, block_rows=64, alpha=start, bias=True)
    assert warm.rounds < cold.rounds
    check_bias(p, warm)
    for same in (cold.alpha, cold.alpha.astype(np.float32)):
        assert solve(p, block_rows=64, alpha=same, bias=True).rounds == 0


def test_different_bounds_per_row_with_bias():
    p = problem()
    p.upper[:] = np.random.default_rng(0).uniform(0.01, 5, len(p.y))
    p.upper[::3] = 0.0
    state = blockws.solve(p, tol=1e-3, bias=True)
    assert not state.alpha[::3].any()
    check_bias(p, state)


@pytest.mark.parametrize("side", [-1.0, 1.0])
def test_rows_of_one_class_with_bias_are_all_bias(side):
    p = problem(n=90)
    p.y[:] = side
    state = blockws.solve(p, tol=1e-3, bias=True)
    assert not state.alpha.any()
    assert state.bias == side
    assert blockws.duality_gap(p, state) == 0.0


@pytest.mark.parametrize("n", [1, 2, 3])
def test_very_few_rows_with_bias(n):
    p = problem(n=n)
    check_bias(p, blockws.solve(p, tol=1e-3, bias=True))


def test_no_row_may_move():
    p = problem(n=20, C=0.0)
    assert blockws.solve(p, tol=1e-3, bias=True).bias == 0.0


def test_pairs_without_curvature_go_to_their_bounds():
    """Duplicates with opposite labels, and zero rows under the linear kernel."""
    half = problem(n=60)
    rows = Rows(np.concatenate([half.rows.X, half.rows.X]))
    p = KernelDual(half.kernel, rows, np.concatenate([half.y, -half.y]), np.full(120, 3.0))
    np.testing.assert_allclose(blockws.solve(p, tol=1e-3, bias=True).alpha, 3.0)
    X = np.where(np.arange(60)[:, None] < 10, 0, half.rows.X[:, :2]).astype(np.float32)
    p = KernelDual(KERNELS["linear"], Rows(X), half.y, half.upper)
    check_bias(p, blockws.solve(p, tol=1e-3, bias=True))


@pytest.mark.parametrize("block_rows", [16, 64])
def test_rows_in_runs_of_one_class_with_bias(block_rows):
    """Blocks of few rows: each still has a pair to move."""
    p = problem(n=300, C=10.0)
    check_bias(p, solve(p, block_rows=block_rows, bias=True))
    p.y[:] = np.where(np.arange(300) // 30 % 2 == 0, 1.0, -1.0)
    check_bias(p, solve(p, block_rows=block_rows, bias=True))


def test_steps_with_bias_keep_the_constraint_and_lower_the_objective():
    p, solver, objectives = problem(n=400, C=10.0), BlockSolver(1e-3, 64, bias=True), []
    state = solver.init(p)
    Q = Q_of(p)
    while not solver.is_solved(state):
        objectives.append(reference.dual_objective(Q, state.alpha))
        assert abs(p.y @ state.alpha) <= 1e-10 * (1 + state.alpha.sum())
        if state.active is None:
            m, M = reference.levels(Q, state.alpha, p.upper, p.y)
            assert state.violation == pytest.approx(m - M, abs=1e-4)
        state = solver.step(p, state)
    assert np.all(np.diff(objectives) < 1e-6)


def test_classes_one_after_the_other_with_bias():
    """All of the first sub-block's candidates tie; rows of one class alone could not move."""
    p = problem(n=2600, C=5.0)
    order = np.argsort(p.y, kind="stable")
    p = KernelDual(p.kernel, Rows(p.rows.X[order]), p.y[order], p.upper[order])
    assert np.count_nonzero(p.y < 0) > 2 * blockws.SUBBLOCK
    state = blockws.solve(p, tol=1e-3, bias=True)
    assert state.violation <= 1e-3
    assert blockws.duality_gap(p, state) <= 1e-3 * p.upper.sum()


@pytest.mark.parametrize("bias", [False, True])
def test_gradients_do_not_drift(bias):
    p = problem(n=1500, C=1e4, kernel="narrow")
    state = blockws.solve(p, tol=1e-4, bias=bias)
    support = np.flatnonzero(state.alpha)
    exact = p.in_float64().apply(support, state.alpha[support]) + p.linear
    np.testing.assert_allclose(state.gradient, exact, atol=5e-5)
    assert np.all(np.isin(np.flatnonzero((state.alpha > 0) | (exact < 1e-4)), state.refreshed))
    assert not state.in_float64  # the few steps from there on need no more


def test_errors_of_float32_are_mended_without_float64_for_good():
    """Rows far from the origin, whose products miss tol by far, at the start of a solver, too."""
    near = problem(n=1500)
    p = KernelDual(RBF(2.0), Rows(near.rows.X + 8), near.y, np.full(1500, 100.0))
    state = blockws.solve(p, tol=1e-3)
    support = np.flatnonzero(state.alpha)
    rounded = blockws.violations(state.alpha, p.apply(support, state.alpha[support]) + p.linear, p.upper)
    exact = blockws.violations(state.alpha, p.in_float64().apply(support, state.alpha[support]) + p.linear, p.upper)
    assert exact.max() <= 1e-3 < 0.1 * rounded.max()
    assert not state.in_float64
    assert BlockSolver(1e-3).init(p, state.alpha).violation <= 1e-3


@pytest.mark.parametrize("n", [10, 1000])
def test_rows_that_fit_in_a_block_take_one_round(n):
    p = problem(n)
    state = solve(p)
    check(p, state)
    assert state.rounds == 1


def moved(bias: bool = False) -> tuple[KernelDual, BlockSolver, BlockState]:
    """A solved problem most of whose free rows violate again: its bias is another one; or, where the solver sets the
    bias, its coefficients are nine tenths of what they were."""
    p, solver = problem(n=200, kernel="narrow", C=8.0), BlockSolver(1e-3, 16, bias)
    solved = solver.solve(p, solver.init(p))
    if bias:
        return p, solver, solver.init(p, 0.9 * solved.alpha)
    return p, solver, solver.queued(p, solver.measured(p, replace(solved, bias=0.3)))


def test_sweeps_take_every_free_row_with_its_neighbours_then_the_worst_rows():
    p, solver, state = moved()
    free = np.flatnonzero(blockws.free_rows(p, state, np.arange(200)))
    counts = np.bincount(state.queue, minlength=200)
    assert len(free) > blockws.SWEPT_BLOCKS * 16
    assert np.all(counts[free] == blockws.SWEEPS)
    distance = np.linalg.norm(np.diff(p.rows.X[state.queue], axis=0), axis=1)
    assert np.median(distance) < 0.8 * np.median(pdist(p.rows.X))
    after = solver.step(p, state)
    np.testing.assert_array_equal(after.block, np.sort(state.queue[:16]))
    state = solver.solve(p, after)
    assert not len(state.queue)
    assert solver.is_solved(state)
    unswept = solver.at_bias(p, np.zeros(200), 0.3)
    expected = blockws.objective(p, solver.solve(p, unswept))
    assert blockws.objective(p, state) == pytest.approx(expected, rel=1e-5)


def test_a_swept_block_that_violates_nothing_is_left_out():
    p, solver, state = moved()
    first, rest = state.queue[:16], state.queue[16:]
    p.upper = p.upper.copy()
    p.upper[first] = 0.0
    state = replace(state, alpha=np.minimum(state.alpha, p.upper))
    after = solver.step(p, replace(state, queue=np.concatenate([first, rest[:32]])))
    np.testing.assert_array_equal(after.block, np.sort(rest[:16]))
    np.testing.assert_array_equal(after.queue, rest[16:32])


@pytest.mark.parametrize("bias", [False, True])
def test_a_swept_block_that_gains_nothing_is_passed(monkeypatch, bias):
    """Rounding alone stops it; it says nothing of the blocks that follow. With a bias it may even move."""
    p, solver, state = moved(bias)
    violations = []

    def solve_block(self, problem, state, block):
        violations.append(blockws.row_violations(problem, state, block).max())
        return state.alpha[block] + 1e-9 * state.gradient[block], np.full(len(block), bias)  # uphill

    with monkeypatch.context() as patch:
        patch.setattr(BlockSolver, "solve_block", solve_block)
        after = solver.step(p, state)
    assert violations[0] > solver.row_tol
    np.testing.assert_array_equal(after.queue, state.queue[16:])
    np.testing.assert_array_equal(after.alpha, state.alpha)
    assert not after.is_rounded
    assert not after.in_float64
    assert solver.is_solved(solver.solve(p, after))


def test_a_sweep_goes_on_from_a_checkpoint():
    p, solver, state = moved()
    state = solver.step(p, state)
    again = BlockState.from_arrays({name: np.asarray(value) for name, value in state.to_arrays().items()})
    assert len(again.queue)
    np.testing.assert_array_equal(solver.step(p, again).alpha, solver.step(p, state).alpha)
    np.testing.assert_array_equal(solver.solve(p, again).alpha, solver.solve(p, state).alpha)


@pytest.mark.parametrize("layout", ["csr", "few"])
def test_no_sweep_without_neighbours_or_for_few_rows(layout):
    p, solver = problem(n=200, layout="csr" if layout == "csr" else "dense", C=8.0), BlockSolver(1e-3, 16)
    solved = solver.solve(p, solver.init(p))
    wide = replace(solver, block_rows=200 if layout == "few" else 16)
    assert not len(wide.queued(p, wide.measured(p, replace(solved, bias=0.3))).queue)
