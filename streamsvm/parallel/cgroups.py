"""What the control groups of this process allow it: those of containers, Kubernetes pods and Slurm jobs. Linux.

A process is in one group of each controller (version 1), or in one for all (version 2), and has the least that this
group and those above it allow. A container may see its own group as the root of all."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

ROOT = Path("/sys/fs/cgroup")
GROUPS = Path("/proc/self/cgroup")  # lines of ID:CONTROLLER,...:PATH, without controllers in version 2


def memory_bytes() -> float:
    """Bytes that the groups still allow; inf if they have no limit. Pages of files that were read once are free, as the
    system drops them first."""
    return min((_memory_of(folder) for folder in _folders("memory")), default=math.inf)


def cores() -> float:
    """CPU seconds a second that the groups allow; inf if they have no limit."""
    return min((_cores_of(folder) for folder in _folders("cpu")), default=math.inf)


def _folders(controller: str) -> Iterator[Path]:
    """Of the groups of this process, each before those above it."""
    try:
        lines = GROUPS.read_text(encoding="utf-8").splitlines()
    except OSError:  # not Linux, or hidden
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controller in controllers.split(","):
            mounts = {ROOT / controllers, ROOT / controller}
        elif not controllers:
            mounts = {ROOT, ROOT / "unified"}
        else:
            continue
        for mount in mounts:
            folder = mount / path.lstrip("/")
            yield folder
            yield from (above for above in folder.parents if above.is_relative_to(mount))


def _memory_of(folder: Path) -> float:
    limit, used = _number(folder / "memory.max"), _number(folder / "memory.current")
    if math.isinf(limit):
        limit, used = _number(folder / "memory.limit_in_bytes"), _number(folder / "memory.usage_in_bytes")
    if math.isinf(limit) or math.isinf(used):
        return math.inf
    statistics = dict(line.split() for line in _text(folder / "memory.stat").splitlines())
    of_files = statistics.get("total_inactive_file", statistics.get("inactive_file", 0))
    return max(0.0, limit - used + float(of_files))


def _cores_of(folder: Path) -> float:
    quota, _, period = _text(folder / "cpu.max").partition(" ")
    if not quota:
        quota, period = (_text(folder / f"cpu.cfs_{name}_us") for name in ("quota", "period"))
    with suppress(ValueError):  # "max", or a group without this controller
        if int(quota) > 0:  # -1: no limit
            return int(quota) / int(period)
    return math.inf


def _number(file: Path) -> float:
    with suppress(ValueError):  # "max"
        return float(int(_text(file)))
    return math.inf


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8").strip()
    except OSError:  # a group without this controller, or of another version
        return ""
