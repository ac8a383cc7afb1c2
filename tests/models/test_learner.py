"""Budgeted SGD against its twin on vectors, block by block against row by row, and its bookkeeping."""

from __future__ import annotations

from itertools import product
from unittest import mock

import numba
import numpy as np
import pytest
import reference
from hypothesis import given, settings
from hypothesis import strategies as st
from pairwise import pairwise
from scipy import sparse
from sklearn.datasets import load_breast_cancer

from streamsvm.data.rows import Rows
from streamsvm.kernels.base import Kernel
from streamsvm.kernels.distance import RBF
from streamsvm.kernels.inner import Linear, Poly
from streamsvm.models.learner import NARROW, BudgetLearner, BudgetOptions, together
from streamsvm.solvers.budget import merge
from streamsvm.solvers.budget.losses import LOGISTIC, chance_of, pull
from streamsvm.solvers.budget.state import EVENTS, FREE, STEPS, SUPPORTS, StepOptions, Supports
from streamsvm.solvers.budget.steps import _next_free, _weakest

WIDE = RBF(0.1)  # so wide that merged points are near: between far ones a tie decides
KERNELS = {"rbf": WIDE, "poly": Poly(0.3, 2, 1.0), "linear": Linear()}
STRATEGIES = ["sequence", "gradient", "project", "remove", "forget", "lru"]


def keep_values(monkeypatch: pytest.MonkeyPatch, layout: str) -> None:
    """Rows so wide that values between supports are kept."""
    if layout == "wide":
        monkeypatch.setattr("streamsvm.models.learner.NARROW", 0)


def stream(n: int, columns: int = 1, seed: int = 0, d: int = 3) -> tuple[Rows, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)).astype(np.float32)
    code = (X[:, 0] * X[:, 1] > 0).astype(int) + (columns > 1) * (X[:, 2] > 0.7)
    return Rows(X), np.where(code[:, None] == np.arange(columns) + (columns == 1), 1.0, -1.0)


def weights(n: int) -> np.ndarray:
    """Of each row's loss; without them coefficients are equal, and any of them is the smallest."""
    return np.random.default_rng(3).uniform(0.5, 2, n)


def learner(columns: int = 1, d: int = 3, kernel: Kernel = WIDE, **options) -> BudgetLearner:
    given = {"lam": 1e-2, "budget": 20, "merge": 3} | options
    return BudgetLearner(kernel, d, columns, BudgetOptions(**given))


def twin_of(learner: BudgetLearner, columns: int) -> reference.BSGD:
    o = learner.options
    return reference.BSGD(
        learner.kernel, columns, o.lam, o.budget, o.merge, o.strategy, bias=o.bias, merge_all=o.merge_all
    )


def decide(learner: BudgetLearner, rows: Rows) -> np.ndarray:
    A, bias = learner.coefficients()
    return learner.kernel.apply(rows, learner.supports(), A) + bias


@pytest.mark.parametrize(
    ("strategy", "merge", "columns", "layout", "merge_all"),
    [
        *pairwise(STRATEGIES[:2], [2, 3, 6], [1, 3], ["narrow", "wide"], [False, True]),
        *pairwise(STRATEGIES[2:], [2, 3, 6], [1, 3], ["wide"], [False]),
    ],
)
def test_steps_are_those_of_the_twin(strategy, merge, columns, layout, merge_all, monkeypatch):
    """Decisions before each of 150 steps; from the first merges on the table's interpolation shows."""
    keep_values(monkeypatch, layout)
    rows, Y = stream(150, columns)
    ours = learner(columns, strategy=strategy, merge=merge, merge_all=merge_all, bias=True, average=True)
    twin = twin_of(ours, columns)
    weight = weights(150)
    expected = np.array([twin.learn(*step) for step in zip(rows.X, Y, weight, strict=True)])
    decisions = ours.learn(rows, Y, weight)
    scale = np.abs(expected).max()
    np.testing.assert_allclose(decisions, expected, atol=5e-3 * scale)
    assert ours.n_support == len(twin.S)
    mean = reference.kernel_matrix(WIDE, rows.X, twin.S) @ twin.mean
    A, bias = ours.coefficients()
    np.testing.assert_allclose(bias, twin.mean_b, atol=5e-3 * scale)
    np.testing.assert_allclose(WIDE.apply(rows, ours.supports(), A), mean, atol=5e-3 * max(scale, np.abs(mean).max()))
    assert ours.stats().degradation == pytest.approx(twin.lost, rel=2e-2)


LOSSES = {
    "epsilon": {"epsilon": 0.1},
    "epsilon, steps bounded": {"epsilon": 0.1, "longest": 2.0, "average": True},
    "epsilon, a bias, steps bounded": {"epsilon": 0.1, "longest": 2.0, "average": True, "bias": True},
    "support": {"nu": 0.3},
    "support, averaged": {"nu": 0.3, "average": True},
    "logistic": {"bias": True},
    "logistic, averaged": {"bias": True, "average": True},
    "logistic, three columns": {"average": True},
}


@pytest.mark.parametrize("strategy", ["sequence", "remove"])
@pytest.mark.parametrize("loss", LOSSES)
def test_steps_of_other_losses_are_those_of_the_twin(loss, strategy):
    columns = 3 if "three" in loss else 1
    rows, Y = stream(150, columns)
    overrides = {"bias": loss == "epsilon"} | LOSSES[loss] | {"loss": loss.partition(",")[0]}
    if "epsilon" in overrides:
        Y = rows.X[:, :1].astype(np.float64) ** 2 + 0.1 * weights(150)[:, None]
    elif "nu" in overrides:
        Y = np.ones((150, 1))
    ours, weight = learner(columns, strategy=strategy, **overrides), weights(150)
    twin = twin_of(ours, columns)
    vars(twin).update({name: value for name, value in overrides.items() if name in ("epsilon", "nu")})
    twin.loss, twin.first = ours.options.loss, ours.options.first
    expected = np.array([twin.learn(*step) for step in zip(rows.X, Y, weight, strict=True)])
    scale = np.abs(expected).max()
    np.testing.assert_allclose(ours.learn(rows, Y, weight), expected, atol=5e-3 * scale)
    assert ours.n_support == len(twin.S) >= 18
    A, bias = ours.coefficients()
    expected = twin.mean_b if ours.options.average else twin.b
    np.testing.assert_allclose(bias, expected, atol=5e-3 * scale)
    if ours.options.average:
        K = reference.kernel_matrix(WIDE, rows.X, twin.S)
        np.testing.assert_allclose(WIDE.apply(rows, ours.supports(), A), K @ twin.mean, atol=5e-3 * scale)
    assert ours.stats().degradation == pytest.approx(twin.lost, rel=5e-2)


@given(st.floats(-1000, 1000), st.sampled_from([-1.0, 1.0]))
def test_pulls_of_the_logistic_loss_are_its_slope_on_average(f, y):
    n = 4000
    chances = (np.arange(n) + 0.5) / n
    mean_pull = np.mean([pull.py_func(LOGISTIC, y, f, 0.0, 0.0, chance) for chance in chances])
    assert mean_pull == pytest.approx(y / (1 + np.exp(min(y * f, 500))), abs=1 / n)


def test_chances_of_steps_are_evenly_spread():
    with np.errstate(over="ignore"):  # which it counts on
        sorted_chances = np.sort([chance_of.py_func(step) for step in range(2000)])
    assert (
        np.abs(sorted_chances - (np.arange(2000) + 0.5) / 2000).max() < 1.36 / 2000**0.5
    )  # Kolmogorov and Smirnov, 5 %


@pytest.mark.parametrize("bias", [True, False])
def test_units_of_targets_change_nothing_of_what_was_learnt(bias):
    """f is the same under other units, up to the origin where no bias keeps it; so is a mean of all steps."""
    rows, _ = stream(80)
    Y = 7.0 + 3.0 * rows.X[:, :1].astype(np.float64)
    ours = learner(loss="epsilon", epsilon=0.1, longest=5.0, bias=bias)
    ours.set_units(5.0, 2.0)
    ours.learn(rows, Y)
    before = decide(ours, rows)
    ours.set_units(6.0, 4.0)
    np.testing.assert_allclose(decide(ours, rows) - before, 0.0 if bias else 1.0, atol=1e-6)
    np.testing.assert_allclose(ours.decide_one(rows.X[0])[0], decide(ours, rows)[0], atol=1e-5)


def test_targets_in_units_are_learnt_as_in_others():
    rows, _ = stream(80)
    Y = rows.X[:, :1].astype(np.float64)
    plain, far = (learner(loss="epsilon", epsilon=0.1, longest=5.0) for _ in range(2))
    far.set_units(100.0, 1000.0)
    decisions = far.learn(rows, 100 + 1000 * Y)
    np.testing.assert_allclose((decisions - 100) / 1000, plain.learn(rows, Y), atol=1e-6)


@pytest.mark.parametrize("strategy", STRATEGIES[2:])
@pytest.mark.parametrize("kernel", KERNELS)
def test_kernels_without_merging(kernel, strategy):
    rows, Y = stream(120, seed=1)
    ours = learner(kernel=KERNELS[kernel], strategy=strategy)
    twin = twin_of(ours, 1)
    weight = weights(120)
    expected = np.array([twin.learn(*step) for step in zip(rows.X, Y, weight, strict=True)])
    np.testing.assert_allclose(ours.learn(rows, Y, weight), expected, atol=2e-3 * np.abs(expected).max())


def test_weights_scale_the_loss():
    rows, Y = stream(100, seed=2)
    weight = weights(100)
    ours = learner(budget=200)
    twin = twin_of(ours, 1)
    expected = [twin.learn(x, y, w) for x, y, w in zip(rows.X, Y, weight, strict=True)]
    np.testing.assert_allclose(ours.learn(rows, Y, weight), expected, atol=1e-4 * np.abs(expected).max())


@pytest.mark.parametrize(
    ("strategy", "layout"), [*product(STRATEGIES, ["float32"]), ("sequence", "csr"), ("sequence", "uint8")]
)
def test_blocks_and_rows_one_by_one_give_the_same_model(strategy, layout):
    rows, Y = stream(700, 2, seed=4)
    X = np.where(np.abs(rows.X) > 0.4, rows.X, 0)
    if layout == "uint8":
        X = np.abs(X * 2).astype(np.uint8)
    rows = Rows(sparse.csr_array(X) if layout == "csr" else X)
    whole, single, pieces = (learner(2, strategy=strategy, budget=60, bias=True) for _ in range(3))
    weight = weights(700)
    whole.learn(rows, Y, weight, threads=2)
    for i in range(700):
        single.learn(rows.take(slice(i, i + 1)), Y[i : i + 1], weight[i : i + 1])
    for i in range(0, 700, 37):
        pieces.learn(rows.take(slice(i, i + 37)), Y[i : i + 37], weight[i : i + 37])
    expected = decide(whole, rows)
    most, rounding = (1e-1, 3e-2) if strategy == "project" else (2e-3, 2e-3)  # nearly singular equations
    for other in (single, pieces):
        assert other.n_support == whole.n_support
        assert other.stats().maintenances == whole.stats().maintenances
        off = np.abs(decide(other, rows) - expected) / np.abs(expected).max()
        assert off.max() <= most
        assert np.quantile(off, 0.99) <= rounding


@settings(max_examples=20)
@given(st.integers(0, 1000), st.integers(2, 11), st.sampled_from(STRATEGIES[:2]), st.booleans())
def test_values_stay_those_of_the_vectors(seed, merge, strategy, several):
    """Merged distances come from distances alone; after many merges they are still those of the vectors."""
    columns = 3 if several else 1
    rows, Y = stream(400, columns, seed)
    with mock.patch("streamsvm.models.learner.NARROW", 0):
        ours = learner(columns, strategy=strategy, merge=merge, budget=12)
    ours.learn(rows, Y)
    n = ours.n_support
    expected = -np.log(np.maximum(reference.kernel_matrix(WIDE, ours.X[:n], ours.X[:n]), 1e-300))
    np.testing.assert_allclose(ours.to_state()["values"], expected, atol=2e-5)
    np.testing.assert_allclose(ours.norms[:n], (ours.X[:n] ** 2).sum(axis=1), rtol=1e-5)
    assert n <= 12


def test_a_mean_bias_goes_with_new_columns_other_units_and_states_of_before():
    rows, Y = stream(200)
    means = []  # of each step: its bias, in units of the targets
    ours = learner(bias=True, average=True, strategy="remove", loss="epsilon", budget=500)
    for i in range(200):
        if i == 120:
            ours.set_units(0.3, 2.0)
        ours.learn(rows.take(slice(i, i + 1)), Y[i : i + 1])
        means.append(ours.units[0] + ours.units[1] * ours.bias / ours._step)
    np.testing.assert_allclose(ours.coefficients()[1], np.average(means, axis=0, weights=np.arange(1, 201)))

    ours, means = learner(bias=True, average=True, strategy="remove", budget=500), []
    for i in range(200):
        if i == 90:  # a third class: the constant -1 so far
            ours.add_column()
            means = [np.append([-bias, bias], -1.0) for [bias] in means]
        targets = Y[i] if i < 90 else np.append([-Y[i], Y[i]], -1.0)
        ours.learn(rows.take(slice(i, i + 1)), targets[None])
        means.append(ours.bias / ours._step)
    np.testing.assert_allclose(ours.coefficients()[1], np.average(means, axis=0, weights=np.arange(1, 201)))

    old = {name: array for name, array in ours.to_state().items() if name != "U_bias"}
    again = learner(3, bias=True, average=True, strategy="remove", budget=500)
    again.restore(old)
    np.testing.assert_allclose(again.coefficients()[1], ours.bias / ours._step)  # as version 0.2 decided


@pytest.mark.parametrize(
    ("strategy", "layout", "average"),
    [*product(STRATEGIES, ["wide"], [True]), ("sequence", "narrow", True), ("sequence", "wide", False)],
)
def test_a_restored_learner_goes_on_bit_by_bit(strategy, layout, average, monkeypatch):
    keep_values(monkeypatch, layout)
    rows, Y = stream(640, seed=5)
    straight, first, second = (learner(strategy=strategy, average=average, bias=True) for _ in range(3))
    straight.learn(rows, Y)
    first.learn(rows.take(slice(320)), Y[:320])
    second.restore({name: array.copy() for name, array in first.to_state().items()})
    second.learn(rows.take(slice(320, 640)), Y[320:])
    for name, array in straight.to_state().items():
        if name != "counts":
            np.testing.assert_array_equal(second.to_state()[name], array)
    counters = [STEPS, SUPPORTS, EVENTS]
    np.testing.assert_array_equal(second.counts[counters], straight.counts[counters])


def test_threads_do_not_change_the_model():
    rows, Y = stream(2000, seed=6)
    one, two = learner(budget=600), learner(budget=600)
    np.testing.assert_array_equal(one.learn(rows, Y, threads=1), two.learn(rows, Y, threads=2))


def test_table_is_golden_section_search():
    """Kept norm, not h itself: where the table is steep, the norm is flat."""
    rng = np.random.default_rng(0)
    m, kappa = rng.uniform(0, 1, 300), rng.uniform(0, 1, 300)
    table, losses, bound = merge.merge_tables()
    weight = numba.njit(lambda table, a, b, k: merge._weight(table, a, b, k))
    for a, k in zip(m, kappa, strict=True):
        preserved = lambda h, a=a, k=k: a * k ** ((1 - h) ** 2) + (1 - a) * k ** (h**2)  # noqa: E731
        found = weight(table, a, 1 - a, k)
        best = preserved(reference.merge_weight(a, k))
        assert preserved(found) >= best * (1 - 1e-4)
        lost = a**2 + (1 - a) ** 2 + 2 * a * (1 - a) * k - best**2
        found = merge._lookup.py_func(losses, max(a, 1 - a), k)
        assert found == pytest.approx(lost, abs=2e-4)
        assert found >= min(a, 1 - a) ** 2 * np.interp(k, np.linspace(0, 1, len(bound)), bound)


lost_with_one = numba.njit(lambda a, p, j, K, table: merge._lost_with_one(a, p, j, K, table))
least_with_one = numba.njit(lambda a, p, K, tables, born, best: merge._least_with_one(a, p, K, tables, born, best))


@pytest.mark.parametrize("largest", [1.0, 1e-2, 1e-4])  # kernel value: near supports, and isolated ones
@pytest.mark.parametrize("n", [1, 2, 32, 33, 150])
def test_partners_are_those_that_lose_least(n, largest):
    """What bounds exclude would have lost more: the same as if each support had been tried."""
    rng, tables = np.random.default_rng(n), merge.merge_tables()
    for _ in range(40):
        a = rng.choice([-1, 1], n) * np.exp(rng.normal(size=n) * rng.choice([0, 0.3, 2]))
        K, born, p = (largest * rng.random(n) ** 4).astype(np.float32), rng.permutation(n), int(np.argmin(np.abs(a)))
        lost = [lost_with_one(a, p, j, K, tables[1]) for j in range(n)]
        others = [j for j in range(n) if j != p and a[j] * a[p] > 0]
        expected = sorted(others, key=lambda j: (lost[j], born[j]))[:2]
        ids, losses = np.empty(2, np.int64), np.empty(2)
        size = least_with_one(a, p, K, tables, born, (ids, losses))
        assert ids[:size].tolist() == expected
        assert losses[:size].tolist() == [lost[j] for j in expected]


def supports(A: np.ndarray, born: np.ndarray, used: np.ndarray) -> Supports:
    n, none = len(A), np.zeros((0, 0), np.float32)
    arrays = (none, none, np.zeros(n, np.float32), none, born, A, np.zeros((n + 1, 0)), np.zeros(A.shape[1]))
    return Supports(*arrays, np.zeros(5, np.int64), np.zeros(2), used)


weakest = numba.njit(lambda s, n, o: _weakest(Supports(*s), n, StepOptions(*o)))


@pytest.mark.parametrize("columns", [1, 3])
@pytest.mark.parametrize("strategy", ["sequence", "forget", "lru"])
@pytest.mark.parametrize("n", [1, 2, 70])
def test_the_oldest_of_the_smallest_is_given_up(n, strategy, columns):
    rng = np.random.default_rng(n)
    for choices in ([1.0], [-0.5, 0.5, 1.0], rng.normal(size=1000), [0.0, np.inf]):
        A, born = rng.choice(choices, (n, columns)), rng.permutation(n) + 1
        used = rng.integers(0, 9, n if strategy == "lru" else 0)
        options = StepOptions(1.0, 3, n, False, True, np.float32(1), forgets=strategy != "sequence")
        sizes = {"sequence": np.square(A).sum(axis=1), "forget": born, "lru": used}[strategy].astype(np.float64)
        found, second = weakest(tuple(supports(A, born, used)), n, tuple(options))
        assert found == min(range(n), key=lambda j: (sizes[j], born[j]))
        assert second == pytest.approx(np.sort(np.append(sizes, np.inf))[1])


def test_the_first_free_slot_is_found():
    find = numba.njit(lambda born, slot, top: _next_free(born, slot, top))
    for free in (0, 5, 31, 32, 63, 64, 99):
        born = np.where(np.arange(100) == free, FREE, 7)
        assert find(born, 0, 100) == free
        assert find(born, free, 100) == free
        assert find(born, free + 1, 100) == 100
        assert find(born, 0, free) == free


@pytest.mark.parametrize("apart", [15.0, 17.0, 1e3])  # values between them are tiny, not normal any more, or 0
@pytest.mark.parametrize("strategy", STRATEGIES[:2])
def test_points_too_far_to_merge_leave_the_largest(strategy, apart):
    rows = Rows(np.arange(60, dtype=np.float32).reshape(20, 3) * apart)
    ours = learner(budget=4, strategy=strategy, merge=4)
    ours.learn(rows, np.ones((20, 1)), weights(20))
    assert np.isfinite(ours.coefficients()[0]).all()
    assert all((rows.X == support).all(axis=1).any() for support in ours.supports().X)


@pytest.mark.parametrize(
    ("strategy", "layout", "columns"), pairwise(STRATEGIES[:2], ["narrow", "wide", "one by one"], [1, 3])
)
def test_merge_all_makes_one_point_of_ten_of_one_sign(strategy, layout, columns, monkeypatch):
    """Far apart, where a sequence would end early; of one class against the rest in every column."""
    keep_values(monkeypatch, layout)
    X = 10 * np.arange(15, dtype=np.float32)[:, None] + np.zeros(3, np.float32)
    Y = np.where(np.arange(columns) == 0, 1.0, -1.0) * np.ones((15, 1))
    blocks = np.arange(15).reshape((15, 1) if layout == "one by one" else (1, 15))
    supports = {}
    for merge_all in (False, True):
        ours = learner(columns, budget=14, merge=10, merge_all=merge_all, strategy=strategy, lam=1e-4)
        for ids in blocks:
            ours.learn(Rows(X[ids]), Y[ids], weights(15)[ids])
        assert ours.stats().maintenances == 1
        supports[merge_all] = ours.n_support
    assert supports[True] == 15 - 9
    assert supports[False] > 10


@pytest.mark.parametrize("strategy", STRATEGIES[:2])
def test_ten_at_once_need_an_eighth_of_the_maintenances_of_two(strategy):
    X, y = load_breast_cancer(return_X_y=True)
    rows, Y = Rows((X / X.max(axis=0)).astype(np.float32)), 2.0 * y[:, None] - 1

    def maintenances(merge: int) -> int:
        ours = learner(1, 30, RBF(0.5), budget=60, merge=merge, merge_all=True, strategy=strategy)
        for _ in range(3):
            ours.learn(rows, Y)
        return ours.stats().maintenances

    assert 8 < maintenances(2) / maintenances(10) <= 9.5


def test_models_saved_without_merge_all_end_sequences_early_as_before():
    saved = {name: value for name, value in vars(learner().options).items() if name != "merge_all"}
    assert not BudgetOptions(**saved).merge_all


def test_a_new_column_is_the_constant_minus_one_whatever_the_steps():
    rows, Y = stream(300)
    for options in ({}, {"longest": 0.5}, {"longest": 0.5, "average": True}):
        ours = learner(**options)
        ours.learn(rows, Y)
        ours.add_alone()
        assert ours.coefficients()[1][-1] == pytest.approx(-1)


def test_equal_points_merge_without_loss():
    rows = Rows(np.repeat(np.eye(3, dtype=np.float32), 30, axis=0))
    Y = np.ones((90, 1))
    ours = learner(budget=3, merge=2, lam=1e-4)
    ours.learn(rows, Y)
    assert ours.stats().degradation == pytest.approx(0, abs=1e-6)


def test_a_point_that_nothing_resembles_is_removed():
    """Two opposite points on a budget of one: there is no partner of the same sign."""
    ours = learner(budget=2, merge=2)
    X = Rows(np.array([[0, 0, 0], [0, 0, 1], [0, 1, 0]], np.float32))
    ours.A[:2], ours.counts[SUPPORTS] = [[5.0], [5.0]], 2
    ours.learn(X, np.array([[-1.0], [-1.0], [-1.0]]))
    assert ours.n_support <= 2


def test_the_time_of_the_steps_is_told():
    rows, Y = stream(3000, seed=7)
    ours = learner(budget=50)
    ours.learn(rows, Y)
    stats = ours.stats()
    assert stats.maintenances > 100
    assert 0 < stats.step_seconds < 60
    assert stats.steps == 3000


def test_stats_of_several_learners_are_those_of_one():
    parts = []
    for seed in (1, 2):
        rows, Y = stream(200 * seed, seed=seed)
        parts.append(learner(budget=10))
        parts[-1].learn(rows, Y)
    one, two = (part.stats() for part in parts)
    both = together([one, two])
    assert (both.steps, both.supports, both.maintenances) == (600, 20, one.maintenances + two.maintenances)
    assert both.mean_gradient_error == pytest.approx((one.mean_gradient_error + 2 * two.mean_gradient_error) / 3)


def test_rows_that_become_wide_keep_what_was_learnt():
    """From there on values between supports are kept, and steps are those of rows that were wide from the beginning."""
    rows, Y = stream(300, seed=7)
    wide = Rows(np.pad(rows.X, ((0, 0), (0, NARROW))))
    grown, ours = learner(), learner(d=wide.X.shape[1])
    grown.learn(rows, Y)
    ours.learn(wide, Y)
    grown.widen(wide.X.shape[1])
    np.testing.assert_allclose(grown.to_state()["values"], ours.to_state()["values"], atol=2e-5)
    np.testing.assert_allclose(grown.learn(wide, Y), ours.learn(wide, Y), atol=1e-3)
