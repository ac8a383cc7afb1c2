"""This machine and this process, the same on every system: cores, memory in bytes, and checks against a limit."""

from __future__ import annotations

import math
import os
import sys
from contextlib import suppress
from pathlib import Path

import psutil

from streamsvm.errors import MemoryLimitError
from streamsvm.parallel import cgroups
from streamsvm.storage.text import human_bytes

_PEAK_UNIT = 1 if sys.platform == "darwin" else 1024  # bytes of ru_maxrss


def cores() -> int:
    """How many cores this process may use. A container may have fractions of them: rounded up."""
    return max(1, math.ceil(min(_assigned_cores(), cgroups.cores())))


def _assigned_cores() -> int:
    assigned = getattr(os, "process_cpu_count", None)  # Python 3.13
    if assigned is not None:
        return assigned() or 1
    with suppress(AttributeError):  # macOS ties no process to cores
        return len(psutil.Process().cpu_affinity())
    return os.cpu_count() or 1


def rss_bytes(pid: int | None = None) -> int:
    """The memory of a process now, by default of this one."""
    return int(psutil.Process(pid).memory_info().rss)


def peak_rss_bytes(pid: int | None = None) -> int:
    """The largest memory of a process so far, by default of this one. On macOS, for another process its memory now."""
    with suppress(OSError, StopIteration):  # Linux, where getrusage counts what started the process, too
        lines = Path(f"/proc/{pid or 'self'}/status").read_text(encoding="utf-8").splitlines()
        return 1024 * int(next(line.split()[1] for line in lines if line.startswith("VmHWM:")))
    memory = psutil.Process(pid).memory_info()
    if hasattr(memory, "peak_wset"):  # Windows
        return int(memory.peak_wset)
    try:
        import resource
    except ImportError:
        return int(memory.rss)
    return int(memory.rss) if pid else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _PEAK_UNIT


MiB = 1 << 20
WORKER_BYTES = 256 * MiB  # of a cluster's worker: its process, and what it loads
FREE_SHARE = 0.8  # of the free memory, for a fit without a limit


def allowed_bytes(limit_bytes: int | None = None) -> int:
    """The memory that this process may have: the limit, or what it has and most of what is free now on this machine and
    in this container."""
    if limit_bytes:
        return limit_bytes
    return rss_bytes() + int(FREE_SHARE * min(psutil.virtual_memory().available, cgroups.memory_bytes()))


def excess(limit_bytes: int | None) -> str:
    """A warning of a limit above what the container allows, which would end this process; else nothing."""
    allowed = rss_bytes() + cgroups.memory_bytes()
    if limit_bytes is None or limit_bytes <= allowed:
        return ""
    return (
        f"the memory limit of {human_bytes(limit_bytes)} is above the {human_bytes(int(allowed))} that the container "
        "or job allows this process: Linux may kill it; give a smaller one, or none"
    )


def process_bytes() -> int:
    """The memory of this process, and of kernels and libraries that it will still load."""
    return rss_bytes() + 64 * MiB


def fits_memory(limit_bytes: int | None, needed_bytes: int) -> bool:
    """Whether so many bytes fit next to the memory of the process."""
    return process_bytes() + needed_bytes <= allowed_bytes(limit_bytes)


def require_memory(limit_bytes: int | None, needed_bytes: int, what: str) -> None:
    """Raises MemoryLimitError if so many bytes do not fit next to the memory of the process."""
    if not fits_memory(limit_bytes, needed_bytes):
        raise too_small(limit_bytes, what, process_bytes() + needed_bytes)


def too_small(limit_bytes: int | None, what: str, least_bytes: int) -> MemoryLimitError:
    """That a limit, or the free memory if it is None, does not suffice for something that takes `least_bytes`."""
    least = f"at least {-(-least_bytes // MiB)} MiB"
    if limit_bytes:
        return MemoryLimitError(f"a memory limit of {human_bytes(limit_bytes)} is too small for {what}: give {least}")
    return MemoryLimitError(
        f"found {human_bytes(allowed_bytes())} of memory for this process, too little for {what}, "
        f"which takes {least}: free some, or raise the limit of the container or job"
    )
