"""The partitions that DC-SVM divides rows into, as plots and a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from streamsvm.events import PartsSolved
from streamsvm.report.drawing import INK, from_zero, new, number_text, plot
from streamsvm.report.plots import colour
from streamsvm.report.read import Run, columns, matrix
from streamsvm.report.values import Row, table
from streamsvm.runs.records import number

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_NAMED = 20  # parts that a map numbers
MOST_ROWS = 40  # of the table
LARGEST_AREA = 1000.0  # of the largest part on the map, in square points
FEW = 10  # parts, whose sizes need no histogram
FAR = 5.0
MAP, NAME = (190.0, 150.0), (52.0, 11.0)  # width and height of the map and of a name, in points


def parts_of(run: Run) -> list[Row]:
    """Each partition of the level that was solved last: rows, support vectors, seconds, and accuracy in `evaluate`."""
    solved = run.last(PartsSolved)
    if solved is None:
        return []
    parts = [
        {"partition": i, "rows": number(rows), "n_support": number(support), "seconds": number(seconds)}
        for i, (rows, support, seconds) in enumerate(zip(solved.rows, solved.n_support, solved.seconds, strict=False))
    ]
    scored = _scored(run)
    if len(scored) == len(parts):
        parts = [row | more for row, more in zip(parts, scored, strict=True)]
    return [row for row in parts if row["rows"]]


def largest(run: Run) -> list[Row]:
    """The table of the largest partitions."""
    whole = ("rows", "n_support", "rows of evaluate")
    rows = sorted(parts_of(run), key=lambda row: -row["rows"])[:MOST_ROWS]
    return [row | {name: int(row[name]) for name in whole if row.get(name) is not None} for row in rows]


def _scored(run: Run) -> list[Row]:
    scores = table(run.evaluation.get("parts"))
    counts = matrix([scores.get("rows"), scores.get("right")])
    if counts is None:
        return []
    return [{"rows of evaluate": n, "accuracy": right / n if n else None} for n, right in counts.T.tolist()]


@plot
def part_map(run: Run) -> Figure | None:
    """The centres of the partitions in the plane. Areas show rows; darker partitions are more accurate."""
    solved, parts = run.last(PartsSolved), parts_of(run)
    places = None if solved is None else matrix(solved.places, 2)
    if places is None or len(places) != len(parts) or len(parts) < 2:
        return None
    rows = np.array([part["rows"] for part in parts])
    places = drawn_in(places)
    figure, axes = new(3.6, xlabel="first direction", ylabel="second direction")
    axes.set_xticks([])
    axes.set_yticks([])
    axes.margins(0.18)
    area = LARGEST_AREA * rows / rows.max()
    axes.scatter(*places.T, area, color=colour(0), alpha=_shades(parts), edgecolors=INK, linewidths=0.6)
    radius = np.sqrt(area / np.pi)
    for i in apart(places, radius, np.argsort(-rows, kind="stable")):
        above = (0.0, float(radius[i]) + 2)
        axes.annotate(_name(parts[i]), places[i], above, textcoords="offset points", ha="center", fontsize=9)
    return figure


def drawn_in(places: np.ndarray) -> np.ndarray:
    """(partitions, 2) places; if the farthest from their middle are FAR times as far as most, by the logarithm of the
    distance, in the same direction."""
    away = places - np.median(places, axis=0)
    distance = np.linalg.norm(away, axis=1, keepdims=True)
    usual = np.median(distance)
    if not 0 < FAR * usual < distance.max():
        return places
    return away * np.log1p(distance / usual) / np.maximum(distance, np.finfo(np.float64).tiny)


def apart(places: np.ndarray, radius: np.ndarray, order: np.ndarray) -> list[int]:
    """Those to name above their circles, the first in order before others: MOST_NAMED at most, and none where the name
    of one would lie on that of another."""
    at = (places - places.min(axis=0)) / np.maximum(np.ptp(places, axis=0), np.finfo(np.float64).tiny) * MAP
    at[:, 1] += radius
    named: list[int] = []
    for i in order.tolist():
        if all((np.abs(at[i] - at[j]) > NAME).any() for j in named):
            named.append(i)
    return named[:MOST_NAMED]


def _name(part: Row) -> str:
    accuracy = part.get("accuracy")
    return str(part["partition"]) if accuracy is None else f"{part['partition']}: {100 * accuracy:.0f} %"


def _shades(parts: Sequence[Row]) -> np.ndarray:
    """(partitions,) opacity, which rises with accuracy if that is known."""
    accuracies = np.array([np.nan if (a := part.get("accuracy")) is None else a for part in parts], np.float64)
    if np.isnan(accuracies).all():
        return np.full(len(parts), 0.4)
    low, high = np.nanmin(accuracies), np.nanmax(accuracies)
    return np.nan_to_num(0.2 + 0.6 * (accuracies - low) / ((high - low) or 1.0), nan=0.1)


@plot
def part_sizes(run: Run) -> Figure | None:
    """A histogram of the partitions by rows, and the seconds that each took."""
    parts = parts_of(run)
    if len(parts) < 2:
        return None
    rows = np.array([part["rows"] for part in parts])
    x, seconds = columns(2, ((part["rows"], part["seconds"]) for part in parts))
    if len(parts) < FEW:
        figure, below = new()
    else:
        figure, (above, below) = new(4.2, 2)
        above.hist(rows, bins=min(20, len(parts) // 2), color=colour(0))
        above.set_ylabel("partitions")
        figure.align_ylabels([above, below])
    below.plot(x, seconds, "o", ms=5, color=colour(1), alpha=0.7)
    below.set(ylabel="seconds", xlabel="rows in the partition")
    below.locator_params(axis="x", nbins=5)
    below.xaxis.set_major_formatter(lambda value, _: number_text(value))
    if len(x):
        from_zero(below)
    return figure
