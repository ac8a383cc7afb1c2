"""Strips of rows shared among threads; and evenly spread rows."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from functools import cache

import numpy as np


def strips(work: Callable[[int, int], None], m: int, height: int, threads: int) -> None:
    """Calls work(start, stop) over strips of `height` of m rows; threads take them as they get free."""
    starts = iter(range(0, m, height))  # next() on a range iterator is atomic

    def worker() -> None:
        for start in starts:
            work(start, min(m, start + height))

    # the caller works too, and drops helpers that have not started when all is done: they may be busy elsewhere, or
    # with the very work that called this
    helpers = [_helpers(threads).submit(worker) for _ in range(min(threads, -(-m // height)) - 1)]
    try:
        worker()
    finally:
        deque(starts, maxlen=0)  # after an error, takes those that are left
        started = [helper for helper in helpers if not helper.cancel()]
        wait(started)
    for helper in started:
        helper.result()


@cache
def _helpers(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads, "strips")  # kept: starting threads takes as long as a small strip


def evenly(n: int, most: int) -> np.ndarray:
    """Rising ids of at most so many of n rows, evenly spread."""
    return np.unique(np.linspace(0, n - 1, min(n, most)).astype(np.intp))
