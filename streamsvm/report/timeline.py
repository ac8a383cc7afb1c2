"""The tasks of a run over time, in a row for each thread or worker that ran them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING

import numpy as np

from streamsvm.events import TasksRun
from streamsvm.report.drawing import MUTED, finish, hint, new, number_text, plot, short, time_unit
from streamsvm.report.plots import colour
from streamsvm.report.read import Run, matrix

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_PHASES = 7  # with a colour of their own
MOST_ROWS = 32
MOST_LANES = 1 << 16  # of a phase
HEIGHT = 0.76  # of a row's bars
LEAST_SHOWN = 0.01  # of a run's time that some thread or worker is busy: less says nothing about the run


@dataclass
class Lanes:
    """The tasks of a thread or worker by phase, each (m, 3): its thread from 0, start and end in seconds."""

    name: str
    phases: list[tuple[str, np.ndarray]] = field(default_factory=list)

    @property
    def threads(self) -> int:
        return 1 + int(max(spans[:, 0].max() for _, spans in self.phases))

    @property
    def busy(self) -> float:
        return sum(_busy(spans) for _, spans in self.phases)


def _busy(spans: np.ndarray) -> float:
    return float((spans[:, 2] - spans[:, 1]).sum())


def lanes_of(run: Run) -> list[Lanes]:
    """The busiest first."""
    by_name: dict[str, Lanes] = {}
    for _, event in run.of(TasksRun):
        for name, spans in _by_name(event):
            by_name.setdefault(name, Lanes(name)).phases.append((event.phase, spans))
    return sorted(by_name.values(), key=lambda lanes: -lanes.busy)


def _by_name(event: TasksRun) -> Iterator[tuple[str, np.ndarray]]:
    """What each ran, its lanes counted from 0."""
    spans = matrix(event.spans, 3)
    if spans is None:
        return
    names = np.array([_name(lane, event.workers or ()) for lane in np.clip(spans[:, 0], 0, MOST_LANES).astype(int)])
    for name in dict.fromkeys(names.tolist()):
        lanes = spans[names == name]
        lanes[:, 0] = np.unique(lanes[:, 0], return_inverse=True)[1]
        yield name, lanes


def _name(lane: int, workers: Sequence[object]) -> str:
    return f"worker {workers[lane]}" if lane < len(workers) else f"thread {lane + 1}"


@plot
def timeline(run: Run) -> Figure | None:
    """A bar for each task that is long enough to be seen, in the row of its thread or worker, whose threads lie above
    each other. Of many rows, those of the least busy are one, as high as there are threads at work. None if all tasks
    are short next to the run.
    """
    lanes_by_name = lanes_of(run)
    if not lanes_by_name or max(lanes.busy for lanes in lanes_by_name) < LEAST_SHOWN * (run.seconds or 0.0):
        return None
    shown = lanes_by_name if len(lanes_by_name) <= MOST_ROWS else lanes_by_name[: MOST_ROWS - 1]
    others = lanes_by_name[len(shown) :]
    unit, name = time_unit(max(float(spans[:, 2].max()) for lanes in lanes_by_name for _, spans in lanes.phases))
    figure, axes = new(1.6 + 0.3 * (len(shown) + bool(others)), xlabel=name)
    numbers = count()
    _draw_names(axes, lanes_by_name)
    for row, lanes in enumerate(shown):
        _draw(axes, row, lanes, unit, _colours(lanes_by_name), numbers)
    if others:
        _draw_sum(axes, len(shown), others, unit, next(numbers))
    names = [lanes.name for lanes in shown] + [f"{len(others):,} others"] * bool(others)
    axes.set_yticks(range(len(names)), [short(name) for name in names])
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.grid(visible=False, axis="y")
    return finish(figure, axes, is_shared=True)


def _colours(every: Sequence[Lanes]) -> dict[str, str]:
    """Of the phases that took longest."""
    busy: dict[str, float] = {}
    for lanes in every:
        for phase, spans in lanes.phases:
            busy[phase] = busy.get(phase, 0.0) + _busy(spans)
    longest = sorted(busy, key=lambda phase: -busy[phase])
    return {phase: colour(i) for i, phase in enumerate(longest[:MOST_PHASES])}


def _draw_names(axes: Axes, every: Sequence[Lanes]) -> None:
    """Those of the phases, in the order in which they began."""
    colours = _colours(every)
    ran = sorted((spans[:, 1].min(), phase) for lanes in every for phase, spans in lanes.phases)
    for phase in dict.fromkeys(phase if phase in colours else "" for _, phase in ran):
        label = short(phase) if phase else "other"
        axes.broken_barh([], (0, 1), facecolors=colours.get(phase, MUTED), label=label)


def _draw(axes: Axes, row: int, lanes: Lanes, unit: float, colours: dict[str, str], numbers: Iterator[int]) -> None:
    height = HEIGHT / lanes.threads
    for phase, spans in lanes.phases:
        lane, start, end = spans.T
        at = row - HEIGHT / 2 + height * (lane + 0.5)
        bars = axes.barh(at, (end - start) / unit, height, start / unit, color=colours.get(phase, MUTED))
        for bar, (_, start_s, end_s) in zip(bars, spans, strict=True):
            hint(bar, next(numbers), _task(phase, lanes.name, start_s, end_s))


def _task(phase: str, name: str, start: float, end: float) -> str:
    """A task of the timeline in words."""
    return f"{phase}: {number_text(end - start)} s on {name}, from second {start:,.2f} to {end:,.2f}"


def _draw_sum(axes: Axes, row: int, others: Sequence[Lanes], unit: float, number: int) -> None:
    spans = np.concatenate([spans for lanes in others for _, spans in lanes.phases])
    at = np.concatenate([spans[:, 2], spans[:, 1]])  # at the same time, ends come first
    order = np.argsort(at, kind="stable")
    working = np.cumsum(np.repeat([-1, 1], len(spans))[order])
    foot = row + HEIGHT / 2
    top = foot - HEIGHT * working / working.max()
    area = axes.fill_between(at[order] / unit, foot, top, step="post", color=MUTED)
    seconds = number_text(sum(lanes.busy for lanes in others))
    hint(area, number, f"{len(others):,} others: {seconds} s in all, at most {working.max():,} tasks at a time")
