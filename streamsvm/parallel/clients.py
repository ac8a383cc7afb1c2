"""Clients of a running cluster or of processes on this machine, and dask's performance report."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import dask
from distributed import Client, LocalCluster, Security, performance_report
from distributed.comm import CommClosedError

from streamsvm.errors import ClusterError, ConfigError
from streamsvm.events import Events, Warned
from streamsvm.parallel.contact import CONNECT_S, brief
from streamsvm.parallel.machine import cores
from streamsvm.private.distributed import BoundedClient
from streamsvm.storage.atomic import whole_file
from streamsvm.storage.human import human_seconds

LEAST_S = 1.0  # to connect in, and between tries
# Of our own workers. Not distributed's MALLOC_TRIM_THRESHOLD_: memory that goes back to the system at every release
# and comes again page by page took a third of the time of solving partitions.
ENVIRONMENT = {"OMP_NUM_THREADS": 1, "MKL_NUM_THREADS": 1, "OPENBLAS_NUM_THREADS": 1}


def warnings_alone() -> None:
    """Silences distributed's log of each connection that ends, with a traceback, unless its configuration asks for
    it."""
    if "distributed" not in dask.config.get("logging", {}):
        logging.getLogger("distributed").setLevel(logging.WARNING)


def connected(scheduler: str, security: Security | None = None, timeout_s: float | None = None) -> Client:
    """A client of the scheduler at this address (see `current_address`); security: None is that of dask's
    configuration.

    Raises ClusterError if none answers within timeout_s (None: CONNECT_S).
    """
    options: dict[str, Any] = {} if security is None else {"security": security}
    try:
        options |= {"timeout": timeout_s or CONNECT_S, "direct_to_workers": True, "set_as_default": False}
        return BoundedClient(current_address(scheduler), **options)
    except (OSError, ValueError, TypeError, KeyError, ImportError, RuntimeError) as error:
        hint = ""
        if scheduler.startswith("tls://"):
            hint = "; certificates are taken from distributed.comm.tls in dask's configuration"
        elif isinstance(error, CommClosedError):
            hint = "; the address of one with TLS begins with tls://"
        raise ClusterError(f"--scheduler {scheduler}: no scheduler answers there ({brief(error)}){hint}") from None


def current_address(scheduler: str) -> str:
    """This address, or that in the file that it names as file:PATH, which `dask scheduler --scheduler-file PATH`
    writes."""
    if not scheduler.startswith("file:"):
        return scheduler
    return str(json.loads(Path(scheduler.removeprefix("file:")).read_text(encoding="utf-8"))["address"])


def first_client(scheduler: str, next_client: Callable[[str], Client] | None) -> Client:
    """A client of the scheduler at this address, which next_client waits for, given the reason. Raises ClusterError."""
    try:
        return connected(scheduler)
    except ClusterError as error:
        if next_client is None:
            raise
        return next_client(str(error))


def wait_for_client(scheduler: str, wait_s: float, events: Events, reason: str) -> Client:
    """A client of the scheduler that answers at this address within wait_s; why: the reason that there is none now.

    Raises ClusterError.
    """
    events(Warned(f"{reason}; waiting up to {human_seconds(wait_s)} for one"))
    until = time.monotonic() + wait_s
    while (left := until - time.monotonic()) > 0:
        try:
            return connected(scheduler, timeout_s=min(max(left, LEAST_S), CONNECT_S))
        except ClusterError:
            time.sleep(LEAST_S)  # unless it took the whole timeout, nothing listens there
    raise ClusterError(f"{reason}, and none came within {human_seconds(wait_s)}")


def local_cluster(workers: int, memory_limit: int | None) -> LocalCluster:
    with dask.config.set({"distributed.nanny.pre-spawn-environ": ENVIRONMENT}):
        return LocalCluster(
            n_workers=workers,
            threads_per_worker=max(1, cores() // workers),
            processes=True,
            host="127.0.0.1",
            dashboard_address="127.0.0.1:0",
            memory_limit=memory_limit // (workers + 1) if memory_limit else "auto",
        )


def started_report(client: Client, path: Path) -> performance_report:
    if not path.parent.is_dir():
        raise ConfigError(f"--performance-report {path}: there is no folder {path.parent}")
    try:
        client.run_on_scheduler(version, "bokeh")
    except PackageNotFoundError:
        raise ConfigError(
            f"--performance-report {path}: the scheduler lacks bokeh, which draws the report; pip install bokeh there"
        ) from None
    report = performance_report()
    with client.as_current():
        report.__enter__()
    return report


def end_report(client: Client, report: performance_report, path: Path, events: Events) -> None:
    try:
        if client.status != "running":
            raise ClusterError("the scheduler is gone")
        with whole_file(path) as file, client.as_current():
            report.filename = file.name
            report.__exit__(None, None, None)
    except OSError as error:
        events(Warned(f"--performance-report {path}: was not written ({brief(error)})"))
