"""Scores of a search over two of its options as a picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from streamsvm.data.target import whole_file
from streamsvm.errors import ConfigError

FIRST = ("kernel.gamma", "C")  # the axes, up and right, where both were tried


def draw_heat_map(
    records: Sequence[dict[str, Any]], axes_names: tuple[str, str], scoring: str, path: str | Path
) -> None:
    """Writes mean scores over two of the options that were tried (up, right); over any others, the best one.

    path: .svg or .png. Needs matplotlib; raises ConfigError without it.
    """
    up, right = axes_names
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise ConfigError("pictures need matplotlib: pip install 'streamsvm[plots]'") from None
    values = {name: _values(records, name) for name in (up, right)}
    scores = np.full((len(values[up]), len(values[right])), -np.inf)
    for record in records:
        cell = values[up].index(record[up]), values[right].index(record[right])
        scores[cell] = max(scores[cell], record["mean_score"])
    figure = Figure(figsize=(2 + 0.9 * scores.shape[1], 1.5 + 0.6 * scores.shape[0]), layout="constrained")
    axes = figure.add_subplot(xlabel=right, ylabel=up)
    image = axes.imshow(scores, origin="lower", aspect="auto", cmap="viridis")
    axes.set_xticks(range(len(values[right])), map(_short, values[right]))
    axes.set_yticks(range(len(values[up])), map(_short, values[up]))
    middle = (scores.min() + scores.max()) / 2
    best = np.unravel_index(scores.argmax(), scores.shape)
    for cell, score in np.ndenumerate(scores):
        weight = "bold" if cell == best else "normal"
        colour = "white" if score < middle else "black"
        axes.text(*cell[::-1], f"{score:.4f}", ha="center", va="center", color=colour, weight=weight)
    figure.colorbar(image, ax=axes, label=scoring)
    with whole_file(Path(path)) as file:
        figure.savefig(file, format=Path(path).suffix[1:])


def axes_of(grid: Mapping[str, Sequence[Any]]) -> tuple[str, str]:
    """The options (up, right) of a picture. Raises ConfigError where fewer than two have several values."""
    tried = [name for name, values in grid.items() if len(values) > 1]
    if len(tried) < 2:
        found = tried[0] if tried else "none"
        raise ConfigError(f"--heat-map: found {found} alone with several values, expected two options")
    return FIRST if set(FIRST) <= set(tried) else (tried[1], tried[0])


def _values(records: Sequence[dict[str, Any]], name: str) -> list[Any]:
    found = {str(record[name]): record[name] for record in records}.values()
    return sorted(
        found, key=lambda v: (isinstance(v, str), v) if isinstance(v, int | float | str) else (True, str(v))
    )


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
