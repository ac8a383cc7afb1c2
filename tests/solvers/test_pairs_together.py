"""Small pairs of classes that are solved together come to the same as each alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy import sparse

from streamsvm.data.rows import Rows
from streamsvm.kernels.base import kernel_from
from streamsvm.problems import pair_values
from streamsvm.problems.pair_values import PairValues
from streamsvm.problems.subproblems import DualData, TaskDuals, duals_in_memory, in_memory, with_loss
from streamsvm.solvers.in_turn import InTurn, InTurnState
from streamsvm.solvers.loop import run
from streamsvm.tasks.base import Targets
from streamsvm.tasks.classify import AGAINST_REST, Classify

SIZES = [5, 1, 8, 30, 12]
TOL = 1e-4
CASES: dict[str, dict[str, Any]] = {
    "rbf": {},
    "sparse": {"layout": "csr"},
    "poly": {"name": "poly"},
    "squared": {"squared": True},
    "from other coefficients": {"starts": True},
    "squared, from other coefficients": {"squared": True, "starts": True},
}


def problem(*, layout: str = "dense", name: str = "rbf", squared: bool = False) -> tuple[TaskDuals, TaskDuals]:
    """Duals that are solved together, and the same ones alone."""
    rng = np.random.default_rng(0)
    codes = rng.permutation(np.repeat(np.arange(len(SIZES)), SIZES))
    X = (rng.normal(size=(len(codes), 4)) * (rng.random((len(codes), 4)) < 0.7)).astype(np.float32)
    rows = Rows(X if layout == "dense" else sparse.csr_array(X))
    kernel = kernel_from({"name": name, "gamma": 0.5, "degree": 2, "coef0": 1.0})
    upper = rng.choice([0.0, 0.1, 3.0], len(codes))
    upper[codes == 1] = 3.0
    data = DualData(Classify(), Targets(np.arange(len(SIZES)), codes), upper)
    together = duals_in_memory(kernel, rows, data, 2, 0, squared=squared)
    return together, TaskDuals(data, with_loss(in_memory(kernel, rows, 2, 0), squared=squared))


def solved(duals: TaskDuals, alpha: np.ndarray, tol: float = TOL) -> tuple[InTurnState, list[int]]:
    """The last state, and the subproblems of which rounds are reported: together, and alone."""
    solver, rounds = InTurn(tol), [0, 0]

    def on_step(state: InTurnState) -> None:
        rounds[0] += 0 if state.latest is None else len(state.latest)
        rounds[1] += state.running is not None

    return run(solver, duals, solver.init(duals, alpha), stop=solver.is_solved, on_step=on_step), rounds


@pytest.mark.parametrize("most", [2032**2, 300, 1])
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_pairs_are_those_solved_alone(case, most, monkeypatch):
    """Whether there are kernel values of all pairs at once, or of one pair at a time."""
    case, rng = dict(case), np.random.default_rng(3)
    starts, (together, alone) = case.pop("starts", False), problem(**case)
    monkeypatch.setattr(pair_values, "MOST_VALUES", most)
    alpha = rng.choice([0.0, 0.1, 9.0], together.shape) if starts else np.zeros(together.shape)
    (found, rounds), (expected, expected_rounds) = solved(together, alpha), solved(alone, alpha)
    assert rounds == [together.count, 0]
    assert starts or expected_rounds == [0, together.count]
    np.testing.assert_allclose(found.solved, expected.solved, atol=50 * TOL)
    assert found.objective == pytest.approx(expected.objective, rel=1e-6)
    assert found.gap == pytest.approx(expected.gap, abs=TOL * 3 * sum(SIZES))
    assert 0 < found.violation <= TOL


def test_pairs_that_float32_does_not_solve_are_solved_alone():
    together, alone = problem()
    alpha = np.zeros(together.shape)
    (found, rounds), (expected, _) = solved(together, alpha, 1e-9), solved(alone, alpha, 1e-9)
    assert rounds[1] > 0
    assert found.violation <= 1e-9
    np.testing.assert_allclose(found.solved, expected.solved, atol=1e-7)
    assert found.objective == pytest.approx(expected.objective, rel=1e-12)


@pytest.mark.parametrize("sizes", [[9, 9], [0, 9, 9], [3000, 2, 2], [700] * 30])
def test_two_classes_or_absent_ones_or_many_rows_are_solved_alone(sizes):
    assert not PairValues.are_few(np.array(sizes))
    assert PairValues.are_few(np.array([40] * 300))


@pytest.mark.parametrize("term", ["nu", "rest", "weight"])
def test_duals_of_other_terms_are_solved_alone(term):
    data = problem()[0].dual_data
    other = {
        "nu": replace(data, targets=replace(data.targets, nu=0.1)),
        "rest": replace(data, task=AGAINST_REST),
        "weight": replace(data, upper=np.where(data.targets.codes == 2, 0.0, data.upper)),
    }[term]
    rows, kernel = Rows(np.zeros((len(data.upper), 1), np.float32)), kernel_from({"name": "rbf", "gamma": 1.0})
    assert duals_in_memory(kernel, rows, data, 1, 0, squared=False).together(0) is not None
    assert duals_in_memory(kernel, rows, other, 1, 0, squared=False).together(0) is None
