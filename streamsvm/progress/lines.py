"""Progress and rounds as lines of text, for logs and notebooks; `verbose` of the estimators."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta

from streamsvm.events import STEPS, Event, Joined, Progress, Record, Sink
from streamsvm.storage.text import brief, heading

EVERY_S = 5.0  # between lines of progress if stderr is not a terminal but a notebook or a log
Say = Callable[[str], None]


class MinuteLines:
    """An event sink for logs of batch jobs: prints the last progress of each minute in a line."""

    def __init__(self, say: Say, every_s: float = 60.0) -> None:
        self._say, self._every_s, self._said = say, every_s, 0.0

    def __call__(self, record: Record[Event]) -> None:
        if isinstance(record.event, Progress) and record.t - self._said >= self._every_s:
            self._said = record.t
            self._say(f"{line_of(record.event)}  {timedelta(seconds=round(record.t))}")


def step_lines(say: Say) -> Sink:
    """An event sink that prints each step of a solver in a line."""

    def sink(record: Record[Event]) -> None:
        if isinstance(record.event, STEPS):
            values = {name: value for name, value in vars(record.event).items() if value is not None}
            facts = "  ".join(f"{heading(name)} {brief(value)}" for name, value in values.items())
            say(f"{record.t:.1f} s  {facts}")

    return sink


def cluster_lines(say: Say) -> Sink:
    """An event sink that prints the cluster that computes from now on, in a line."""

    def sink(record: Record[Event]) -> None:
        if isinstance(event := record.event, Joined):
            counts = "  ".join(f"{name} {count}" for name, count in event.facts.items())
            say(f"on {event.scheduler}  {counts}" + (f"  {event.dashboard}" if event.dashboard else ""))

    return sink


@contextmanager
def shown(verbose: int, name: str) -> Iterator[list[Sink]]:
    """Sinks that write to stderr. verbose 0: none. 1: progress, as bars on a terminal, else as lines, and the cluster
    that computes. Above 1: also a line for each step of the solver. The last line reports the time of the fit of
    `name`."""
    if verbose <= 0:
        yield []
        return
    began = time.perf_counter()
    if sys.stderr.isatty():
        from streamsvm.progress.bars import Bars

        with Bars() as bars:
            yield [bars, *_sinks(verbose, bars.say)]
    else:
        yield [MinuteLines(_say, EVERY_S), *_sinks(verbose, _say)]
    _say(f"{name}: fitted in {time.perf_counter() - began:.1f} s")


def _sinks(verbose: int, say: Say) -> list[Sink]:
    return [cluster_lines(say), step_lines(say)] if verbose > 1 else [cluster_lines(say)]


def _say(line: str) -> None:
    sys.stderr.write(f"{line}\n")


def line_of(progress: Progress) -> str:
    """The phase, with finished and all tasks, including shares of running tasks. For a single task, its share only."""
    if progress.total is None:
        return f"{progress.phase}  {progress.done:,.0f}"
    if progress.total == 1:
        return f"{progress.phase}  {progress.done:.0%}"
    return f"{progress.phase}  {f'{progress.done:,.1f}'.removesuffix('.0')}/{progress.total:,}"
