"""Which cluster an estimator's fit computes on: its parameter `client`, or the dask client that is active."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from streamsvm.data.store import Store
from streamsvm.errors import ConfigError
from streamsvm.events import Events, Warned
from streamsvm.parallel.open import on_client

MAX_SHARE = 0.3  # of a worker's memory, for rows that come from this process


@contextmanager
def on_cluster(parameter: Any, store: Store, events: Events) -> Iterator[None]:
    """A fit inside computes on the cluster of `parameter`, a client; None: of the active one; False: on threads.

    The client is used to find the cluster, and left as it is. If workers cannot have what a fit needs, threads
    compute, with a warning; or, with a client as the parameter, ConfigError is raised.
    """
    client = _active() if parameter is None else _required(parameter)
    obstacle = client and _obstacle(client, store)
    if obstacle and parameter is not None:
        raise ConfigError(f"client: {obstacle}; give client=False to fit on the threads of this process")
    if obstacle:
        events(Warned(f"fitted on threads, not on the cluster of the active dask client: {obstacle}"))
    with on_client(None if obstacle else client):
        yield


def _active() -> Any:
    """The active client; None inside a task, which would wait for workers that wait for it."""
    if "distributed" not in sys.modules:
        return None
    from distributed import Client, get_worker

    with suppress(ValueError):
        get_worker()
        return None
    with suppress(ValueError):
        client = Client.current()
        return client if client.status == "running" and not client.asynchronous else None
    return None


def _required(parameter: Any) -> Any:
    """The client; None for False. Raises ConfigError."""
    if parameter is False:
        return None
    client_class: Any = getattr(sys.modules.get("distributed"), "Client", ())
    if not isinstance(parameter, client_class):
        raise ConfigError(f"client: found {parameter!r}, expected a distributed.Client, False or None")
    if parameter.asynchronous:
        raise ConfigError("client: found an asynchronous one, expected distributed.Client(...)")
    if parameter.status != "running":
        raise ConfigError(f"client: found one that is {parameter.status}, expected one that is connected")
    return parameter


def _obstacle(client: Any, store: Store) -> str | None:
    """Why the workers cannot compute a fit of this store; None if they can."""
    limits = [worker["memory_limit"] for worker in client.scheduler_info(n_workers=-1)["workers"].values()]
    max_bytes = MAX_SHARE * min(filter(None, limits), default=float("inf"))
    if store.url is None and _is_larger(store, max_bytes):
        return (
            f"the data comes from this process and takes more than {MAX_SHARE:.0%} of a worker's memory; "
            "write it to a store that the workers see"
        )
    worker = _without_files(client)
    return worker and f"the worker at {worker} does not see this machine's {tempfile.gettempdir()}"


def _without_files(client: Any) -> str | None:
    """A worker that shares no files with this process."""
    from streamsvm.parallel.contact import REACH_S
    from streamsvm.private.distributed import run

    with tempfile.NamedTemporaryFile() as file, suppress(TimeoutError):  # one that is frozen is waited for later
        seen = run(client, REACH_S, os.path.exists, file.name, on_error="return")
        return next((address for address, sees in seen.items() if sees is not True), None)
    return None


def _is_larger(store: Store, max_bytes: float) -> bool:
    """Whether the store as it travels has more bytes: of a dask array, what its graph holds."""
    import cloudpickle

    try:
        cloudpickle.Pickler(_BoundedFile(max_bytes), protocol=5).dump(store)
    except _FileFull:
        return True
    return False


class _FileFull(Exception):
    pass


class _BoundedFile:
    """A file that keeps nothing, and is full after so many bytes."""

    def __init__(self, max_bytes: float) -> None:
        self._left = max_bytes

    def write(self, data: Any) -> int:
        size = memoryview(data).nbytes
        self._left -= size
        if self._left < 0:
            raise _FileFull
        return size
