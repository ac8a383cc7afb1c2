"""Work done ahead of its use."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")


def ahead(
    work: Callable[[T], R], items: Iterable[T], threads: int = 1, most: int | None = None
) -> Iterator[R]:
    """work(item) for each item, in order, made on threads of its own while the last one is used.

    Begun and not yet taken are at most `most` (default: one a thread).
    """
    waiting = iter(items)
    with ThreadPoolExecutor(threads) as pool:

        def begin(count: int) -> Iterator[Future[R]]:
            return (pool.submit(work, item) for item in islice(waiting, count))

        begun = deque(begin(most or threads))
        while begun:
            result = begun.popleft().result()
            begun.extend(begin(1))
            yield result
