"""Which workers ran the tasks of an engine, and when: the scheduler notes it, and the events of a run record it."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from typing import Any
from uuid import uuid4

from distributed import Client, Scheduler
from distributed.diagnostics.plugin import SchedulerPlugin

from streamsvm.parallel.contact import REACH_S, Contact
from streamsvm.private.distributed import forget_groups, run_on_scheduler
from streamsvm.progress import LEAST_S, Meter

MOST = 100_000  # tasks that the scheduler remembers until it is asked
Ran = tuple[str, int, float, float]  # the worker's name, its thread, start and end by the scheduler's clock


class TaskRecorder(SchedulerPlugin):
    """Notes tasks whose keys have a mark, until the client that asked for it leaves."""

    def __init__(self, mark: str, client: str) -> None:
        self.name = f"streamsvm-{mark}"
        self._mark, self._client, self._ran = mark, client, deque[Any](maxlen=MOST)

    def transition(self, key: Any, start: str, finish: str, *args: Any, **more: Any) -> None:
        if start != "processing" or finish != "memory" or not isinstance(key, str) or self._mark not in key:
            return
        for span in more.get("startstops") or ():
            if span["action"] == "compute" and span["stop"] - span["start"] >= LEAST_S:
                self._ran.append((more["worker"], more.get("thread") or 0, span["start"], span["stop"]))

    def remove_client(self, scheduler: Scheduler, client: str) -> None:
        if client == self._client:
            scheduler.remove_plugin(name=self.name)

    def taken(self, scheduler: Scheduler) -> list[Ran]:
        """What was noted since the last call."""
        ran, self._ran = self._ran, deque(maxlen=MOST)
        names = {address: str(worker.name) for address, worker in scheduler.workers.items()}
        return [(names.get(worker, worker), *rest) for worker, *rest in ran]


def _begin(mark: str, client: str, dask_scheduler: Scheduler) -> None:
    forget_groups(dask_scheduler)  # of earlier fits
    noted = TaskRecorder(mark, client)
    dask_scheduler.add_plugin(noted, name=noted.name)


def _take(mark: str, dask_scheduler: Scheduler) -> tuple[float, list[Ran]]:
    """(the scheduler's clock, the tasks since the last call)."""
    noted = dask_scheduler.plugins.get(f"streamsvm-{mark}")
    return time.time(), noted.taken(dask_scheduler) if isinstance(noted, TaskRecorder) else []


class TaskTimes:
    """The times of an engine's tasks. mark: what the keys of its tasks contain."""

    def __init__(self, contact: Contact) -> None:
        self.mark = uuid4().hex
        self._contact = contact
        self._begun: Client | None = None

    @contextmanager
    def of(self, meter: Meter) -> Iterator[None]:
        """Notes the tasks that run inside, and ends the records of their map."""
        with closing(meter):
            if meter.is_heard:
                self._begin()
            yield

    def _begin(self) -> None:
        client = self._contact.client
        if self._begun is not client:  # the first one, or that of another scheduler
            self._ask(client, _begin, self.mark, client.id)
            self._begun = client

    def tell(self, meter: Meter) -> None:
        """Gives the meter what has run; a scheduler that does not answer costs these times alone."""
        if not meter.is_heard:
            return
        asked = meter.now
        found = self._ask(self._contact.client, _take, self.mark)
        if found is not None:
            clock, ran = found
            began = clock - (asked + meter.now) / 2
            meter.ran((worker, thread, start - began, end - began) for worker, thread, start, end in ran)

    @staticmethod
    def _ask(client: Client, question: Any, *args: Any) -> Any:
        with suppress(OSError):  # also a time out
            return run_on_scheduler(client, REACH_S, question, *args)
        return None
