"""Map and reduce over row blocks and parts: the only builder of dask graphs."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial, reduce
from typing import Any, TypeVar

import dask.threaded
from threadpoolctl import ThreadpoolController

from streamsvm.ahead import ahead
from streamsvm.events import Events, ignore

T = TypeVar("T")
R = TypeVar("R")


class Engine:
    """Runs plain functions as the tasks of dask graphs, by default on the threads of this machine.

    Both cores stay busy with one BLAS thread each: every task sees a BLAS that does not thread itself.
    """

    def __init__(self, threads: int | None = None) -> None:
        self.threads = threads or len(os.sched_getaffinity(0))
        self._blas = ThreadpoolController()

    def map(
        self,
        fn: Callable[[T], R],
        items: Sequence[T],
        *,
        phase: str = "map",
        events: Events = ignore,
        window: int | None = None,
    ) -> Iterator[R]:
        """fn(item) for each item, in order.

        At most `window` results (default: two a thread) wait to be taken while as many are being made.
        """
        window = window or 2 * self.threads
        windows = (items[first : first + window] for first in range(0, len(items), window))
        done = 0
        for results in ahead(partial(self._compute, fn), windows):
            yield from results
            done += len(results)
            events.progress(phase, done, len(items))

    def map_reduce(
        self, fn: Callable[[T], R], merge: Callable[[R, R], R], items: Sequence[T], **progress: Any
    ) -> R:
        """merge over fn(item) for all items, from left to right: the result does not depend on the threads."""
        return reduce(merge, self.map(fn, items, **progress))

    def _compute(self, fn: Callable[[T], R], items: Iterable[T]) -> list[R]:
        # bound, not given as an argument: dask would look for tasks and keys inside an item
        graph = {f"{fn.__name__}-{i:06d}": (partial(fn, item),) for i, item in enumerate(items)}
        with self.serial_blas():
            return list(dask.threaded.get(graph, list(graph), num_workers=self.threads))

    def serial_blas(self) -> Any:
        """A context in which BLAS uses one thread."""
        return self._blas.limit(limits=1)
