"""Columns solved side by side are the problems solved one by one."""

from __future__ import annotations

import numpy as np
import pytest

from streamsvm.data.rows import Rows
from streamsvm.errors import ConfigError
from streamsvm.kernels.distance import RBF
from streamsvm.kernels.inner import Linear
from streamsvm.problems.dual import KernelColumns, KernelDual
from streamsvm.solvers import blockws
from streamsvm.solvers.blockws import BlockSolver
from streamsvm.solvers.lockstep import Lockstep

TOL = 1e-4


def problem(n=400, folds=3, C=4.0, kernel=None):
    rng = np.random.default_rng(n)
    X = rng.normal(size=(n, 3)).astype(np.float32)
    y = np.where(X[:, 0] * X[:, 1] + 0.3 * rng.normal(size=n) > 0, 1.0, -1.0)
    upper = np.where(np.arange(n) % folds == np.arange(folds)[:, None], 0.0, C)
    return KernelColumns(kernel or RBF(0.7), Rows(X), y, upper, threads=2)


def alone(columns, c, bias):
    """The same column by the block solver itself, on its own rows."""
    own = np.flatnonzero(columns.upper[c])
    dual = KernelDual(columns.kernel, columns.rows.take(own), columns.y[own], columns.upper[c][own])
    return dual, blockws.solve(dual, tol=TOL, bias=bias), own


@pytest.mark.parametrize(("block_rows", "whole"), [(16, 0), (16, 250), (3072, 8192)])
@pytest.mark.parametrize("bias", [False, True])
def test_each_column_is_solved_and_knows_decision_values_of_all_rows(bias, block_rows, whole):
    columns = problem()
    solver = Lockstep(BlockSolver(TOL, block_rows, bias), threads=2, whole=whole)
    state = solver.solve(columns, solver.init(columns))
    K = columns.kernel.exact(columns.rows, columns.rows)
    for c, column in enumerate(state.columns):
        dual, expected, own = alone(columns, c, bias)
        assert np.all(column.alpha[columns.upper[c] == 0] == 0)
        found = 0.5 * column.alpha @ (column.gradient - 1.0)
        assert found == pytest.approx(blockws.objective(dual, expected), rel=1e-5)
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
        at_bound = [
            (c.alpha > 0) & (c.alpha == upper) for c, upper in zip(state.columns, columns.upper, strict=True)
        ]
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
        own = np.flatnonzero(columns.upper[c])
        dual = KernelDual(columns.kernel, columns.rows.take(own), columns.y[own], columns.upper[c][own])
        dual.linear = columns.linear[own]
        expected = blockws.objective(dual, blockws.solve(dual, tol=TOL, bias=bias))
        assert 0.5 * column.alpha @ (column.gradient + columns.linear) == pytest.approx(expected, rel=1e-5)


def test_near_its_tolerance_rounding_ends_all_columns():
    columns = problem(n=100, C=1e4, kernel=Linear())
    solver = Lockstep(BlockSolver(1e-3))
    state = solver.solve(columns, solver.init(columns))
    assert all(column.is_rounded and column.violation < 1e-2 for column in state.columns)


def test_a_tolerance_out_of_reach_is_an_error(monkeypatch):
    monkeypatch.setattr("streamsvm.solvers.lockstep.MOST_ROUNDS", 30)
    columns = problem(n=100, C=1e6)
    solver = Lockstep(BlockSolver(1e-9))
    with pytest.raises(ConfigError, match="tol=1e-09 was not reached"):
        solver.solve(columns, solver.init(columns))
