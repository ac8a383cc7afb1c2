"""What a fit chose from the data, and how it came to it: from the entries of `result.json`.

The entries are `metric`, of a search and the importances of columns in a metric, `parts` and `expected`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any

import numpy as np

from streamsvm.judging.expected import gain_of_rows
from streamsvm.options.search import FAILED
from streamsvm.report.drawing import ALERT, GRID, INK, MUTED, finish, new, short, whole_x
from streamsvm.report.parts import plot_each
from streamsvm.report.plots import bars, cells, colour
from streamsvm.report.read import Run, matrix
from streamsvm.runs.phases import searched_s
from streamsvm.runs.records import Row, number, table, table_rows
from streamsvm.solvers.catalogue import DEFAULT_SOLVER
from streamsvm.storage.text import heading, human, score_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

CHOICES = ("kernel", "scale", "gamma", "C", "class_weight", "multiclass")  # of a step
STEP = ("rows", *CHOICES, "columns", "score", "support", "seconds")
MARKERS = "osD^v"
AHEAD = 4  # times the rows of a store, to which scores are extrapolated
APART = 1.8  # times that labels of an axis have to be from each other
COMPARED = {"given_score": "defaults", "plain_score": "without metric"}
COLUMN_FACTS = {"kind": "metric", "reason": "reason", "columns": "columns that count"}  # and what a page calls them
MOST_BARS = 20
MOST_PARTS = 24  # that fit into a picture
WRITTEN = 8  # columns up to which shares are written into cells


@dataclass(frozen=True)
class SearchStep:
    """The best fit of a step of the search; region: whether on rows of a dense region of the store."""

    rows: int
    score: float
    values: Row
    region: bool = False


def facts(run: Run) -> Row:
    """What was chosen, how well it decides held-out rows, and what it is compared with."""
    metric = run.metric
    if not steps(run) and number(metric.get("score")) is None:
        return {}
    choices: Row = {name: metric[name] for name in CHOICES if is_single(metric.get(name))}
    if is_single(metric.get("kind")):
        choices["metric"] = metric["kind"]
    if (solver := run.result.get("solver", DEFAULT_SOLVER)) != DEFAULT_SOLVER:
        choices["prediction"] = solver
    elif isinstance(exact := run.result.get("exact"), bool):
        choices["prediction"] = "exact" if exact else "early"
    if failed := number(metric.get("failed")):
        choices["fits dropped"] = f"{failed:,.0f}: {FAILED}"
    names = {"held-out rows": "score", "without metric": "plain_score", "with defaults": "given_score"}
    scores = {label: score for label, name in names.items() if (score := number(metric.get(name))) is not None}
    best = scores.get("held-out rows")
    choices |= {
        label: _text(run, score) for label, score in scores.items() if score != best or label == "held-out rows"
    }
    if (interval := _interval(run)) is not None:
        mean, low, high = (_text(run, value) for value in interval)
        choices["expected on new rows"] = f"{mean} ({low} to {high})"
    if (cost := number(table(run.result.get("expected")).get("cost"))) is not None:
        choices["expected cost of a row"] = f"{cost:.4g}"
    by_phase = table(run.result.get("seconds_by_phase"))
    if seconds := searched_s({name: number(value) or 0.0 for name, value in by_phase.items()}):
        choices["search"] = human("seconds", float(seconds))
    return choices


def _interval(run: Run) -> tuple[float, float, float] | None:
    """(score, low, high) to expect, if all three are known."""
    expected = table(run.result.get("expected"))
    score, low, high = (number(expected.get(name)) for name in ("score", "low", "high"))
    return None if score is None or low is None or high is None else (score, low, high)


def steps(run: Run) -> list[SearchStep]:
    """Of the search, then those in regions."""
    every = []
    for name, is_region in (("rungs", False), ("regions", True)):
        for row in table_rows(run.metric.get(name)):
            rows, score = number(row.get("rows")), number(row.get("score"))
            if rows and rows > 0 and score is not None:
                values = {name: row[name] for name in STEP if is_single(row.get(name))}
                every.append(SearchStep(int(rows), score, values, is_region))
    return every


def steps_table(run: Run) -> list[Row]:
    """Each step, to be read."""
    return [step.values | ({"rows": f"{step.rows:,} in a region"} if step.region else {}) for step in steps(run)]


def members(run: Run) -> list[Row]:
    """Those of an ensemble."""
    return table_rows(run.result.get("ensemble"))


def differences(run: Run) -> list[Row]:
    """Each choice, its values with the best score of each, and how far these differ; the largest difference first.

    Values are compared on the same rows: where most of them were tried. Those of gamma and C are compared for the
    kernel that was chosen.
    """
    metric, comparisons = run.metric, []
    has_metric = metric.get("kind") not in (None, "none") or "reason" in metric
    for name, label in COMPARED.items():
        score, other = number(metric.get("score")), number(metric.get(name))
        if score is not None and other is not None and (name == "given_score" or has_metric):
            choice = "all, over the defaults" if name == "given_score" else "metric"
            values = f"chosen: {_text(run, score)}, {label}: {_text(run, other)}"
            comparisons.append({"choice": choice, "difference": abs(score - other), "values": values})
    for name in CHOICES:
        rows, scores = _by_value(run, name)
        if len(scores) > 1:
            values = ", ".join(f"{_value(value)}: {_text(run, score)}" for value, score in scores)
            difference = scores[0][1] - scores[-1][1]
            comparisons.append({"choice": name, "difference": difference, "values": values, "rows": rows})
    return sorted(comparisons, key=lambda row: -row["difference"])


def values_of(run: Run) -> list[Row]:
    """`differences`, to be read."""
    return [row | {"difference": _points(run, row["difference"])} for row in differences(run)]


def _points(run: Run, difference: float) -> str:
    return f"{100 * difference:.1f} points" if _unit(run)[0] == 100 else f"{difference:.4f}"


def _by_value(run: Run, name: str) -> tuple[int, list[tuple[Any, float]]]:
    """(rows, (value, its best score) the best first) on as many rows as most values were tried on."""
    kernel = run.metric.get("kernel")
    by_rows: dict[int, dict[Any, float]] = {}
    for step in steps(run):
        value = step.values.get(name)
        if value is None or step.region or (name in ("gamma", "C") and step.values.get("kernel") != kernel):
            continue
        scores = by_rows.setdefault(step.rows, {})
        scores[value] = max(step.score, scores.get(value, -np.inf))
    rows = max(by_rows, key=lambda rows: (len(by_rows[rows]), rows), default=0)
    return rows, sorted(by_rows.get(rows, {}).items(), key=lambda pair: -pair[1])


def _value(value: object) -> str:
    return (value or "none") if isinstance(value, str) else f"{value:.3g}"


def _text(run: Run, score: float) -> str:
    return score_text(run.metric.get("scoring"), score)


def _unit(run: Run) -> tuple[float, str]:
    """What scores are multiplied with for an axis, and its name."""
    scoring = run.metric.get("scoring")
    name = heading(str(scoring or "score"))
    return (100.0, f"{name}, %") if name.endswith("accuracy") else (1.0, name)


@plot_each("candidates", "Candidates")
def candidates(run: Run) -> Figure | None:
    """Best score of each step of the search on held-out rows; the number of training rows is written above. Then the
    final choice and its baselines. A learned metric is kept only if it wins by more than chance. Regions have other
    held-out rows."""
    every = steps(run)
    if len(every) < 2:
        return None
    per, name = _unit(run)
    search = [step for step in every if not step.region]
    regions = every[len(search) :]
    at = np.array([*range(1, len(search) + 1), *range(len(search) + 3, len(every) + 3)])
    figure, axes = new(3.8, xlabel="step", ylabel=name)
    whole_x(axes)
    _bands(axes, every, at)
    for some, x in ((search, at[: len(search)]), (regions, at[len(search) :])):
        best = np.maximum.accumulate([per * step.score for step in some])
        label = "best so far" if some is search else None
        axes.plot(x, best, color=MUTED, lw=1.2, drawstyle="steps-post", label=label)
    kernels = dict.fromkeys(str(step.values.get("kernel", "")) for step in every)
    for i, kernel in enumerate(kernels):
        places = [j for j, step in enumerate(every) if step.values.get("kernel", "") == kernel]
        y = [per * every[j].score for j in places]
        axes.plot(at[places], y, MARKERS[i % len(MARKERS)], color=colour(i), ms=4.5, label=kernel)
    _compared(axes, run, len(search) + 1, per)
    axes.set_xlim(0, at[-1] + (1 if regions else 2))
    return finish(figure, axes)


def _bands(axes: Axes, every: Sequence[SearchStep], at: np.ndarray) -> None:
    """Steps on the same rows stand on the same ground, their rows above."""
    groups = groupby(zip(every, at.tolist(), strict=True), key=lambda pair: (pair[0].rows, pair[0].region))
    above = axes.get_xaxis_transform()
    for i, ((rows, region), group) in enumerate(groups):
        places = [x for _, x in group]
        low, high = places[0] - 0.5, places[-1] + 0.5
        if i % 2 == 0:
            axes.axvspan(low, high, color=GRID, alpha=0.5, lw=0)
        text = "regions" if region else _thousands(rows)
        axes.text((low + high) / 2, 1.01, text, transform=above, ha="center", va="bottom", fontsize=8, color=MUTED)


def _thousands(rows: int) -> str:
    return f"{rows / 1000:.3g}k" if rows >= 1000 else str(rows)


def _compared(axes: Axes, run: Run, x: float, per: float) -> None:
    """What was chosen, what does without a metric, and what is given, after the search."""
    score = number(run.metric.get("score"))
    for (name, label), mark in zip(COMPARED.items(), ("X", "P"), strict=True):
        other = number(run.metric.get(name))
        if other is not None and other != score:
            axes.plot([x], [per * other], mark, color=ALERT if mark == "X" else INK, ms=6, label=label)
    if score is not None:
        axes.plot([x], [per * score], "*", color=INK, ms=11, label="chosen")


@plot_each("influence", "How much each choice matters")
def influences(run: Run) -> Figure | None:
    """Difference in score between the best and the worst value tried, each at its best, on the same rows."""
    choices = differences(run)
    if not choices:
        return None
    per, name = _unit(run)
    unit = f"points of {name.removesuffix(', %')}" if per == 100 else name
    lengths = [per * row["difference"] for row in choices]
    texts = [_points(run, row["difference"]).removesuffix(" points") for row in choices]
    figure, axes = bars(lengths, [row["choice"] for row in choices], texts, 0.28, unit)
    if not max(lengths):
        axes.set_xlim(0, 1)
    return figure


def curve(run: Run) -> list[tuple[int, float]]:
    """(rows, the best score on so many) of the search, few rows first; what was chosen was fitted on the most."""
    best: dict[int, float] = {}
    for step in steps(run):
        if not step.region:
            best[step.rows] = max(step.score, best.get(step.rows, -np.inf))
    score = number(run.metric.get("score"))
    if best and score is not None:
        best[max(best)] = max(best[max(best)], score)
    return sorted(best.items())


def extrapolated(run: Run, rows: np.ndarray) -> np.ndarray:
    """Scores at these numbers of rows (m,), extrapolated from the last two sizes of a search."""
    measured = [(step.rows, step.score) for step in steps(run) if not step.region]
    m, score = curve(run)[-1]
    gains = np.array([gain_of_rows(measured, m, int(n)) for n in rows])
    return 1.0 - (1.0 - score) * (1.0 - gains)


@plot_each("learning", "Score by rows")
def learning(run: Run) -> Figure | None:
    """Learning curve: best score by number of training rows. Dotted: extrapolated from the last two sizes by a power
    law, not measured. It shows what a longer time budget would gain."""
    measured = curve(run)
    if len(measured) < 2:
        return None
    per, name = _unit(run)
    figure, axes = new(3.4, xlabel="rows to learn from", ylabel=name)
    rows, scores = np.array(measured).T
    axes.plot(rows, per * scores, "o-", color=colour(0), ms=4.5, label="measured")
    n = number(run.result.get("n")) or rows[-1]
    ahead = np.geomspace(rows[-1], AHEAD * max(n, rows[-1]), 30)
    axes.plot(ahead, per * extrapolated(run, ahead), ":", color=colour(0), label="extrapolated")
    twice = extrapolated(run, np.array([2 * rows[-1]]))[0]
    more = f"twice the rows: +{_points(run, twice - scores[-1])}"
    axes.plot([2 * rows[-1]], [per * twice], "o", mfc="none", color=colour(0), ms=6, label=more)
    if (interval := _interval(run)) is not None:
        expected, low, high = (per * value for value in interval)
        errors = [[max(0.0, expected - low)], [max(0.0, high - expected)]]
        axes.errorbar([n], [expected], errors, fmt="s", color=colour(1), ms=5, capsize=4, label="expected of the model")
    axes.set_xscale("log")
    ticks = _apart([int(x) for x in (*rows, n, ahead[-1])])
    axes.set_xticks(ticks, [_thousands(x) for x in ticks], minor=False)
    axes.minorticks_off()
    return finish(figure, axes)


def _apart(rising: Sequence[int]) -> list[int]:
    """Those of these numbers whose labels do not overlap on a logarithmic axis."""
    shown: list[int] = []
    for value in rising:
        if not shown or value > APART * shown[-1]:
            shown.append(value)
    return shown


@dataclass(frozen=True)
class Parts:
    """Names of partitions and columns, and shares (partitions, columns)."""

    names: list[str]
    columns: list[str]
    shares: np.ndarray


def column_facts(run: Run) -> Row:
    """What was learned about columns."""
    labelled = {label: value for name, label in COLUMN_FACTS.items() if is_single(value := run.metric.get(name))}
    n_separate = _of_parts(run).get("own")
    return labelled if number(n_separate) is None else labelled | {"partitions with a separate metric": n_separate}


def shares(run: Run) -> list[Row]:
    """Columns and their share of what all count for, the largest first."""
    importances, columns = run.metric.get("importances"), []
    for pair in importances if isinstance(importances, list) else []:
        share = number(pair[1]) if isinstance(pair, list) and len(pair) == 2 else None
        if share is not None and share >= 0:
            columns.append({"column": str(pair[0]), "share": share})
    return sorted(columns, key=lambda row: -row["share"])


def parts(run: Run) -> Parts | None:
    """The column importances of each partition, the largest first, at most MOST_PARTS; None if all share one metric."""
    by_part = _of_parts(run)
    columns, every = by_part.get("columns"), matrix(by_part.get("shares"))
    if not isinstance(columns, list) or every is None or every.shape[1] != len(columns):
        return None
    sizes = matrix([[size] for size in by_part["rows"]]) if isinstance(by_part.get("rows"), list) else None
    rows = None if sizes is None or len(sizes) != len(every) else sizes[:, 0]
    largest = np.arange(len(every)) if rows is None else np.argsort(-rows, kind="stable")
    shown = largest[:MOST_PARTS].tolist()
    names = [str(p) if rows is None else f"{rows[p]:,.0f} rows" for p in shown]
    return Parts(names, list(map(str, columns)), np.clip(every[shown], 0, 1))


def _of_parts(run: Run) -> Row:
    return table(run.result.get("parts")) or table(run.metric.get("parts"))


def is_single(value: object) -> bool:
    return isinstance(value, str) or number(value) is not None


@plot_each("importances", "Importances", f"The most important columns, {MOST_BARS} at most.")
def importances(run: Run) -> Figure | None:
    columns = shares(run)[:MOST_BARS]
    if not columns:
        return None
    lengths = [100 * row["share"] for row in columns]
    texts = [f"{share:.1f}" for share in lengths]
    figure, axes = bars(lengths, [short(row["column"]) for row in columns], texts, 0.24, "share, %")
    axes.set_ylabel("column")
    return figure


@plot_each(
    "parts",
    "Importance by partition",
    "Importance of each column in the metric of each partition, in percent. "
    f"Only the {MOST_PARTS} largest partitions are shown.",
)
def looks(run: Run) -> Figure | None:
    by_part = parts(run)
    if by_part is None:
        return None
    texts = np.array([[f"{100 * share:.0f}" for share in row] for row in by_part.shares])
    figure, axes = new(1.1 + 0.3 * len(by_part.names), ylabel="partition")
    shade = by_part.shares / max(float(by_part.shares.max()), np.finfo(np.float64).tiny)
    is_written = len(by_part.columns) <= WRITTEN
    cells(axes, shade, texts if is_written else None, by_part.names, by_part.columns)
    return figure
