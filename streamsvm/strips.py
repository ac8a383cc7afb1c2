"""Strips of rows shared among threads."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor


def strips(work: Callable[[int, int], None], m: int, height: int, threads: int) -> None:
    """Calls work(start, stop) over strips of `height` of m rows; threads take them as they get free."""
    starts = range(0, m, height)
    if threads == 1 or len(starts) <= 1:
        for start in starts:
            work(start, min(m, start + height))
        return
    shared = iter(starts)  # next() on a range iterator is atomic

    def worker(_: int) -> None:
        for start in shared:
            work(start, min(m, start + height))

    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(worker, range(threads)))
