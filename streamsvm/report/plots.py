"""How a run went, as plots, and what plots of all kinds are drawn with."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count, groupby, pairwise
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from streamsvm.events import Compressed, Event, Learnt, Memory, Record, Round, Scope, Step, Stretch, TasksRun, Window
from streamsvm.report.drawing import (
    ALERT,
    DASHES,
    INK,
    MUTED,
    SERIES,
    bytes_unit,
    few_x,
    finish,
    from_zero,
    hint,
    new,
    phase_name,
    scale_y,
    short,
    thinned,
    time_unit,
    whole_x,
)
from streamsvm.report.parts import plot_all, plot_each
from streamsvm.report.read import Run, by_number, columns, matrix
from streamsvm.runs.records import number, table, table_rows
from streamsvm.storage.text import human, human_bytes, number_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_LETTERS = 50  # of the names below a table of cells, beside each other
SHORTEST = 0.01  # share of a run's time from which a phase is compared
LIMIT_SHOWN = 4  # times the most memory that was held, up to which its limit is drawn
MOST_LABELS = MOST_PHASES = 7  # of a stream and of a timeline, with a colour of their own
MOST_LANES_SHOWN = 32
MOST_LANES = 1 << 16  # of a phase
HEIGHT = 0.76  # of a lane's bars
LEAST_SHOWN = 0.01  # of a run's time that some thread or worker is busy: less says nothing about the run
Line = tuple[str, np.ndarray, np.ndarray]  # its name, x and y
E = TypeVar("E", bound=Event)


def line(name: str, records: Iterable[Record[E]], y: Callable[[E], float | None]) -> Line:
    """A value of one kind of event, over time."""
    at, values = columns(2, ((t, y(event)) for t, event in records))
    return name, at, values


def most_points(lines: Iterable[Line]) -> int:
    """Of a line."""
    return max((len(x) for _, x, _ in lines), default=0)


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


def bars(lengths: Sequence[float], names: Sequence[str], texts: Sequence[str], each: float, xlabel: str) -> Any:
    """A figure of horizontal bars with their texts, the first on top, and its axes. each: inches of a bar."""
    figure, axes = new(0.9 + each * len(names), xlabel=xlabel)
    drawn = axes.barh(range(len(names)), lengths, 0.7, color=colour(0))
    axes.bar_label(drawn, texts, padding=3, fontsize=9)
    axes.set_yticks(range(len(names)), names)
    top_down(axes)
    return figure, axes


def top_down(axes: Axes) -> None:
    """Bars from the top, with room for their texts."""
    axes.invert_yaxis()
    axes.grid(visible=False, axis="y")
    axes.margins(x=0.18)


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


def _over_time(lines: Sequence[Line], ylabel: str) -> Figure | None:
    """A line of each run, x in seconds; None where there are single points at most."""
    if most_points(lines) < 2:
        return None
    seconds, unit = time_unit(max(x[-1] for _, x, _ in lines if len(x)))
    figure, axes = new(xlabel=unit, ylabel=ylabel)
    draw_lines(axes, [(name, x / seconds, y) for name, x, y in lines])
    scale_y(axes, *(y for _, _, y in lines))
    return finish(figure, axes, is_shared=len(lines) > 1)


def _whole(run: Run, *scopes: Scope) -> Sequence[Record[Step | Round]]:
    """Steps whose objective is that of the whole problem, or the rounds of phases of these scopes."""
    rounds = [record for record in run.of(Round) if record.event.phase.scope in scopes]
    alone = all(event.problem == 0 for _, event in rounds)
    steps = [record for record in run.of(Step) if record.event.objective is not None]
    return steps or (rounds if alone else [])


@plot_all("objective", "Objective")
def objective(runs: Sequence[Run]) -> Figure | None:
    """Objective of the whole problem. Rounds in which some rows are left out are not shown."""
    # where only some rows are free, as in refine, the others are 0: this too is a point of the whole problem
    lines = [line(run.name, _whole(run, "whole", "some rows"), lambda event: event.objective) for run in runs]
    return _over_time(lines, "objective")


@plot_all("gap", "Relative gap")
def gap(runs: Sequence[Run]) -> Figure | None:
    """Duality gap, relative to the objective: an upper bound on the distance to the optimum."""
    lines = []
    for run in runs:
        records = _whole(run, "whole")
        t, value, size = columns(3, ((t, event.gap, event.objective) for t, event in records))
        if records and isinstance(records[0].event, Step):  # cutting planes tell it so
            size = np.ones_like(size)
        is_shown = (value > 0) & (size != 0)
        lines.append((run.name, t[is_shown], (value / np.abs(np.where(size, size, 1)))[is_shown]))
    return _over_time(lines, "gap / |objective|")


def _rounds_by_phase(run: Run) -> Iterator[tuple[str, list[Round]]]:
    """(phase, its rounds in order, those of each problem after the ones before) of solvers by rounds."""
    every = run.events(Round)
    for phase in dict.fromkeys(event.phase for event in every):
        rounds = sorted((event for event in every if event.phase == phase), key=_problem)
        problems = (list(group) for _, group in groupby(rounds, key=_problem))
        yield phase, [event for events in problems for event in by_number(events, lambda event: event.round)]


def _problem(event: Round) -> int:
    return event.problem or 0


@plot_all("violation", "Largest violation")
def violation(runs: Sequence[Run]) -> Figure | None:
    """Largest violation of the KKT conditions after each round. A run ends at tol. The rounds of several problems, such
    as pairs of classes, follow one another."""
    lines: list[Line] = []
    for run in runs:
        for phase, rounds in _rounds_by_phase(run):
            [y] = columns(1, ([event.violation] for event in rounds))
            name = phase_name(phase) if len(runs) == 1 else f"{run.name}: {phase_name(phase)}"
            lines.append((name, np.arange(1, len(y) + 1)[y > 0], y[y > 0]))
    if most_points(lines) < 2:
        return None
    figure, axes = new(xlabel="round", ylabel="largest violation")
    whole_x(axes)
    draw_lines(axes, lines)
    tols = {number(run.config.get("tol")) for run in runs} - {None}
    for tol in tols:
        axes.axhline(tol, color=ALERT, ls=":", lw=1.2, label="tol" if len(tols) == 1 else None)
    scale_y(axes, *(y for _, _, y in lines))
    return finish(figure, axes, is_shared=len(runs) > 1)


@plot_all("residuals", "Residuals of ADMM")
def residuals(runs: Sequence[Run]) -> Figure | None:
    """Relative primal and dual residual after each step."""
    lines: list[Line] = []
    for run in runs:
        steps = by_number(run.events(Step), lambda step: step.step)
        x, *both = columns(3, ((step.step, step.primal, step.dual) for step in steps))
        for name, y in zip(("primal", "dual"), both, strict=True):
            lines.append((name if len(runs) == 1 else f"{run.name}: {name}", x[y > 0], y[y > 0]))
    if not most_points(lines):
        return None
    figure, axes = new(xlabel="step", ylabel="relative residual")
    whole_x(axes)
    draw_lines(axes, lines)
    scale_y(axes, *(y for _, _, y in lines))
    return finish(figure, axes)


@plot_each("working-sets", "Working sets")
def working_sets(run: Run) -> Figure | None:
    """Rows optimised together in each round, and rows not left out by shrinking."""
    lines: list[Line] = []
    for _, rounds in _rounds_by_phase(run):
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


@plot_each("planes", "Cutting planes")
def planes(run: Run) -> Figure | None:
    """Best objective so far (upper bound), and the lower bound given by the planes."""
    steps = by_number(run.events(Step), lambda step: step.passes)
    x, upper, lower = columns(3, ((step.passes, step.objective, step.bound) for step in steps))
    if not len(x):
        return None
    figure, axes = new(xlabel="passes over the rows", ylabel="objective")
    whole_x(axes)
    shown = [("objective", x, upper), ("bound", x[lower > 0], lower[lower > 0])]
    draw_lines(axes, [line for line in shown if len(line[1])])
    axes.fill_between(x, np.where(lower > 0, lower, np.nan), upper, color=colour(0), alpha=0.12, lw=0)
    scale_y(axes, *(y for _, _, y in shown))
    return finish(figure, axes)


@plot_each("ranks", "Ranks by level")
def ranks(run: Run) -> Figure | None:
    """Mean and largest rank of the off-diagonal blocks. Low ranks need little time and memory."""
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


@plot_all("budget", "Accuracy and support vectors")
def budget(runs: Sequence[Run]) -> Figure | None:
    """Accuracy on each block of rows before training on it, number of support vectors, and cumulative weight
    degradation of merging, the sum of |w' - w|\u00b2."""
    # what a learner reported: windows of a fit, or stretches of a stream
    by_run: list[tuple[str, Sequence[Learnt]]] = [(run.name, run.events(Window) or run.events(Stretch)) for run in runs]
    if max(sum(event.supports is not None for event in events) for _, events in by_run) < 2:
        return None
    figure, panels = new(5.4, 3)
    for label, axes in zip(("accuracy", "supports", "degradation"), panels, strict=True):
        lines: list[Line] = []
        for name, events in by_run:
            x, y = columns(2, ((event.steps, getattr(event, label)) for event in events))
            lines.append((name, x, y))
        draw_lines(axes, lines)
        axes.set_ylabel("support vectors" if label == "supports" else label)
    figure.align_ylabels(panels)
    from_zero(panels[1])
    panels[-1].set_xlabel("rows learned")
    few_x(panels[-1])
    return finish(figure, panels[0], is_shared=len(runs) > 1)


@plot_all("pace", "Speed")
def pace(runs: Sequence[Run]) -> Figure | None:
    """Events per second, and the time to answer and learn an event: mean (line) and slowest (dots)."""
    by_run = [(run.name, _rates(run), _latencies(run)) for run in runs]
    rates: list[Line] = [(name, at, rate) for name, (at, rate), _ in by_run]
    if not most_points(rates):
        return None
    if not any(len(at) for _, _, (at, *_) in by_run):
        figure, axes = new(xlabel="events", ylabel="events / s")
        draw_lines(axes, rates)
        few_x(axes)
        return finish(figure, axes, is_shared=len(runs) > 1)
    figure, (above, below) = new(4.4, 2)
    draw_lines(above, rates)
    draw_lines(below, [(name, at, mean) for name, _, (at, mean, _) in by_run])
    for i, (_, _, (at, _, slowest)) in enumerate(by_run):
        if len(at):
            below.plot(at, slowest, ls="", marker=".", ms=4, color=colour(i), label="slowest")
    above.set_ylabel("events / s")
    below.set(ylabel="ms an event", xlabel="events")
    scale_y(below, *(values for _, _, (_, *both) in by_run for values in both if len(values)))
    few_x(below)
    figure.align_ylabels([above, below])
    return finish(figure, above, is_shared=len(runs) > 1)


def _rates(run: Run) -> list[np.ndarray]:
    """Events, and events a second since the record before."""
    both = pairwise(run.of(Stretch))
    pairs = [(number(new.event.events), number(old.event.events), new.t - old.t) for old, new in both]
    return columns(2, ((n, (n - m) / t) for n, m, t in pairs if n is not None and m is not None and t > 0 and n > m))


def _latencies(run: Run) -> list[np.ndarray]:
    """Events, and the mean and largest milliseconds to answer and learn one."""
    times = ((event.events, event.answer_s, event.slowest_s) for event in run.events(Stretch))
    at, mean, slowest = columns(3, times)
    return [at, 1e3 * mean, 1e3 * slowest]


@plot_each("labels", "Labels over time")
def labels(run: Run) -> Figure | None:
    """Share of each label among the events."""
    counted = [(number(event.events), _counts(event)) for event in run.events(Stretch)]
    with_labels = [(at, counts) for at, counts in counted if at is not None and sum(counts.values()) > 0]
    if len(with_labels) < 2:
        return None
    total: Counter[str] = Counter()
    for _, counts in with_labels:
        total.update(counts)
    names = sorted(name for name, _ in total.most_common(MOST_LABELS))
    shares = np.array([[counts.get(name, 0) / sum(counts.values()) for name in names] for _, counts in with_labels]).T
    figure, axes = new(xlabel="events", ylabel="share of the events", ylim=(0, 1))
    if len(total) > len(names):
        shares = np.vstack([shares, 1 - shares.sum(axis=0)])
    texts = [*map(short, names), "others"][: len(shares)]
    colours = [colour(i) for i in range(len(shares))]
    axes.stackplot([at for at, _ in with_labels], *shares, labels=texts, colors=colours, alpha=0.75, lw=0)
    few_x(axes)
    return finish(figure, axes)


def _counts(event: Stretch) -> dict[str, float]:
    return {name: n for name, value in table(event.labels).items() if (n := number(value)) is not None and n > 0}


def _caption_of_phases(runs: Sequence[Run]) -> str:
    """What the bars add up to."""
    nested = "Nested phases are counted once."
    seconds = runs[0].result.get("seconds") if len(runs) == 1 else None
    if "start" not in table(runs[0].result.get("seconds_by_phase")) or number(seconds) is None:
        return nested
    return f"{nested} All add up to {human('seconds', seconds)}."


@plot_all("phases", "Time by phase", _caption_of_phases)
def phases(runs: Sequence[Run]) -> Figure | None:
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
        ticks += zip(at.tolist(), map(phase_name, seconds), strict=True)
    axes.set_yticks([at for at, _ in ticks], [name for _, name in ticks])
    top_down(axes)
    return finish(figure, axes, is_shared=len(runs) > 1)


def _seconds(run: Run, least: float) -> dict[str, float]:
    """By phase, those that took at least this share; nested phases are counted once."""
    by_phase = table(run.result.get("seconds_by_phase"))
    seconds = {name: s for name, value in by_phase.items() if (s := number(value)) is not None and s > 0}
    return {name: s for name, s in seconds.items() if s >= least * sum(seconds.values())}


def _caption_of_memory(runs: Sequence[Run]) -> str:
    """What the picture shows, and the limit that is too far above to be in it."""
    resident = [event.rss_bytes for run in runs for event in run.events(Memory)]
    above = [limit for limit in _limits(runs) if limit >= LIMIT_SHOWN * max(resident, default=0)]
    limit = f" The limit of {human_bytes(above[0])} is far above and not drawn." if above else ""
    return f"Resident memory of all processes of the run, sampled every second.{limit}"


@plot_all("memory", "Memory", _caption_of_memory)
def memory(runs: Sequence[Run]) -> Figure | None:
    lines = [line(run.name, run.of(Memory), lambda event: event.rss_bytes) for run in runs]
    most = max((y.max() for _, _, y in lines if len(y)), default=0.0)
    if not most:
        return None
    unit, name = bytes_unit(most)
    seconds, per = time_unit(max(x[-1] for _, x, _ in lines if len(x)))
    figure, axes = new(xlabel=per, ylabel=name)
    draw_lines(axes, [(run, x / seconds, y / unit) for run, x, y in lines])
    for limit in _limits(runs):
        if limit < LIMIT_SHOWN * most:
            label = f"limit {number_text(limit / unit)} {name}"
            axes.axhline(limit / unit, color=ALERT, ls="--", lw=1.2, label=label)
            most = max(most, limit)
    axes.set_ylim(0, 1.06 * most / unit)
    return finish(figure, axes, is_shared=len(runs) > 1)


def _limits(runs: Sequence[Run]) -> list[int]:
    """Bytes that the runs were to stay below, each limit once."""
    return sorted({limit for run in runs if (limit := run.started.limit_bytes) is not None})


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


def _lanes_of(run: Run) -> list[Lanes]:
    """Of each thread or worker, its threads counted from 0; the busiest first."""
    by_name: dict[str, Lanes] = {}
    for event in run.events(TasksRun):
        if (spans := matrix(event.spans, 3)) is None:
            continue
        workers = event.workers or ()
        numbers = np.clip(spans[:, 0], 0, MOST_LANES).astype(int).tolist()
        names = np.array([f"worker {workers[i]}" if i < len(workers) else f"thread {i + 1}" for i in numbers])
        for name in dict.fromkeys(names.tolist()):
            of_name = spans[names == name]
            of_name[:, 0] = np.unique(of_name[:, 0], return_inverse=True)[1]
            by_name.setdefault(name, Lanes(name)).phases.append((event.phase, of_name))
    return sorted(by_name.values(), key=lambda lanes: -lanes.busy)


@plot_each("tasks", "Timeline of tasks")
def timeline(run: Run) -> Figure | None:
    """Tasks by the thread of this machine or the worker that ran them, the busiest first. Tasks too short to be seen
    are left out. Point at a task to read its phase and times."""
    every = _lanes_of(run)
    if not every or max(lanes.busy for lanes in every) < LEAST_SHOWN * (run.seconds or 0.0):
        return None
    shown = every if len(every) <= MOST_LANES_SHOWN else every[: MOST_LANES_SHOWN - 1]
    others = every[len(shown) :]  # in one row, as high as there are threads at work
    unit, xlabel = time_unit(max(float(spans[:, 2].max()) for lanes in every for _, spans in lanes.phases))
    figure, axes = new(1.6 + 0.3 * (len(shown) + bool(others)), xlabel=xlabel)
    colours, hints = _colours_of_phases(axes, every), count()
    for row, lanes in enumerate(shown):
        height = HEIGHT / lanes.threads  # threads of a worker lie above each other
        for phase, spans in lanes.phases:
            lane, start, end = spans.T
            at = row - HEIGHT / 2 + height * (lane + 0.5)
            drawn = axes.barh(at, (end - start) / unit, height, start / unit, color=colours.get(phase, MUTED))
            for bar, (_, start_s, end_s) in zip(drawn, spans, strict=True):
                seconds = f"{number_text(end_s - start_s)} s on {lanes.name}"
                hint(bar, next(hints), f"{phase}: {seconds}, from second {start_s:,.2f} to {end_s:,.2f}")
    if others:
        _draw_sum(axes, len(shown), others, unit, next(hints))
    names = [short(lanes.name) for lanes in shown] + [f"{len(others):,} others"] * bool(others)
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.grid(visible=False, axis="y")
    return finish(figure, axes, is_shared=True)


def _colours_of_phases(axes: Axes, every: Sequence[Lanes]) -> dict[str, str]:
    """Of the phases that took longest; their names go into the legend in the order in which they began."""
    busy: dict[str, float] = {}
    for lanes in every:
        for phase, spans in lanes.phases:
            busy[phase] = busy.get(phase, 0.0) + _busy(spans)
    longest = sorted(busy, key=lambda phase: -busy[phase])
    colours = {phase: colour(i) for i, phase in enumerate(longest[:MOST_PHASES])}
    began = sorted((spans[:, 1].min(), phase) for lanes in every for phase, spans in lanes.phases)
    for phase in dict.fromkeys(phase if phase in colours else "" for _, phase in began):
        label = short(phase) if phase else "other"
        axes.broken_barh([], (0, 1), facecolors=colours.get(phase, MUTED), label=label)
    return colours


def _draw_sum(axes: Axes, row: int, others: Sequence[Lanes], unit: float, number: int) -> None:
    """How many tasks of these are at work, over time."""
    spans = np.concatenate([spans for lanes in others for _, spans in lanes.phases])
    at = np.concatenate([spans[:, 2], spans[:, 1]])  # at the same time, ends come first
    order = np.argsort(at, kind="stable")
    working = np.cumsum(np.repeat([-1, 1], len(spans))[order])
    foot = row + HEIGHT / 2
    top = foot - HEIGHT * working / working.max()
    area = axes.fill_between(at[order] / unit, foot, top, step="post", color=MUTED)
    seconds = number_text(sum(lanes.busy for lanes in others))
    hint(area, number, f"{len(others):,} others: {seconds} s in all, at most {working.max():,} tasks at a time")
