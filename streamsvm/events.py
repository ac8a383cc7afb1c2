"""What happened, as records: solvers and readers emit them; progress bars, logs and reports only read them."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

BLOCK = 1 << 16  # bytes looked at, at once, for the end of a line

Sink = Callable[[dict[str, Any]], None]


class Events:
    """Passes each record on to its sinks, stamped with the seconds since this object was made.

    Records that carry progress have `phase`, `done` and `total`; `done == total` ends a phase.
    """

    def __init__(self, *sinks: Sink) -> None:
        self._sinks = sinks
        self._start = time.perf_counter()

    def __call__(self, event: str, **fields: Any) -> None:
        record = {"event": event, "t": round(time.perf_counter() - self._start, 4), **fields}
        for sink in self._sinks:
            sink(record)

    def also(self, sink: Sink) -> Events:
        """These events, passed on to one more sink; the clock goes on."""
        more = Events(*self._sinks, sink)
        more._start = self._start
        return more

    def progress(self, phase: str, done: int, total: int, **fields: Any) -> None:
        self("progress", phase=phase, done=done, total=total, **fields)


ignore = Events()


class JsonLines:
    """A sink that appends every record but progress to a file, one JSON object a line, flushed at once.

    A last line that a kill has torn is removed first. A disk that is full ends no run: what does not fit is not there.
    """

    def __init__(self, path: Path) -> None:
        _mend(path)
        self._file = path.open("ab", buffering=0)

    def __call__(self, record: dict[str, Any]) -> None:
        if record["event"] == "progress":
            return
        line, end = (json.dumps(record) + "\n").encode(), self._file.tell()
        with suppress(OSError):
            if self._file.write(line) == len(line):
                return
        self._file.truncate(end)

    def close(self) -> None:
        self._file.close()


def _mend(path: Path) -> None:
    """Cuts what follows the last line's end."""
    if not path.exists():
        return
    with path.open("rb+") as file:
        end = file.seek(0, os.SEEK_END)
        while end > 0:
            start = max(0, end - BLOCK)
            file.seek(start)
            last = file.read(end - start).rfind(b"\n")
            if last >= 0:
                file.truncate(start + last + 1)
                return
            end = start
        file.truncate(0)
