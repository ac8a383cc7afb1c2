"""What a report shows of how good a model is: scores, threshold, calibration, predictions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from streamsvm.report import numbers, scores
from streamsvm.report.parts import Facts, Part, Table, filled_columns, plot_each, plot_one
from streamsvm.report.read import Run, matrix
from streamsvm.report.values import Row, label, table, table_rows
from streamsvm.runs.records import number
from streamsvm.storage.text import human
from streamsvm.tasks.uncertainty import drawn_units

MEASURES = ("precision", "recall", "f1")  # of a class
MOST_CLASSES = 12  # whose table is unfolded
FEW_CLASSES = 5  # whose confusion is read at a glance
MOST_CONFUSED = 10


def score_tables(runs: Sequence[Run]) -> Iterator[Part]:
    scored = [run for run in runs if run.evaluation]
    if len(runs) == 1 and scored:
        yield Facts(_scores(runs[0]))
    elif scored:
        yield Table("", filled_columns([{"run": run.name} | _scores(run) for run in scored]))
    for run in scored:
        rows = table_rows(run.evaluation.get("per_class"))
        if rows:
            title = "By class" if len(runs) == 1 else f"By class: {run.name}"
            yield Table(title, filled_columns([*rows, *_mean(rows)]), folded=len(rows) > MOST_CLASSES)
        suffix = "" if len(runs) == 1 else f": {run.name}"
        if intervals := table_rows(run.evaluation.get("intervals")):
            named = [row | {"score": label(str(row.get("score", "")))} for row in intervals]
            yield Table(f"95 % confidence intervals, by {drawn_units(run.evaluation)}{suffix}", filled_columns(named))
        for column, values in table(run.evaluation.get("slices")).items():
            if slices := table_rows(values):
                yield Table(f"By {column}{suffix}", filled_columns(slices))


def score(runs: Sequence[Run]) -> Iterator[Part]:
    yield from score_tables(runs)
    caption = "Rows by true and predicted class; the darker, the larger the share of the true class. Empty: none."
    yield from plot_each(runs, "confusion", "Confusion matrix", caption, scores.confusion)
    for run in runs:
        if pairs := _confused(run):
            suffix = "" if len(runs) == 1 else f": {run.name}"
            about = "Of each true class, the rows that were given another one."
            yield Table(f"Largest confusions{suffix}", pairs, about)
    caption = "Rows by decision value and true class. Dotted: the threshold between the two answers."
    yield from plot_each(runs, "by-class", "Decision values by class", caption, scores.histogram)
    caption = "True positive rate over false positive rate, for every threshold. Dotted: chance."
    yield from plot_one("roc", "ROC curve", caption, scores.roc(runs))
    yield from plot_one(
        "precision-recall", "Precision and recall", "For every threshold.", scores.precision_recall(runs)
    )
    caption = "Each class against the rest, the ten most frequent at most. AUC: area under the ROC curve."
    yield from plot_each(runs, "roc-by-class", "ROC curve by class", f"{caption} Dotted: chance.", scores.roc_by_class)
    title = "Precision and recall by class"
    yield from plot_each(runs, "precision-recall-by-class", title, caption, scores.precision_recall_by_class)


def _mean(rows: list[Row]) -> Iterator[Row]:
    """The mean over classes of what is a share, each class counting the same."""
    shares = [[number(row.get(name)) for row in rows] for name in MEASURES]
    complete = [[share for share in column if share is not None] for column in shares]
    if len(rows) > 1 and all(len(column) == len(rows) for column in complete):
        means = {name: sum(column) / len(rows) for name, column in zip(MEASURES, complete, strict=True)}
        yield {"label": "macro average"} | means


def _scores(run: Run) -> Row:
    """Single values of the evaluation; the store it was on first."""
    left_out = ("model", "groups", "seconds", "peak_rss_bytes")
    evaluation = {"store": run.evaluation.get("store")} | run.evaluation
    return {k: v for k, v in evaluation.items() if isinstance(v, int | float | str) and k not in left_out}


def calibration(runs: Sequence[Run]) -> Iterator[Part]:
    caption = "Predicted probability against observed frequency, and rows by probability. Dotted: perfect calibration."
    if len(runs) == 1 and runs[0].evaluation.get("reliability_before"):
        caption += " Before: the logistic function of the decision values, without calibration."
    yield from plot_one("calibration", "Calibration", caption, scores.calibration(runs))


def threshold(runs: Sequence[Run]) -> Iterator[Part]:
    for run in runs:
        chosen = table(run.result.get("threshold"))
        expected = table(chosen.get("expected"))
        rows = [
            {
                "score": name,
                "at the threshold": chosen.get(name),
                "on new rows": number(estimate.get("score")),
            }
            | {end: number(estimate.get(end)) for end in ("low", "high")}
            for name, estimate in ((name, table(value)) for name, value in expected.items())
        ]
        of = f"for {chosen.get('wish')}, by {chosen.get('rows')} held-out rows"
        if labels := [table(row) for row in chosen.get("labels", [])]:
            names = ("label", "value", "precision", "recall", "f1", "balanced_accuracy")
            yield Table(
                f"Thresholds: {of}",
                filled_columns([{n: row.get(n) for n in names} for row in labels]),
            )
        if rows:
            value = "" if labels else f"{human('value', chosen.get('value'))}, "
            yield Table(f"Threshold: {value}{of}" + ("" if len(runs) == 1 else f": {run.name}"), filled_columns(rows))
    caption = "On held-out rows, for every threshold. The point is the one that the model uses."
    yield from plot_each(runs, "threshold", "Precision and recall on held-out rows", caption, scores.threshold)


def predictions(runs: Sequence[Run]) -> Iterator[Part]:
    with_values = [(run, facts) for run in runs if (facts := numbers.facts(run))]
    if len(runs) == 1 and with_values:
        yield Facts(with_values[0][1])
    elif with_values:
        yield Table("", filled_columns([{"run": run.name} | facts for run, facts in with_values]))
    band = "Dashed: prediction intervals, if there are any."
    whole = f"Dotted: perfect prediction. {band}"
    yield from plot_each(runs, "predicted", "Predictions against labels", whole, numbers.predicted)
    yield from plot_each(runs, "residual", "Residuals", f"Label minus prediction. {band}", numbers.residuals)
    yield from plot_each(runs, "histogram", "Distribution of residuals", band, numbers.histogram)
    share = "Share of the test rows inside the intervals of each level. Dotted: the nominal level."
    yield from plot_one("coverage", "Coverage", share, numbers.coverage(runs))
    below = "Test rows by decision value. Rows below 0 are predicted outliers."
    yield from plot_each(runs, "decisions", "Decision values", below, numbers.decisions)


def _confused(run: Run) -> list[Row]:
    """The largest off-diagonal entries of a confusion matrix that is too large to read."""
    counts, labels = matrix(run.evaluation.get("confusion")), run.evaluation.get("classes")
    if counts is None or not isinstance(labels, list) or counts.shape != (len(labels),) * 2:
        return []
    if len(labels) <= FEW_CLASSES:
        return []
    wrong = counts * (1 - np.eye(len(labels)))
    largest = [np.unravel_index(i, counts.shape) for i in np.argsort(-wrong, axis=None, kind="stable")]
    return [
        {
            "true": str(labels[i]),
            "predicted": str(labels[j]),
            "rows": int(counts[i, j]),
            "share of the true class": counts[i, j] / counts[i].sum(),
        }
        for i, j in largest[:MOST_CONFUSED]
        if wrong[i, j] > 0
    ]
