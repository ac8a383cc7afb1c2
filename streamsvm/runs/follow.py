"""A run in another process: its records as they come, and whether it has ended."""

from __future__ import annotations

from streamsvm.events import Event, Record
from streamsvm.runs.checkpoints import is_at_work
from streamsvm.runs.directory import EVENTS
from streamsvm.runs.lines import Growth
from streamsvm.runs.records import parse
from streamsvm.storage.paths import Place


class Tail:
    """The records of a run directory. Each call returns those since the previous call."""

    def __init__(self, run_dir: Place) -> None:
        self._run_dir = run_dir
        self._lines = Growth(run_dir / EVENTS)

    def __call__(self) -> list[Record[Event]]:
        return [record for line in self._lines() if (record := parse(line)) is not None]

    @property
    def is_running(self) -> bool:
        """Whether a process holds the directory."""
        return is_at_work(self._run_dir)
