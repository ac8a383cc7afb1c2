"""The progress of a map over many tasks, finished and running ones, and of iterations towards their tolerance."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from threading import Lock
from typing import Any

from streamsvm.events import Events, Phase, Round, TasksRun, ignore

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
            _advance.reset(token)
        self.end(number)

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


class Convergence:
    """How close a violation or gap, which falls about geometrically, is to `tol`, as a share of the distance from its
    first value, in [0, 0.999], after the number of the problem that it is of.

    Problems are solved one after the other. The share of one never falls, even if its violation rises for a while. The
    caller reports the end.
    """

    def __init__(self, tol: float) -> None:
        self._tol, self._problem, self._first, self._share = tol, 0, math.nan, 0.0

    def __call__(self, value: float, problem: int = 0) -> float:
        if problem != self._problem:
            self._problem, self._first, self._share = problem, math.nan, 0.0
        if math.isnan(self._first) and self._tol < value < math.inf:
            self._first = value
        if 0 < value <= self._first:
            share = math.log(self._first / value) / math.log(self._first / self._tol)
            self._share = max(self._share, min(share, 0.999))
        return problem + self._share


class Rounds:
    """Reports problems that are solved one after the other in rounds: each round, and the progress of all.

    facts: the fields of a `Round`, with `violation`. tol: the violation at which a problem ends.
    """

    def __init__(self, events: Events, phase: Phase, total: int, tol: float) -> None:
        self._events, self._phase, self._total, self._approach = events, phase, total, Convergence(tol)

    def __call__(self, problem: int, facts: Mapping[str, Any]) -> None:
        done = self._approach(facts["violation"], problem)
        self._events(Round(self._phase, problem, **facts))
        shown = {name: facts[name] for name in ("round", "violation", "gap") if name in facts}
        self._events.progress(self._phase, done, self._total, **shown)

    def end(self) -> None:
        self._events.progress(self._phase, float(self._total), self._total)
