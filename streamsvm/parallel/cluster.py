"""A dask.distributed cluster as the engine of a fit: its workers run the tasks, this process only leads.

Values above INLINE_BYTES go from here to the workers and back directly, not through the scheduler, unless it alone
reaches the workers. What a lost worker held is made again: results by dask, values that came from here by `Remote`.
"""

from __future__ import annotations

import logging
import math
import os
import tempfile
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import ExitStack, closing, suppress
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar
from uuid import uuid4

import dask
from dask.sizeof import sizeof
from distributed import Client, KilledWorker, LocalCluster, performance_report
from distributed.comm import CommClosedError

from streamsvm.errors import ClusterError, ConfigError
from streamsvm.events import Events, Joined, Warned, ignore
from streamsvm.parallel.contact import CONNECT_S, Contact, brief, lacking
from streamsvm.parallel.engine import Engine, Later, call, merged_in_tree, name_of
from streamsvm.parallel.machine import cores
from streamsvm.private.distributed import BoundedClient
from streamsvm.progress import Meter
from streamsvm.storage.atomic import whole_file

T = TypeVar("T")
LOST = (CancelledError, KilledWorker, OSError)  # what a client hears of a worker that is gone
TRIES = 6  # of a value whose worker was lost
HELD_SHARE = 0.3  # of the workers' memory, for what they keep between tasks
INLINE_BYTES = 4096  # of a value that goes with its task, through the scheduler
# Of our own workers. Not distributed's MALLOC_TRIM_THRESHOLD_: memory that goes back to the system at every release
# and comes again page by page took a third of the time of solving parts.
ENVIRONMENT = {"OMP_NUM_THREADS": 1, "MKL_NUM_THREADS": 1, "OPENBLAS_NUM_THREADS": 1}


def open_cluster(
    scheduler: str | None,
    workers: int | None,
    memory_limit: int | None,
    events: Events = ignore,
    performance_report: Path | None = None,
) -> ClusterEngine:
    """The engine of a running cluster at address `scheduler`, or of `workers` new processes on this machine.

    memory_limit: bytes for all processes on this machine together. performance_report: where dask's page of what
    happened goes at the end. Raises ClusterError where no scheduler answers, ConfigError.
    """
    if scheduler is not None and workers is not None:
        raise ConfigError(
            f"--workers {workers}: the workers are those of --scheduler {scheduler}; give one of them"
        )
    _warnings_alone()
    with ExitStack() as opened:
        if scheduler is not None:
            client = _connected(scheduler)
        else:
            assert workers is not None
            cluster = opened.enter_context(_local_cluster(workers, memory_limit))
            client = Client(cluster, direct_to_workers=True, set_as_default=False)
        opened.callback(_disconnect, client)
        if performance_report is not None:
            report = _begun_report(client, performance_report)
            opened.callback(_end_report, client, report, performance_report, events)
        engine = ClusterEngine(client, events)
        engine.opened = opened.pop_all()
        return engine


def _warnings_alone() -> None:
    """distributed tells by itself, with a traceback, of each connection that ends: no line for users who do not ask."""
    if "distributed" not in dask.config.get("logging", {}):
        logging.getLogger("distributed").setLevel(logging.WARNING)


def _connected(scheduler: str) -> Client:
    try:
        return BoundedClient(scheduler, timeout=CONNECT_S, direct_to_workers=True, set_as_default=False)
    except (OSError, ValueError, TypeError, ImportError, RuntimeError) as error:
        hint = ""
        if scheduler.startswith("tls://"):
            hint = "; certificates are taken from distributed.comm.tls in dask's configuration"
        elif isinstance(error, CommClosedError):
            hint = "; the address of one with TLS begins with tls://"
        raise ClusterError(
            f"--scheduler {scheduler}: no scheduler answers there ({brief(error)}){hint}"
        ) from None


def _local_cluster(workers: int, memory_limit: int | None) -> LocalCluster:
    with dask.config.set({"distributed.nanny.pre-spawn-environ": ENVIRONMENT}):
        return LocalCluster(
            n_workers=workers,
            threads_per_worker=max(1, cores() // workers),
            processes=True,
            host="127.0.0.1",
            dashboard_address="127.0.0.1:0",
            memory_limit=memory_limit // (workers + 1) if memory_limit else "auto",
        )


def _disconnect(client: Client) -> None:
    with suppress(OSError, TimeoutError):
        client.close()


def _begun_report(client: Client, path: Path) -> performance_report:
    if not path.parent.is_dir():
        raise ConfigError(f"--performance-report {path}: there is no folder {path.parent}")
    try:
        client.run_on_scheduler(version, "bokeh")
    except PackageNotFoundError:
        raise ConfigError(
            f"--performance-report {path}: the scheduler has no bokeh, which draws it; "
            "pip install bokeh there"
        ) from None
    report = performance_report()
    with client.as_current():
        report.__enter__()
    return report


def _end_report(client: Client, report: performance_report, path: Path, events: Events) -> None:
    try:
        if client.status != "running":
            raise ClusterError("the scheduler is gone")
        with whole_file(path) as file, client.as_current():
            report.filename = file.name
            report.__exit__(None, None, None)
    except OSError as error:
        events(Warned(f"--performance-report {path}: was not written ({brief(error)})"))


class Remote:
    """A value on the workers, and how to make it (again, where it was lost)."""

    def __init__(self, make: Callable[[], Any], future: Any = None) -> None:
        self._make, self._future = make, future

    @property
    def future(self) -> Any:
        if self._future is None or self._future.status in ("cancelled", "lost"):
            self._future = self._make()
        return self._future

    @property
    def has_failed(self) -> bool:
        """Whether it was made, and that raised an error."""
        return self._future is not None and self._future.status == "error"

    def forget(self) -> None:
        self._future = None


class ClusterEngine(Engine):
    """Runs tasks on the workers of a cluster; threads are those of this process."""

    is_local = False

    def __init__(self, client: Client, events: Events = ignore) -> None:
        self._local = Engine()
        self.threads = self._local.threads
        self._client, self._events = client, events
        self.opened = ExitStack()  # what ends with this
        self._contact = Contact(client, events)
        self.address = self._contact.address
        events(Joined(self._contact.address, client.dashboard_link, self.facts()))

    @property
    def local(self) -> Engine:
        return self._local

    @property
    def slots(self) -> int:
        return max(1, sum(self._threads()))

    def facts(self) -> dict[str, Any]:
        return {"threads": self.slots, "workers": len(self._threads())}

    def wide(self, count: int) -> tuple[int, int]:
        threads = self._threads()
        few = count < 4 * max(1, sum(threads))
        return (min(threads, default=1), max(1, len(threads))) if few else (1, 4 * max(1, sum(threads)))

    def worker_memory(self) -> tuple[int | None, int]:
        """Of the worker with the least memory; the most threads of a worker."""
        threads = max(self._threads(), default=1)
        return min((limit for limit in self._memory_limits() if limit), default=None), threads

    def _threads(self) -> list[int]:
        """Of each worker."""
        return list(self._contact.workers().values())

    def _memory_limits(self) -> list[int]:
        """Bytes of each worker, 0 where it has no limit."""
        workers = self._contact.ask(partial(self._client.scheduler_info, n_workers=-1))["workers"].values()
        return [int(worker["memory_limit"] or 0) for worker in workers]

    def _memory_bytes(self) -> float:
        limits = self._memory_limits()
        return sum(limits) if all(limits) else math.inf

    def share(self, value: Any) -> Any:
        return self._scatter([value])[0]

    def hold(
        self,
        read: Callable[..., Any],
        items: Sequence[Any],
        *more: Iterable[Any],
        shared: Sequence[Any] = (),
        nbytes: float = 0.0,
    ) -> Sequence[Any]:
        jobs = [(*shared, *job) for job in zip(items, *more, strict=True)]
        if nbytes > HELD_SHARE * self._memory_bytes():
            return [Later(read, *job) for job in jobs]
        return self._tasks(read, jobs)

    def map_reduce(
        self,
        fn: Callable[..., Any],
        merge: Callable[[Any, Any], Any],
        items: Sequence[Any],
        *more: Any,
        shared: Sequence[Any] = (),
        phase: str = "map",
        events: Events = ignore,
    ) -> tuple[list[Any], Any]:
        both = self._tasks(fn, [(*shared, *job) for job in zip(items, *more, strict=True)])
        owns = [self._task(_first, (pair,)) for pair in both]
        parts = (self._task(_second, (pair,)) for pair in both)
        merged = merged_in_tree(lambda a, b: self._task(merge, (a, b)), parts)
        meter = Meter(events, phase, len(items))
        with closing(meter):
            self._watch(owns, meter)
            found = [self._counted(own, meter, number) for number, own in enumerate(owns)]
        return found, self._result(merged)

    def require_folder(self, folder: Path) -> None:
        with tempfile.NamedTemporaryFile(dir=folder) as file:
            seen = self._contact.ask(partial(self._client.run, os.path.exists, file.name))
        blind = [address for address, sees in seen.items() if not sees]
        if blind:
            raise ConfigError(
                f"the worker at {blind[0]} does not see {folder}; "
                "give a --run-dir that this process and all workers share"
            )

    def serial_blas(self) -> Any:
        return self._local.serial_blas()

    def close(self) -> None:
        self.opened.close()

    def _results(
        self, fn: Callable[..., Any], jobs: Iterator[tuple[Any, ...]], window: int, meter: Meter
    ) -> Iterator[Any]:
        begun, number = deque[Remote](), 0

        def begin(count: int) -> None:
            tasks = self._tasks(fn, list(islice(jobs, count)))
            self._watch(tasks, meter, number + len(begun))
            begun.extend(tasks)

        with closing(meter):
            begin(2 * window)
            while begun:
                yield self._counted(begun.popleft(), meter, number)
                number += 1
                if len(begun) <= window:
                    begin(window)

    def _watch(self, tasks: list[Remote], meter: Meter, first: int = 0) -> None:
        """Counts tasks in the order in which they end, which is not that of their results."""
        for number, task in enumerate(tasks, first):
            future = self._persist(partial(getattr, task, "future"))
            future.add_done_callback(partial(_count, meter, number))

    def _counted(self, task: Remote, meter: Meter, number: int) -> Any:
        result = self._result(task)
        meter.end(number)  # as `_watch` did, unless its worker was lost
        return result

    def _tasks(self, fn: Callable[..., Any], jobs: list[tuple[Any, ...]]) -> list[Remote]:
        """fn(*job) of each job, under way; arguments too large to go with a task are sent to the workers first."""
        large = [arg for job in jobs for arg in job if self._is_large(arg)]
        sent = iter(self._scatter(large))
        return [
            self._task(fn, tuple(next(sent) if self._is_large(arg) else arg for arg in job)) for job in jobs
        ]

    def _task(self, fn: Callable[..., Any], args: tuple[Any, ...]) -> Remote:
        args = tuple(self._task(arg.read, arg.args) if isinstance(arg, Later) else arg for arg in args)

        def submit() -> Any:
            here = [arg.future if isinstance(arg, Remote) else arg for arg in args]
            return self._client.submit(call, fn, *here, key=f"{name_of(fn)}-{uuid4().hex}")

        task = Remote(submit)
        self._persist(lambda: task.future)
        return task

    def _scatter(self, values: list[Any]) -> list[Remote]:
        futures = self._persist(lambda: self._contact.send(values)) if values else []
        return [Remote(partial(self._sent_one, v), f) for v, f in zip(values, futures, strict=True)]

    def _sent_one(self, value: Any) -> Any:
        return self._contact.send([value])[0]

    @staticmethod
    def _is_large(value: Any) -> bool:
        return not isinstance(value, Remote) and sizeof(value) > INLINE_BYTES

    def _result(self, task: Remote) -> Any:
        return self._persist(lambda: self._contact.result(task.future), task)

    def _persist(self, ask: Callable[[], T], task: Remote | None = None) -> T:
        """ask(), again where workers were lost meanwhile; the task's own errors are raised as they are."""
        for tries in range(1, TRIES + 1):
            try:
                return ask()
            except ImportError as error:
                raise lacking("a worker", error) from None
            except Exception as error:
                failed = task is not None and task.has_failed and not isinstance(error, KilledWorker)
                if failed or isinstance(error, ClusterError):
                    raise
                self._contact.require_scheduler()
                if not isinstance(error, LOST):
                    raise
                if tries == TRIES:
                    raise ClusterError(
                        f"workers were lost {TRIES} times over one task ({brief(error)})"
                    ) from None
                self._events(Warned(f"a worker was lost, its task runs again ({brief(error)})"))
                if task is not None:
                    task.forget()
                self._contact.renew()
        raise AssertionError("unreachable")


def _count(meter: Meter, number: int, future: Any) -> None:
    if future.status == "finished":
        meter.end(number)


def _first(pair: Any) -> Any:
    return pair[0]


def _second(pair: Any) -> Any:
    return pair[1]
