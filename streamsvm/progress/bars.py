"""Progress bars from events, one for each running phase."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Self

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TaskID, TextColumn, TimeElapsedColumn
from rich.progress import TimeRemainingColumn as Remaining
from rich.text import Text

from streamsvm.events import Event, Record
from streamsvm.events import Progress as ProgressEvent
from streamsvm.storage.text import brief


class Bars:
    """An event sink: progress moves the bar of its phase. Other facts (gap, accuracy, ...) are printed next to it.

    A full bar stays until another phase starts. clock: returns the seconds for elapsed times.
    """

    def __init__(self, console: Console | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self.progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=18),
            _Count(),
            _Rate(),
            TimeElapsedColumn(),
            Remaining(),
            TextColumn("{task.fields[details]}", markup=False),
            console=console or Console(stderr=True),
            transient=True,
            redirect_stdout=False,  # stdout may be a file of predictions
            get_time=clock,
        )
        self._tasks: dict[str, TaskID] = {}
        self._full: set[str] = set()

    def __enter__(self) -> Self:
        self.progress.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.progress.stop()

    def say(self, line: str) -> None:
        """Prints a line above the bars."""
        self.progress.console.print(line, markup=False, highlight=False, soft_wrap=True)

    def __call__(self, record: Record[Event]) -> None:
        if isinstance(record.event, ProgressEvent):
            self._move(record.event)

    def _move(self, progress: ProgressEvent) -> None:
        phase = progress.phase
        fields: dict[str, Any] = {
            "completed": progress.done,
            "total": progress.total,
            "details": "  ".join(f"{name} {brief(value)}" for name, value in progress.facts.items()),
            "rate": progress.rows_s,
            "share": isinstance(progress.done, float),
        }
        if phase in self._full:  # starts again, with a new task: rich cannot make a known total unknown
            self._remove(phase)
        if phase not in self._tasks:
            for full in list(self._full):
                self._remove(full)
            self._tasks[phase] = self.progress.add_task(phase, **fields)
        self.progress.update(self._tasks[phase], **fields)
        if progress.has_ended:
            self._full.add(phase)

    def _remove(self, phase: str) -> None:
        self.progress.remove_task(self._tasks.pop(phase))
        self._full.discard(phase)


class _Count(ProgressColumn):
    """Finished and all tasks, including shares of running tasks. For a single task, its share only."""

    def render(self, task: Task) -> Text:
        if task.total is None:
            return Text(f"{task.completed:,.0f}")
        if task.fields["share"] and task.total == 1:
            return Text(f"{task.percentage:.0f} %", justify="right")
        if task.fields["share"]:
            return Text(f"{task.completed:,.1f}/{task.total:,.0f}")
        return Text(f"{task.completed:,.0f}/{task.total:,.0f}")


class _Rate(ProgressColumn):
    """The rate per second."""

    def render(self, task: Task) -> Text:
        rate = task.fields["rate"] or (None if task.fields["share"] else task.finished_speed or task.speed)
        return Text("" if rate is None else f"{brief(float(rate))}/s", justify="right")
