"""Work done on separate threads: ahead of its use, or in parallel."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from queue import SimpleQueue
from threading import Event
from typing import Any, TypeVar

from streamsvm.parallel.devices import inheriting

T = TypeVar("T")
R = TypeVar("R")


def ahead(work: Callable[[T], R], items: Iterable[T], threads: int = 1, most: int | None = None) -> Iterator[R]:
    """work(item) for each item, in order, computed on separate threads while the last result is used. At most `most`
    results (default: one a thread) are started and not yet taken. Ctrl-C does not wait for them."""
    waiting, work = iter(items), inheriting(work)
    pool = ThreadPoolExecutor(threads)

    def start(count: int) -> Iterator[Future[R]]:
        return (pool.submit(work, item) for item in islice(waiting, count))

    waits = True
    try:
        started = deque(start(most or threads))
        while started:
            result = started.popleft().result()
            started.extend(start(1))
            yield result
    except KeyboardInterrupt:
        waits = False
        raise
    finally:
        pool.shutdown(wait=waits, cancel_futures=not waits)


def on_thread(stream: Iterator[T], most: int = 2) -> Iterator[T]:
    """The items of a stream, computed on a separate thread, at most so many before they are taken."""
    end = object()
    with ThreadPoolExecutor(1) as pool:
        coming = deque(pool.submit(next, stream, end) for _ in range(most))
        while (item := coming.popleft().result()) is not end:
            coming.append(pool.submit(next, stream, end))
            yield item  # type: ignore[misc]  # not the end


def as_they_come(streams: Iterable[Callable[[], Iterable[R]]], threads: int) -> Iterator[R]:
    """The items of all streams, in the order in which they come; `threads` of them at work, each on its own thread. An
    error of one is raised, and ends the others at their next result."""
    results: SimpleQueue[Any] = SimpleQueue()
    is_over = Event()

    def follow(stream: Callable[[], Iterable[R]]) -> None:
        for result in stream():
            results.put(result)
            if is_over.is_set():
                return

    with ThreadPoolExecutor(threads) as pool:
        running = {pool.submit(inheriting(follow), stream) for stream in streams}
        for future in running:
            future.add_done_callback(results.put)
        try:
            while running:
                result = results.get()
                if isinstance(result, Future):
                    running.discard(result)
                    result.result()
                else:
                    yield result
        finally:
            is_over.set()
            pool.shutdown(wait=False, cancel_futures=True)
