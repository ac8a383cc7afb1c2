"""Small problems of every solver, whose oracles are made of plain arrays. A new solver is one more line in CASES."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any

import numpy as np
import pytest
import reference
from making import Beside

from streamsvm.data.cache import CachedSamples
from streamsvm.data.rows import Rows
from streamsvm.data.samples import SamplesInMemory
from streamsvm.kernels.distance import RBF
from streamsvm.models.learner import BudgetLearner, BudgetOptions
from streamsvm.parallel.engine import Engine
from streamsvm.problems.dual import KernelColumns, MatrixDual, PairsQP, SquaredDual
from streamsvm.problems.linear_blocks import BlocksDual
from streamsvm.problems.linear_dual import RowsDual
from streamsvm.problems.passes import Passes
from streamsvm.problems.row_risk import HingeRisk, OneVsRestTerms
from streamsvm.problems.subproblems import DualData, TaskDuals, duals_in_memory
from streamsvm.solvers.admm import ADMM, ADMMColumns, ADMMState
from streamsvm.solvers.alfpgm import ALFPGM, ALFPGMState
from streamsvm.solvers.blockws import BlockSolver, BlockState, SignsSolver
from streamsvm.solvers.budget.state import NANOSECONDS
from streamsvm.solvers.cutting_plane import BundleState, CuttingPlane
from streamsvm.solvers.dcsvm import DCSVM, DCSVMState, Division, PartSolution, support_of
from streamsvm.solvers.dual_descent import BlockDescent, DualDescent, DualState
from streamsvm.solvers.in_turn import InTurn, InTurnState, Thresholds
from streamsvm.solvers.lockstep import Lockstep, LockstepState
from streamsvm.tasks.base import Targets
from streamsvm.tasks.classify import Classify

TOL = 1e-3
N, PARTS = 240, 4
KERNEL = RBF(2.0)
WIDE = RBF(0.3)  # for which 60 support vectors are enough


@cache
def data() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """X (N, 5), y and upper; rows of the same part are near each other."""
    rng = np.random.default_rng(0)
    X = np.where(rng.random((N, 5)) < 0.6, rng.normal(size=(N, 5)), 0).astype(np.float32)
    y = np.where(X[:, 0] + X[:, 1] ** 2 + 0.3 * rng.normal(size=N) > 0.5, 1.0, -1.0)
    return X, y, rng.choice([0.0, 0.5, 4.0], N, p=[0.1, 0.5, 0.4])


@cache
def kernel_matrix() -> np.ndarray:
    X = data()[0]
    return reference.kernel_matrix(KERNEL, X, X)


def signed() -> np.ndarray:
    y = data()[1]
    return y[:, None] * kernel_matrix() * y


def dual() -> MatrixDual:
    return MatrixDual(kernel_matrix(), *data()[1:])


def some(ids: np.ndarray) -> MatrixDual:
    _, y, upper = data()
    return MatrixDual(kernel_matrix()[np.ix_(ids, ids)], y[ids], upper[ids])


def squared() -> SquaredDual:
    return SquaredDual(dual())


def apart() -> MatrixDual:
    """nu-SVC."""
    problem = dual()
    problem.linear, problem.nu = 0.0, 0.3
    return problem


def best(upper: np.ndarray, ids: np.ndarray | slice = slice(None)) -> float:
    """The least objective of the rows with these bounds."""
    Q, C = signed()[ids][:, ids], upper[ids]
    return reference.dual_objective(Q, reference.solve_dual(Q, C))


# oracles


class Folds(KernelColumns):
    def __init__(self) -> None:
        X, y, upper = data()
        held = np.arange(N) % 3 == np.arange(3)[:, None]
        super().__init__(KERNEL, Rows(X), y, np.where(held, 0.0, upper))


class NoPairs:
    """Subproblems that are no pairs of classes."""

    def together(self, number: int) -> None:
        return None


@dataclass
class Halves(NoPairs):
    """Two subproblems, of the even rows and of the odd ones."""

    shape: tuple[int, int] = (N, 1)
    count: int = 2

    def which(self, number: int) -> int:
        return number

    def places(self, number: int) -> tuple[np.ndarray, np.ndarray] | None:
        ids = np.arange(number, N, 2)
        return (ids, np.zeros_like(ids)) if number < 2 else None

    def dual(self, number: int) -> MatrixDual:
        return some(np.arange(number, N, 2))


@dataclass
class One(NoPairs):
    """One subproblem."""

    ids: np.ndarray
    count: int = 1

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.ids), 1

    def which(self, number: int) -> int:
        return number

    def places(self, number: int) -> tuple[np.ndarray, np.ndarray] | None:
        everything = np.arange(len(self.ids))
        return (everything, np.zeros_like(everything)) if number < 1 else None

    def dual(self, number: int) -> MatrixDual:
        return some(self.ids)


@cache
def classes() -> tuple[np.ndarray, DualData]:
    """X (35, 3), and data of five classes of different sizes."""
    rng = np.random.default_rng(1)
    codes = rng.permutation(np.repeat(np.arange(5), [3, 9, 4, 12, 7]))
    X = rng.normal(size=(len(codes), 3)).astype(np.float32)
    return X, DualData(Classify(), Targets(np.arange(5), codes), rng.choice([0.5, 4.0], len(codes)))


def pairs_of_classes() -> TaskDuals:
    X, data = classes()
    return duals_in_memory(KERNEL, Rows(X), data, 1, 0, squared=False)


class SomeUnsolved(TaskDuals):
    """As `pairs_of_classes`, with one pair in two that is not solved together."""

    def __init__(self) -> None:
        vars(self).update(vars(pairs_of_classes()))

    def together(self, number: int) -> PairsQP | None:
        block = super().together(number)
        if block is not None:
            block.K[0][:, block.begins[:-1:2]] = np.nan
        return block


def pairs_are_optimal(state: InTurnState) -> None:
    X, data = classes()
    K, objective, gap = reference.kernel_matrix(KERNEL, X, X), 0.0, 0.0
    for part in data.task.subproblems(data.targets):
        Q = part.y[:, None] * K[np.ix_(part.ids, part.ids)] * part.y
        a, upper = state.solved[part.places], data.upper[part.ids]
        assert reference.kkt_violation(Q, a, upper) <= TOL
        objective, gap = objective + reference.dual_objective(Q, a), gap + reference.duality_gap(Q, a, upper)
    np.testing.assert_allclose([state.objective, state.gap], [objective, gap], rtol=1e-7)


def quarters(level: int) -> np.ndarray:
    """Parts by the signs of the first two features, at level 1 of the first one."""
    X = data()[0]
    return (X[:, 0] > 0) + 2 * (X[:, 1] > 0) * (level == 2)


@dataclass
class Quarters:
    """Rows divided by their first two features; 4 parts at level 2, 2 at level 1."""

    shape: tuple[int, int] = (N, 1)
    has_bias: bool = False
    count: int = 1

    def divide(self, level: int, start: np.ndarray | None) -> Division:
        return Division(level, np.bincount(quarters(level)), 0.5, {"axes": np.arange(level)})

    def parts(
        self, first: int, division: Division, start: np.ndarray | None, thresholds: Thresholds | None
    ) -> list[PartSolution]:
        own = range(first, min(first + 2, division.n_parts))
        return [self._part(number, division, start, thresholds) for number in own]

    def excess(self, alpha: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return data()[1] @ alpha, np.count_nonzero(alpha, axis=0)

    def _part(
        self, number: int, division: Division, start: np.ndarray | None, thresholds: Thresholds | None
    ) -> PartSolution:
        ids = np.flatnonzero(quarters(division.level) == number)
        solver = BlockSolver(TOL, 32, self.has_bias and thresholds is None)
        begun = np.zeros(len(ids)) if start is None else start[ids, 0]
        bias = 0.0 if thresholds is None else float(thresholds.bias[0])
        state = solver.solve(some(ids), solver.at_bias(some(ids), begun, bias))
        own = support_of(state.alpha[:, None])
        objective = 0.5 * float(state.alpha @ (state.gradient - 1.0))
        return PartSolution(ids[own], state.alpha[own, None], len(own), objective, 0.0)

    def among(self, ids: np.ndarray) -> One:
        return One(ids)

    def whole(self, division: Division | None) -> One:
        return One(np.arange(N))


class Crowded(Quarters):
    """Support vectors that do not fit in memory."""

    def among(self, ids: np.ndarray) -> None:  # type: ignore[override]
        return None


def two_columns() -> ADMMColumns:
    """Classification with two values of C."""
    y, upper = np.tile(data()[1][:, None], 2), np.full((N, 2), 1.0) * [0.5, 2.0]
    return ADMMColumns(y, np.where(y < 0, -upper, 0.0), np.where(y > 0, upper, 0.0))


@dataclass
class Inverse:
    """Two columns, and (K + beta I)^-1 by whole matrices."""

    columns: ADMMColumns = field(default_factory=two_columns)

    def solve(self, beta: float, V: np.ndarray) -> np.ndarray:
        return np.linalg.solve(kernel_matrix() + beta * np.eye(N), V)


def planes() -> HingeRisk:
    X, y, upper = data()
    beside = Beside((y > 0).astype(int), upper)
    held = CachedSamples(SamplesInMemory(Rows(X)), 1 << 30, lambda: pytest.fail("all rows are held"), beside)
    return HingeRisk(Passes(held, Engine(1), 1.0), OneVsRestTerms(2))


def linear_dual() -> RowsDual:
    X, y, upper = data()
    return RowsDual(Rows(X), OneVsRestTerms(2), ((y > 0).astype(int),), upper, 1.0, Engine(1))


def linear_blocks() -> BlocksDual:
    X, y, upper = data()
    samples = SamplesInMemory(Rows(X))
    samples.blocks = lambda: [(start, start + 10) for start in range(0, N, 10)]  # type: ignore[method-assign]
    cached = CachedSamples(samples, 1 << 30, lambda: pytest.fail("all rows are held"), block_bytes=1)
    losses = OneVsRestTerms(2), ((y > 0).astype(int),), upper, 1.0, Engine(1)
    return BlocksDual(cached, *losses, block_bytes=X.nbytes // 4)


@dataclass(frozen=True)
class Descent:
    """Budgeted descent as a solver: a step is a block of 40 rows. Its state learns in place."""

    options: BudgetOptions = BudgetOptions(1e-2, 60, bias=True)

    def init(self, problem: tuple[Rows, np.ndarray]) -> BudgetLearner:
        return BudgetLearner(WIDE, problem[0].d, 1, self.options)

    def step(self, problem: tuple[Rows, np.ndarray], state: BudgetLearner) -> BudgetLearner:
        here = slice(state.t, state.t + 40)
        state.learn(problem[0].take(here), problem[1][here])
        state.counts[NANOSECONDS] = 0  # the one thing that differs from run to run
        return state

    def from_arrays(self, arrays: Mapping[str, Any]) -> BudgetLearner:
        learner = BudgetLearner(WIDE, arrays["X"].shape[1], 1, self.options)
        learner.restore(arrays)
        return learner


def stream() -> tuple[Rows, np.ndarray]:
    X, y, _ = data()
    return Rows(X), y[:, None]


# certificates


def is_optimal(state: Any) -> None:
    """By the KKT conditions of float64 kernel values, and by the twin."""
    alpha, upper = np.ravel(state.alpha if isinstance(state, BlockState) else state.start), data()[2]
    assert np.all((alpha >= 0) & (alpha <= upper))
    assert reference.kkt_violation(signed(), alpha, upper) <= 1.1 * TOL
    is_close(reference.dual_objective(signed(), alpha), best(upper))


def is_close(found: float, expected: float) -> None:
    assert abs(found - expected) <= 1e-4 * abs(expected)


def is_optimal_with_bias(state: Any) -> None:
    (_, y, upper), a = data(), np.ravel(state.alpha if isinstance(state, BlockState) else state.start)
    assert abs(y @ a) <= 1e-9 * upper.sum()
    m, M = reference.levels(signed(), a, upper, y)
    assert m - M <= 1.1 * TOL
    bias = float(np.ravel(state.bias)[0])
    assert min(m, M) - 1.1 * TOL <= bias <= max(m, M) + 1.1 * TOL


def squares_are_optimal(state: BlockState) -> None:
    upper = data()[2]
    ridge = np.divide(0.5, upper, out=np.zeros(N), where=upper > 0)
    bounds = np.where(upper > 0, np.inf, 0.0)
    assert np.all((state.alpha >= 0) & (state.alpha <= bounds))
    assert reference.kkt_violation(signed() + np.diag(ridge), state.alpha, bounds) <= 1.1 * TOL


def signs_are_optimal(state: BlockState) -> None:
    (_, y, upper), a, g = data(), state.alpha, signed() @ state.alpha
    assert np.all((a >= 0) & (a <= upper))
    for own, threshold in ((y > 0, state.margin - state.bias), (y < 0, state.margin + state.bias)):
        assert a[own].sum() == pytest.approx(0.15 * upper.sum())
        least, most = g[own & (a < upper)].min(), g[own & (a > 0)].max()
        assert most - least <= 1.1 * TOL
        assert least - 1.1 * TOL <= threshold <= most + 1.1 * TOL


def columns_are_optimal(state: LockstepState) -> None:
    for column, upper in zip(state.columns, Folds().upper, strict=True):
        assert reference.kkt_violation(signed(), column.alpha, upper) <= 1.1 * TOL


def halves_are_optimal(state: InTurnState) -> None:
    upper = data()[2]
    is_close(state.objective, sum(best(upper, np.arange(half, N, 2)) for half in range(2)))
    assert 0 <= state.gap <= TOL * upper.sum()


def parts_are_optimal(state: DCSVMState) -> None:
    assert state.division is not None
    parts = quarters(state.division.level)
    ids = [np.flatnonzero(parts == part) for part in range(state.division.n_parts)]
    is_close(state.objective, sum(best(data()[2], part) for part in ids))


def levels_and_whole(state: DCSVMState) -> None:
    is_optimal(state)
    assert sorted(state.level_support) == [1, 2]
    is_close(state.objective, best(data()[2]))
    assert 0 <= state.gap <= TOL * data()[2].sum()


def residuals_are_small(state: ADMMState) -> None:
    assert state.residual <= TOL
    of, y = two_columns(), data()[1]
    for c in range(2):
        upper = of.upper[:, c] - of.lower[:, c]
        a, _ = reference.solve_dual_with_bias(signed(), upper, y)
        found = reference.dual_objective(signed(), y * state.z[:, c])
        assert abs(found / reference.dual_objective(signed(), a) - 1) <= 1e-2


def gap_is_small(state: BundleState | DualState) -> None:
    assert 0 <= state.objective - state.bound <= TOL * state.objective


def budget_is_kept(state: BudgetLearner) -> None:
    """It has no certificate: what it learnt is better than nothing."""
    assert 0 < state.n_support <= 60
    A, bias = state.coefficients()
    f = WIDE.apply(stream()[0], state.supports(), A) + bias
    assert np.maximum(0, 1 - stream()[1] * f).mean() < 0.5


@dataclass(frozen=True)
class Case:
    """solver, problem() and what restores a state; when it ends; and a check of the end."""

    solver: Any
    problem: Callable[[], Any]
    restore: Callable[..., Any]
    is_solved: Callable[[Any], bool]
    check: Callable[[Any], None]


def of(solver: Any, problem: Callable[[], Any], state: Any, check: Callable[[Any], None]) -> Case:
    return Case(solver, problem, state.from_arrays, solver.is_solved, check)


SMALL = BlockSolver(TOL, 32)
CASES = {
    "block": of(SMALL, dual, BlockState, is_optimal),
    "block, with a bias": of(BlockSolver(TOL, 32, True), dual, BlockState, is_optimal_with_bias),
    "block, squared losses": of(SMALL, squared, BlockState, squares_are_optimal),
    "block, signs apart": of(SignsSolver(TOL, 32), apart, BlockState, signs_are_optimal),
    "lockstep": of(Lockstep(SMALL, whole=60), Folds, LockstepState, columns_are_optimal),
    "in turn": Case(
        InTurn(TOL),
        Halves,
        partial(InTurnState.from_arrays, start=np.zeros((N, 1))),
        InTurn.is_solved,
        halves_are_optimal,
    ),
    "in turn, pairs together": Case(
        InTurn(TOL),
        pairs_of_classes,
        partial(InTurnState.from_arrays, start=np.zeros((35, 4))),
        InTurn.is_solved,
        pairs_are_optimal,
    ),
    "in turn, some pairs together": Case(
        InTurn(TOL),
        SomeUnsolved,
        partial(InTurnState.from_arrays, start=np.zeros((35, 4))),
        InTurn.is_solved,
        pairs_are_optimal,
    ),
    "dcsvm": of(DCSVM(TOL, 2), Quarters, DCSVMState, levels_and_whole),
    "dcsvm, with a bias": of(
        DCSVM(TOL, 2, has_bias=True), partial(Quarters, has_bias=True), DCSVMState, is_optimal_with_bias
    ),
    "dcsvm, a bias that parts share": of(
        DCSVM(TOL, 2, has_bias=True, shares_bias=True), Quarters, DCSVMState, is_optimal_with_bias
    ),
    "dcsvm, not refined": of(DCSVM(TOL, 2, refine=False), Quarters, DCSVMState, levels_and_whole),
    "dcsvm, not enough memory to refine": of(DCSVM(TOL, 2), Crowded, DCSVMState, levels_and_whole),
    "dcsvm, early": of(DCSVM(TOL, 2, early=1), Quarters, DCSVMState, parts_are_optimal),
    "dcsvm, no levels": of(DCSVM(TOL, 0), Quarters, DCSVMState, is_optimal),
    "alfpgm": of(ALFPGM(TOL, 32), dual, ALFPGMState, is_optimal_with_bias),
    "alfpgm, by gradients": of(
        ALFPGM(TOL, 32, subproblem="fpg", least_uses=3), dual, ALFPGMState, is_optimal_with_bias
    ),
    "alfpgm, as published": of(
        ALFPGM(TOL, 32, subproblem="fpg", least_uses=5, most_uses=20, shrinking=False, as_published=True),
        dual,
        ALFPGMState,
        is_optimal_with_bias,
    ),
    "admm": Case(ADMM(1.0, 10), Inverse, ADMMState.from_arrays, lambda s: s.residual <= TOL, residuals_are_small),
    "cutting planes": Case(CuttingPlane(TOL), planes, BundleState.from_arrays, CuttingPlane(TOL).done, gap_is_small),
    "dual descent": Case(DualDescent(TOL), linear_dual, DualState.from_arrays, DualDescent(TOL).done, gap_is_small),
    "block descent": Case(
        BlockDescent(TOL), linear_blocks, DualState.from_arrays, BlockDescent(TOL).done, gap_is_small
    ),
    "budgeted descent": Case(Descent(), stream, Descent().from_arrays, lambda s: s.t >= N, budget_is_kept),
}
