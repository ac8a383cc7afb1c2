"""Memory as a number of bytes: the memory that a fit may use, and checks against it."""

from __future__ import annotations

import psutil

from streamsvm.errors import MemoryLimitError
from streamsvm.parallel.machine import rss_bytes
from streamsvm.storage.human import human_bytes

MiB = 1 << 20


def free_bytes() -> int:
    """The memory that a fit without a limit may use: 80 % of what is free now."""
    return int(0.8 * psutil.virtual_memory().available)


def process_bytes() -> int:
    """The memory of this process, and of kernels and libraries that it will still load."""
    return rss_bytes() + 64 * MiB


def fits_memory(limit_bytes: int | None, needed_bytes: int) -> bool:
    """Whether so many bytes fit next to the memory of the process."""
    return process_bytes() + needed_bytes <= (limit_bytes or free_bytes())


def require_memory(limit_bytes: int | None, needed_bytes: int, what: str) -> None:
    """Raises MemoryLimitError if so many bytes do not fit next to the memory of the process."""
    if not fits_memory(limit_bytes, needed_bytes):
        limit, total = limit_bytes or free_bytes(), process_bytes() + needed_bytes
        raise MemoryLimitError(
            f"a memory limit of {human_bytes(limit)} is too small for {what}: give at least {-(-total // MiB)} MiB"
        )
