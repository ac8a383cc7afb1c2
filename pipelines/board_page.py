"""The board as a page for the browser: ranks with their spread, accuracy over speed, and each stream's course."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np
from board_models import OURS
from board_ranks import Board, Record, accuracies, critical_difference, models_table, streams_table
from prequential import LOOKS
from tables import Share, Table, text, this_run

from streamsvm.report import parts
from streamsvm.report.drawing import MUTED, SERIES, finish, new, number_text, plot, scale_y
from streamsvm.report.html import rendered
from streamsvm.report.plots import draw_lines

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SHOWN = 5  # models of a stream, ours and the best others
SMOOTH = 5  # blocks of a curve whose mean is drawn
NAMED = 4  # of the best, beside their points


def page_of(results: Sequence[Record]) -> str:
    """The page of these results."""
    board, run = Board(results), this_run()
    lead = f"{run.date}, {run.machine['cpu']}, river {run.versions['river']}: {run.command}"
    sections = {
        "Models": _models(board),
        "Streams": [_shown(streams_table(board)), *_courses(board)],
        "Accuracy": [_shown(accuracies(board))],
    }
    shown = [(parts.Section(title.lower(), title), [*own]) for title, own in sections.items()]
    return rendered("Classifiers along streams", lead, shown, made_from="the board's results")


def _models(board: Board) -> Iterable[parts.Part]:
    table = models_table(board)
    told = len(board.models) > 1
    yield _shown(table)
    yield parts.Lines(table.notes)
    caption = "Mean over the streams; bars: the middle half of its ranks" + (
        "; shaded: as good as the best, by Nemenyi's test at 5 %" if told else ""
    )
    yield parts.Plot("ranks", "Mean rank", caption, ranks(board))
    yield parts.Plot("speed", "Accuracy over speed", "Means over the streams, speed geometric", speed(board))
    caption = f"Geometric means over the streams, of ours and the best {SHOWN - 1} others"
    yield parts.Plot("memory", "Memory", caption, memory(board))


def _shown(table: Table) -> parts.Table:
    """Of numbers with units, as the page has them."""
    rows = [
        {name: text(value) if isinstance(value, Share) else value for name, value in row.items()} for row in table.rows
    ]
    return parts.Table("", rows)


def _courses(board: Board) -> Iterable[parts.Plot]:
    caption = f"Of the last tenth of the events; ours and the best {SHOWN - 1} others"
    for i, stream in enumerate(board.streams):
        yield parts.Plot(f"course-{i}", stream, caption, course(board, stream))


def _name(model: str) -> str:
    return model if model == OURS else model.removesuffix("Classifier")


def _ours_first(models: Sequence[str]) -> list[str]:
    """As many as are shown."""
    return sorted(models, key=lambda model: model != OURS)[:SHOWN]


def _colour(model: str) -> str:
    return SERIES[0] if model == OURS else MUTED


@plot
def ranks(board: Board) -> Figure:
    """Mean ranks, the best above, each with the quartiles of its ranks."""
    figure, axes = new(height=0.9 + 0.24 * len(board.models))
    for y, model in enumerate(board.models):
        own = board.ranks(model)
        axes.plot(np.quantile(own, (0.25, 0.75)), (y, y), color=_colour(model), lw=3, alpha=0.4)
        axes.plot(own.mean(), y, "o", color=_colour(model), ms=5)
    if len(board.models) > 1:
        best = board.ranks(board.models[0]).mean()
        apart = critical_difference(len(board.models), len(board.streams))
        axes.axvspan(best, best + apart, color=SERIES[2], alpha=0.12, lw=0)
    axes.set_yticks(range(len(board.models)), [_name(model) for model in board.models])
    axes.set(xlabel="rank", ylim=(len(board.models) - 0.4, -0.6))
    return figure


@plot
def speed(board: Board) -> Figure:
    """A point for each model; the best and the fastest have their names."""
    figure, axes = new(height=4.0)
    rates = {m: [c["events_per_s"] for c in board.of(m) if "events_per_s" in c] for m in board.models}
    for i, model in enumerate(board.models):
        accuracy = board.mean(model, "accuracy")
        if accuracy is None:
            continue
        x, y = float(np.exp(np.mean(np.log(rates[model])))), 100 * accuracy
        axes.plot(x, y, "o", color=_colour(model), ms=6 if model == OURS else 4)
        if i < NAMED or model == OURS:
            axes.annotate(_name(model), (x, y), (4, 3), textcoords="offset points", fontsize=8)
    axes.set(xscale="log", xlabel="events a CPU second", ylabel="accuracy, %")
    axes.xaxis.set_major_formatter(lambda value, _: number_text(value))
    return figure


@plot
def course(board: Board, stream: str) -> Figure:
    """Accuracy over the events, of ours and of the best others."""
    figure, axes = new(height=3.4)
    told = [cell["peer"] for cell in board.on(stream) if "accuracy" in cell]
    lines = []
    for model in _ours_first(told):
        runs = [r["curve"] for r in board.results if (r["stream"], r["model"]) == (stream, model)]
        lines.append((_name(model), *_smooth(runs)))
    draw_lines(axes, lines)
    axes.set(xlabel="events", ylabel="accuracy, %")
    return finish(figure, axes)


@plot
def memory(board: Board) -> Figure:
    """Of models along their streams, of those that came to the end."""
    figure, axes = new(height=3.4)
    lines = []
    for model in _ours_first(board.models):
        runs = [r["memory"] for r in board.results if r["model"] == model and len(r.get("memory", ())) == LOOKS]
        if runs:
            mib = np.exp(np.mean(np.log([[held for _, held in run] for run in runs]), axis=0)) / 2**20
            lines.append((_name(model), np.linspace(100 / LOOKS, 100, LOOKS), mib))
    draw_lines(axes, lines)
    if lines:
        scale_y(axes, *(mib for _, _, mib in lines))
    axes.set(xlabel="events, %", ylabel="MiB")
    return finish(figure, axes)


def _smooth(curves: Sequence[Sequence[tuple[int, float]]]) -> tuple[np.ndarray, np.ndarray]:
    """Events and per cent: the mean of the curves, as long as the shortest, over the last blocks."""
    length = min(map(len, curves))
    at = np.array([x for x, _ in curves[0][:length]], float)
    mean = np.mean([[y for _, y in curve[:length]] for curve in curves], axis=0)
    sums = np.cumsum(np.insert(mean, 0, 0.0))
    ends = np.arange(1, length + 1)
    starts = np.maximum(0, ends - SMOOTH)
    return at, 100 * (sums[ends] - sums[starts]) / (ends - starts)
