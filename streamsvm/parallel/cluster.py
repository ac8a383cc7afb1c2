"""A dask.distributed cluster as the engine of a fit: its workers run the tasks, this process only leads.

Values above INLINE_BYTES go from this process to the workers and back directly, not through the scheduler, unless only
the scheduler reaches the workers. A value on the workers (`RemoteValue`) knows how to make itself again: if a worker is
lost, dask computes lost results again, and `RemoteValue` sends lost values again. If the scheduler is lost and another
one is waited for (see `Contact`), `RemoteValue` makes all of them again.

Results arrive in order, many small ones at a time (`ResultQueue`). Values that workers have no room to keep are read by
the tasks that use them (`TaskWithReads`). The scheduler records which workers ran them, and when (`TaskTimes`).
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, suppress
from functools import partial
from itertools import chain, islice, takewhile
from pathlib import Path
from typing import Any, TypeVar
from uuid import uuid4

from dask.sizeof import sizeof
from distributed import Client, Future, KilledWorker, Scheduler
from distributed.diagnostics.plugin import SchedulerPlugin

from streamsvm.errors import ClusterError, ConfigError, StreamSVMError
from streamsvm.events import Events, ignore
from streamsvm.parallel.contact import (
    REACH_S,
    Contact,
    address_of,
    brief,
    connected,
    disconnect,
    end_report,
    first_client,
    lacking,
    local_cluster,
    started_report,
    wait_for_client,
    warnings_alone,
)
from streamsvm.parallel.devices import Device, inheriting, lacking_device
from streamsvm.parallel.engine import (
    Deferred,
    Engine,
    Function,
    GroupedReduction,
    Job,
    Merge,
    merged_by_level,
    name_of,
    several,
)
from streamsvm.parallel.heaps import in_worker
from streamsvm.private.distributed import forget_groups, in_one_span, run_on_scheduler
from streamsvm.progress import EVERY_S, LEAST_S, Meter
from streamsvm.storage.paths import Place
from streamsvm.storage.text import JsonObject

T = TypeVar("T")
LOST = (CancelledError, KilledWorker, OSError)  # errors of a client when a worker is gone
TRIES = 6  # of a value whose worker was lost
HELD_SHARE = 0.3  # of the workers' memory, for values that they keep between tasks
WIDEST = 256  # tasks of a window of small values, which grows
MOST_TOGETHER, TASKS_A_SLOT = 8, 32  # pieces of work in one task; fewest tasks of a slot, so that slots end together
REDUCED_A_SLOT = 4  # fewest tasks of a reduction for each slot; each has three: the call, its result, its part to merge


def open_cluster(
    scheduler: str | None,
    workers: int | None,
    memory_limit: int | None,
    events: Events = ignore,
    performance_report: Path | None = None,
    wait_s: float | None = None,
) -> ClusterEngine:
    """The engine of a running cluster at address `scheduler`, or of `workers` new processes on this machine.

    memory_limit: bytes for all processes on this machine together. performance_report: the file for dask's report at
    the end. wait_s: for how long to wait for a scheduler that does not answer, or no longer does. Raises ClusterError
    if no scheduler answers, and ConfigError.
    """
    if scheduler is not None and workers is not None:
        raise ConfigError(f"--workers {workers}: the workers are those of --scheduler {scheduler}; give one of them")
    warnings_alone()
    next_client = None
    with ExitStack() as opened:
        if scheduler is not None:
            if wait_s is not None:
                next_client = partial(wait_for_client, scheduler, wait_s, events)
            client = first_client(scheduler, next_client)
        else:
            assert workers is not None
            cluster = opened.enter_context(local_cluster(workers, memory_limit))
            client = Client(cluster, direct_to_workers=True, set_as_default=False)
        opened.callback(disconnect, client)
        if performance_report is not None:
            report = started_report(client, performance_report)
            opened.callback(end_report, client, report, performance_report, events)
        engine = ClusterEngine(client, events, next_client)
        engine.opened = opened.pop_all()
        return engine


def joined_cluster(client: Client, events: Events = ignore) -> ClusterEngine:
    """The engine of the cluster of another client, which can be used meanwhile and is not closed. Raises ClusterError
    if its scheduler does not answer."""
    with ExitStack() as opened:
        own_client = connected(address_of(client), client.security)
        opened.callback(disconnect, own_client)
        engine = ClusterEngine(own_client, events)
        engine.opened = opened.pop_all()
        return engine


class ClusterEngine(Engine):
    """Runs tasks on the workers of a cluster; threads are those of this process."""

    is_local = False

    def __init__(
        self, client: Client, events: Events = ignore, next_client: Callable[[str], Client] | None = None
    ) -> None:
        self._local = Engine()
        self.threads = self._local.threads
        self._events = events
        self.opened = ExitStack()  # closed with this engine
        self._contact = Contact(client, events, next_client)
        self._times = TaskTimes(self._contact)

    @property
    def address(self) -> str:
        return self._contact.address

    @property
    def client(self) -> Client:
        return self._contact.client

    @property
    def local(self) -> Engine:
        return self._local

    @property
    def slots(self) -> int:
        return max(1, sum(self._threads()))

    def facts(self) -> JsonObject:
        return self._contact.facts()

    def wide(self, count: int) -> tuple[int, int]:
        threads = self._threads()
        is_few = count < 4 * max(1, sum(threads))
        return (min(threads, default=1), max(1, len(threads))) if is_few else (1, 4 * max(1, sum(threads)))

    def together(self, count: int) -> int:
        return max(1, min(MOST_TOGETHER, count // (TASKS_A_SLOT * self.slots)))

    def worker_memory(self) -> tuple[int | None, int]:
        """(memory of the worker with the least, the most threads of a worker)."""
        threads = max(self._threads(), default=1)
        return min((limit for limit in self._memory_limits() if limit), default=None), threads

    def _threads(self) -> list[int]:
        return list(self._contact.workers().values())

    def _memory_limits(self) -> list[int]:
        """The memory of each worker in bytes, 0 if it has no limit."""
        info = self._contact.ask(lambda client: client.scheduler_info(n_workers=-1))
        return [int(worker["memory_limit"] or 0) for worker in info["workers"].values()]

    def _memory_bytes(self) -> float:
        limits = self._memory_limits()
        return sum(limits) if all(limits) else math.inf

    def share(self, value: Any) -> Any:
        return self._scatter([value])[0]

    def hold(
        self,
        read: Function,
        items: Sequence[object],
        *more: Iterable[object],
        shared: Sequence[object] = (),
        nbytes: float = 0.0,
    ) -> Sequence[Any]:
        jobs = [(*shared, *job) for job in zip(items, *more, strict=True)]
        if nbytes > HELD_SHARE * self._memory_bytes():
            return [Deferred(read, *job) for job in jobs]
        return self._tasks(read, jobs)

    def release(self, values: Iterable[object]) -> None:
        for value in values:
            if isinstance(value, RemoteValue):
                value.forget()

    def map_reduce(
        self,
        fn: Function,
        merge: Merge,
        items: Sequence[object],
        *more: Iterable[object],
        shared: Sequence[object] = (),
        phase: str = "map",
        events: Events = ignore,
    ) -> tuple[list[Any], Any]:
        jobs = list(zip(items, *more, strict=True))
        if (together := self._jobs_per_task(jobs)) > 1:
            grouped, groups = GroupedReduction(fn, merge), several(jobs, together)
            results, merged = self.map_reduce(grouped, merge, groups, shared=shared, phase=phase, events=events)
            return list(chain.from_iterable(results)), merged
        meter = Meter(events, phase, len(items))
        with self._times.of(meter):
            return self._reduced(fn, merge, [(*shared, *job) for job in jobs], meter)

    def _reduced(self, fn: Function, merge: Merge, jobs: Sequence[Job], meter: Meter) -> tuple[list[Any], Any]:
        pairs = self._tasks(fn, jobs)
        firsts = self._tasks(_first_of_pair, [(pair,) for pair in pairs])
        parts = self._consumed(partial(_merge_seconds, merge), list(zip(pairs[::2], pairs[1::2], strict=False)))
        parts += self._consumed(_second_of_pair, [(pair,) for pair in pairs[len(pairs) // 2 * 2 :]])
        merged = merged_by_level(partial(self._consumed, merge), parts)
        results, arrivals = list[Any](), ResultQueue(self._contact, self._first_result, meter)
        arrivals.add(firsts)
        while arrivals:
            results += arrivals.take(len(arrivals))
        reduced = self._first_result([merged])
        self._times.report(meter)
        return results, reduced

    def _jobs_per_task(self, jobs: Sequence[Job]) -> int:
        """The number of neighbouring jobs of a reduction in one task: a power of two, so that the tree stays the same.
        One if workers hold the data of jobs, as those of neighbours may be on different workers."""
        if not jobs or any(isinstance(arg, RemoteValue | Deferred) for arg in jobs[0]):
            return 1
        most_together = len(jobs) // (REDUCED_A_SLOT * self.slots)
        return 1 << max(0, most_together.bit_length() - 1)

    def require_folder(self, folder: Place) -> None:
        probe = folder / f".{uuid4().hex}"
        probe.write_bytes(b"")
        try:
            sees_by_worker = self._contact.ask(lambda client: client.run(_sees, probe))
        finally:
            probe.unlink(missing_ok=True)
        without = [address for address, sees in sees_by_worker.items() if not sees]
        if without:
            raise ConfigError(
                f"the worker at {without[0]} does not see {folder}; "
                "give a --run-dir that this process and all workers share"
            )

    def check_device(self, device: Device, events: Events) -> None:
        name, limit = device.name, device.limit
        by_worker = self._contact.ask(lambda client: client.run(lacking_device, name, limit))
        without = {address: reason for address, reason in by_worker.items() if reason}
        if without:
            address, reason = next(iter(without.items()))
            count = f"{len(without)} of {len(by_worker)} workers compute on their CPUs"
            events.warn(f"{count}, for example {address}: {reason}")

    def serial_blas(self) -> AbstractContextManager[object]:
        return self._local.serial_blas()

    def close(self) -> None:
        self.opened.close()
        disconnect(self.client)  # where it is not the first one

    def _results(self, fn: Function, jobs: Iterator[Job], window: int | None, meter: Meter) -> Iterator[Any]:
        """In windows; one of small values grows, unless its size was given: each costs messages to the scheduler."""
        arrivals, size = ResultQueue(self._contact, self._first_result, meter), window or 2 * self.slots
        grows = window is None

        def start(count: int) -> None:
            nonlocal grows
            next_jobs = list(islice(jobs, count))
            grows = grows and not any(self._is_large(arg) for job in next_jobs for arg in job)
            arrivals.add(self._tasks(fn, next_jobs))

        with self._times.of(meter):
            start(2 * size)
            while arrivals:
                results = arrivals.take(size)
                if grows and arrivals.are_small:
                    size = max(size, min(2 * size, WIDEST))
                if len(arrivals) <= size:
                    start(2 * size + 1 - len(results) - len(arrivals))  # the first of these waits no longer
                if not arrivals:  # the caller may take the last results and leave
                    self._times.report(meter)
                yield from results

    def _tasks(self, fn: Function, jobs: Sequence[Job]) -> list[RemoteValue]:
        """Starts fn(*job) of each job; arguments too large to go with a task are sent to the workers first."""
        fn, jobs = with_reads(inheriting(fn), jobs)
        sent = iter(self._scatter([arg for job in jobs for arg in job if self._is_large(arg)]))

        def remote(arg: object) -> object:
            return next(sent) if self._is_large(arg) else arg

        ready = [tuple(map(remote, job)) for job in jobs]
        futures = self._persist(lambda: self._submitted(fn, ready)) if ready else []
        return [
            RemoteValue(partial(self._submitted, fn, [job]), future) for job, future in zip(ready, futures, strict=True)
        ]

    def _consumed(self, fn: Function, jobs: Sequence[tuple[RemoteValue, ...]]) -> list[RemoteValue]:
        """As `_tasks`, of values that nothing else takes: workers drop them as soon as the results exist."""
        tasks = self._tasks(fn, jobs)
        for arg in chain.from_iterable(jobs):
            arg.forget()
        return tasks

    def _submitted(self, fn: Function, jobs: Sequence[Job]) -> list[Future]:
        columns = [
            [arg.future if isinstance(arg, RemoteValue) else arg for arg in column]
            for column in zip(*jobs, strict=True)
        ]
        keys = [f"{name_of(fn)}-{self._times.mark}-{uuid4().hex}" for _ in jobs]
        with in_one_span():
            return self.client.map(partial(in_worker, fn), *columns, key=keys, pure=False)

    def _scatter(self, values: list[object]) -> list[RemoteValue]:
        futures = self._persist(lambda: self._contact.send(values)) if values else []
        return [RemoteValue(partial(self._contact.send, [v]), f) for v, f in zip(values, futures, strict=True)]

    @staticmethod
    def _is_large(value: object) -> bool:
        return not isinstance(value, RemoteValue | Deferred) and sizeof(value) > INLINE_BYTES

    def _first_result(self, started: Sequence[RemoteValue]) -> Any:
        """The result of the first of these tasks; after it all are running, those too that were lost."""
        return self._persist(lambda: self._contact.result([task.future for task in started][0]), started[0])

    def _persist(self, attempt: Callable[[], T], task: RemoteValue | None = None) -> T:
        """attempt(), again if workers or the scheduler were lost; the task's own errors are raised as they are."""
        for tries in range(1, TRIES + 1):
            client = self._contact.current()
            try:
                return attempt()
            except ImportError as error:
                raise lacking("a worker", error) from None
            except Exception as error:
                failed = task is not None and task.has_failed and not isinstance(error, KilledWorker)
                if failed or isinstance(error, ClusterError):
                    raise
                if isinstance(error, LOST):
                    self._contact.workers()  # if the scheduler is gone, this raises, or another one answers
                is_new = self._contact.current() is not client
                if not is_new and not isinstance(error, LOST):
                    raise
                if tries == TRIES:
                    raise ClusterError(
                        f"workers or schedulers were lost {TRIES} times over one task ({brief(error)})"
                    ) from None
                if is_new:
                    continue
                self._events.warn(f"a worker was lost, its task runs again ({brief(error)})")
                if task is not None:
                    task.forget()
                self._contact.renew()
        raise AssertionError("unreachable")


def _sees(probe: Place) -> bool:
    """Whether a worker reaches the same storage as this process."""
    try:
        return probe.exists()
    except StreamSVMError:  # a package for this storage is missing, or access is denied
        return False


def _first_of_pair(pair: Any) -> Any:
    return pair[0]


def _second_of_pair(pair: Any) -> Any:
    return pair[1]


def _merge_seconds(merge: Merge, left: Any, right: Any) -> Any:
    return merge(left[1], right[1])


# A function that reads an argument, and the forms of its own arguments; None: the argument is plain.
ArgumentForm = tuple[Function, Job] | None


class TaskWithReads:
    """A task that reads some of its arguments by itself; forms: of each argument of fn."""

    def __init__(self, fn: Function, forms: Sequence[ArgumentForm]) -> None:
        self._fn, self._forms, self.__name__ = fn, forms, name_of(fn)

    def __call__(self, *values: object) -> Any:
        remaining = iter(values)
        return self._fn(*(_argument(form, remaining) for form in self._forms))


def _argument(form: ArgumentForm, values: Iterator[object]) -> object:
    return next(values) if form is None else form[0](*(_argument(argument, values) for argument in form[1]))


def _form(arg: object) -> ArgumentForm:
    return (arg.read, tuple(map(_form, arg.args))) if isinstance(arg, Deferred) else None


def _plain_arguments(args: Iterable[object]) -> Iterator[object]:
    """These arguments, with those of a `Deferred` in its place."""
    for arg in args:
        if isinstance(arg, Deferred):
            yield from _plain_arguments(arg.args)
        else:
            yield arg


def with_reads(fn: Function, jobs: Sequence[Job]) -> tuple[Function, Sequence[Job]]:
    """fn and jobs as they are; if jobs have values to be read, all of them alike, a task that reads and uses them."""
    if not any(isinstance(arg, Deferred) for arg in next(iter(jobs), ())):
        return fn, jobs
    return TaskWithReads(fn, [_form(arg) for arg in jobs[0]]), [tuple(_plain_arguments(job)) for job in jobs]


INLINE_BYTES = 4096  # of a small value, which goes with its task, through the scheduler
TOGETHER_BYTES = 1 << 20  # of results that are fetched in one call
FIRST = 4  # results in one call before the size of one is known


class RemoteValue:
    """A value on the workers, and how to make it, in a list by itself, again if it was lost."""

    def __init__(self, make: Callable[[], list[Future]], future: Future | None = None) -> None:
        self._make, self._future = make, future

    @property
    def future(self) -> Future:
        if self._future is None or self._future.status in ("cancelled", "lost"):
            [self._future] = self._make()
        return self._future

    @property
    def pending(self) -> Future | None:
        """The future of a value that is not ready; None if there is nothing to wait for."""
        return self._future if self._future is not None and self._future.status == "pending" else None

    @property
    def is_finished(self) -> bool:
        return self._future is not None and self._future.status == "finished"

    @property
    def has_failed(self) -> bool:
        """Whether making it has raised an error."""
        return self._future is not None and self._future.status == "error"

    def forget(self) -> None:
        self._future = None


class ResultQueue:
    """The results of tasks, taken in the order in which the tasks were started; `meter` counts them as they end. fetch:
    returns the result of the first of tasks, whatever happens to workers, and ensures that all of them are running."""

    def __init__(self, contact: Contact, fetch: Callable[[Sequence[RemoteValue]], Any], meter: Meter) -> None:
        self._contact, self._fetch, self._meter = contact, fetch, meter
        self._started, self._taken, self._largest = deque[RemoteValue](), 0, 0

    def __len__(self) -> int:
        return len(self._started)

    @property
    def are_small(self) -> bool:
        return 0 < self._largest <= INLINE_BYTES

    def add(self, tasks: Iterable[RemoteValue]) -> None:
        self._started.extend(tasks)

    def take(self, most: int) -> list[Any]:
        """The next results: at least one, and at most so many, if they are small. Raises the error of the task."""
        at_once = max(1, TOGETHER_BYTES // self._largest) if self._largest else FIRST
        most = min(most, at_once, len(self))
        self._wait(most - 1)
        results = self._together(most) or [self._fetch(self._started)]
        for result in results:
            self._started.popleft()
            self._meter.end(self._taken)  # counted already, unless its worker was lost
            self._taken += 1
            self._largest = max(self._largest, sizeof(result))
        return results

    def _wait(self, last: int) -> None:
        """Waits for the next result, and a little longer for those up to `last`."""
        self._wait_for(self._started[last], EVERY_S)
        while self._started[0].pending is not None:
            self._wait_for(self._started[0], EVERY_S)

    def _wait_for(self, task: RemoteValue, seconds: float) -> None:
        future = task.pending
        if future is not None:
            self._contact.wait(future, seconds)
        self._count_finished()

    def _count_finished(self) -> None:
        """Counts tasks in the order in which they end, which is not that of their results."""
        for number, task in enumerate(self._started, self._taken):
            if task.is_finished:
                self._meter.end(number)

    def _together(self, most: int) -> list[Any]:
        """Finished results, fetched in one call; none if that fails: then each is fetched by itself."""
        ready = [*takewhile(lambda task: task.is_finished, islice(self._started, most))]
        if len(ready) < 2:
            return []
        try:
            return self._contact.results([task.future for task in ready])
        except Exception:
            return []


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
