"""Scores of a search over two of its options: the picture of `tune --heat-map` and of reports."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from streamsvm.report.drawing import new, number_text, plot
from streamsvm.report.plots import cells
from streamsvm.report.read import SCORE
from streamsvm.report.values import Row
from streamsvm.runs.records import number

if TYPE_CHECKING:
    from matplotlib.figure import Figure

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
    return sorted(by_text.values(), key=lambda v: (False, v, "") if _is_number(v) else (True, 0, str(v)))


def _is_number(value: object) -> bool:
    return number(value) is not None


def _text(value: Any) -> str:
    return number_text(value) if _is_number(value) else str(value)
