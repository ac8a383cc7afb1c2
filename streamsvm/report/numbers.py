"""Answers that are numbers, as plots: a regression's and its residuals, decision values of one class.

Of the rows of `evaluate`, else of those that the fit kept out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from streamsvm.events import HeldOut
from streamsvm.report.drawing import ALERT, MUTED, finish, from_zero, new, plot
from streamsvm.report.plots import Line, colour, draw_lines
from streamsvm.report.read import Run, matrix
from streamsvm.report.values import Row, table
from streamsvm.runs.records import number

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BINS = 40
LARGEST = 1e150  # beyond which sums and differences may not be numbers
MARKS: Any = {"ls": "", "marker": "o", "ms": 2.5, "alpha": 0.5, "mec": "none"}


def facts(run: Run) -> Row:
    """Which rows the pictures are of, and the intervals."""
    held_out, evaluation = run.last(HeldOut), run.evaluation
    if _points(run) is None:
        return {}
    of = {"rows of": evaluation.get("store")} if _is_evaluated(run) else {"rows of": "the fit, not learned from"}
    intervals = {"interval": evaluation.get("interval"), "coverage": evaluation.get("coverage")}
    if held_out is not None:
        intervals["interval"] = intervals["interval"] or held_out.level
    half = _half_width(run)
    values = of | intervals | {"width": None if half is None else 2 * half}
    return {name: value for name, value in values.items() if value is not None}


@plot
def predicted(run: Run) -> Figure | None:
    """What the model says over what was true."""
    if (points := _points(run)) is None:
        return None
    y, f = points.T
    ends = np.array([points.min(), points.max()])
    figure, axes = new(3.6, xlabel="label", ylabel="prediction")
    axes.plot(y, f, color=colour(0), **MARKS)
    axes.plot(ends, ends, color=MUTED, ls=":", lw=1.2)
    if (half := _half_width(run)) is not None:
        for shift in (-half, half):
            axes.plot(ends, ends + shift, color=colour(1), ls="--", lw=1.2)
        axes.set_ylim(*_with_room(f))
    return figure


@plot
def residuals(run: Run) -> Figure | None:
    """How far labels are from predictions, over these."""
    if (points := _points(run)) is None:
        return None
    y, f = points.T
    figure, axes = new(xlabel="prediction", ylabel="residual")
    axes.plot(f, y - f, color=colour(0), **MARKS)
    axes.axhline(0.0, color=MUTED, ls=":", lw=1.2)
    for end in _interval_ends(run):
        axes.axhline(end, color=colour(1), ls="--", lw=1.2)
    return figure


@plot
def histogram(run: Run) -> Figure | None:
    """Rows by their residual."""
    if (points := _points(run)) is None:
        return None
    errors = points[:, 0] - points[:, 1]
    counts, edges = np.histogram(errors, _bins(errors))
    figure, axes = new(2.6, xlabel="residual", ylabel="rows")
    _bars(axes, edges, counts, color=colour(0))
    for end in _interval_ends(run):
        axes.axvline(end, color=colour(1), ls="--", lw=1.2)
    return figure


@plot
def coverage(runs: Sequence[Run]) -> Figure | None:
    """How often labels are inside intervals of each level."""
    none = np.empty((0, 3))
    by_run = [(run.name, _matrix(run.evaluation.get("coverages"), 3)) for run in runs]
    lines: list[Line] = [(run, *(none if rows is None else rows).T[:2]) for run, rows in by_run]
    if not any(len(x) for _, x, _ in lines):
        return None
    figure, axes = new(3.6, xlabel="level", ylabel="coverage", xlim=(0, 1), ylim=(0, 1.03))
    axes.plot([0, 1], [0, 1], color=MUTED, ls=":", lw=1)
    draw_lines(axes, lines)
    return finish(figure, axes, is_shared=len(runs) > 1)


@plot
def decisions(run: Run) -> Figure | None:
    """Rows by decision value; outliers by label above the others, and the threshold."""
    histogram = table(run.evaluation.get("decisions"))
    edges, others, outliers = (
        None if (values := _matrix([histogram.get(name)])) is None else values[0]
        for name in ("edges", "others", "outliers")
    )
    if edges is None or others is None or outliers is None or not len(edges) - 1 == len(others) == len(outliers):
        return None
    figure, axes = new(xlabel="decision value", ylabel="rows")
    labelled = bool(outliers.any())
    _bars(axes, edges, others, color=colour(0), label="others" if labelled else "rows")
    if labelled:
        _bars(axes, edges, outliers, bottom=others, color=colour(1), label="outliers by label")
    axes.axvline(0.0, color=ALERT, ls="--", lw=1.2, label="threshold")
    return finish(figure, axes)


def _bars(axes: Axes, edges: np.ndarray, counts: np.ndarray, **more: Any) -> None:
    axes.bar(edges[:-1], counts, np.diff(edges), align="edge", **more)
    axes.grid(visible=False, axis="x")
    from_zero(axes)


def _bins(values: np.ndarray) -> np.ndarray:
    """(BINS + 1,) edges about values (m,), which may be nearly equal."""
    low, high = float(values.min()), float(values.max())
    width = max(high - low, 1e-6 * max(abs(low), abs(high))) or 1.0
    return (low + high) / 2 + np.linspace(-width / 2, width / 2, BINS + 1)


def _matrix(value: object, width: int | None = None) -> np.ndarray | None:
    values = matrix(value, width)
    return values if values is not None and np.abs(values).max() < LARGEST else None


def _is_evaluated(run: Run) -> bool:
    return _matrix(run.evaluation.get("points"), 2) is not None


def _points(run: Run) -> np.ndarray | None:
    """(m, 2) labels and predictions; None if the run has none."""
    held_out = run.last(HeldOut)
    points = run.evaluation.get("points") if _is_evaluated(run) else held_out and held_out.points
    return _matrix(points, 2)


def _half_width(run: Run) -> float | None:
    """Of the intervals, where there are any."""
    held_out, width = run.last(HeldOut), number(run.evaluation.get("mean_width"))
    if width is not None:
        return width / 2
    return None if held_out is None else held_out.half_width


def _interval_ends(run: Run) -> list[float]:
    """The ends of an interval, relative to the prediction."""
    half = _half_width(run)
    return [] if half is None else [-half, half]


def _with_room(values: np.ndarray) -> tuple[float, float]:
    room = 0.05 * float(np.ptp(values)) or 1.0
    return float(values.min()) - room, float(values.max()) + room
