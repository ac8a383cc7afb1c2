"""distributed: how long a client waits for its scheduler and for workers, and the records that a scheduler keeps of
tasks."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Any

import dask
from distributed import Client, Future, Scheduler, get_client
from distributed.comm import connect

SPAN = "streamsvm"
REPORTED_S = 60.0  # by when workers have reported what ran or failed


class BoundedClient(Client):
    """Waits for a server that listens but never answers no longer than for one that does not listen."""

    def start(self, **options: object) -> None:
        try:
            super().start(**options)
        except BaseException:
            self.close()  # else the garbage collector does, maybe in a thread that then waits for itself
            raise

    async def _ensure_connected(self, timeout: float | None = None) -> None:
        await asyncio.wait_for(super()._ensure_connected(timeout), timeout)

    async def _reconnect(self) -> None:
        """Does not reconnect: what the scheduler knew is gone with it. All waiting calls are notified."""
        self.scheduler_comm = None
        for state in list(self.futures.values()):
            state.cancel()
        self.futures.clear()


def scatter(
    client: Client, values: list[object], seconds: float, *, direct: bool, workers: Sequence[str] | None
) -> list[Future]:
    """Futures of the values, each on one of the workers (None: any). Raises TimeoutError, which is an OSError."""
    options = {"direct": direct, "workers": workers, "hash": False}
    return client.sync(client._scatter, values, callback_timeout=seconds, **options)


def wait(client: Client, future: Future, seconds: float) -> None:
    """Waits until a future is done, at most that long. `Future.exception(timeout)` raises at the end, and that error
    keeps its callers' frames and their values alive."""

    async def ended() -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(future._exception(), seconds)

    client.sync(ended)


def gather(client: Client, futures: list[Future], seconds: float) -> list[Any]:
    """`client.gather`, which waits for ever for a worker that is frozen. Raises TimeoutError."""
    return client.sync(client._gather, futures, callback_timeout=seconds)


def worker_values(keys: list[Any]) -> dict[Any, Any]:
    """The values that workers keep under these keys, for the task that calls it."""
    client = get_client()
    futures: dict[Any, Any] = {key: Future(key, client) for key in keys}
    client._inform_scheduler_of_futures()
    return dict(client.gather(futures))


def run(client: Client, seconds: float, fn: Callable[..., Any], *args: object, **options: object) -> dict[str, Any]:
    """`client.run`, which waits for ever for a worker that is frozen. Raises TimeoutError."""
    return client.sync(client._run, fn, *args, callback_timeout=seconds, **options)


def run_on_scheduler(client: Client, seconds: float, fn: Callable[..., Any], *args: object) -> Any:
    """`client.run_on_scheduler`, which waits for ever for a scheduler that is frozen. Raises TimeoutError."""
    return client.sync(client._run_on_scheduler, fn, *args, callback_timeout=seconds)


def in_one_span() -> AbstractContextManager[object]:
    """A context in which all tasks belong to one span, that of the caller if there is one. Otherwise dask starts a span
    whenever it was idle, and neither the scheduler nor the workers ever forget one."""
    span = {"name": (SPAN,), "ids": (SPAN,)}
    return nullcontext() if "span" in dask.get_annotations() else dask.annotate(span=span)


def forget_groups(scheduler: Scheduler) -> None:
    """Drops the records of spans about tasks that are gone, which dask would keep (dask/distributed#7977).

    Of the span above: all groups but the last one, without which a span has no end, and a record of each message. Spans
    that dask starts for values that were sent are dropped whole. No task ran in them, but in a new one a task may have
    failed, which workers still report."""
    spans = scheduler.extensions.get("spans")
    if spans is None:
        return
    present = set(scheduler.task_groups.values())
    if of_fits := spans.spans.get(SPAN):
        gone = sorted(of_fits.groups - present, key=lambda group: group.stop)
        of_fits.groups.difference_update(gone[:-1])
        of_fits.metadata["collections"].clear()
    unnamed = spans.spans_search_by_name[("default",)]
    old = [span for span in unnamed if time.time() - span.enqueued >= REPORTED_S]
    sent = {span for span in old if not any(group.start or group in present for group in span.groups)}
    for listed in (spans.root_spans, unnamed, spans.spans_search_by_tag["default"]):
        listed[:] = [span for span in listed if span not in sent]
    for span in sent:
        del spans.spans[span.id]


def silent(client: Client, addresses: Iterable[str], seconds: float) -> set[str]:
    """The workers among these that do not answer when this process calls them itself."""

    async def answers(address: str) -> bool:
        try:
            call = connect(address, timeout=seconds, **client.connection_args)
            comm = await asyncio.wait_for(call, seconds)  # one that is frozen takes the call and says nothing
        except OSError:
            return False
        comm.abort()
        return True

    async def ask() -> set[str]:
        called = list(addresses)
        have_answered = await asyncio.gather(*map(answers, called))
        return {address for address, answered in zip(called, have_answered, strict=True) if not answered}

    return client.sync(ask)
