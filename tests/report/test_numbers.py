"""Pictures of answers that are numbers: from any run directory, and those of outliers by their labels."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
import told
from every_case import every_case

from streamsvm.data.rows import Rows
from streamsvm.data.store import Store
from streamsvm.metrics import Spread
from streamsvm.report import scores as numbers
from streamsvm.report.read import read_run
from streamsvm.tasks import task_of
from streamsvm.tasks.scores import DecisionRule

# an old matplotlib draws it, too
pytestmark = pytest.mark.lowest

POINTS = [[1.0, 1.5], [2.0, 2.25], [4.0, 3.0]]


def drawn(folder, draw):
    figure = draw.draw(read_run(folder))
    return None if figure is None else figure.axes[0]


def test_residuals_are_labels_less_predictions(tmp_path):
    record = told.record("held-out", 1, rows=3, points=POINTS, level=0.5, half_width=0.5)
    folder = told.write_run(tmp_path, [record])
    points, zero, *ends = drawn(folder, numbers.residuals).lines
    assert points.get_xydata().tolist() == [[1.5, -0.5], [2.25, -0.25], [3.0, 1.0]]
    assert [line.get_ydata()[0] for line in (zero, *ends)] == [0.0, -0.5, 0.5]
    assert drawn(folder, numbers.predicted).lines[0].get_xydata().tolist() == POINTS
    bars = drawn(folder, numbers.histogram).patches
    assert sum(bar.get_height() for bar in bars) == 3
    assert numbers.number_facts(read_run(folder))["width"] == 1.0


@pytest.mark.parametrize("errors", [[0.0, 0.0], [1.0, 1.0 + 2e-16], [1e-320, 0.0], [-1e140, 1e140]])
def test_residuals_of_any_size_are_counted(tmp_path, errors):
    record = told.record("held-out", 1, rows=2, points=[[error, 0.0] for error in errors])
    bars = drawn(told.write_run(tmp_path, [record]), numbers.histogram).patches
    assert sum(bar.get_height() for bar in bars) == 2


@every_case("points", [[[1e200, 0.0]], None, [], [[1.0]], [["a", 2.0]], "x", [[1.0, float("inf")]], {"a": 1}])
def test_what_are_no_points_is_left_out(tmp_path, points):
    record = told.record("held-out", 1, rows=3, points=points)
    folder = told.write_run(tmp_path, [record], evaluation={"points": points, "decisions": points})
    draws = (numbers.residuals, numbers.predicted, numbers.histogram, numbers.decisions)
    assert [drawn(folder, draw) for draw in draws] == [None] * 4
    assert numbers.number_facts(read_run(folder)) == {}


class OneClassJudge(DecisionRule):
    task, classes, intervals = "oneclass", np.array([-1, 1]), None


@pytest.mark.parametrize("labelled", [True, False])
def test_decision_values_are_counted_on_both_sides_of_the_threshold(tmp_path, labelled):
    rng = np.random.default_rng(0)
    f = np.append(rng.uniform(0, 3, 180), rng.uniform(-1, -0.001, 20))
    y = np.where(np.arange(200) < 170, 1, -1) if labelled else None
    store = Store.from_arrays(np.zeros((200, 1), np.float32), y)
    without, scores = (task_of("oneclass").scores(OneClassJudge(), store, with_curves=own) for own in (False, True))
    for start, own in product((0, 77, 154), (without, scores)):
        own.add(start, min(200, start + 77), f[start : start + 77], None)
    assert "decisions" not in without.result()
    found = scores.result()["decisions"]
    edges, both = np.array(found["edges"]), np.add(found["others"], found["outliers"])
    assert np.any(np.abs(edges) < 1e-12)
    assert both[edges[1:] < 1e-9].sum() == 20
    assert both.sum() == 200
    assert sum(found["outliers"]) == (30 if labelled else 0)
    axes = drawn(told.write_run(tmp_path, evaluation={"decisions": found}), numbers.decisions)
    assert sum(bar.get_height() for bar in axes.patches) == 200
    assert axes.lines[0].get_xdata() == [0.0, 0.0]


@pytest.mark.parametrize(("n", "most"), [(10, 100), (100, 10), (101, 10), (7, 1)])
def test_rows_are_evenly_spread_whatever_the_blocks(n, most):
    for step in (1, 3, n):
        spread = Spread(n, most)
        for start in range(0, n, step):
            spread.add(start, np.arange(start, min(n, start + step)))
        found = spread.rows()[:, 0]
        assert len(found) <= most
        assert set(np.diff(found)) <= {-(-n // most)}
        assert found[0] == 0


def test_values_of_a_regression_are_told_with_their_labels():
    X = np.arange(30, dtype=np.float32)[:, None]
    judge = OneClassJudge()
    scores = task_of("regress").scores(judge, Store.from_arrays(X, np.arange(30.0)), with_curves=True)
    scores.add(0, 30, Rows(X).X[:, 0] + 1.0, None)
    assert scores.result()["points"][:2] == [[0.0, 1.0], [1.0, 2.0]]
