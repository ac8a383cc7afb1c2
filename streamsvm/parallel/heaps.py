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
TRIM_BYTES, MMAP_BYTES = 256 << 20, 32 << 20  # freed memory to keep; allocations that come from the system directly
_NANNYS_TRIM = "65536"  # distributed's default of MALLOC_TRIM_THRESHOLD_


def few_heaps() -> None:
    """One heap of the C library for each core, not eight, each of which keeps the memory that its threads free."""
    _mallopt(_M_ARENA_MAX, os.cpu_count() or 1)


def in_worker(fn: Callable[..., Any], *args: object) -> Any:
    """fn(*args), a task, in a worker that keeps memory from one task to the next."""
    from streamsvm.parallel.sizes import aligned  # commands import this module before they need numpy

    _keep_memory()
    return fn(*map(aligned, args))


@lru_cache(maxsize=1)
def _keep_memory() -> None:
    """Undoes dask's default for workers, to give back memory at every release: taking it again would cost much."""
    if os.environ.get("MALLOC_TRIM_THRESHOLD_") == _NANNYS_TRIM:
        _mallopt(_M_TRIM_THRESHOLD, TRIM_BYTES)
        _mallopt(_M_MMAP_THRESHOLD, MMAP_BYTES)


def _mallopt(option: int, value: int) -> None:
    set_option = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if set_option is not None:
        set_option(option, value)
