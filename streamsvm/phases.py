"""Where the time of a run went, and what it took in all."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psutil

from streamsvm.machine import peak_rss_bytes


class Phases:
    """Seconds by phase of a run, and how many cores were busy in it; a phase inside another is not counted twice."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._cpu: dict[str, float] = {}

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        wall, cpu = time.perf_counter(), time.process_time()
        inner_wall, inner_cpu = sum(self.seconds.values()), sum(self._cpu.values())
        yield
        inside = sum(self.seconds.values()) - inner_wall, sum(self._cpu.values()) - inner_cpu
        self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - wall - inside[0]
        self._cpu[name] = self._cpu.get(name, 0.0) + time.process_time() - cpu - inside[1]

    def add(self, before: Phases) -> None:
        """Counts what was done before this run began, too."""
        self.seconds = before.seconds | self.seconds
        self._cpu = before._cpu | self._cpu

    def report(self) -> dict[str, dict[str, float]]:
        busy = {name: round(self._cpu[name] / max(s, 1e-9), 2) for name, s in self.seconds.items()}
        return {
            "seconds_by_phase": {name: round(s, 4) for name, s in self.seconds.items()},
            "cores_busy_by_phase": busy,
        }


def usage_so_far() -> dict[str, Any]:
    """`seconds` since this process started, imports included, and its `peak_rss_bytes`."""
    return {
        "seconds": time.time() - psutil.Process().create_time(),
        "peak_rss_bytes": peak_rss_bytes(),
    }
