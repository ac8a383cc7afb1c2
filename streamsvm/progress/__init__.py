"""The progress of a map over many tasks: finished tasks, and the shares that running tasks report."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from threading import Lock

from streamsvm.events import Events, TasksRun, ignore

EVERY_S = 0.2  # between records of shares; finished tasks are recorded one by one
LEAST_SPAN = 0.005  # share of the run so far that a recorded task takes: the number of records grows like log(t)
LEAST_S = 0.002

_advance: ContextVar[Callable[[float], None] | None] = ContextVar("_advance", default=None)


def advance(share: float) -> None:
    """Reports the finished share of the current task, in [0, 1]. Does nothing without a meter."""
    report = _advance.get()
    if report is not None:
        report(share)


@contextmanager
def share_of(number: int, count: int) -> Iterator[None]:
    """Inside, `advance` reports one of several equal steps that the current task runs one after the other."""
    report = _advance.get()
    token = _advance.set(None if report is None else lambda share: report((number + share) / count))
    try:
        yield
    finally:
        _advance.reset(token)


class Meter:
    """Emits the progress of a phase of `total` tasks: 0 first, then whenever a task ends, in any thread; and at the end
    when each of them ran."""

    def __init__(self, events: Events, phase: str, total: int) -> None:
        self._events, self._phase, self._total = events, phase, total
        self._ended: set[int] = set()
        self._spans: list[tuple[int, float, float]] = []
        self._lanes: set[int] = set()  # that are at work
        self._workers: list[str] | None = None  # of each lane, on a cluster
        self._shares: dict[int, float] = {}
        self._lock, self._reported_at = Lock(), time.monotonic()
        self.is_closed = False
        events.progress(phase, 0, total)

    @property
    def is_heard(self) -> bool:
        """Whether the events have a sink."""
        return self._events is not ignore

    @property
    def now(self) -> float:
        """Seconds since the run started."""
        return self._events.now

    @contextmanager
    def task(self, number: int) -> Iterator[None]:
        """Runs a task, which may `advance`, and counts its end."""
        token = _advance.set(lambda share: self._share(number, share))
        try:
            with self._timed():
                yield
        finally:
            _advance.reset(token)
        self.end(number)

    @contextmanager
    def _timed(self) -> Iterator[None]:
        with self._lock:
            lane = next(i for i in range(len(self._lanes) + 1) if i not in self._lanes)
            self._lanes.add(lane)
        start = self._events.now
        try:
            yield
        finally:
            end = self._events.now
            with self._lock:
                self._lanes.discard(lane)
                self._span(lane, start, end)

    def _span(self, lane: int, start: float, end: float) -> None:
        if end - start >= max(LEAST_SPAN * end, LEAST_S):
            self._spans.append((lane, round(start, 4), round(end, 4)))

    def ran(self, tasks: Iterable[tuple[str, int, float, float]]) -> None:
        """Tasks that a cluster ran: the worker's name, its thread, start and end."""
        lanes: dict[tuple[str, int], int] = {}
        with self._lock:
            for worker, thread, start, end in tasks:
                self._span(lanes.setdefault((worker, thread), len(lanes)), max(start, 0.0), end)
            self._workers = [worker for worker, _ in lanes]

    def end(self, number: int) -> None:
        """Counts a task as done, once."""
        with self._lock:
            if number not in self._ended:
                self._ended.add(number)
                self._shares.pop(number, None)
                self._report()

    def close(self) -> None:
        """Ends the records. Tasks still running are not counted."""
        with self._lock:
            if self._spans and not self.is_closed:
                self._events(TasksRun(self._phase, self._spans, self._workers))
            self.is_closed = True

    def _share(self, number: int, share: float) -> None:
        with self._lock:
            self._shares[number] = max(share, self._shares.get(number, 0.0))
            if time.monotonic() - self._reported_at >= EVERY_S:
                self._report()

    def _report(self) -> None:
        if self.is_closed:
            return
        self._reported_at = time.monotonic()
        done = len(self._ended) + sum(self._shares.values())
        self._events.progress(self._phase, done if self._shares else len(self._ended), self._total)
