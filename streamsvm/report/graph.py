"""The graph of an early fit as a picture, phase by phase from the top down: `fit --graph`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING

import numpy as np

from streamsvm.report.drawing import GRID, INK, MUTED, PAPER, SERIES, plot

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST = 8  # boxes of a phase; the last but one stands for all that are left out
MOST_ROUNDS = 3  # that are drawn
WIDTH, TITLE, ROW, BOX = 9.6, 0.75, 0.62, 0.36  # inches: of the picture, above it, a phase, a box's height
LEFT, RIGHT = 1.5, 6.9  # ends of boxes
SAID = {
    "sample": "a sample of each partition to split",
    "centres": "k-means of this sample",
    "assign": "a block's rows to the nearest centres",
    "number": "partitions, largest first",
    "regroup": "rows by partition, one file each",
    "parts": "location of each partition's rows",
    "solve": "one subproblem per partition",
    "model": "of all partitions",
}
TIMES = {"sample": "cluster", "solve": "solve"}  # of a report, from this phase on


@dataclass(frozen=True)
class PhaseTasks:
    """A phase: so many tasks of a kind. colour: of its boxes."""

    phase: str
    name: str
    count: int
    colour: str

    @property
    def labels(self) -> list[str]:
        """Of its boxes; those in the middle are left out where there are too many."""
        if self.count == 1:
            return [self.name]
        if self.count <= MOST:
            return [str(i) for i in range(self.count)]
        left = self.count - (MOST - 1)
        return [*(str(i) for i in range(MOST - 2)), f"… × {left:,}", str(self.count - 1)]


def lines_of(tasks: Mapping[str, int]) -> Iterator[PhaseTasks | str]:
    """The phases of a graph with these numbers of rounds, blocks, files and partitions, from the top down, and a note
    instead of rounds that are left out."""
    rounds, alone, many = tasks["rounds"], SERIES[1], SERIES[0]
    for number in range(rounds) if rounds <= MOST_ROUNDS else (0, rounds - 1):
        if number == rounds - 1 and rounds > MOST_ROUNDS:
            yield f"… {rounds - 2} more rounds like these"
        yield PhaseTasks("sample", f"sample {number}", 1, alone)
        yield PhaseTasks("centres", f"centres {number}", 1, alone)
        yield PhaseTasks("assign", f"assign {number}", tasks["blocks"], many)
    yield PhaseTasks("number", "number", 1, alone)
    yield PhaseTasks("regroup", "regroup", tasks["files"], many)
    yield PhaseTasks("parts", "parts", 1, alone)
    yield PhaseTasks("solve", "solve", tasks["parts"], SERIES[2])
    yield PhaseTasks("model", "model", 1, SERIES[3])


def count_of(tasks: Mapping[str, int]) -> int:
    """All tasks of such a graph."""
    return tasks["rounds"] * (2 + tasks["blocks"]) + tasks["files"] + tasks["parts"] + 3


@plot
def graph_picture(tasks: Mapping[str, int], seconds: Mapping[str, float], title: str) -> Figure:
    """tasks: numbers of rounds, blocks, files and partitions of a fit, from its result. seconds: of its phases."""
    from matplotlib.figure import Figure

    lines = list(lines_of(tasks))
    height = TITLE + ROW * len(lines)
    figure = Figure(figsize=(WIDTH, height))
    axes = figure.subplots(subplot_kw={"xlim": (0, WIDTH), "ylim": (0, height)})
    axes.set_axis_off()
    axes.text(0.15, height - 0.2, title, fontsize=11, weight="bold", va="center")
    about = f"One dask graph of {count_of(tasks):,} tasks. Arrows: results that tasks wait for; rows go through files"
    axes.text(0.15, height - 0.48, about, color=MUTED, fontsize=8.5, va="center")
    tops = height - TITLE - ROW * (np.arange(len(lines)) + 0.5)
    above: list[float] = []
    for line, y in zip(lines, tops, strict=True):
        if isinstance(line, str):
            places = [(LEFT + RIGHT) / 2]
            axes.text(places[0], y, line, color=MUTED, ha="center", va="center", style="italic")
        else:
            places = _boxes(axes, line, y)
            _words(axes, line, y)
        _arrows(axes, above, y + ROW, places, y)
        above = places
    _times(axes, lines, tops, seconds)
    return figure


def _boxes(axes: Axes, line: PhaseTasks, y: float) -> list[float]:
    """Draws the tasks of a phase. Returns the x of their middles."""
    from matplotlib.patches import FancyBboxPatch

    labels = line.labels
    wide, step = 1.1 if len(labels) == 1 else 0.5, (RIGHT - LEFT) / len(labels)
    middles = [LEFT + step * (i + 0.5) for i in range(len(labels))]
    for label, x in zip(labels, middles, strict=True):
        is_left_out = label.startswith("…")
        box_width = wide + 0.08 * is_left_out
        box = FancyBboxPatch(
            (x - box_width / 2, y - BOX / 2),
            box_width,
            BOX,
            boxstyle="round,pad=0,rounding_size=0.07",
            facecolor=PAPER if is_left_out else line.colour,
            edgecolor=line.colour,
            linewidth=1.2,
            linestyle=":" if is_left_out else "-",
            zorder=2,
        )
        axes.add_patch(box)
        colour, size = INK if is_left_out else PAPER, min(9 - is_left_out, 110 * box_width / len(label))
        axes.text(x, y, label, color=colour, ha="center", va="center", fontsize=size, zorder=3)
    return middles


def _arrows(axes: Axes, above: list[float], top: float, below: list[float], y: float) -> None:
    """From each box of a phase to each of the next: one of the two has a single one."""
    style = {"arrowstyle": "-|>", "color": MUTED, "lw": 0.7, "mutation_scale": 7, "shrinkA": 0}
    for start, end in product(above, below):
        foot, head = (start, top - BOX / 2), (end, y + BOX / 2 + 0.01)
        axes.annotate("", xy=head, xytext=foot, arrowprops=style, zorder=1)


def _words(axes: Axes, line: PhaseTasks, y: float) -> None:
    count = "one task" if line.count == 1 else f"{line.count:,} tasks"
    axes.text(0.15, y + 0.08, line.name, weight="bold", va="center", fontsize=9.5)
    axes.text(0.15, y - 0.11, count, color=MUTED, va="center", fontsize=8)
    axes.text(RIGHT + 0.15, y, SAID[line.phase], color=MUTED, va="center", fontsize=8)


def _times(axes: Axes, lines: list[PhaseTasks | str], tops: np.ndarray, seconds: Mapping[str, float]) -> None:
    """Seconds of the phases of a report, where their first tasks are."""
    shown = set[str]()
    for line, y in zip(lines, tops, strict=True):
        name = TIMES.get(line.phase, "") if isinstance(line, PhaseTasks) else ""
        if name in shown or name not in seconds:
            continue
        shown.add(name)
        edge = y + ROW / 2
        axes.plot([0.15, WIDTH - 0.15], [edge, edge], color=GRID, lw=0.8, zorder=0)
        axes.text(WIDTH - 0.15, edge - 0.12, f"{name}: {seconds[name]:.1f} s", ha="right", va="center", fontsize=8.5)
