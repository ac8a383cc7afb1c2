"""Progress and rounds as lines of text, for logs and notebooks."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

from streamsvm.events import STEPS, Event, Joined, Progress, Record
from streamsvm.storage.text import heading

Say = Callable[[str], None]


class MinuteLines:
    """An event sink for logs of batch jobs: prints the last progress of each minute in a line."""

    def __init__(self, say: Say, every_s: float = 60.0) -> None:
        self._say, self._every_s, self._said = say, every_s, 0.0

    def __call__(self, record: Record[Event]) -> None:
        if isinstance(record.event, Progress) and record.t - self._said >= self._every_s:
            self._said = record.t
            self._say(f"{line_of(record.event)}  {timedelta(seconds=round(record.t))}")


class StepLines:
    """An event sink that prints each step of a solver in a line."""

    def __init__(self, say: Say) -> None:
        self._say = say

    def __call__(self, record: Record[Event]) -> None:
        if isinstance(record.event, STEPS):
            values = {name: value for name, value in vars(record.event).items() if value is not None}
            facts = "  ".join(f"{heading(name)} {short(value)}" for name, value in values.items())
            self._say(f"{record.t:.1f} s  {facts}")


class ClusterLines:
    """An event sink that prints the cluster that computes from now on, in a line."""

    def __init__(self, say: Say) -> None:
        self._say = say

    def __call__(self, record: Record[Event]) -> None:
        event = record.event
        if isinstance(event, Joined):
            counts = "  ".join(f"{name} {count}" for name, count in event.facts.items())
            self._say(f"on {event.scheduler}  {counts}" + (f"  {event.dashboard}" if event.dashboard else ""))


def line_of(progress: Progress) -> str:
    """The phase, with finished and all tasks, including shares of running tasks. For a single task, its share only."""
    if progress.total is None:
        return f"{progress.phase}  {progress.done:,.0f}"
    if progress.total == 1:
        return f"{progress.phase}  {progress.done:.0%}"
    return f"{progress.phase}  {f'{progress.done:,.1f}'.removesuffix('.0')}/{progress.total:,}"


def short(value: object) -> str:
    if not isinstance(value, float):
        return str(value)
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
