"""How good a model is, as plots, from `evaluation.json` and `tune.json`; its threshold from `result.json`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from streamsvm.report.drawing import ALERT, DASHES, MUTED, WIDTH, finish, from_zero, new, plot, short
from streamsvm.report.plots import Line, cells, colour, draw_lines
from streamsvm.report.read import Run, columns, matrix
from streamsvm.report.values import table, table_rows
from streamsvm.runs.records import number

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_CLASSES = 30
ROC = ("false positive rate", "true positive rate", True)  # axes, and whether chance is their diagonal
PRECISION_RECALL = ("recall", "precision", False)
LEGEND_LINE = 0.2  # inches


@plot
def confusion(run: Run) -> Figure | None:
    """Rows by true class (down) and predicted class (across); shaded by the share of the true class."""
    counts, labels = matrix(run.evaluation.get("confusion")), run.evaluation.get("classes")
    if counts is None or not isinstance(labels, list) or counts.shape != (len(labels),) * 2:
        return None
    k = len(labels)
    if k > MOST_CLASSES:
        return None
    share = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    texts = np.array([[f"{n:,.0f}" if n else "" for n in row] for row in counts]) if k <= 20 else None
    width = WIDTH if k <= 5 else 1.5 * WIDTH
    figure, axes = new(width * (0.8 if k > 3 else 0.66), width=width, xlabel="predicted", ylabel="true")
    cells(axes, share, texts, map(str, labels), map(str, labels))
    return figure


@plot
def roc(runs: Sequence[Run]) -> Figure | None:
    """True over false positive rate, threshold by threshold."""
    return _curves(_by_run(runs, "roc"), *ROC, is_shared=len(runs) > 1)


@plot
def roc_by_class(run: Run) -> Figure | None:
    """As `roc`, of each class against the rest."""
    return _curves(_by_class(run, "roc"), *ROC, is_shared=True)


@plot
def precision_recall(runs: Sequence[Run]) -> Figure | None:
    """Precision over recall, threshold by threshold."""
    return _curves(_by_run(runs, "precision_recall"), *PRECISION_RECALL, is_shared=len(runs) > 1)


@plot
def precision_recall_by_class(run: Run) -> Figure | None:
    """As `precision_recall`, of each class against the rest."""
    return _curves(_by_class(run, "precision_recall"), *PRECISION_RECALL, is_shared=True)


@plot
def threshold(run: Run) -> Figure | None:
    """Precision over recall of held-out rows, and the threshold that was chosen, of a fit that chose one."""
    chosen = table(run.result.get("threshold"))
    points, place = (
        matrix(chosen.get("curve"), 2),
        [number(chosen.get(name)) for name in ("recall", "precision")],
    )
    if points is None or not len(points) or None in place:
        return None
    figure, axes = new(3.6, xlabel="recall", ylabel="precision", xlim=(-0.01, 1.01), ylim=(-0.01, 1.03))
    draw_lines(axes, [(run.name, *points.T)])
    axes.plot([place[0]], [place[1]], "o", color=ALERT, ms=7)
    return figure


def _by_run(runs: Sequence[Run], name: str) -> list[Line]:
    return [_line(run.name, run.evaluation.get(name)) for run in runs]


def _by_class(run: Run, name: str) -> list[Line]:
    """A line for each class, with its area under the ROC curve."""
    curves = table_rows(run.evaluation.get("curves_by_class"))
    areas = [number(curve.get("roc_auc")) for curve in curves]
    return [
        _line(
            str(curve.get("label")) if area is None else f"{curve.get('label')}, AUC {area:.3f}",
            curve.get(name),
        )
        for curve, area in zip(curves, areas, strict=True)
    ]


def _line(name: str, points: object) -> Line:
    xy = matrix(points, 2)
    return (name, *(np.empty((0, 2)) if xy is None else xy).T)


def _curves(lines: list[Line], xlabel: str, ylabel: str, has_chance: bool, *, is_shared: bool) -> Figure | None:
    if not any(len(x) for _, x, _ in lines):
        return None
    height = 3.6 + LEGEND_LINE * (len(lines) > 3) * len(lines) / 2
    figure, axes = new(height, xlabel=xlabel, ylabel=ylabel, xlim=(-0.01, 1.01), ylim=(-0.01, 1.03))
    if has_chance:
        axes.plot([0, 1], [0, 1], color=MUTED, ls=":", lw=1)
    draw_lines(axes, lines)
    return finish(figure, axes, is_shared=is_shared)


@plot
def calibration(runs: Sequence[Run]) -> Figure | None:
    """How often what was given a probability is true, bin by bin; below, how many rows there were."""
    tables = [(run.name, run.evaluation.get("reliability")) for run in runs]
    names = ("confidence", "frequency", "count")
    if len(runs) == 1:
        tables = [("calibrated", tables[0][1]), ("before", runs[0].evaluation.get("reliability_before"))]
    bins = {
        run: columns(len(names), ([row.get(name) for name in names] for row in table_rows(rows)))
        for run, rows in tables
    }
    if not any(len(bin_columns[0]) for bin_columns in bins.values()):
        return None
    figure, (above, below) = new(4.4, 2, xlim=(-0.01, 1.01))
    above.plot([0, 1], [0, 1], color=MUTED, ls=":", lw=1)
    draw_lines(above, [(name, p, seen) for name, (p, seen, _) in bins.items()])
    draw_lines(below, [(name, p, n) for name, (p, _, n) in bins.items()])
    above.set_ylabel("frequency")
    below.set(ylabel="rows", xlabel="probability", ylim=(0, None))
    return finish(figure, above, is_shared=len(runs) > 1)


@plot
def histogram(run: Run) -> Figure | None:
    """Rows by decision value, a line for each of two classes, and the threshold between the answers."""
    counted, labels = table(run.evaluation.get("histogram")), run.evaluation.get("classes")
    counts, edges = matrix(counted.get("counts")), matrix([counted.get("edges")])
    if counts is None or edges is None or not isinstance(labels, list):
        return None
    if counts.shape != (len(labels), edges.shape[1] - 1):
        return None
    figure, axes = new(xlabel="decision value", ylabel="rows")
    for i, (label, rows) in enumerate(zip(labels, counts, strict=True)):
        axes.stairs(rows, edges[0], color=colour(i), ls=DASHES[i], lw=1.8, label=short(label))
        axes.stairs(rows, edges[0], color=colour(i), fill=True, alpha=0.15)
    if (value := number(counted.get("threshold"))) is not None:
        axes.axvline(value, color=ALERT, ls=":", lw=1.4, label="threshold")
    from_zero(axes)
    return finish(figure, axes)
