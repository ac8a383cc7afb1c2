"""Map and reduce over row blocks and partitions: the only builder of dask graphs.

`Engine` runs tasks on the threads of this machine, `parallel.cluster.ClusterEngine` on the workers of a cluster;
callers do not know which. Mapped functions are plain ones: all they need is in their arguments.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from copy import copy
from functools import lru_cache, partial
from itertools import islice
from typing import Any, TypeVar

from threadpoolctl import ThreadpoolController

from streamsvm.events import Events, ignore
from streamsvm.parallel.devices import Device, OnDevice, inheriting
from streamsvm.parallel.imports import uncollected
from streamsvm.parallel.machine import cores
from streamsvm.parallel.prefetch import ahead
from streamsvm.progress import Meter
from streamsvm.storage.paths import Place
from streamsvm.storage.text import JsonObject

T = TypeVar("T")
P = TypeVar("P")
Function = Callable[..., Any]  # a plain function, of whatever a task takes and returns
Merge = Callable[[Any, Any], Any]  # of two parts of a result
Job = tuple[Any, ...]  # the arguments of one task


class Deferred:
    """A value that a task makes for itself, by calling this: see `Engine.hold`."""

    def __init__(self, read: Function, *args: object) -> None:
        self.read, self.args = read, args

    def __call__(self) -> Any:
        return call(self.read, *self.args)


class Engine:
    """Runs plain functions as the tasks of dask graphs on the threads of this machine. Both cores stay busy with one
    BLAS thread each: every task sees a BLAS that does not thread itself. threads: of this process. slots: tasks that
    run at a time."""

    is_local = True

    def __init__(self, threads: int | None = None) -> None:
        self.threads = threads or cores()

    @property
    def slots(self) -> int:
        return self.threads

    @property
    def client(self) -> Any:
        """Of the cluster that computes; None: this process does."""
        return None

    def on(self, threads: int) -> Engine:
        """This engine with so many threads of this process."""
        other = copy(self)
        other.threads = threads
        return other

    @property
    def local(self) -> Engine:
        """The threads of this process, for work on memory that tasks share."""
        return self

    def map(
        self,
        fn: Callable[..., P],
        items: Sequence[object],
        *more: Iterable[object],
        shared: Sequence[object] = (),
        phase: str = "map",
        events: Events = ignore,
        window: int | None = None,
    ) -> Iterator[P]:
        """fn(*shared, item, ...) for each item and the values that `more` has with it, in order. At most `window`
        results (default: two a slot, on a cluster more if they are small) wait to be taken while as many are being
        computed."""
        jobs = ((*shared, *job) for job in zip(items, *more, strict=True))
        yield from self._results(fn, jobs, window, Meter(events, phase, len(items)))

    def map_reduce(
        self,
        fn: Callable[..., tuple[T, P]],
        merge: Callable[[P, P], P],
        items: Sequence[object],
        *more: Iterable[object],
        shared: Sequence[object] = (),
        phase: str = "map",
        events: Events = ignore,
    ) -> tuple[list[T], P]:
        """For fn that returns (result, part), called as by `map`: every result in order, and every `part` merged in a
        fixed tree. The tree follows from the number of items alone, so the result does not depend on the workers."""
        results: list[T] = []

        def parts() -> Iterator[P]:
            for result, part in self.map(fn, items, *more, shared=shared, phase=phase, events=events):
                results.append(result)
                yield part

        merged = merged_in_tree(merge, parts())
        return results, merged

    def share(self, value: object) -> Any:
        """`value` for the `shared` of many calls; a cluster sends it to the workers once."""
        return value

    def hold(
        self,
        read: Function,
        items: Sequence[object],
        *more: Iterable[object],
        shared: Sequence[object] = (),
        nbytes: float = 0.0,
    ) -> Sequence[Any]:
        """The results of `read` as `map` would yield them, as items for many calls of `map`: workers of a cluster keep
        them, and this process reads them again. nbytes: of all of them. Workers keep no more than they have memory
        for."""
        return [Deferred(read, *shared, *job) for job in zip(items, *more, strict=True)]

    def release(self, values: Iterable[object]) -> None:
        """Workers may drop these values of `share` or `hold`; they are made again if they are needed again."""

    def wide(self, count: int) -> tuple[int, int]:
        """(threads of a task, window) for `count` large tasks: a few run one after the other on all threads."""
        return (self.threads, 1) if count < 4 * self.threads else (1, 16 * self.threads)

    def together(self, count: int) -> int:
        """How many of `count` large pieces of work a task does one after the other, as tasks cost a scheduler time."""
        return 1

    def worker_memory(self) -> tuple[int | None, int]:
        """(memory limit in bytes of the process that runs tasks, None if it has none; its threads)."""
        return None, self.threads

    def require_folder(self, folder: Place) -> None:
        """Raises ConfigError if tasks would not see a folder of this process."""

    def check_device(self, device: Device, events: Events) -> None:
        """Warns if there are tasks that cannot use a device, and compute on CPUs."""

    def close(self) -> None:
        """Stops what the engine started."""

    def facts(self) -> JsonObject:
        """A description of the engine, for reports."""
        return {"threads": self.threads}

    def serial_blas(self) -> AbstractContextManager[object]:
        """A context in which BLAS uses one thread, in every library that is loaded now."""
        return _pools(len(sys.modules)).limit(limits=1)

    def _results(self, fn: Function, jobs: Iterator[Job], window: int | None, meter: Meter) -> Iterator[Any]:
        fn, size = inheriting(fn), window or 2 * self.slots

        def counted(number: int, *args: object) -> Any:
            if meter.is_closed:
                return None
            with meter.task(number):
                return call(fn, *args)

        def compute(jobs: list[tuple[int, Job]]) -> list[Any]:
            # bound, not given as arguments: dask would look for tasks and keys inside them
            graph = {f"{name_of(fn)}-{i:06d}": (partial(counted, i, *job),) for i, job in jobs}
            with self.serial_blas():
                return list(_get(graph, list(graph), num_workers=self.threads))

        numbered = enumerate(jobs)
        try:
            for results in ahead(compute, iter(lambda: list(islice(numbered, size)), [])):
                yield from results
        finally:
            meter.close()  # a window that nobody takes ends with the tasks at work


class SerialEngine(Engine):
    """Calls functions in this thread, one after the other: for use inside tasks, which hold no graphs."""

    def __init__(self) -> None:
        super().__init__(1)

    def _results(self, fn: Function, jobs: Iterator[Job], window: int | None, meter: Meter) -> Iterator[Any]:
        for number, job in enumerate(jobs):
            with meter.task(number):
                yield call(fn, *job)
        meter.close()


@lru_cache(maxsize=1)
def _pools(modules: int) -> ThreadpoolController:
    """Thread pools of this process; looked up again (1 ms) if more modules are loaded, which may bring a BLAS."""
    return ThreadpoolController()


def _get(graph: dict[str, Any], keys: list[str], num_workers: int) -> Any:
    """dask's threaded scheduler, loaded on first use: models and estimators do not need it."""
    with uncollected():
        from dask.threaded import get
    return get(graph, keys, num_workers=num_workers)


def call(fn: Function, *args: object) -> Any:
    return fn(*(arg() if isinstance(arg, Deferred) else arg for arg in args))


def name_of(fn: object) -> str:
    """The name of a task in dashboards."""
    if isinstance(fn, partial | OnDevice):
        return name_of(fn.func)
    return str(getattr(fn, "__name__", type(fn).__name__)).strip("_<>")


def several(items: Sequence[T], together: int) -> list[Sequence[T]]:
    """The items in groups of so many."""
    return [items[start : start + together] for start in range(0, len(items), together)]


def merged_in_tree(merge: Callable[[T, T], T], parts: Iterable[T]) -> T:
    """All of `parts` merged, neighbours with neighbours, in a binary tree whose shape follows from their number."""
    sizes: list[int] = []
    trees: list[T] = []
    for part in parts:
        sizes.append(1)
        trees.append(part)
        while len(sizes) > 1 and sizes[-1] == sizes[-2]:
            right = trees.pop()
            trees.append(merge(trees.pop(), right))
            sizes.append(sizes.pop() + sizes.pop())
    while len(trees) > 1:
        right = trees.pop()
        trees.append(merge(trees.pop(), right))
    return trees[0]


class GroupedReduction:
    """fn of several neighbours of a `map_reduce`: the result of each, and every `part` merged in their own tree."""

    def __init__(self, fn: Callable[..., tuple[Any, Any]], merge: Merge) -> None:
        self._fn, self._merge, self.__name__ = fn, merge, name_of(fn)

    def __call__(self, *args: Any) -> tuple[list[Any], Any]:
        *shared, jobs = args
        results: list[Any] = []

        def parts() -> Iterator[Any]:
            for job in jobs:
                result, part = self._fn(*shared, *job)
                results.append(result)
                yield part

        merged = merged_in_tree(self._merge, parts())  # fills owns
        return results, merged


def merged_by_level(merge: Callable[[list[tuple[T, T]]], list[T]], parts: list[T]) -> T:
    """The tree of `merged_in_tree`, if `merge` merges many pairs at once."""
    while len(parts) > 1:
        alone = parts[-1:] if len(parts) % 2 else []
        parts = merge(list(zip(parts[::2], parts[1::2], strict=False))) + alone
    return parts[0]
