"""What happened, as records: solvers and readers emit them; progress bars, logs and reports only read them."""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from threading import RLock
from typing import Any

BLOCK = 1 << 16  # bytes looked at, at once, for the end of a line

Sink = Callable[[dict[str, Any]], None]


class Events:
    """Passes each record on to its sinks, stamped with the seconds since this object was made.

    Records that carry progress have `phase`, `done` and `total`, None where it is not known; `done == total` ends a
    phase. Where one thing converges, done is the share of the way that is behind it: see `Approach`.
    """

    def __init__(self, *sinks: Sink) -> None:
        self._sinks = sinks
        self._start = time.perf_counter()
        self._turn = RLock()  # records come from several threads, and reach a sink one by one
        self._advised: set[str] = set()

    def __call__(self, event: str, **fields: Any) -> None:
        record = {"event": event, "t": round(time.perf_counter() - self._start, 4), **fields}
        with self._turn:
            for sink in self._sinks:
                sink(record)

    def also(self, sink: Sink) -> Events:
        """These events, passed on to one more sink; the clock goes on."""
        more = Events(*self._sinks, sink)
        more._start, more._turn, more._advised = self._start, self._turn, self._advised
        return more

    def advise(self, message: str) -> None:
        """A warning about the data, once, however many fits meet them."""
        if message not in self._advised:
            self._advised.add(message)
            self("warning", message=message, about="data")

    def progress(self, phase: str, done: float, total: int | None, **fields: Any) -> None:
        self("progress", phase=phase, done=done, total=total, **fields)


class Approach:
    """How far a number that falls about geometrically, a violation or a gap, is on its way from the first to `tol`.

    In [0, 0.999], and it never falls: the number may rise in between, and its end is told by others.
    """

    def __init__(self, tol: float) -> None:
        self._tol, self._first, self._share = tol, math.nan, 0.0

    def __call__(self, value: float) -> float:
        if math.isnan(self._first) and self._tol < value < math.inf:
            self._first = value
        if 0 < value <= self._first:
            share = math.log(self._first / value) / math.log(self._first / self._tol)
            self._share = max(self._share, min(share, 0.999))
        return self._share


class Approaches:
    """The same for problems that are solved one after the other: those behind it, and the share of the one at hand."""

    def __init__(self, tol: float) -> None:
        self._tol, self._problem, self._approach = tol, -1, Approach(tol)

    def __call__(self, problem: int, value: float) -> float:
        if problem != self._problem:
            self._problem, self._approach = problem, Approach(self._tol)
        return problem + self._approach(value)


class Rounds:
    """Tells of problems that are solved one after the other by rounds: each round, and how far they all are.

    facts: of a `round` record, `violation` among them; tol is where it ends.
    """

    def __init__(self, events: Events, phase: str, total: int, tol: float) -> None:
        self._events, self._phase, self._total = events, phase, total
        self._done = Approaches(tol)

    def __call__(self, problem: int, facts: Mapping[str, Any]) -> None:
        done = self._done(problem, facts["violation"])
        self._events("round", phase=self._phase, problem=problem, **facts)
        shown = {name: facts[name] for name in ("round", "violation", "gap") if name in facts}
        self._events.progress(self._phase, done, self._total, **shown)

    def end(self) -> None:
        self._events.progress(self._phase, float(self._total), self._total)


ignore = Events()


class JsonLines:
    """A sink that appends records to a file, one JSON object a line, flushed at once.

    A last line that a kill has torn is removed first. A disk that is full ends no run: what does not fit is not there.
    """

    def __init__(self, path: Path) -> None:
        _mend(path)
        self._file = path.open("ab", buffering=0)

    def __call__(self, record: dict[str, Any]) -> None:
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
