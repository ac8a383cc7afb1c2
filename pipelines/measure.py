"""Child processes, measured: wall and CPU seconds, peak memory, JSON answers.

What a child took is asked of the system as it ends (`os.wait4`): not on Windows. A child starts as a copy of this
process, whose memory counts as the child's there, so less than that is seen by looking at it again and again.
"""

from __future__ import annotations

import io
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Self

import psutil

from streamsvm.parallel.machine import cores, peak_rss_bytes

CORES = cores()
MAXRSS_UNIT = 1 if sys.platform == "darwin" else 1024  # bytes
SAMPLE_S, MEMORY_SAMPLE_S = 0.25, 0.05


class Failed(Exception):
    """A child that ended with another exit status than 0."""


class Missing(Failed):
    """What an item needs and this machine does not have."""


@dataclass(frozen=True)
class Run:
    """One command: the JSON object it printed, and what it took."""

    result: dict[str, Any]
    seconds: float
    cpu_seconds: float
    peak_rss_bytes: int
    idle_seconds: float  # the longest stretch in which a core had nothing to do

    @property
    def cores(self) -> float:
        return self.cpu_seconds / self.seconds


@dataclass(frozen=True)
class Spread:
    """Several measurements of the same thing."""

    values: tuple[float, ...]

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        return cls(tuple(values))


def run(argv: Sequence[str | Path], env: Mapping[str, str] | None = None) -> Run:
    """Runs a command that prints one JSON object, or nothing. Raises Failed."""
    command = [str(arg) for arg in argv]
    with tempfile.TemporaryFile() as out:
        own_bytes, start = peak_rss_bytes(), time.perf_counter()
        child = subprocess.Popen(command, stdout=out, env={**os.environ, **(env or {})})
        with _Samples(child.pid) as sampled:
            _, status, usage = os.wait4(child.pid, 0)
        seconds = time.perf_counter() - start
        child.returncode = os.waitstatus_to_exitcode(status)
        if child.returncode != 0:
            raise Failed(f"exit status {child.returncode} of: {' '.join(command)}")
        out.seek(0)
        text = out.read().decode()
    result = json.loads(text) if text.startswith("{") else {}
    cpu_seconds, peak = usage.ru_utime + usage.ru_stime, usage.ru_maxrss * MAXRSS_UNIT
    if peak <= 1.05 * own_bytes:
        peak = sampled.peak_rss_bytes or peak
    return Run(result, seconds, cpu_seconds, peak, sampled.longest_idle_s())


def run_here(words: list[str]) -> Run:
    """A `streamsvm` command in this process, of which the answer counts and not what it took. Raises Failed."""
    from streamsvm.cli.app import app, exit_status

    began, cpu_began = time.perf_counter(), time.process_time()
    with redirect_stdout(io.StringIO()) as out:
        if exit_status(lambda: app(words, standalone_mode=False)):
            raise Failed(f"failed: streamsvm {' '.join(words)}")
    text = out.getvalue()
    result = json.loads(text) if text.startswith("{") else {}
    took = time.perf_counter() - began, time.process_time() - cpu_began
    return Run(result, *took, peak_rss_bytes(), 0.0)


class _Samples:
    """How many cores a process keeps busy, and its peak of memory, looked at while it runs."""

    def __init__(self, pid: int) -> None:
        self._process = psutil.Process(pid)
        self.peak_rss_bytes = 0
        self._samples: list[tuple[float, float]] = []  # (time, CPU time), seconds
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._ended.set()
        self._thread.join()

    def _sample(self) -> None:
        while True:
            now = time.perf_counter()
            try:
                self.peak_rss_bytes = max(self.peak_rss_bytes, peak_rss_bytes(self._process.pid))
                used = self._process.cpu_times()
            except psutil.Error:  # the process has ended
                return
            if not self._samples or now >= self._samples[-1][0] + SAMPLE_S:
                self._samples.append((now, used.user + used.system))
            if self._ended.wait(MEMORY_SAMPLE_S):
                return

    def longest_idle_s(self) -> float:
        """Seconds of the longest stretch with less than all but half a core at work."""
        longest = stretch = 0.0
        for (t, cpu), (t_next, cpu_next) in pairwise(self._samples):
            idle = cpu_next - cpu < (CORES - 0.5) * (t_next - t)
            stretch = stretch + t_next - t if idle else 0.0
            longest = max(longest, stretch)
        return longest


class Worker:
    """A child that answers each line of its input by one JSON object on a line."""

    def __init__(self, argv: Sequence[str | Path]) -> None:
        self._command = [str(arg) for arg in argv]

    def __enter__(self) -> Self:
        pipe = subprocess.PIPE
        self._child = subprocess.Popen(self._command, stdin=pipe, stdout=pipe, text=True)
        return self

    def ask(self, question: str) -> dict[str, Any]:
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        self._child.stdin.write(question + "\n")
        self._child.stdin.flush()
        answer = self._child.stdout.readline()
        if not answer:
            raise Failed(f"exit status {self._child.wait()} of: {' '.join(self._command)}")
        return json.loads(answer)

    def __exit__(self, *exc: object) -> None:
        if exc[0] is not None:
            self._child.kill()
        self._child.communicate()
