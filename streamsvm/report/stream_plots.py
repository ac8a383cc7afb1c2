"""A stream over its events, as plots: how fast it was, and which labels came."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from streamsvm.events import Stretch
from streamsvm.report.drawing import finish, new, number_text, plot, scale_y, short
from streamsvm.report.plots import colour, draw_lines
from streamsvm.report.read import Run, columns
from streamsvm.report.values import table
from streamsvm.runs.records import number

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_LABELS = 7  # with a colour of their own


@plot
def pace(runs: Sequence[Run]) -> Figure | None:
    """Events a second from record to record, and the milliseconds that one takes, in the mean and at most."""
    by_run = [(run.name, _rates(run), _latencies(run)) for run in runs]
    if not any(len(rates[0]) for _, rates, _ in by_run):
        return None
    timed = any(len(at) for _, _, (at, *_) in by_run)
    if not timed:
        figure, axes = new(xlabel="events", ylabel="events / s")
        draw_lines(axes, [(name, at, rate) for name, (at, rate), _ in by_run])
        _events_axis(axes)
        return finish(figure, axes, is_shared=len(runs) > 1)
    figure, panels = new(4.4, 2)
    draw_lines(panels[0], [(name, at, rate) for name, (at, rate), _ in by_run])
    draw_lines(panels[1], [(name, at, mean) for name, _, (at, mean, _) in by_run])
    for i, (_, _, (at, _, slowest)) in enumerate(by_run):
        if len(at):
            panels[1].plot(at, slowest, ls="", marker=".", ms=4, color=colour(i), label="slowest")
    panels[0].set_ylabel("events / s")
    panels[1].set(ylabel="ms an event", xlabel="events")
    scale_y(panels[1], *(values for _, _, (_, *both) in by_run for values in both if len(values)))
    _events_axis(panels[1])
    figure.align_ylabels(panels)
    return finish(figure, panels[0], is_shared=len(runs) > 1)


def _rates(run: Run) -> list[np.ndarray]:
    both = pairwise(run.of(Stretch))
    pairs = [(number(new.event.events), number(old.event.events), new.t - old.t) for old, new in both]
    return columns(2, ((n, (n - m) / t) for n, m, t in pairs if n is not None and m is not None and t > 0 and n > m))


def _latencies(run: Run) -> list[np.ndarray]:
    events = [event for _, event in run.of(Stretch)]
    return columns(
        3,
        (
            (event.events, 1e3 * event.answer_s, 1e3 * event.slowest_s)
            for event in events
            if event.answer_s is not None and event.slowest_s is not None
        ),
    )


@plot
def labels(run: Run) -> Figure | None:
    """The share of each label among the events of each stretch."""
    counted = [(number(event.events), _counts(event)) for _, event in run.of(Stretch)]
    with_labels = [(at, counts) for at, counts in counted if at is not None and sum(counts.values()) > 0]
    if len(with_labels) < 2:
        return None
    total: Counter[str] = Counter()
    for _, counts in with_labels:
        total.update(counts)
    names = [name for name, _ in total.most_common(MOST_LABELS)]
    at = np.array([at for at, _ in with_labels])
    shares = np.array([[counts.get(name, 0) / sum(counts.values()) for name in names] for _, counts in with_labels]).T
    others = 1 - shares.sum(axis=0)
    figure, axes = new(xlabel="events", ylabel="share of the events", ylim=(0, 1))
    order = sorted(names)
    stacked = [shares[names.index(name)] for name in order] + ([others] if len(total) > len(names) else [])
    axes.stackplot(
        at,
        *stacked,
        labels=[*map(short, order), "others"][: len(stacked)],
        colors=[colour(i) for i in range(len(stacked))],
        alpha=0.75,
        lw=0,
    )
    _events_axis(axes)
    return finish(figure, axes)


def _counts(event: Stretch) -> dict[str, float]:
    return {name: n for name, value in table(event.labels).items() if (n := number(value)) is not None and n > 0}


def _events_axis(axes: Axes) -> None:
    axes.locator_params(axis="x", nbins=5)
    axes.xaxis.set_major_formatter(lambda value, _: number_text(value))
