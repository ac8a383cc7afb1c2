"""The time of a run by phase, and its time and memory in total."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

from streamsvm.parallel.machine import peak_rss_bytes
from streamsvm.storage.text import JsonObject

SEARCH = ("search", "regions")  # phases in which options are chosen


class Phases:
    """Seconds of a run by phase, and the busy cores in each. Nested phases are counted once. Compiling inside a phase
    belongs to the phase `compile`."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._cpu: dict[str, float] = {}
        from streamsvm.parallel.compiling import compiled_s  # imports numba, which light commands do without

        self._compiled_s, self._compiled = compiled_s, compiled_s()

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        wall, cpu = time.perf_counter(), time.process_time()
        inner_wall, inner_cpu = sum(self.seconds.values()), sum(self._cpu.values())
        yield
        self._count_compiled()
        inside = sum(self.seconds.values()) - inner_wall, sum(self._cpu.values()) - inner_cpu
        self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - wall - inside[0]
        self._cpu[name] = self._cpu.get(name, 0.0) + time.process_time() - cpu - inside[1]

    def _count_compiled(self) -> None:
        before, self._compiled = self._compiled, self._compiled_s()
        wall, cpu = (now - then for now, then in zip(self._compiled, before, strict=True))
        if wall > 0:
            self.seconds["compile"] = self.seconds.get("compile", 0.0) + wall
            self._cpu["compile"] = self._cpu.get("compile", 0.0) + cpu

    def add(self, before: Phases) -> None:
        """Also counts the work done before this run began."""
        self.seconds = before.seconds | self.seconds
        self._cpu = before._cpu | self._cpu

    def report(self) -> dict[str, dict[str, float]]:
        busy = {name: _busy(self._cpu[name], s) for name, s in self.seconds.items()}
        return {
            "seconds_by_phase": {name: round(s, 4) for name, s in self.seconds.items()},
            "cores_busy_by_phase": busy,
        }


def whole_command(report: JsonObject, start: tuple[float, float]) -> JsonObject:
    """A report with the further phases `start` (imports, options) and `other`, so that phases add up to its `seconds`.
    start: (wall, CPU) seconds of this process when the run began, from `used_s`."""
    seconds, busy = report["seconds_by_phase"], report["cores_busy_by_phase"]
    total = usage_so_far()
    cpu = time.process_time() - start[1] - sum(seconds[name] * busy[name] for name in seconds)
    other = max(0.0, total["seconds"] - start[0] - sum(seconds.values()))
    seconds = {"start": round(start[0], 4), **seconds, "other": round(other, 4)}
    busy = {"start": _busy(start[1], start[0]), **busy, "other": _busy(cpu, other)}
    return report | {"seconds_by_phase": seconds, "cores_busy_by_phase": busy} | total


def searched_s(seconds: Mapping[str, float]) -> float:
    """Seconds of the phases in which options were chosen."""
    return sum(seconds.get(name, 0.0) for name in SEARCH)


def used_s() -> tuple[float, float]:
    """(wall, CPU) seconds since this process started."""
    return float(usage_so_far()["seconds"]), time.process_time()


def _busy(cpu_s: float, wall_s: float) -> float:
    return round(max(0.0, cpu_s) / max(wall_s, 1e-9), 2)


def usage_so_far() -> JsonObject:
    """`seconds` since this process started, imports included, and its `peak_rss_bytes`."""
    return {"seconds": _age_s(), "peak_rss_bytes": peak_rss_bytes()}


def _age_s() -> float:
    """Seconds since this process started: by the boot in ticks if known, as its time is rounded to seconds on Linux."""
    age = time.time() - psutil.Process().create_time()
    with suppress(OSError, AttributeError, ValueError, IndexError):
        ticks = int(Path("/proc/self/stat").read_bytes().rpartition(b")")[2].split()[19])
        exact = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
        return exact if abs(exact - age) < 2 else age  # containers may count from another boot
    return age
