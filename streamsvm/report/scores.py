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
    return _curves(runs, "roc", "false positive rate", "true positive rate", ([0, 1], [0, 1]))


@plot
def precision_recall(runs: Sequence[Run]) -> Figure | None:
    """Precision over recall, threshold by threshold."""
    return _curves(runs, "precision_recall", "recall", "precision", None)


@plot
def threshold(run: Run) -> Figure | None:
    """Precision over recall of held-out rows, and the threshold that was chosen, of a fit that chose one."""
    told = table(run.result.get("threshold"))
    points, place = matrix(told.get("curve"), 2), [number(told.get(name)) for name in ("recall", "precision")]
    if points is None or not len(points) or None in place:
        return None
    figure, axes = new(3.6, xlabel="recall", ylabel="precision", xlim=(-0.01, 1.01), ylim=(-0.01, 1.03))
    draw_lines(axes, [(run.name, *points.T)])
    axes.plot([place[0]], [place[1]], "o", color=ALERT, ms=7)
    return figure


def _curves(
    runs: Sequence[Run], name: str, xlabel: str, ylabel: str, chance: tuple[list[int], list[int]] | None
) -> Figure | None:
    none = np.empty((0, 2))
    found = [(run.name, matrix(run.evaluation.get(name), 2)) for run in runs]
    lines: list[Line] = [(run, *(none if points is None else points).T) for run, points in found]
    if not any(len(x) for _, x, _ in lines):
        return None
    figure, axes = new(3.6, xlabel=xlabel, ylabel=ylabel, xlim=(-0.01, 1.01), ylim=(-0.01, 1.03))
    if chance:
        axes.plot(*chance, color=MUTED, ls=":", lw=1)
    draw_lines(axes, lines)
    return finish(figure, axes, is_shared=len(runs) > 1)


@plot
def calibration(runs: Sequence[Run]) -> Figure | None:
    """How often what was given a probability is true, bin by bin; below, how many rows there were."""
    told = [(run.name, run.evaluation.get("reliability")) for run in runs]
    names = ("confidence", "frequency", "count")
    if len(runs) == 1:
        told = [("calibrated", told[0][1]), ("before", runs[0].evaluation.get("reliability_before"))]
    bins = {
        run: columns(len(names), ([row.get(name) for name in names] for row in table_rows(rows)))
        for run, rows in told
    }
    if not any(len(found[0]) for found in bins.values()):
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
    told, labels = table(run.evaluation.get("histogram")), run.evaluation.get("classes")
    counts, edges = matrix(told.get("counts")), matrix([told.get("edges")])
    if counts is None or edges is None or not isinstance(labels, list):
        return None
    if counts.shape != (len(labels), edges.shape[1] - 1):
        return None
    figure, axes = new(xlabel="decision value", ylabel="rows")
    for i, (label, own) in enumerate(zip(labels, counts, strict=True)):
        axes.stairs(own, edges[0], color=colour(i), ls=DASHES[i], lw=1.8, label=short(label))
        axes.stairs(own, edges[0], color=colour(i), fill=True, alpha=0.15)
    if (value := number(told.get("threshold"))) is not None:
        axes.axvline(value, color=ALERT, ls=":", lw=1.4, label="threshold")
    from_zero(axes)
    return finish(figure, axes)
