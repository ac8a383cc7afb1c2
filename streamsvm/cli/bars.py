"""Progress bars from events, one for each phase at work."""

from __future__ import annotations

from typing import Any, Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.progress import TimeRemainingColumn as Remaining

_STANDARD = {"event", "t", "phase", "done", "total"}


class Bars:
    """An event sink: a progress record moves its phase's bar, its other fields (level, gap, ...) stand beside it."""

    def __init__(self) -> None:
        columns = (
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
        )
        details = TextColumn("{task.fields[details]}", markup=False)
        self._progress = Progress(
            *columns, Remaining(), details, console=Console(stderr=True), transient=True
        )
        self._tasks: dict[str, TaskID] = {}

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._progress.stop()

    def __call__(self, record: dict[str, Any]) -> None:
        if record["event"] != "progress":
            return
        phase, done, total = record["phase"], record["done"], record["total"]
        if phase not in self._tasks:
            self._tasks[phase] = self._progress.add_task(phase, total=total, details="")
        details = "  ".join(f"{k} {_short(v)}" for k, v in record.items() if k not in _STANDARD)
        self._progress.update(self._tasks[phase], completed=done, total=total, details=details)
        if done == total:
            self._progress.remove_task(self._tasks.pop(phase))


def _short(value: Any) -> str:
    if not isinstance(value, float):
        return str(value)
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
