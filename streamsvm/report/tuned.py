"""The trials of a search over one option, as a plot."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from streamsvm.report.drawing import DASHES, SPREAD, finish, new, number_text, plot, short
from streamsvm.report.plots import colour
from streamsvm.report.read import SCORE, Run, options_of
from streamsvm.report.values import Row
from streamsvm.report.values import label as label_of
from streamsvm.runs.records import number

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_LINES = 8


@plot
def over_option(run: Run) -> Figure | None:
    """Mean score over C, or another option with several numbers, with the standard deviation over folds; a line for
    each choice of the others, those with the best score."""
    trials = [trial for trial in run.tune if number(trial.get(SCORE)) is not None]
    name = across(trials)
    if name is None:
        return None
    lines: dict[str, list[Row]] = {}
    for trial in trials:  # the best first
        if number(trial.get(name)) is not None:
            lines.setdefault(_others(trial, name), []).append(trial)
    score = run.result.get("scoring") or "score"
    figure, axes = new(3.6, xlabel=name, ylabel=f"mean {label_of(str(score))}")
    for i, (label, own) in enumerate(list(lines.items())[:MOST_LINES]):
        points = np.array(
            sorted((float(t[name]), float(t[SCORE]), number(t.get("std_score")) or 0.0) for t in own)
        )
        style = {"color": colour(i), "ls": DASHES[i % len(DASHES)], "marker": "o", "ms": 4, "capsize": 3}
        axes.errorbar(*points.T[:2], yerr=points[:, 2], label=short(label) if label else None, **style)
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
    def text(value: object) -> str:
        found = number(value)
        return str(value) if found is None else number_text(found)

    return ", ".join(
        f"{other.rpartition('.')[2]} {text(trial[other])}"
        for other in options_of([trial])
        if other != name and isinstance(trial[other], str | int | float | bool)
    )
