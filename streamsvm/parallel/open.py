"""The engine of a fit: threads of this machine, or a cluster."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from streamsvm.errors import ConfigError
from streamsvm.events import Events, ignore
from streamsvm.parallel.engine import Engine
from streamsvm.texts.documented import described

_client: ContextVar[Any] = ContextVar("_client", default=None)


@contextmanager
@described
def on_client(client: Any) -> Iterator[None]:
    """Fits inside this context compute on the cluster of a dask client.

    Parameters
    ----------
    client : distributed.Client or None
        The client. None: fits compute in threads.
    """
    token = _client.set(client)
    try:
        yield
    finally:
        _client.reset(token)


def open_engine(
    threads: int | None = None,
    workers: int | None = None,
    scheduler: str | None = None,
    memory_limit: int | None = None,
    events: Events = ignore,
    performance_report: Path | None = None,
    wait_s: float | None = None,
) -> Engine:
    """The engine that the options name: a cluster if a scheduler, workers or a client are given, else threads. wait_s:
    how long to wait for a scheduler that does not answer, or no longer does."""
    client = _client.get()
    if scheduler is None and workers is None and client is None:
        if performance_report is not None:
            raise ConfigError(
                f"--performance-report {performance_report}: needs a cluster; give --workers or --scheduler too"
            )
        return Engine(threads)
    from streamsvm.parallel.cluster import joined_cluster, open_cluster

    if scheduler is None and workers is None:
        return joined_cluster(client, events)
    return open_cluster(scheduler, workers, memory_limit, events, performance_report, wait_s)
