"""A run that is at work elsewhere: its records as they come, and whether it has ended."""

from __future__ import annotations

from pathlib import Path

from streamsvm.events import Event, Record
from streamsvm.runs.checkpoints import is_at_work
from streamsvm.runs.directory import EVENTS
from streamsvm.runs.records import parse


class Tail:
    """The records of a run directory; each call gives those that came since the last one."""

    def __init__(self, run_dir: Path) -> None:
        self._run_dir = run_dir
        self._read_bytes = 0

    def __call__(self) -> list[Record[Event]]:
        path = self._run_dir / EVENTS
        if not path.is_file():
            return []
        with path.open("rb") as file:
            if path.stat().st_size < self._read_bytes:  # another file than before
                self._read_bytes = 0
            file.seek(self._read_bytes)
            text = file.read()
        whole = text[: text.rfind(b"\n") + 1]  # what follows is being written
        self._read_bytes += len(whole)
        return [record for line in whole.splitlines() if (record := parse(line)) is not None]

    @property
    def is_running(self) -> bool:
        """Whether a process holds the directory."""
        return is_at_work(self._run_dir)
