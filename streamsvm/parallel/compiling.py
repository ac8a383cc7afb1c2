"""Compiling, for which a first run waits: reported as progress, and timed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from numba.core import event

from streamsvm.events import Event, Events, Progress, Record, ignore

PHASE = "compiling, first time only"


class _Listener(event.Listener):
    """Times the functions that numba compiles, with those that they call; one at a time, under its lock."""

    def __init__(self) -> None:
        self.wall_s = self.cpu_s = 0.0
        self.events = ignore
        self._depth, self._count = 0, 0
        self._began = 0.0, 0.0

    def on_start(self, event: object) -> None:
        if self._depth == 0:
            self._began = time.perf_counter(), time.thread_time()
        self._depth += 1
        self.events.progress(PHASE, self._count, None)

    def on_end(self, event: object) -> None:
        self._depth, self._count = self._depth - 1, self._count + 1
        if self._depth == 0:
            self.wall_s += time.perf_counter() - self._began[0]
            self.cpu_s += time.thread_time() - self._began[1]
            self.events.progress(PHASE, self._count, self._count)


_listener = _Listener()
event.register("numba:compile", _listener)


def compiled_s() -> tuple[float, float]:
    """(wall, CPU) seconds that this process has compiled."""
    return _listener.wall_s, _listener.cpu_s


@contextmanager
def compile_notices(events: Events) -> Iterator[None]:
    """Reports compilations as progress; a nested one reports to the events of the outer one."""
    if _listener.events is not ignore:
        yield
        return
    _listener.events = events
    try:
        yield
    finally:
        _listener.events = ignore


class CompileNotice:
    """An event sink that prints once that functions are compiled, while the first event of a stream waits."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say, self._has_said = say, False

    def __call__(self, record: Record[Event]) -> None:
        progress = record.event
        if isinstance(progress, Progress) and progress.phase == PHASE and not self._has_said:
            self._has_said = True
            self._say("compiling kernels for this machine, once; it may take a minute")
