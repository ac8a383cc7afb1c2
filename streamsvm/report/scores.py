"""How good a model is, from `evaluation.json`: tables and plots of scores, probabilities, decisions and numbers.

Thresholds are from `result.json`. Numbers are a regression's answers to the rows of `evaluate`, else to those that the
fit kept out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from streamsvm.events import HeldOut
from streamsvm.report.drawing import ALERT, DASHES, MUTED, WIDTH, finish, from_zero, new, short
from streamsvm.report.parts import Part, Table, facts_of, filled_columns, label, plot_all, plot_each, titled
from streamsvm.report.plots import Line, cells, colour, draw_lines, most_points
from streamsvm.report.read import Run, columns, matrix
from streamsvm.runs.records import Row, number, table, table_rows
from streamsvm.storage.text import human
from streamsvm.tasks.uncertainty import drawn_units

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_DRAWN = 30  # classes of a confusion matrix
MOST_CLASSES = 12  # whose table is unfolded
FEW_CLASSES = 5  # whose confusion is read at a glance
MOST_CONFUSED = 10
MEASURES = ("precision", "recall", "f1")  # of a class
LEGEND_LINE = 0.2  # inches
BINS = 40
LARGEST = 1e150  # beyond which sums and differences may not be numbers
MARKS: Any = {"ls": "", "marker": "o", "ms": 2.5, "alpha": 0.5, "mec": "none"}
UNIT: Any = {"xlim": (-0.01, 1.01), "ylim": (-0.01, 1.03)}  # axes of two shares
BY_CLASS = "Each class against the rest, the ten most frequent at most. AUC: area under the ROC curve."
DASHED = "Dashed: prediction intervals, if there are any."


def score_tables(runs: Sequence[Run]) -> Iterator[Part]:
    """Single values of the evaluation, scores by class, their intervals, and scores by the values of columns."""
    yield from facts_of(_scores)(runs)
    for run in runs:
        if rows := table_rows(run.evaluation.get("per_class")):
            rows = filled_columns([*rows, *_mean(rows)])
            yield Table(titled("By class", run, runs), rows, folded=len(rows) > MOST_CLASSES)
        if intervals := table_rows(run.evaluation.get("intervals")):
            named = [row | {"score": label(str(row.get("score", "")))} for row in intervals]
            title = f"95 % confidence intervals, by {drawn_units(run.evaluation)}"
            yield Table(titled(title, run, runs), filled_columns(named))
        for column, values in table(run.evaluation.get("slices")).items():
            if slices := table_rows(values):
                yield Table(titled(f"By {column}", run, runs), filled_columns(slices))


def _scores(run: Run) -> Row:
    """Single values of the evaluation; the store it was on first."""
    left_out = ("model", "groups", "seconds", "peak_rss_bytes")
    evaluation = {"store": run.evaluation.get("store")} | run.evaluation
    return {k: v for k, v in evaluation.items() if isinstance(v, int | float | str) and k not in left_out}


def _mean(rows: list[Row]) -> Iterator[Row]:
    """The mean over classes of what is a share, each class counting the same."""
    shares = columns(len(MEASURES), ([row.get(name) for name in MEASURES] for row in rows))
    if len(rows) > 1 and len(shares[0]) == len(rows):
        means = {
            name: sum(column) / len(rows)
            for name, column in zip(MEASURES, (column.tolist() for column in shares), strict=True)
        }
        yield {"label": "macro average"} | means


def _confusion(run: Run) -> tuple[np.ndarray, list[str]]:
    """(k, k) rows by true (down) and predicted class (across), and the k classes; k is 0 where there are none."""
    counts, labels = matrix(run.evaluation.get("confusion")), run.evaluation.get("classes")
    if counts is None or not isinstance(labels, list) or counts.shape != (len(labels),) * 2:
        return np.empty((0, 0)), []
    return counts, [str(label) for label in labels]


@plot_each("confusion", "Confusion matrix")
def confusion(run: Run) -> Figure | None:
    """Rows by true and predicted class; the darker, the larger the share of the true class. Empty: none."""
    counts, labels = _confusion(run)
    k = len(labels)
    if not 0 < k <= MOST_DRAWN:
        return None
    share = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    texts = np.array([[f"{n:,.0f}" if n else "" for n in row] for row in counts]) if k <= 20 else None
    width = WIDTH if k <= 5 else 1.5 * WIDTH
    figure, axes = new(width * (0.8 if k > 3 else 0.66), width=width, xlabel="predicted", ylabel="true")
    cells(axes, share, texts, labels, labels)
    return figure


def confused(run: Run) -> list[Row]:
    """The largest off-diagonal entries of a confusion matrix that is too large to read."""
    counts, labels = _confusion(run)
    if len(labels) <= FEW_CLASSES:
        return []
    wrong = counts * (1 - np.eye(len(labels)))
    largest = [np.unravel_index(i, counts.shape) for i in np.argsort(-wrong, axis=None, kind="stable")]
    return [
        {
            "true": labels[i],
            "predicted": labels[j],
            "rows": int(counts[i, j]),
            "share of the true class": counts[i, j] / counts[i].sum(),
        }
        for i, j in largest[:MOST_CONFUSED]
        if wrong[i, j] > 0
    ]


@plot_each("by-class", "Decision values by class")
def by_class(run: Run) -> Figure | None:
    """Rows by decision value and true class. Dotted: the threshold between the two answers."""
    counted, labels = table(run.evaluation.get("histogram")), run.evaluation.get("classes")
    counts, edges = matrix(counted.get("counts")), matrix([counted.get("edges")])
    if counts is None or edges is None or not isinstance(labels, list):
        return None
    if counts.shape != (len(labels), edges.shape[1] - 1):
        return None
    figure, axes = new(xlabel="decision value", ylabel="rows")
    for i, (name, rows) in enumerate(zip(labels, counts, strict=True)):
        axes.stairs(rows, edges[0], color=colour(i), ls=DASHES[i], lw=1.8, label=short(name))
        axes.stairs(rows, edges[0], color=colour(i), fill=True, alpha=0.15)
    if (value := number(counted.get("threshold"))) is not None:
        axes.axvline(value, color=ALERT, ls=":", lw=1.4, label="threshold")
    from_zero(axes)
    return finish(figure, axes)


@plot_all("roc", "ROC curve")
def roc(runs: Sequence[Run]) -> Figure | None:
    """True positive rate over false positive rate, for every threshold. Dotted: chance."""
    return _curves_of_runs(runs, "roc")


@plot_all("precision-recall", "Precision and recall")
def precision_recall(runs: Sequence[Run]) -> Figure | None:
    """For every threshold."""
    return _curves_of_runs(runs, "precision_recall")


@plot_each("roc-by-class", "ROC curve by class", f"{BY_CLASS} Dotted: chance.")
def roc_by_class(run: Run) -> Figure | None:
    return _curves_by_class(run, "roc")


@plot_each("precision-recall-by-class", "Precision and recall by class", BY_CLASS)
def precision_recall_by_class(run: Run) -> Figure | None:
    return _curves_by_class(run, "precision_recall")


def _curves_of_runs(runs: Sequence[Run], kind: str) -> Figure | None:
    return _curves([(run.name, run.evaluation.get(kind)) for run in runs], kind, is_shared=len(runs) > 1)


def _curves_by_class(run: Run, kind: str) -> Figure | None:
    """A line for each class, named with its area under the ROC curve."""
    named = []
    for curve in table_rows(run.evaluation.get("curves_by_class")):
        area = number(curve.get("roc_auc"))
        named.append((f"{curve.get('label')}" + ("" if area is None else f", AUC {area:.3f}"), curve.get(kind)))
    return _curves(named, kind, is_shared=True)


def _curves(named: Sequence[tuple[str, object]], kind: str, *, is_shared: bool) -> Figure | None:
    """Lines from their points by name, with the diagonal of chance under ROC curves."""
    lines: list[Line] = []
    for name, points in named:
        xy = matrix(points, 2)
        lines.append((name, *(np.empty((0, 2)) if xy is None else xy).T))
    if not most_points(lines):
        return None
    xlabel, ylabel = ("false positive rate", "true positive rate") if kind == "roc" else ("recall", "precision")
    height = 3.6 + LEGEND_LINE * (len(lines) > 3) * len(lines) / 2
    figure, axes = new(height, xlabel=xlabel, ylabel=ylabel, **UNIT)
    if kind == "roc":
        axes.plot([0, 1], [0, 1], color=MUTED, ls=":", lw=1)
    draw_lines(axes, lines)
    return finish(figure, axes, is_shared=is_shared)


def threshold_tables(runs: Sequence[Run]) -> Iterator[Part]:
    """The thresholds of labels, and scores at the threshold."""
    for run in runs:
        chosen = table(run.result.get("threshold"))
        of = f"for {chosen.get('wish')}, by {chosen.get('rows')} held-out rows"
        names = ("label", "value", "precision", "recall", "f1", "balanced_accuracy")
        labels = [{name: table(row).get(name) for name in names} for row in chosen.get("labels", [])]
        if labels:
            yield Table(f"Thresholds: {of}", filled_columns(labels))
        rows = []
        for name, value in table(chosen.get("expected")).items():
            ends = {end: number(table(value).get(end)) for end in ("low", "high")}
            on_new = number(table(value).get("score"))
            rows.append({"score": name, "at the threshold": chosen.get(name), "on new rows": on_new} | ends)
        if rows:
            value = "" if labels else f"{human('value', chosen.get('value'))}, "
            yield Table(titled(f"Threshold: {value}{of}", run, runs), filled_columns(rows))


@plot_each("threshold", "Precision and recall on held-out rows")
def threshold(run: Run) -> Figure | None:
    """On held-out rows, for every threshold. The point is the one that the model uses."""
    chosen = table(run.result.get("threshold"))
    points, place = matrix(chosen.get("curve"), 2), [number(chosen.get(name)) for name in ("recall", "precision")]
    if points is None or None in place:
        return None
    figure, axes = new(3.6, xlabel="recall", ylabel="precision", **UNIT)
    draw_lines(axes, [(run.name, *points.T)])
    axes.plot(*place, "o", color=ALERT, ms=7)
    return figure


def _caption_of_calibration(runs: Sequence[Run]) -> str:
    caption = "Predicted probability against observed frequency, and rows by probability. Dotted: perfect calibration."
    if len(runs) == 1 and runs[0].evaluation.get("reliability_before"):
        caption += " Before: the logistic function of the decision values, without calibration."
    return caption


@plot_all("calibration", "Calibration", _caption_of_calibration)
def calibration(runs: Sequence[Run]) -> Figure | None:
    tables = [(run.name, run.evaluation.get("reliability")) for run in runs]
    names = ("confidence", "frequency", "count")
    if len(runs) == 1:
        tables = [("calibrated", tables[0][1]), ("before", runs[0].evaluation.get("reliability_before"))]
    frequencies, counts = list[Line](), list[Line]()
    for run, rows in tables:
        p, seen, n = columns(len(names), ([row.get(name) for name in names] for row in table_rows(rows)))
        frequencies.append((run, p, seen))
        counts.append((run, p, n))
    if not most_points(frequencies):
        return None
    figure, (above, below) = new(4.4, 2, xlim=(-0.01, 1.01))
    above.plot([0, 1], [0, 1], color=MUTED, ls=":", lw=1)
    draw_lines(above, frequencies)
    draw_lines(below, counts)
    above.set_ylabel("frequency")
    below.set(ylabel="rows", xlabel="probability", ylim=(0, None))
    return finish(figure, above, is_shared=len(runs) > 1)


def number_facts(run: Run) -> Row:
    """Which rows the pictures of numbers are of, and the intervals."""
    points, half_width, is_evaluated = _points(run)
    if points is None:
        return {}
    held_out, evaluation = run.last(HeldOut), run.evaluation
    values = {
        "rows of": evaluation.get("store") if is_evaluated else "the fit, not learned from",
        "interval": evaluation.get("interval") or (held_out and held_out.level),
        "coverage": evaluation.get("coverage"),
        "width": None if half_width is None else 2 * half_width,
    }
    return {name: value for name, value in values.items() if value is not None}


def _points(run: Run) -> tuple[np.ndarray | None, float | None, bool]:
    """(m, 2) labels and predictions, or None, half the width of their intervals, or None, and whether they are those of
    `evaluate`."""
    held_out, width = run.last(HeldOut), number(run.evaluation.get("mean_width"))
    evaluated = _matrix(run.evaluation.get("points"), 2)
    points = evaluated if evaluated is not None else _matrix(held_out and held_out.points, 2)
    half_width = None if held_out is None else held_out.half_width
    return points, half_width if width is None else width / 2, evaluated is not None


def _matrix(value: object, width: int | None = None) -> np.ndarray | None:
    values = matrix(value, width)
    return values if values is not None and np.abs(values).max() < LARGEST else None


@plot_each("predicted", "Predictions against labels", f"Dotted: perfect prediction. {DASHED}")
def predicted(run: Run) -> Figure | None:
    points, half_width, _ = _points(run)
    if points is None:
        return None
    y, f = points.T
    ends = np.array([points.min(), points.max()])
    figure, axes = new(3.6, xlabel="label", ylabel="prediction")
    axes.plot(y, f, color=colour(0), **MARKS)
    axes.plot(ends, ends, color=MUTED, ls=":", lw=1.2)
    if half_width is not None:
        for shift in (-half_width, half_width):
            axes.plot(ends, ends + shift, color=colour(1), ls="--", lw=1.2)
        room = 0.05 * float(np.ptp(f)) or 1.0
        axes.set_ylim(float(f.min()) - room, float(f.max()) + room)
    return figure


@plot_each("residual", "Residuals", f"Label minus prediction. {DASHED}")
def residuals(run: Run) -> Figure | None:
    points, half_width, _ = _points(run)
    if points is None:
        return None
    y, f = points.T
    figure, axes = new(xlabel="prediction", ylabel="residual")
    axes.plot(f, y - f, color=colour(0), **MARKS)
    axes.axhline(0.0, color=MUTED, ls=":", lw=1.2)
    for end in () if half_width is None else (-half_width, half_width):
        axes.axhline(end, color=colour(1), ls="--", lw=1.2)
    return figure


@plot_each("histogram", "Distribution of residuals", DASHED)
def histogram(run: Run) -> Figure | None:
    points, half_width, _ = _points(run)
    if points is None:
        return None
    errors = points[:, 0] - points[:, 1]
    low, high = float(errors.min()), float(errors.max())
    width = max(high - low, 1e-6 * max(abs(low), abs(high))) or 1.0  # they may be nearly equal
    counts, edges = np.histogram(errors, (low + high) / 2 + np.linspace(-width / 2, width / 2, BINS + 1))
    figure, axes = new(2.6, xlabel="residual", ylabel="rows")
    _bars(axes, edges, counts, color=colour(0))
    for end in () if half_width is None else (-half_width, half_width):
        axes.axvline(end, color=colour(1), ls="--", lw=1.2)
    return figure


@plot_all("coverage", "Coverage")
def coverage(runs: Sequence[Run]) -> Figure | None:
    """Share of the test rows inside the intervals of each level. Dotted: the nominal level."""
    lines: list[Line] = []
    for run in runs:
        rows = _matrix(run.evaluation.get("coverages"), 3)
        lines.append((run.name, *(np.empty((0, 3)) if rows is None else rows).T[:2]))
    if not most_points(lines):
        return None
    figure, axes = new(3.6, xlabel="level", ylabel="coverage", xlim=(0, 1), ylim=(0, 1.03))
    axes.plot([0, 1], [0, 1], color=MUTED, ls=":", lw=1)
    draw_lines(axes, lines)
    return finish(figure, axes, is_shared=len(runs) > 1)


@plot_each("decisions", "Decision values")
def decisions(run: Run) -> Figure | None:
    """Test rows by decision value. Rows below 0 are predicted outliers."""
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
