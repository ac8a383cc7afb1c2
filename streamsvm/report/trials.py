"""Trials of a search over options: a table, the picture of `tune --heat-map`, and scores over one option."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from streamsvm.report.drawing import DASHES, SPREAD, finish, new, plot, short
from streamsvm.report.parts import Table, filled_columns, label, plot_each, titled
from streamsvm.report.plots import cells, colour
from streamsvm.report.read import NOT_OPTIONS, SCORE, Run, options_of
from streamsvm.runs.records import Row, number
from streamsvm.storage.text import number_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_TRIALS = 12
MOST_LINES = 8  # over one option
FIRST = ("kernel.gamma", "C")  # the axes, down and across, where both were tried


def axes_of(tried: Mapping[str, Collection[Any]]) -> tuple[str, str] | None:
    """The options (down, across) of a picture; None where fewer than two have several values."""
    several = [name for name, values in tried.items() if len(values) > 1]
    if len(several) < 2:
        return None
    return FIRST if set(FIRST) <= set(several) else (several[1], several[0])


@plot
def heat_map(trials: Sequence[Row], down: str, across: str) -> Figure | None:
    """The best mean score of each pair of values, over whatever else was tried."""
    rows, columns, scores = grid(trials, down, across)
    if not rows:
        return None
    low, high = np.nanmin(scores), np.nanmax(scores)
    shade = (scores - low) / (high - low) if high > low else np.where(np.isnan(scores), np.nan, 1.0)
    texts = np.array([["" if np.isnan(s) else f"{s:.4f}".lstrip("0") for s in row] for row in scores])
    figure, axes = new(0.9 + 0.42 * len(rows), xlabel=across, ylabel=down)
    cells(axes, shade, texts if len(columns) <= 12 else None, map(_text, rows), map(_text, columns))
    return figure


def grid(trials: Sequence[Row], down: str, across: str) -> tuple[list[Any], list[Any], np.ndarray]:
    """Values (m) and (k) of two options, and the best mean score (m, k) of each pair, NaN where there is none."""
    scored = [t for t in trials if down in t and across in t and number(t.get(SCORE)) is not None]
    rows, columns = (_values(scored, name) for name in (down, across))
    scores = np.full((len(rows), len(columns)), np.nan)
    place = [{str(value): i for i, value in enumerate(values)} for values in (rows, columns)]
    for trial in scored:
        cell = place[0][str(trial[down])], place[1][str(trial[across])]
        scores[cell] = np.fmax(scores[cell], trial[SCORE])
    return rows, columns, scores


def _values(trials: Sequence[Row], name: str) -> list[Any]:
    """Numbers by size, then all else by its text."""
    by_text = {str(trial[name]): trial[name] for trial in trials}
    return sorted(by_text.values(), key=lambda v: (True, 0, str(v)) if number(v) is None else (False, v, ""))


def _text(value: Any) -> str:
    return str(value) if number(value) is None else number_text(value)


@plot_each("tune", "Score by two options")
def by_two_options(run: Run) -> Figure | None:
    """Best mean score of each pair of values, over all other options."""
    axes = axes_of({name: {str(trial.get(name)) for trial in run.tune} for name in options_of(run.tune)})
    return None if axes is None else heat_map(run.tune, *axes)


@plot_each("tuned", "Score by one option")
def over_option(run: Run) -> Figure | None:
    """Mean score on held-out folds. Error bars: standard deviation over the folds."""
    trials = [trial for trial in run.tune if number(trial.get(SCORE)) is not None]
    name = across(trials)
    if name is None:
        return None
    lines: dict[str, list[Row]] = {}  # one for each choice of the other options
    for trial in trials:  # the best first
        if number(trial.get(name)) is not None:
            lines.setdefault(_others(trial, name), []).append(trial)
    score = run.result.get("scoring") or "score"
    figure, axes = new(3.6, xlabel=name, ylabel=f"mean {label(str(score))}")
    for i, (others, points_of) in enumerate(list(lines.items())[:MOST_LINES]):
        points = np.array(
            sorted((float(t[name]), float(t[SCORE]), abs(number(t.get("std_score")) or 0.0)) for t in points_of)
        )
        style = {"color": colour(i), "ls": DASHES[i % len(DASHES)], "marker": "o", "ms": 4, "capsize": 3}
        axes.errorbar(*points.T[:2], yerr=points[:, 2], label=short(others) if others else None, **style)
    values = [float(t[name]) for t in trials if number(t.get(name)) is not None]
    if min(values) > 0 and max(values) >= SPREAD * min(values):
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    return finish(figure, axes, is_shared=any(lines))


def across(trials: list[Row]) -> str | None:
    """C where several were tried, else the option with the most different numbers; None where none has several."""
    counts = {
        name: len({value for trial in trials if (value := number(trial.get(name))) is not None})
        for name in options_of(trials)
    }
    several = {name: count for name, count in counts.items() if count > 1}
    return "C" if "C" in several else max(several, key=several.__getitem__, default=None)


def _others(trial: Row, name: str) -> str:
    """The options of a trial but one, as a text."""
    return ", ".join(
        f"{other.rpartition('.')[2]} {_text(trial[other])}"
        for other in options_of([trial])
        if other != name and isinstance(trial[other], str | int | float | bool)
    )


def trials_tables(runs: Sequence[Run]) -> Iterator[Table]:
    """The best trials of each run."""
    for run in runs:
        if best := run.tune[:MOST_TRIALS]:
            names = [*options_of(run.tune), *NOT_OPTIONS]
            rows = filled_columns([{name: trial.get(name) for name in names} for trial in best])
            yield Table(titled("Trials", run, runs), rows, f"{len(best)} of {len(run.tune)} trials, best first.")
