"""The connection of the leading process to a scheduler and its workers, and the reaction if one of them does not
answer.

Raises ClusterError, in one line, if the scheduler is gone and no other one comes while it waits, and OSError if a
worker is gone, so that the caller tries again. Its clients are of a running cluster, or of processes on this machine.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar
from uuid import uuid4

import dask
from dask.sizeof import sizeof
from distributed import Client, Future, LocalCluster, Security, performance_report
from distributed.comm import CommClosedError

from streamsvm.errors import ClusterError, ConfigError
from streamsvm.events import Events, Joined
from streamsvm.parallel.machine import cores
from streamsvm.parallel.sizes import aligned
from streamsvm.private.distributed import BoundedClient, gather, in_one_span, run, scatter, silent, wait
from streamsvm.storage.atomic import whole_file
from streamsvm.storage.text import human_seconds

T = TypeVar("T")
WAIT_S = 10.0  # for a result, before a look at the cluster
CONNECT_S = 20.0
REACH_S = 5.0  # until a worker that is well has answered
MOVE_S = 30.0  # for a value, plus its time at SLOWEST, before a look at the worker that has or gets it
SLOWEST = 4e6  # bytes a second
FEW = 3  # silent workers that the scheduler then tries to reach
LOADED = "import streamsvm.kernels.tiles, streamsvm.data.regroup"  # numba, scipy and zarr with them


class Contact:
    """The connection to a cluster, by a client. Data goes to workers directly, unless only the scheduler reaches them.
    next_client: waits for another scheduler, given the reason; None: not wanted. The new one knows nothing: the futures
    of the client before it are cancelled, so that each `RemoteValue` is made again when it is needed."""

    def __init__(self, client: Client, events: Events, next_client: Callable[[str], Client] | None = None) -> None:
        self.client, self._events, self._next_client = client, events, next_client
        self.address = address_of(client)
        self._direct, self._frozen, self._most = True, set[str](), 0
        self.renew()
        self._announce()

    def facts(self) -> dict[str, int]:
        """The number of threads, and of workers."""
        workers = self.workers()
        return {"threads": max(1, sum(workers.values())), "workers": len(workers)}

    def _announce(self) -> None:
        self._events(Joined(self.address, self.client.dashboard_link, self.facts()))

    def renew(self) -> None:
        """Waits for a worker, and finds out how to reach them. Raises ClusterError if one lacks a package."""
        self.wait_for_workers()
        self._require_package()
        self._choose_route()

    def current(self) -> Client:
        """The client of a running scheduler: a new one, if that is gone and another one comes. Raises ClusterError."""
        if self.client.status != "running":
            self._replace()
        return self.client

    def _replace(self, reason: str = "") -> None:
        message, wait_for_another = f"the scheduler at {self.address} is gone{reason}", self._next_client
        if wait_for_another is None:
            raise ClusterError(message) from None
        self._next_client = None  # if none comes, nobody waits again
        disconnect(self.client)
        self.client, self._next_client = wait_for_another(message), wait_for_another
        self.address, self.client.direct_to_workers = address_of(self.client), self._direct
        self.wait_for_workers()
        with suppress(TimeoutError):  # for as many workers as before, so that tasks are as wide as before
            self.ask(lambda client: client.wait_for_workers(self._most, timeout=CONNECT_S))
        self.renew()
        self._announce()

    def ask(self, question: Callable[[Client], T]) -> T:
        """The scheduler's answer; whatever the client raises without a scheduler becomes a ClusterError."""
        while True:
            client = self.current()
            try:
                return question(client)
            except TimeoutError:
                if self.current() is client:
                    raise
            except Exception as error:
                if client.status == "running" and not isinstance(error, OSError):
                    raise
                self._replace(f" ({brief(error)})")

    def workers(self) -> dict[str, int]:
        """Threads of each worker, by address."""
        while True:
            with suppress(TimeoutError):  # a call to a dead scheduler takes longer than to find out that it is dead
                threads = self.ask(lambda client: client.nthreads(callback_timeout=REACH_S))
                self._most = max(self._most, len(threads))
                return threads

    def wait_for_workers(self) -> None:
        """Waits for the first worker. A task waits too: a cluster that starts workers on demand starts one for it."""
        if self.workers():
            return
        with in_one_span():
            demand = self.ask(lambda client: client.submit(int, key=f"demand-{uuid4().hex}"))
        with suppress(TimeoutError):
            self.ask(_wait_for_one_worker)
            return
        self._events.warn("the cluster has no workers; waiting for one")
        while not self.workers():
            with suppress(TimeoutError):
                self.ask(_wait_for_one_worker)
        del demand  # which held its place until now

    def send(self, values: list[object]) -> list[Future]:
        """Futures of values, each held by one worker. The other workers fetch it from each other when they need it. To
        send it to all at once would save nothing, and the scheduler tries for ever if one of them has left (distributed
        2026.8)."""
        self.wait_for_workers()
        awake = [address for address in self.workers() if address not in self._frozen]
        seconds = MOVE_S + sum(map(sizeof, values)) / SLOWEST
        try:
            return scatter(self.client, values, seconds, direct=self._direct, workers=awake if self._frozen else None)
        except KeyError as error:  # the scheduler's own, of an address that it has just forgotten
            raise ConnectionError(f"{error} is gone") from error
        except TimeoutError:
            self._frozen = self._silent(self.workers())
            who = next(iter(self._frozen), "a worker")
            raise ConnectionError(f"{who} took no data for {seconds:.0f} s") from None

    def wait(self, future: Future, seconds: float) -> None:
        """Waits until it is done or cancelled, at most that long. Raises ClusterError if the scheduler is gone."""
        wait(self.client, future, seconds)
        self.current()

    def results(self, futures: list[Future]) -> list[Any]:
        """The results of tasks that have ended without an error, fetched in one call."""
        return aligned(gather(self.client, futures, MOVE_S))

    def result(self, future: Future) -> Any:
        """The result of a task. Raises the task's error."""
        while not future.done():
            self.wait(future, WAIT_S)
        patience = MOVE_S
        while True:
            try:
                return aligned(future.result(timeout=patience))
            except TimeoutError:
                if future.status == "error":  # it is the task's own
                    raise
                self._require_awake(future)
                patience *= 2

    def _require_awake(self, future: Future) -> None:
        holders = self.ask(lambda client: client.who_has([future])).get(future.key, ())
        if len(self._silent(holders)) == len(holders):
            raise ConnectionError(f"{', '.join(holders) or 'the worker'} does not answer")

    def _require_package(self) -> None:
        """Raises ClusterError if the scheduler or a worker cannot import the package and what it needs."""
        try:
            self.ask(lambda client: client.run_on_scheduler(exec, LOADED, {}))
        except ImportError as error:
            raise lacking(f"the scheduler at {self.address}", error) from None
        with suppress(TimeoutError):  # of one that is frozen
            answers = self.ask(lambda client: run(client, CONNECT_S, exec, LOADED, {}, on_error="return"))
            for address, answer in answers.items():
                if isinstance(answer, ImportError):
                    raise lacking(f"the worker at {address}", answer)

    def _choose_route(self) -> None:
        """Sends all data through the scheduler from now on, if it reaches a worker that this process does not."""
        for address in islice(self._silent(self.workers()) if self._direct else (), FEW):
            if self._is_reached_by_scheduler(address):
                self._direct = self.client.direct_to_workers = False
                self._events.warn(
                    f"this process cannot reach the worker at {address}, and the scheduler can: all data goes "
                    "through the scheduler, which is slower; open the workers' ports to this machine"
                )
                return

    def _silent(self, addresses: Iterable[str]) -> set[str]:
        """The workers among these that do not answer on the route of the data."""
        if self._direct:
            return silent(self.client, addresses, REACH_S)
        return {address for address in addresses if not self._is_reached_by_scheduler(address)}

    def _is_reached_by_scheduler(self, address: str) -> bool:
        try:
            answers = run(self.client, REACH_S, int, workers=[address], on_error="return")
        except OSError:
            return False
        return answers.get(address) == 0


def _wait_for_one_worker(client: Client) -> None:
    client.wait_for_workers(1, timeout=CONNECT_S)


def disconnect(client: Client) -> None:
    with suppress(OSError, TimeoutError):
        client.close()


def address_of(client: Client) -> str:
    """The address of a client's scheduler."""
    return str(getattr(client.scheduler, "address", ""))


def lacking(who: str, error: ImportError) -> ClusterError:
    return ClusterError(f"{who} lacks a package ({brief(error)}): expected the same ones there as here")


def brief(error: BaseException) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__


LEAST_S = 1.0  # to connect in, and between tries
# Of our own workers. Not distributed's MALLOC_TRIM_THRESHOLD_: memory that goes back to the system at every release
# and comes again page by page took a third of the time of solving partitions.
ENVIRONMENT = {"OMP_NUM_THREADS": 1, "MKL_NUM_THREADS": 1, "OPENBLAS_NUM_THREADS": 1}


def warnings_alone() -> None:
    """Silences distributed's log, with a traceback, of each connection that ends, unless it is configured."""
    if "distributed" not in dask.config.get("logging", {}):
        logging.getLogger("distributed").setLevel(logging.WARNING)


def connected(scheduler: str, security: Security | None = None, timeout_s: float | None = None) -> Client:
    """A client of the scheduler at this address (see `current_address`); security: None is that of dask's
    configuration. Raises ClusterError if none answers within timeout_s (None: CONNECT_S)."""
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
    """This address, or that in the file that it names as file:PATH, from `dask scheduler --scheduler-file PATH`."""
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
    Raises ClusterError."""
    events.warn(f"{reason}; waiting up to {human_seconds(wait_s)} for one")
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
        events.warn(f"--performance-report {path}: was not written ({brief(error)})")
