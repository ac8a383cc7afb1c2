"""ALFPGM: its subproblem against a dense twin, its answer by certificate, the limiter, and its saved state."""

from __future__ import annotations

import numpy as np
import pytest
import reference
from pairwise import pairwise
from sklearn.datasets import load_breast_cancer
from sklearn.svm import SVR

from streamsvm.data.regroup import PartitionsInMemory
from streamsvm.data.rows import Rows
from streamsvm.data.samples import SamplesInMemory
from streamsvm.kernels.distance import RBF
from streamsvm.kernels.inner import Linear, Poly
from streamsvm.parallel.engine import Engine
from streamsvm.problems.dual import KernelDual, RepeatedDual
from streamsvm.problems.streamed import StreamedDual
from streamsvm.solvers import blockws, loop
from streamsvm.solvers.alfpgm import ALFPGM, ALFPGMState, WorkingSetDual, augmented_lagrangian, spectral_norm

KERNELS = {"rbf": RBF(1.0), "poly": Poly(0.5, 3, 1.0), "linear": Linear()}


def problem(n=240, kernel="rbf", C=1.0, seed=0) -> KernelDual:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 4)).astype(np.float32)
    y = np.where(X[:, 0] * X[:, 1] + 0.4 * rng.normal(size=n) > 0, 1.0, -1.0)
    return KernelDual(KERNELS[kernel], Rows(X), y, np.full(n, C))


def Q_of(p: KernelDual) -> np.ndarray:
    return p.y[:, None] * reference.kernel_matrix(p.kernel, p.rows.X, p.rows.X) * p.y


def solve(p, solver: ALFPGM, on_step=lambda state: None) -> ALFPGMState:
    return loop.run(
        solver,
        p,
        solver.init(p),
        stop=lambda s: solver.has_ended(s, 5000),
        on_step=on_step,
    )


def solver(**options) -> ALFPGM:
    return ALFPGM(1e-4, **({"block_rows": 40} | options))


@pytest.mark.parametrize("C", [0.1, 3.0])
@pytest.mark.parametrize("kernel", KERNELS)
def test_the_augmented_lagrangian_solves_a_block(kernel, C):
    p = problem(60, kernel, C)
    Q, zero = Q_of(p), np.zeros(60)
    L, mu = spectral_norm(Q, p.y), 0.1
    assert np.linalg.eigvalsh(Q)[-1] <= L
    mu = max(mu, L / 60)
    accuracy = 1e-5 * np.abs(Q).max()
    piece = WorkingSetDual(Q, p.upper, p.y, mu, L + 60 * mu)
    a, lam, fell = augmented_lagrangian(piece, zero, zero - 1, 0.0, accuracy)
    best, b = reference.solve_dual_with_bias(Q, p.upper, p.y)
    assert np.all((a >= 0) & (a <= p.upper))
    assert abs(p.y @ a) <= 1e-12 * a.sum()
    assert -fell == pytest.approx(reference.dual_objective(Q, best), rel=1e-4)
    assert reference.dual_objective(Q, a) == pytest.approx(-fell, rel=1e-9)
    if np.any((best > 0) & (best < p.upper)):
        assert lam == pytest.approx(-b, abs=1e-2 * np.abs(Q).max())


@pytest.mark.parametrize(
    ("subproblem", "shape", "candidates"),
    pairwise(["pairs", "fpg"], [("rbf", 0.1), ("rbf", 10.0), ("linear", 10.0), ("poly", 0.1)], [None, 15]),
)
def test_reaches_the_optimum_of_the_twin(subproblem, shape, candidates):
    kernel, C = shape
    p = problem(kernel=kernel, C=C)
    state = solve(p, solver(subproblem=subproblem, candidates=candidates))
    Q = Q_of(p)
    assert np.all((state.alpha >= 0) & (state.alpha <= p.upper))
    assert abs(p.y @ state.alpha) <= 1e-9 * state.alpha.sum()
    m, M = reference.levels(Q, state.alpha, p.upper, p.y)
    assert m - M <= 1e-3
    best, _ = reference.solve_dual_with_bias(Q, p.upper, p.y)
    assert blockws.objective(p, state) == pytest.approx(reference.dual_objective(Q, best), rel=1e-4)
    assert 0 <= blockws.duality_gap(p, state) <= 1e-3 * p.upper.sum()


def test_working_sets_are_pairs_and_free_rows_of_the_last_one():
    p, blocks = problem(C=10.0), []
    solve(p, solver(shrinking=False), lambda state: blocks.append(state))
    assert len(blocks) > 3
    for before, state in zip(blocks, blocks[1:], strict=False):
        carried = np.intersect1d(state.block, before.block)
        assert len(np.setdiff1d(state.block, before.block)) <= 20
        assert len(state.block) <= 40
        free = (before.alpha[before.block] > 0) & (before.alpha[before.block] < 10)
        assert len(carried) >= min(20, np.count_nonzero(free))


@pytest.mark.parametrize("limits", [{"least_uses": 1}, {"most_uses": 2}, {"least_uses": 2, "most_uses": 3}])
def test_what_the_limiter_leaves_out_comes_back(limits):
    p = problem(C=10.0)
    free, limited = solve(p, solver()), solve(p, solver(**limits))
    assert limited.releases > 0
    assert limited.violation <= 1e-4
    m, M = reference.levels(Q_of(p), limited.alpha, p.upper, p.y)
    assert m - M <= 1e-3
    assert blockws.objective(p, limited) == pytest.approx(blockws.objective(p, free), rel=1e-5)


def test_a_saved_state_goes_on_bit_by_bit():
    p, states = problem(600, C=10.0), []
    wanted = solve(p, solver(most_uses=3), states.append)
    for state in (states[0], states[len(states) // 2]):
        again = ALFPGMState.from_arrays({name: np.asarray(v) for name, v in state.to_arrays().items()})
        s = solver(most_uses=3)
        resumed = loop.run(s, p, again, stop=s.is_solved)
        np.testing.assert_array_equal(resumed.alpha, wanted.alpha)
        assert (resumed.bias, resumed.rounds) == (wanted.bias, wanted.rounds)


def test_shrunk_groups_are_saved_too():
    state = blockws.BlockState(
        np.ones(3),
        np.zeros(3),
        np.array([2]),
        shrunk=(
            blockws.ShrunkRows(np.array([0]), np.zeros(3)),
            blockws.ShrunkRows(np.array([1]), np.ones(3)),
        ),
        violation=0.5,
        rounds=7,
    )
    again = blockws.BlockState.from_arrays(state.to_arrays())
    assert (again.violation, again.rounds, again.bias) == (0.5, 7, 0.0)
    np.testing.assert_array_equal(again.active, [2])
    for group, wanted in zip(again.shrunk, state.shrunk, strict=True):
        np.testing.assert_array_equal(group.ids, wanted.ids)
        np.testing.assert_array_equal(group.alpha, wanted.alpha)


def test_rows_from_parts_give_the_same_answer():
    p = problem(C=10.0)
    groups = PartitionsInMemory(SamplesInMemory(p.rows), np.arange(240) % 5, 5)
    streamed = StreamedDual(p.kernel, groups, np.arange(240), p.y, p.upper, Engine(2))
    there, here = solve(streamed, solver()), solve(p, solver())
    assert blockws.objective(streamed, there) == pytest.approx(blockws.objective(p, here), rel=1e-5)


class TestRegression:
    @staticmethod
    def dual(n=200, epsilon=0.1) -> tuple[RepeatedDual, np.ndarray, np.ndarray]:
        rng = np.random.default_rng(0)
        X = rng.uniform(-2, 2, size=(n, 2)).astype(np.float32)
        t = np.sin(2 * X[:, 0]) + X[:, 1] + 0.1 * rng.normal(size=n)
        half = KernelDual(RBF(0.7), Rows(X), np.ones(n), np.full(n, 5.0))
        linear = np.concatenate([epsilon - t, epsilon + t])
        return RepeatedDual(half, np.repeat([1.0, -1.0], n), linear), X, t

    def test_products_are_those_of_the_doubled_matrix(self):
        dual, X, _ = self.dual()
        K = reference.kernel_matrix(RBF(0.7), X, X)
        Q = np.block([[K, -K], [-K, K]])
        rng = np.random.default_rng(1)
        ids, rows = rng.choice(400, 50, replace=False), np.sort(rng.choice(400, 120, replace=False))
        delta = rng.normal(size=50)
        np.testing.assert_allclose(dual.gram(ids), Q[np.ix_(ids, ids)], atol=1e-6)
        np.testing.assert_allclose(dual.apply(ids, delta), Q[:, ids] @ delta, atol=1e-5)
        for _ in range(2):
            np.testing.assert_allclose(dual.apply(ids, delta, rows), Q[np.ix_(rows, ids)] @ delta, atol=1e-5)

    @pytest.mark.parametrize("subproblem", ["pairs", "fpg"])
    @pytest.mark.parametrize("epsilon", [0.0, 0.1, 0.5])
    def test_agrees_with_libsvm(self, subproblem, epsilon):
        dual, X, t = self.dual(epsilon=epsilon)
        state = solve(dual, solver(subproblem=subproblem))
        svr = SVR(C=5.0, gamma=0.7, epsilon=epsilon, tol=1e-5).fit(X, t)
        coef = state.alpha[:200] - state.alpha[200:]
        K = reference.kernel_matrix(RBF(0.7), X, X)
        np.testing.assert_allclose(K @ coef + state.bias, svr.predict(X), atol=2e-3)
        assert 0 <= blockws.duality_gap(dual, state) <= 1e-4 * dual.upper.sum()


class TestAsPublished:
    """The method as published, against its steps in plain NumPy; with float64 values, as ties decide."""

    PAIRS, EPSILON, LIMITS = 10, 1e-2, {"least_uses": 5, "most_uses": 20}

    @staticmethod
    def breast_cancer(C=100.0) -> KernelDual:
        X, y = load_breast_cancer(return_X_y=True)
        X = ((X - X.min(axis=0)) / np.ptp(X, axis=0)).astype(np.float32)
        return KernelDual(RBF(float(1 / (30 * X.var()))), Rows(X), np.where(y > 0, 1.0, -1.0), np.full(len(y), C))

    def solver(self, **options) -> ALFPGM:
        published = {"subproblem": "fpg", "shrinking": False, "as_published": True, **self.LIMITS}
        return ALFPGM(self.EPSILON, 4 * self.PAIRS, **published | options)

    def test_takes_the_steps_of_the_twin(self):
        float32, s, states = self.breast_cancer(), self.solver(), []
        p = float32.in_float64()
        begin = s.init(p, np.random.default_rng(0).random(len(p.y)))  # at zero the levels of all rows are alike
        last = loop.run(s, p, begin, stop=s.is_solved, on_step=states.append)
        steps = [states[0], *(b for a, b in zip(states, states[1:], strict=False) if b.rounds > a.rounds)]
        twin = list(published_rounds(Q_of(float32), begin.alpha, p.y, 100.0, self.PAIRS, self.EPSILON, 5, 20))
        assert len(twin) == len(steps) > 20
        assert last.releases > 0
        for state, (block, alpha) in zip(steps, twin, strict=True):
            np.testing.assert_array_equal(state.block, block)
            np.testing.assert_allclose(state.alpha, alpha, atol=1e-7)

    def test_blocks_are_pairs_alone(self):
        blocks: list[ALFPGMState] = []
        solve(self.breast_cancer(), self.solver(), blocks.append)
        assert max(len(state.block) for state in blocks) == 2 * self.PAIRS

    def test_ends_at_the_solution_with_and_without_the_limiter(self):
        p = self.breast_cancer()
        wanted = blockws.objective(p, solve(p, ALFPGM(1e-4, 4 * self.PAIRS)))
        for limits in ({}, {"least_uses": None, "most_uses": None}):
            state = solve(p, self.solver(**limits))
            m, M = reference.levels(Q_of(p), state.alpha, p.upper, p.y)
            assert m - M <= self.EPSILON + 1e-3
            assert blockws.objective(p, state) == pytest.approx(wanted, rel=1e-3)


def published_rounds(Q, begin, y, C, pairs, epsilon, least_uses, most_uses, settled=1e-6, mu=0.1):
    """Algorithm 1 with pWSS and the MinMaxLimiter: (working set, alpha) after each round."""
    n = len(y)
    K = y[:, None] * Q * y
    alpha, uses, stalled, patience = begin.copy(), np.zeros(n, int), np.zeros(n, bool), 1
    while True:
        level = -y * (Q @ alpha - 1)
        up = np.where(y > 0, alpha < C, alpha > 0)
        low = np.where(y > 0, alpha > 0, alpha < C)
        out = ((uses >= least_uses * patience) & stalled) | (uses >= most_uses * patience)
        m, M = level[up & ~out].max(initial=-np.inf), level[low & ~out].min(initial=np.inf)
        if m - M <= epsilon:
            if not out.any():
                return
            uses, stalled, patience = np.zeros(n, int), np.zeros(n, bool), 2 * patience
            continue
        first = [i for i in np.argsort(-level, kind="stable") if up[i] and not out[i] and level[i] > M][:pairs]
        second = [j for j in range(n) if low[j] and not out[j] and level[j] < m and j not in first]
        block = []
        for i in first:  # (15)
            gains = {
                j: (level[i] - level[j]) ** 2 / max(K[i, i] + K[j, j] - 2 * K[i, j], 1e-12)
                for j in second
                if level[j] < level[i]
            }
            if gains:
                j = max(gains, key=gains.get)
                second.remove(j)
                block += [i, j]
        block = np.sort(block)
        before = alpha[block].copy()
        alpha[block] = published_block(Q, alpha, y, block, C, mu, 0.5 * epsilon, -0.5 * (m + M))
        uses[block] += 1
        a = alpha[block]
        stalled[block] = (np.abs(a - before) < settled) | (a <= 0) | (a >= C)
        yield block, alpha.copy()


def published_block(Q, alpha, y, block, C, mu, epsilon, lam):
    """Algorithm 2 from the working set's own variables, then the nearest point where y'a is as before."""
    a0, QB, yB = alpha[block], Q[np.ix_(block, block)], y[block]
    linear = (Q @ alpha - 1)[block] - QB @ a0
    L = spectral_norm(QB, yB) + mu * len(block)  # (16)
    a = a0.copy()

    def slope(a):
        return QB @ a + linear - lam * yB + mu * (yB @ (a - a0)) * yB

    for _ in range(50):
        ahead, t = a, 1.0
        for _ in range(1000):
            new = np.clip(ahead - slope(ahead) / L, 0, C)
            faster = (1 + np.sqrt(1 + 4 * t * t)) / 2
            ahead, a, t = new + (t - 1) / faster * (new - a), new, faster
            s = slope(a)
            residual = np.maximum(np.where(a > 0, s, 0), np.where(a < C, -s, 0)).max()  # (10), (11)
            if residual < epsilon:
                break
        h = yB @ (a - a0)
        lam -= mu * h  # (9)
        if abs(h) < epsilon and residual < epsilon:
            break
    low, high = -C - abs(h), C + abs(h)
    for _ in range(100):
        shift = (low + high) / 2
        low, high = (shift, high) if yB @ np.clip(a - shift * yB, 0, C) > yB @ a0 else (low, shift)
    return np.clip(a - high * yB, 0, C)
