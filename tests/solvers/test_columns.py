"""What solvers of several linear problems share: gaps of columns, and which columns a step still improves."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest

from streamsvm.solvers.columns import Column, ColumnSolver, ColumnsState
from streamsvm.solvers.cutting_plane import BundleState
from streamsvm.solvers.dual_descent import DualState

ONE, OTHER = {"objective": 4.0, "bound": 3.0, "weight": 2.0}, {"objective": 16.0, "bound": 14.0, "weight": 10.0}


@dataclass(frozen=True)
class Solver(ColumnSolver[Column]):
    tol: float = 0.2
    epsilon: float | None = None
    most_still: ClassVar[int] = 2


def state() -> ColumnsState[Column]:
    return ColumnsState([Column(**ONE), Column(**OTHER)])


def test_gaps_of_all_columns_and_the_largest_of_any():
    found = state()
    assert (found.objective, found.bound, found.gap, found.relative_gap) == (20.0, 17.0, 3.0, 0.15)
    assert (found.largest_relative_gap, found.largest_excess) == (0.25, 0.5)


@pytest.mark.parametrize(
    ("options", "improvable"), [({}, [0]), ({"tol": 0.1}, [0, 1]), ({"epsilon": 0.3}, [0]), ({"epsilon": 0.5}, [])]
)
def test_columns_are_open_by_their_relative_gap_or_by_their_excess(options, improvable):
    solver = Solver(**options)
    assert solver.improvable(state()) == improvable
    assert solver.done(state()) == solver.has_ended(state()) == (not improvable)


def test_a_column_without_an_objective_is_open():
    column = Column()
    assert column.relative_gap == math.inf
    assert Solver().is_open(column)
    assert ColumnsState([column]).relative_gap == math.inf


def test_steps_without_progress_end_a_column_that_is_not_solved():
    found, solver = state(), Solver()
    for is_over in (False, False, True):
        found.columns[0].note_gap()
        assert solver.has_ended(found) == is_over
    assert not solver.done(found)


def test_progress_has_to_be_as_large_as_the_solver_says():
    @dataclass
    class Slow(Column):
        least_fall: ClassVar[float] = 0.5

    column = Slow(**ONE)
    column.note_gap()
    column.bound = 3.4
    column.note_gap()
    assert (column.least_gap, column.still) == (1.0, 1)
    column.bound = 3.6
    column.note_gap()
    assert (column.least_gap, column.still) == (pytest.approx(0.4), 0)


PLANES = {
    "w": np.ones(3), "f": np.zeros(0), "target": np.ones(3), "A": np.ones(3, np.float32), "r": np.zeros(1),
    "b": np.ones(1), "H": np.full(1, 3.0), "alpha": np.ones(1), "idle": np.zeros(1, np.int64), "steps": np.array(1),
}  # fmt: skip


def test_checkpoints_of_earlier_versions_open():
    """Names and order of their numbers, as these versions wrote them."""
    numbers = [4.0, 3.0, 0.5, 0.1, 0.0, 1.0, 7.0, 2.0, 0.25]
    planes = BundleState.from_arrays(PLANES | {"numbers": np.array([[*numbers, 1]])})
    [bundle] = planes.columns
    assert (bundle.objective, bundle.bound, bundle.least_gap, bundle.still) == (4.0, 3.0, 1.0, 7.0)
    assert (bundle.weight, bundle.excess) == (2.0, 0.25)
    [oldest] = BundleState.from_arrays(PLANES | {"numbers": np.array([[*numbers[:5], 1]])}).columns
    assert (oldest.objective, oldest.least_gap, oldest.excess) == (4.0, math.inf, math.inf)
    arrays = {"w": np.ones((1, 3)), "point": np.ones((1, 3)), "alpha": np.ones((1, 1, 5))}
    dual = DualState.from_arrays(arrays | {"numbers": np.array([[4.0, 3.0, 2.0, 1.0, 3]]), "steps": np.array(2)})
    [column] = dual.columns
    assert (column.excess, column.least_gap, column.still, dual.steps) == (0.5, 1.0, 3, 2)
    for state, known in ((planes, {*PLANES, "numbers"}), (dual, {*arrays, "numbers", "steps"})):
        assert set(state.to_arrays()) == known
