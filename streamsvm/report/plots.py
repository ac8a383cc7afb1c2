"""How a run went, as plots: each a function from runs to a figure, or None if the runs have no such data."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from streamsvm.events import (
    Compressed,
    Event,
    Learnt,
    Memory,
    Record,
    Round,
    Scope,
    Step,
    Stretch,
    SupportCompared,
    Window,
)
from streamsvm.report.drawing import (
    ALERT,
    DASHES,
    INK,
    MUTED,
    SERIES,
    bytes_unit,
    finish,
    from_zero,
    new,
    number_text,
    plot,
    scale_y,
    short,
    thinned,
    time_unit,
    whole_x,
)
from streamsvm.report.read import Run, by_number, columns
from streamsvm.report.values import table, table_rows
from streamsvm.runs.records import number

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_LETTERS = 50  # of the names below a table of cells, beside each other
SHORTEST = 0.01  # share of a run's time from which a phase is compared
LIMIT_SHOWN = 4  # times the most memory that was held, up to which its limit is drawn
Line = tuple[str, np.ndarray, np.ndarray]  # its name, x and y
E = TypeVar("E", bound=Event)


def line(name: str, records: Iterable[Record[E]], y: Callable[[E], float | None]) -> Line:
    """A value of one kind of event, over time."""
    at, values = columns(2, ((t, y(event)) for t, event in records))
    return name, at, values


def colour(number: int) -> str:
    return SERIES[number % len(SERIES)]


def draw_lines(axes: Axes, lines: Sequence[Line], **more: Any) -> None:
    """Each in its colour and its dashes, single points as marks; a line without points leaves its colour unused, so
    that a run has the same one in every picture."""
    for i, (name, x, y) in enumerate(lines):
        if not len(x):
            continue
        marker = "o" if len(x) < 8 else None
        dashes = DASHES[(i + i // len(SERIES)) % len(DASHES)]  # others when colours come again
        axes.plot(*thinned(x, y), color=colour(i), ls=dashes, marker=marker, ms=4, label=short(name), **more)


def over_time(lines: Sequence[Line], ylabel: str) -> Figure | None:
    """A line of each run, x in seconds; None where there are single points at most."""
    if max((len(x) for _, x, _ in lines), default=0) < 2:
        return None
    seconds, unit = time_unit(max(x[-1] for _, x, _ in lines if len(x)))
    figure, axes = new(xlabel=unit, ylabel=ylabel)
    draw_lines(axes, [(name, x / seconds, y) for name, x, y in lines])
    scale_y(axes, *(y for _, _, y in lines))
    return finish(figure, axes, is_shared=len(lines) > 1)


@plot
def objective(runs: Sequence[Run]) -> Figure | None:
    """The objective of the whole problem during the run, if it is known; a dual objective is below 0.

    If only some rows are free, as in refine, the others are 0: this too is a point of the whole problem.
    """
    return over_time(
        [line(run.name, _whole(run, "whole", "some rows"), lambda event: event.objective) for run in runs],
        "objective",
    )


@plot
def gap(runs: Sequence[Run]) -> Figure | None:
    """Gap over the size of the objective."""
    lines = []
    for run in runs:
        records = _whole(run, "whole")
        t, value, size = columns(3, ((t, event.gap, event.objective) for t, event in records))
        if records and isinstance(records[0].event, Step):  # cutting planes tell it so
            size = np.ones_like(size)
        is_shown = (value > 0) & (size != 0)
        lines.append((run.name, t[is_shown], (value / np.abs(np.where(size, size, 1)))[is_shown]))
    return over_time(lines, "gap / |objective|")


def _whole(run: Run, *scopes: Scope) -> Sequence[Record[Step | Round]]:
    """Steps whose objective is that of the whole problem, or the rounds of phases of these scopes."""
    rounds = [record for record in run.of(Round) if record.event.phase.scope in scopes]
    alone = all(event.problem == 0 for _, event in rounds)
    steps = [record for record in run.of(Step) if record.event.objective is not None]
    return steps or (rounds if alone else [])


def rounds_by_phase(run: Run) -> Iterator[tuple[str, list[Round]]]:
    """(phase, its rounds in order, those of each problem after the ones before) of solvers by rounds."""
    every = [event for _, event in run.of(Round)]
    for phase in dict.fromkeys(event.phase for event in every):
        rounds = sorted((event for event in every if event.phase == phase), key=_problem)
        problems = (list(group) for _, group in groupby(rounds, key=_problem))
        yield phase, [event for events in problems for event in by_number(events, lambda event: event.round)]


def _problem(event: Round) -> int:
    return event.problem or 0


@plot
def violation(runs: Sequence[Run]) -> Figure | None:
    """The largest violation of the KKT conditions after each round."""
    lines: list[Line] = []
    for run in runs:
        for phase, rounds in rounds_by_phase(run):
            [y] = columns(1, ([event.violation] for event in rounds))
            name = phase if len(runs) == 1 else f"{run.name}: {phase}"
            lines.append((name, np.arange(1, len(y) + 1)[y > 0], y[y > 0]))
    if max((len(x) for _, x, _ in lines), default=0) < 2:
        return None
    figure, axes = new(xlabel="round", ylabel="largest violation")
    whole_x(axes)
    draw_lines(axes, lines)
    tols = {number(run.config.get("tol")) for run in runs} - {None}
    for tol in tols:
        axes.axhline(tol, color=ALERT, ls=":", lw=1.2, label="tol" if len(tols) == 1 else None)
    scale_y(axes, *(y for _, _, y in lines))
    return finish(figure, axes, is_shared=len(runs) > 1)


@plot
def residuals(runs: Sequence[Run]) -> Figure | None:
    """Primal and dual residuals of ADMM, relative, after each step."""
    lines: list[Line] = []
    for run in runs:
        x, *both = columns(3, ((step.step, step.primal, step.dual) for step in _steps(run)))
        for name, y in zip(("primal", "dual"), both, strict=True):
            lines.append((name if len(runs) == 1 else f"{run.name}: {name}", x[y > 0], y[y > 0]))
    if not any(len(x) for _, x, _ in lines):
        return None
    figure, axes = new(xlabel="step", ylabel="relative residual")
    whole_x(axes)
    draw_lines(axes, lines)
    scale_y(axes, *(y for _, _, y in lines))
    return finish(figure, axes)


def _steps(run: Run) -> list[Step]:
    return by_number((event for _, event in run.of(Step)), lambda step: step.step)


@plot
def phases(runs: Sequence[Run]) -> Figure | None:
    """Seconds by phase, run by run; nested phases are counted once. Of several runs the phases that matter."""
    by_run = [(run.name, _seconds(run, SHORTEST if len(runs) > 1 else 0.0)) for run in runs]
    rows = sum(len(seconds) for _, seconds in by_run)
    if not rows:
        return None
    figure, axes = new(0.9 + 0.24 * (rows + len(by_run)), xlabel="seconds")
    ticks: list[tuple[float, str]] = []
    for i, (run, seconds) in enumerate(by_run):
        if not seconds:
            continue
        at = np.arange(len(seconds)) + (ticks[-1][0] + 1.6 if ticks else 0)
        bars = axes.barh(at, list(seconds.values()), 0.7, color=colour(i), label=short(run))
        axes.bar_label(bars, [f"{number_text(s)} s" for s in seconds.values()], padding=3, fontsize=9)
        ticks += zip(at.tolist(), map(short, seconds), strict=True)
    axes.set_yticks([at for at, _ in ticks], [name for _, name in ticks])
    axes.invert_yaxis()
    axes.grid(visible=False, axis="y")
    axes.margins(x=0.18)
    return finish(figure, axes, is_shared=len(runs) > 1)


def _seconds(run: Run, least: float) -> dict[str, float]:
    """By phase, those that took at least this share."""
    by_phase = table(run.result.get("seconds_by_phase"))
    seconds = {name: s for name, value in by_phase.items() if (s := number(value)) is not None and s > 0}
    return {name: s for name, s in seconds.items() if s >= least * sum(seconds.values())}


@plot
def memory(runs: Sequence[Run]) -> Figure | None:
    """Resident memory of a run's processes, and its limit where there is room for both."""
    lines = [line(run.name, run.of(Memory), lambda event: event.rss_bytes) for run in runs]
    most = max((y.max() for _, _, y in lines if len(y)), default=0.0)
    if not most:
        return None
    unit, name = bytes_unit(most)
    seconds, per = time_unit(max(x[-1] for _, x, _ in lines if len(x)))
    figure, axes = new(xlabel=per, ylabel=name)
    draw_lines(axes, [(run, x / seconds, y / unit) for run, x, y in lines])
    for limit in limits(runs):
        if limit < LIMIT_SHOWN * most:
            label = f"limit {number_text(limit / unit)} {name}"
            axes.axhline(limit / unit, color=ALERT, ls="--", lw=1.2, label=label)
            most = max(most, limit)
    axes.set_ylim(0, 1.06 * most / unit)
    return finish(figure, axes, is_shared=len(runs) > 1)


def limits(runs: Sequence[Run]) -> list[int]:
    """Bytes that the runs were to stay below, each limit once."""
    return sorted({limit for run in runs if (limit := run.started.limit_bytes) is not None})


@plot
def levels(run: Run) -> Figure | None:
    """Of the support vectors found at a level, how many are ones of the solution, and how many of these it found."""
    compared = by_number((event for _, event in run.of(SupportCompared)), lambda event: event.level)
    number, precision, recall = columns(3, ((event.level, event.precision, event.recall) for event in compared))
    if len(number) < 2:  # the table says it
        return None
    figure, axes = new(xlabel="level, from many partitions to few", ylabel="share of support vectors", ylim=(0, 1.04))
    draw_lines(axes, [("precision", number, precision), ("recall", number, recall)])
    axes.set_xticks(number)
    axes.invert_xaxis()
    return finish(figure, axes)


@plot
def budget(runs: Sequence[Run]) -> Figure | None:
    """Accuracy on each stretch of rows before training on it, support vectors, and what merging has cost."""
    named: tuple[tuple[str, Callable[[Learnt], float | None]], ...] = (
        ("accuracy", lambda event: event.accuracy),
        ("support vectors", lambda event: event.supports),
        ("degradation", lambda event: event.degradation),
    )
    by_run = [(run.name, _learnt(run)) for run in runs]
    if max(sum(event.supports is not None for event in events) for _, events in by_run) < 2:
        return None
    figure, panels = new(5.4, 3)
    for (label, value), axes in zip(named, panels, strict=True):
        draw_lines(axes, [(name, *_over_steps(events, value)) for name, events in by_run])
        axes.set_ylabel(label)
    figure.align_ylabels(panels)
    from_zero(panels[1])
    panels[-1].set_xlabel("rows learned")
    panels[-1].locator_params(axis="x", nbins=5)
    panels[-1].xaxis.set_major_formatter(lambda rows, _: number_text(rows))
    return finish(figure, panels[0], is_shared=len(runs) > 1)


def _over_steps(events: Sequence[Learnt], value: Callable[[Learnt], float | None]) -> tuple[np.ndarray, np.ndarray]:
    steps, values = columns(2, ((event.steps, value(event)) for event in events))
    return steps, values


def _learnt(run: Run) -> list[Learnt]:
    """What a learner reported: windows of a fit, or stretches of a stream."""
    return [event for _, event in run.of(Window)] or [event for _, event in run.of(Stretch)]


@plot
def working_sets(run: Run) -> Figure | None:
    """Rows of each round's working set, and those that were not shrunk."""
    lines: list[Line] = []
    for _, rounds in rounds_by_phase(run):
        active, working = columns(2, ((event.active, event.working_set) for event in rounds))
        x = np.arange(1, len(active) + 1)
        lines += [("rows not shrunk", x, active), ("working set", x, working)]
    lines = [line for line in lines if len(line[1])]
    if not lines:
        return None
    figure, axes = new(xlabel="round", ylabel="rows")
    whole_x(axes)
    draw_lines(axes, lines)
    from_zero(axes)
    return finish(figure, axes)


@plot
def bounds(run: Run) -> Figure | None:
    """The objective, and the bound that the planes give it."""
    steps = by_number((event for _, event in run.of(Step)), lambda step: step.passes)
    x, upper, lower = columns(3, ((step.passes, step.objective, step.bound) for step in steps))
    if not len(x):
        return None
    figure, axes = new(xlabel="passes over the rows", ylabel="objective")
    whole_x(axes)
    shown = [("objective", x, upper), ("bound", x[lower > 0], lower[lower > 0])]
    draw_lines(axes, [line for line in shown if len(line[1])])
    above = np.maximum(lower, 0.0)
    axes.fill_between(x, np.where(above > 0, above, np.nan), upper, color=colour(0), alpha=0.12, lw=0)
    scale_y(axes, *(y for _, _, y in shown))
    return finish(figure, axes)


@plot
def ranks(run: Run) -> Figure | None:
    """Mean and largest rank of the bases at each level of the cluster tree."""
    compressed = run.last(Compressed)
    rows = table_rows(compressed and compressed.hss_ranks)
    mean, most = columns(2, ((row.get("mean"), row.get("most")) for row in rows))
    if not len(mean):
        return None
    x = np.arange(1, len(mean) + 1)
    figure, axes = new(xlabel="level of the cluster tree, from the top", ylabel="rank")
    axes.bar(x, mean, 0.6, color=colour(0), label="mean")
    axes.plot(x, most, "D", color=colour(1), ms=5, label="largest")
    axes.set_xticks(x)
    axes.grid(visible=False, axis="x")
    return finish(figure, axes)


def cells(axes: Axes, values: np.ndarray, texts: np.ndarray | None, rows: Iterable[str], names: Iterable[str]) -> None:
    """A table (m, k) of cells, the darker the nearer a value in [0, 1] is to 1."""
    from matplotlib.patches import Rectangle

    m, k = values.shape
    for (i, j), value in np.ndenumerate(values):
        face = {"facecolor": colour(0), "alpha": 0.06 + 0.64 * float(value)} if value == value else {"fill": False}
        axes.add_patch(Rectangle((j - 0.48, i - 0.48), 0.96, 0.96, **face))
        if texts is not None:
            size = 10 if k <= 10 else 8
            axes.text(j, i, str(texts[i, j]), ha="center", va="center", fontsize=size, color=INK)
    axes.set(xlim=(-0.5, k - 0.5), ylim=(m - 0.5, -0.5))
    across = [short(name) for name in names]
    is_long = k * max(map(len, across)) > MOST_LETTERS and k > 6
    axes.set_xticks(range(k), across, rotation=90 if is_long else 0)
    axes.set_yticks(range(m), [short(name) for name in rows])
    axes.grid(visible=False)
    axes.tick_params(length=0, labelcolor=INK if m <= 12 else MUTED)
    axes.spines[["left", "bottom"]].set_visible(False)
