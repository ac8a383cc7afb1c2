"""Biases that are given, and move until y'a is 0."""

import numpy as np
import pytest
from contracts.solvers import TOL, N, is_close, is_optimal_with_bias, some

from streamsvm.solvers import blockws
from streamsvm.solvers.in_turn import Thresholds, ThresholdSolver

ALL = np.arange(N)
SLOPE, ROOT = 5000.0, -0.2  # as of covtype with the C and gamma of Hsieh et al.


def test_what_falls_in_a_line_is_0_after_two_steps():
    slope, root = np.array([3.0, 50.0]), np.array([0.7, -0.2])
    thresholds = Thresholds.start(2)
    for _ in range(2):
        thresholds = thresholds.after(slope * (root - thresholds.bias), np.array([40, 40]))
    np.testing.assert_allclose(thresholds.bias, root, atol=1e-12)
    np.testing.assert_allclose(thresholds.slope, slope)


def test_an_inexact_first_slope_does_not_carry_a_threshold_away():
    """y'a of rough solutions and of other levels is that of the whole problem but for an error."""
    thresholds = Thresholds.start(1)
    for error in (0.0, -120.0, 100.0, -10.0, 0.0, 0.0):
        excess = SLOPE * (ROOT - thresholds.bias) + error
        thresholds = thresholds.after(excess, np.array([75_000]))
        assert abs(thresholds.bias - ROOT) < abs(ROOT)
    np.testing.assert_allclose(thresholds.bias, ROOT, atol=1e-6)


@pytest.mark.parametrize("before", [-1e-3, 1e-3])
def test_a_short_step_between_levels_says_little_of_the_slope(before):
    """y'a of the level before was near 0 by chance: its secant is no slope, or one so steep that the search ended."""
    thresholds = Thresholds(np.array([0.1]), np.array([SLOPE]), np.array([before / SLOPE]), np.array([before]))
    for _ in range(4):
        thresholds = thresholds.after(SLOPE * (ROOT - thresholds.bias), np.array([75_000]))
    np.testing.assert_allclose(thresholds.bias, ROOT, atol=1e-6)


def begun(bias: float = 0.0):
    problem = some(ALL)
    solver = ThresholdSolver(TOL, 32, bias=True)
    start = Thresholds(np.array([bias]), *np.zeros((3, 1)))
    return problem, solver, solver.start(problem, np.zeros(len(ALL)), start)


@pytest.mark.parametrize("bias", [0.0, 0.9, -40.0])
def test_solutions_are_those_of_pairs_from_any_threshold(bias):
    problem, solver, state = begun(bias)
    state = solver.solve(problem, state)
    is_optimal_with_bias(state)
    expected = blockws.objective(problem, blockws.solve(problem, tol=TOL, bias=True))
    is_close(blockws.objective(problem, state), expected)


def test_the_objective_at_a_threshold_is_below_the_least_one():
    problem, solver, state = begun(0.3)
    while state.given is not None and not solver._at_given.is_solved(state):
        state = solver.step(problem, state)
    least = blockws.objective(problem, blockws.solve(problem, tol=TOL, bias=True))
    assert blockws.objective(problem, state) < least
    assert abs(problem.y @ state.alpha) > 1e-3


def test_a_run_that_stops_before_its_end_keeps_the_constraint():
    problem, solver, state = begun(0.3)
    state = solver.unshrunk(problem, solver.step(problem, state))
    assert state.given is None
    assert abs(problem.y @ state.alpha) <= 1e-9 * problem.upper.sum()
    np.testing.assert_allclose(state.gradient, problem.apply(ALL, state.alpha) - 1.0, atol=1e-4)
