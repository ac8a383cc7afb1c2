"""Columns solved side by side are the problems solved one by one."""

from __future__ import annotations

import numpy as np
import pytest

from streamsvm.data.rows import Rows
from streamsvm.kernels.distance import RBF
from streamsvm.problems.dual import KernelColumns, KernelDual
from streamsvm.solvers import blockws
from streamsvm.solvers.blockws import BlockSolver
from streamsvm.solvers.lockstep import Lockstep

TOL = 1e-4


class Stuck(BlockSolver):
    """Blocks of active rows never move while some rows are left out, as if float32 lost all steps."""

    def solve_block(self, problem, state, block):
        new, moved = super().solve_block(problem, state, block)
        if state.shrunk:
            return state.alpha[block], np.zeros(len(block), bool)
        return new, moved


def problem(n=400, folds=3, C=4.0, kernel=None):
    rng = np.random.default_rng(n)
    X = rng.normal(size=(n, 3)).astype(np.float32)
    y = np.where(X[:, 0] * X[:, 1] + 0.3 * rng.normal(size=n) > 0, 1.0, -1.0)
    upper = np.where(np.arange(n) % folds == np.arange(folds)[:, None], 0.0, C)
    return KernelColumns(kernel or RBF(0.7), Rows(X), y, upper, threads=2)


def alone(columns, c, bias):
    """The same column by the block solver itself, on its own rows."""
    members = np.flatnonzero(columns.upper[c])
    dual = KernelDual(columns.kernel, columns.rows.take(members), columns.y[members], columns.upper[c][members])
    return dual, blockws.solve(dual, tol=TOL, bias=bias), members


@pytest.mark.parametrize(("block_rows", "whole"), [(16, 0), (16, 250), (3072, 8192)])
@pytest.mark.parametrize("bias", [False, True])
def test_each_column_is_solved_and_knows_decision_values_of_all_rows(bias, block_rows, whole):
    columns = problem()
    solver = Lockstep(BlockSolver(TOL, block_rows, bias), threads=2, whole=whole)
    state = solver.solve(columns, solver.init(columns))
    K = columns.kernel.exact(columns.rows, columns.rows)
    for c, column in enumerate(state.columns):
        dual, expected, members = alone(columns, c, bias)
        assert np.all(column.alpha[columns.upper[c] == 0] == 0)
        objective = 0.5 * column.alpha @ (column.gradient - 1.0)
        assert objective == pytest.approx(blockws.objective(dual, expected), rel=1e-5)
        f = K @ (columns.y * column.alpha)  # of held-out rows, too
        np.testing.assert_allclose(columns.y * (column.gradient + 1.0), f, atol=1e-3)
        if bias:
            assert columns.y @ column.alpha == pytest.approx(0.0, abs=1e-9)
            assert column.bias == pytest.approx(expected.bias, abs=1e-2)


@pytest.mark.parametrize("bias", [False, True])
def test_a_solution_starts_the_next_C_without_a_product(bias, monkeypatch):
    columns = problem(C=0.5)
    solver = Lockstep(BlockSolver(TOL, bias=bias))
    first = solver.solve(columns, solver.init(columns))
    columns.upper = 8.0 * columns.upper
    with monkeypatch.context() as patch:
        patch.setattr(KernelColumns, "apply", None)
        start = solver.again(columns, first)
    K = columns.kernel.exact(columns.rows, columns.rows)
    for before, column in zip(first.columns, start.columns, strict=True):
        Qa = columns.y * (K @ (columns.y * column.alpha))
        np.testing.assert_allclose(column.gradient, Qa - 1.0, atol=1e-3)
        gained = 0.5 * before.alpha @ (before.gradient - 1.0) - 0.5 * column.alpha @ (column.gradient - 1.0)
        assert gained >= 0
    warm, cold = solver.solve(columns, start), solver.solve(columns, solver.init(columns))
    for one, other in zip(warm.columns, cold.columns, strict=True):
        np.testing.assert_allclose(one.gradient, other.gradient, atol=20 * TOL)


@pytest.mark.parametrize("bias", [False, True])
def test_rows_at_their_bound_stay_there_when_C_grows(bias):
    """0.46 / 0.21 * 0.21 is not 0.46: once rows a hair below their bound could not move and the solver gave up."""
    Cs = np.geomspace(0.1, 100, 10)
    columns = problem(C=1.0)
    unit, solver = columns.upper, Lockstep(BlockSolver(TOL, bias=bias))
    columns.upper = Cs[0] * unit
    state = solver.solve(columns, solver.init(columns))
    for C in Cs[1:]:
        at_bound = [(c.alpha > 0) & (c.alpha == upper) for c, upper in zip(state.columns, columns.upper, strict=True)]
        columns.upper = C * unit
        start = solver.again(columns, state)
        for column, upper, bound in zip(start.columns, columns.upper, at_bound, strict=True):
            close = bound & (column.alpha > 0.999 * upper)
            assert np.all(column.alpha[close] == upper[close])
        state = solver.solve(columns, start)


@pytest.mark.parametrize("whole", [0, 1500])
def test_rows_are_left_out_and_come_back(whole):
    columns = problem(n=3000, C=0.05)
    solver = Lockstep(BlockSolver(TOL, 64), whole=whole)
    state, sizes = solver.init(columns), set()
    while state.violation > TOL or state.first.shrunk:
        sizes.add(3000 if state.first.active is None else len(state.first.active))
        state = solver.solve(columns, state) if state.violation <= TOL else solver.step(columns, state)
    assert min(sizes) < 3000
    assert state.first.active is None
    whole = Lockstep(BlockSolver(TOL, 4096))
    expected = whole.solve(columns, whole.init(columns))
    for one, other in zip(state.columns, expected.columns, strict=True):
        np.testing.assert_allclose(one.gradient, other.gradient, atol=20 * TOL)


@pytest.mark.parametrize("bias", [False, True])
def test_any_linear_term(bias):
    """Once it was -1 whatever was asked; also where a solution starts the next C."""
    columns = problem(C=0.5)
    columns.linear = np.random.default_rng(0).uniform(-1.5, 0.5, len(columns.y))
    solver = Lockstep(BlockSolver(TOL, 64, bias), whole=100)
    state = solver.solve(columns, solver.init(columns))
    columns.upper = 4.0 * columns.upper
    state = solver.solve(columns, solver.again(columns, state))
    for c, column in enumerate(state.columns):
        members = np.flatnonzero(columns.upper[c])
        dual = KernelDual(columns.kernel, columns.rows.take(members), columns.y[members], columns.upper[c][members])
        dual.linear = columns.linear[members]
        expected = blockws.objective(dual, blockws.solve(dual, tol=TOL, bias=bias))
        assert 0.5 * column.alpha @ (column.gradient + columns.linear) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("whole", [40, 8192])
def test_what_no_step_improves_is_the_end(bias, whole):
    columns = problem(n=150, C=1e3)
    solver = Lockstep(BlockSolver(1e-30, 64, bias), whole=whole)
    state = solver.solve(columns, solver.init(columns))
    assert not solver.is_solved(state)
    assert any(column.is_rounded and not column.shrunk for column in state.columns)
    assert state.violation < 1e-3


@pytest.mark.parametrize("bias", [False, True])
def test_a_stall_of_the_active_rows_goes_on_with_all(bias):
    columns = problem(n=600, C=10.0)
    solver = Lockstep(Stuck(1e-3, 32, bias), whole=100)
    state = solver.solve(columns, solver.init(columns))
    assert solver.is_solved(state)
    assert np.isfinite(state.first.shrinks_below)
