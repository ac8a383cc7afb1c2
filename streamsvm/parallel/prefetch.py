"""Work done on separate threads: ahead of its use, or in parallel."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from queue import SimpleQueue
from threading import Event
from typing import Any, TypeVar

T = TypeVar("T")
R = TypeVar("R")


def ahead(
    work: Callable[[T], R], items: Iterable[T], threads: int = 1, most: int | None = None
) -> Iterator[R]:
    """work(item) for each item, in order, made on separate threads while the last one is used.

    Begun and not yet taken are at most `most` (default: one a thread). Ctrl-C does not wait for them.
    """
    waiting = iter(items)
    pool = ThreadPoolExecutor(threads)

    def begin(count: int) -> Iterator[Future[R]]:
        return (pool.submit(work, item) for item in islice(waiting, count))

    patient = True
    try:
        begun = deque(begin(most or threads))
        while begun:
            result = begun.popleft().result()
            begun.extend(begin(1))
            yield result
    except KeyboardInterrupt:
        patient = False
        raise
    finally:
        pool.shutdown(wait=patient, cancel_futures=not patient)


def on_thread(stream: Iterator[T], most: int = 2) -> Iterator[T]:
    """What a stream yields, made on a separate thread, at most so many before they are taken."""
    end = object()
    with ThreadPoolExecutor(1) as pool:
        coming = deque(pool.submit(next, stream, end) for _ in range(most))
        while (item := coming.popleft().result()) is not end:
            coming.append(pool.submit(next, stream, end))
            yield item  # type: ignore[misc]  # not the end


def as_they_come(streams: Iterable[Callable[[], Iterable[R]]], threads: int) -> Iterator[R]:
    """What all streams yield, in the order in which it comes; `threads` of them at work, each on its own thread.

    An error of one is raised, and ends the others at their next result.
    """
    found: SimpleQueue[Any] = SimpleQueue()
    is_over = Event()

    def follow(stream: Callable[[], Iterable[R]]) -> None:
        for result in stream():
            found.put(result)
            if is_over.is_set():
                return

    with ThreadPoolExecutor(threads) as pool:
        running = {pool.submit(follow, stream) for stream in streams}
        for future in running:
            future.add_done_callback(found.put)
        try:
            while running:
                result = found.get()
                if isinstance(result, Future):
                    running.discard(result)
                    result.result()
                else:
                    yield result
        finally:
            is_over.set()
            pool.shutdown(wait=False, cancel_futures=True)
