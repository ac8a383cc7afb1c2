"""Which workers ran the tasks of an engine, and when: the scheduler records it, for the events of a run."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from typing import Any
from uuid import uuid4

from distributed import Client, Scheduler
from distributed.diagnostics.plugin import SchedulerPlugin

from streamsvm.parallel.contact import REACH_S, Contact
from streamsvm.private.distributed import forget_groups, run_on_scheduler
from streamsvm.progress import LEAST_S, Meter

MOST = 100_000  # tasks that the scheduler remembers until the next call of `taken`
Ran = tuple[str, int, float, float]  # the worker's name, its thread, start and end by the scheduler's clock


class TaskRecorder(SchedulerPlugin):
    """Records tasks whose keys have a mark, until the client that started it leaves."""

    def __init__(self, mark: str, client: str) -> None:
        self.name = f"streamsvm-{mark}"
        self._mark, self._client, self._ran = mark, client, deque[Any](maxlen=MOST)

    def transition(self, key: object, start: str, finish: str, *args: object, **more: Any) -> None:
        if start != "processing" or finish != "memory" or not isinstance(key, str) or self._mark not in key:
            return
        for span in more.get("startstops") or ():
            if span["action"] == "compute" and span["stop"] - span["start"] >= LEAST_S:
                self._ran.append((more["worker"], more.get("thread") or 0, span["start"], span["stop"]))

    def remove_client(self, scheduler: Scheduler, client: str) -> None:
        if client == self._client:
            scheduler.remove_plugin(name=self.name)

    def taken(self, scheduler: Scheduler) -> list[Ran]:
        """The tasks recorded since the last call."""
        ran, self._ran = self._ran, deque(maxlen=MOST)
        names = {address: str(worker.name) for address, worker in scheduler.workers.items()}
        return [(names.get(worker, worker), *rest) for worker, *rest in ran]


def _start(mark: str, client: str, dask_scheduler: Scheduler) -> None:
    forget_groups(dask_scheduler)  # of earlier fits
    recorder = TaskRecorder(mark, client)
    dask_scheduler.add_plugin(recorder, name=recorder.name)


def _take(mark: str, dask_scheduler: Scheduler) -> tuple[float, list[Ran]]:
    """(the scheduler's clock, the tasks since the last call)."""
    recorder = dask_scheduler.plugins.get(f"streamsvm-{mark}")
    return time.time(), recorder.taken(dask_scheduler) if isinstance(recorder, TaskRecorder) else []


class TaskTimes:
    """The times of an engine's tasks. mark: what the keys of its tasks contain."""

    def __init__(self, contact: Contact) -> None:
        self.mark = uuid4().hex
        self._contact = contact
        self._recording_client: Client | None = None

    @contextmanager
    def of(self, meter: Meter) -> Iterator[None]:
        """Records the tasks that run inside, and ends the records of their map."""
        with closing(meter):
            if meter.is_heard:
                self._start()
            yield

    def _start(self) -> None:
        client = self._contact.client
        if self._recording_client is not client:  # the first one, or that of another scheduler
            self._ask(client, _start, self.mark, client.id)
            self._recording_client = client

    def report(self, meter: Meter) -> None:
        """Gives the meter the tasks that have run; a scheduler that does not answer costs these times alone."""
        if not meter.is_heard:
            return
        asked_at = meter.now
        answer = self._ask(self._contact.client, _take, self.mark)
        if answer is not None:
            clock, ran = answer
            began = clock - (asked_at + meter.now) / 2
            meter.ran((worker, thread, start - began, end - began) for worker, thread, start, end in ran)

    @staticmethod
    def _ask(client: Client, question: Callable[..., Any], *args: object) -> Any:
        with suppress(OSError):  # also a time out
            return run_on_scheduler(client, REACH_S, question, *args)
        return None
