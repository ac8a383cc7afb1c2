"""What happened, as records: solvers and readers emit them; progress bars, logs and reports only read them."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

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
    """A sink that appends every record but progress to a file, one JSON object a line, flushed at once."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("a", encoding="utf-8")

    def __call__(self, record: dict[str, Any]) -> None:
        if record["event"] != "progress":
            self._file.write(json.dumps(record) + "\n")
            self._file.flush()

    def close(self) -> None:
        self._file.close()
