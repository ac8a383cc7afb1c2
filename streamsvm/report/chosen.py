"""What a fit chose from the data, and how it came to it: from the entries `metric` and `expected` of `result.json`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any

import numpy as np

from streamsvm.judging.expected import gain_of_rows
from streamsvm.options.search import FAILED
from streamsvm.report.drawing import ALERT, GRID, INK, MUTED, finish, new, plot, whole_x
from streamsvm.report.metric import is_single
from streamsvm.report.plots import colour
from streamsvm.report.read import Run
from streamsvm.report.values import Row, table, table_rows
from streamsvm.runs.phases import searched_s
from streamsvm.runs.records import number
from streamsvm.solvers.catalogue import DEFAULT_SOLVER
from streamsvm.storage.text import heading, human, score_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

CHOICES = ("kernel", "scale", "gamma", "C", "class_weight")  # of a step
STEP = ("rows", *CHOICES, "columns", "score", "support", "seconds")
MARKERS = "osD^v"
AHEAD = 4  # times the rows of a store, to which scores are extrapolated
APART = 1.8  # times that labels of an axis have to be from each other
COMPARED = {"given_score": "defaults", "plain_score": "without metric"}


@dataclass(frozen=True)
class SearchStep:
    """The best fit of a step of the search; region: whether on rows of a dense region of the store."""

    rows: int
    score: float
    values: Row
    region: bool = False


def facts(run: Run) -> Row:
    """What was chosen, how well it decides held-out rows, and what it is compared with."""
    metric = _metric_of(run)
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
    return choices | _scores(run) | _seconds(run)


def _scores(run: Run) -> Row:
    """Of held-out rows, of what it is compared with, and what to expect."""
    metric, expected = _metric_of(run), table(run.result.get("expected"))
    names = {"held-out rows": "score", "without metric": "plain_score", "with defaults": "given_score"}
    scores = {label: score for label, name in names.items() if (score := number(metric.get(name))) is not None}
    best = scores.get("held-out rows")
    texts = {label: _text(run, score) for label, score in scores.items() if score != best or label == "held-out rows"}
    if (interval := _interval(expected)) is not None:
        mean, low, high = (_text(run, value) for value in interval)
        texts["expected on new rows"] = f"{mean} ({low} to {high})"
    return texts


def _interval(expected: Row) -> tuple[float, float, float] | None:
    """(score, low, high) if all three are known."""
    score, low, high = (number(expected.get(name)) for name in ("score", "low", "high"))
    return None if score is None or low is None or high is None else (score, low, high)


def _seconds(run: Run) -> Row:
    by_phase = table(run.result.get("seconds_by_phase"))
    seconds = searched_s({name: number(value) or 0.0 for name, value in by_phase.items()})
    return {"search": human("seconds", float(seconds))} if seconds else {}


def steps(run: Run) -> list[SearchStep]:
    """Of the search, then those in regions."""
    metric = _metric_of(run)
    return [*_steps(metric.get("rungs")), *_steps(metric.get("regions"), region=True)]


def _steps(value: object, *, region: bool = False) -> Iterator[SearchStep]:
    for row in table_rows(value):
        rows, score = number(row.get("rows")), number(row.get("score"))
        if rows and rows > 0 and score is not None:
            yield SearchStep(int(rows), score, {name: row[name] for name in STEP if is_single(row.get(name))}, region)


def table_of(run: Run) -> list[Row]:
    """Each step."""
    return [step.values | ({"rows": f"{step.rows:,} in a region"} if step.region else {}) for step in steps(run)]


def differences(run: Run) -> list[Row]:
    """Each choice, its values with the best score of each, and how far these differ; the largest difference first.

    Values are compared on the same rows: where most of them were tried. Those of gamma and C are compared for the
    kernel that was chosen.
    """
    metric, comparisons = _metric_of(run), []
    for name, label in COMPARED.items():
        score, other = number(metric.get("score")), number(metric.get(name))
        if score is not None and other is not None and (name == "given_score" or _asks_metric(metric)):
            choice = "all, over the defaults" if name == "given_score" else "metric"
            values = f"chosen: {_text(run, score)}, {label}: {_text(run, other)}"
            comparisons.append({"choice": choice, "difference": abs(score - other), "values": values})
    for name in CHOICES:
        best = _by_value(run, name)
        if best is not None:
            rows, scores = best
            values = ", ".join(f"{_value(value)}: {_text(run, score)}" for value, score in scores)
            difference = scores[0][1] - scores[-1][1]
            comparisons.append({"choice": name, "difference": difference, "values": values, "rows": rows})
    return sorted(comparisons, key=lambda row: -row["difference"])


def values_of(run: Run) -> list[Row]:
    """`differences`, to be read."""
    return [row | {"difference": _points(run, row["difference"])} for row in differences(run)]


def _points(run: Run, difference: float) -> str:
    return f"{100 * difference:.1f} points" if _unit(run)[0] == 100 else f"{difference:.4f}"


def _asks_metric(metric: Row) -> bool:
    return metric.get("kind") not in (None, "none") or "reason" in metric


def _by_value(run: Run, name: str) -> tuple[int, list[tuple[Any, float]]] | None:
    """(rows, (value, its best score) the best first) on as many rows as most values were tried on."""
    kernel = _metric_of(run).get("kernel")
    by_rows: dict[int, dict[Any, float]] = {}
    for step in steps(run):
        value = step.values.get(name)
        if value is None or step.region or (name in ("gamma", "C") and step.values.get("kernel") != kernel):
            continue
        scores = by_rows.setdefault(step.rows, {})
        scores[value] = max(step.score, scores.get(value, -np.inf))
    rows = max(by_rows, key=lambda rows: (len(by_rows[rows]), rows), default=0)
    if len(by_rows.get(rows, ())) < 2:
        return None
    return rows, sorted(by_rows[rows].items(), key=lambda pair: -pair[1])


def _value(value: object) -> str:
    return (value or "none") if isinstance(value, str) else f"{value:.3g}"


def _metric_of(run: Run) -> Row:
    return table(run.result.get("metric"))


def _text(run: Run, score: float) -> str:
    return score_text(_metric_of(run).get("scoring"), score)


def _unit(run: Run) -> tuple[float, str]:
    """What scores are multiplied with for an axis, and its name."""
    scoring = _metric_of(run).get("scoring")
    name = heading(str(scoring or "score"))
    return (100.0, f"{name}, %") if name.endswith("accuracy") else (1.0, name)


@plot
def candidates(run: Run) -> Figure | None:
    """The score of each step in the colour of its kernel, the best so far, and what it is compared with."""
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
        axes.plot(
            x,
            best,
            color=MUTED,
            lw=1.2,
            drawstyle="steps-post",
            label="best so far" if some is search else None,
        )
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
    metric = _metric_of(run)
    score = number(metric.get("score"))
    for (name, label), mark in zip(COMPARED.items(), ("X", "P"), strict=True):
        other = number(metric.get(name))
        if other is not None and other != score:
            axes.plot([x], [per * other], mark, color=ALERT if mark == "X" else INK, ms=6, label=label)
    if score is not None:
        axes.plot([x], [per * score], "*", color=INK, ms=11, label="chosen")


@plot
def influences(run: Run) -> Figure | None:
    """Bars: by how much the best score differs between the values of a choice."""
    choices = differences(run)
    if not choices:
        return None
    per, name = _unit(run)
    unit = f"points of {name.removesuffix(', %')}" if per == 100 else name
    figure, axes = new(0.9 + 0.28 * len(choices), xlabel=unit)
    lengths = [per * row["difference"] for row in choices]
    bars = axes.barh(range(len(choices)), lengths, 0.7, color=colour(0))
    texts = [_points(run, row["difference"]).removesuffix(" points") for row in choices]
    axes.bar_label(bars, texts, padding=3, fontsize=9)
    axes.set_yticks(range(len(choices)), [row["choice"] for row in choices])
    axes.invert_yaxis()
    axes.grid(visible=False, axis="y")
    axes.margins(x=0.18)
    if not max(lengths):
        axes.set_xlim(0, 1)
    return figure


def curve(run: Run) -> list[tuple[int, float]]:
    """(rows, the best score on so many) of the search, few rows first; what was chosen was fitted on the most."""
    best: dict[int, float] = {}
    for step in steps(run):
        if not step.region:
            best[step.rows] = max(step.score, best.get(step.rows, -np.inf))
    score = number(_metric_of(run).get("score"))
    if best and score is not None:
        best[max(best)] = max(best[max(best)], score)
    return sorted(best.items())


def extrapolated(run: Run, rows: np.ndarray) -> np.ndarray:
    """Scores at these numbers of rows (m,), extrapolated from the last two sizes of a search."""
    measured = [(step.rows, step.score) for step in steps(run) if not step.region]
    m, score = curve(run)[-1]
    gains = np.array([gain_of_rows(measured, m, int(n)) for n in rows])
    return 1.0 - (1.0 - score) * (1.0 - gains)


@plot
def learning(run: Run) -> Figure | None:
    """The best score by rows of the sample, and what more rows would gain if the trend continued."""
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
    _expected(axes, table(run.result.get("expected")), n, per)
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


def _expected(axes: Axes, expected: Row, n: float, per: float) -> None:
    """The model's expected score at the rows of the store, with its interval."""
    if (interval := _interval(expected)) is None:
        return
    score, low, high = (per * value for value in interval)
    errors = [[max(0.0, score - low)], [max(0.0, high - score)]]
    axes.errorbar([n], [score], errors, fmt="s", color=colour(1), ms=5, capsize=4, label="expected of the model")
