"""How the C library handles memory that this process frees. It changes nothing on systems other than Linux."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable
from functools import lru_cache
from typing import Any

# of glibc's malloc.h
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8
TRIM_BYTES, MMAP_BYTES = (
    256 << 20,
    32 << 20,
)  # kept of what is let go of; of what comes from the system by itself
_NANNYS_TRIM = "65536"  # distributed's default of MALLOC_TRIM_THRESHOLD_


def few_heaps() -> None:
    """One heap of the C library for each core: it would make eight, each of which keeps what its threads free."""
    _mallopt(_M_ARENA_MAX, os.cpu_count() or 1)


def in_worker(fn: Callable[..., Any], *args: Any) -> Any:
    """fn(*args), a task, in a worker that keeps memory from one task to the next."""
    from streamsvm.parallel.sizes import aligned  # commands begin here, and load no numpy yet

    _keep_memory()
    return fn(*map(aligned, args))


@lru_cache(maxsize=1)
def _keep_memory() -> None:
    """If a nanny of dask has this process give memory back at every release, as it does unless set otherwise, undoes
    it: taking memory again page by page would be a large share of solving."""
    if os.environ.get("MALLOC_TRIM_THRESHOLD_") == _NANNYS_TRIM:
        _mallopt(_M_TRIM_THRESHOLD, TRIM_BYTES)
        _mallopt(_M_MMAP_THRESHOLD, MMAP_BYTES)


def _mallopt(option: int, value: int) -> None:
    set_option = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if set_option is not None:
        set_option(option, value)
