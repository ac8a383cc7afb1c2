"""The files of a run directory: `events.jsonl` during the run, `result.json` at its end, and results of commands.

They are also read while another process writes them: `Tail` returns its records as they come.
"""

from __future__ import annotations

import json
import os
import platform
import shlex
import socket
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import PurePath
from typing import Any

import psutil

from streamsvm._version import __version__
from streamsvm.errors import NotFoundError, StorageError
from streamsvm.events import PACKAGE, Done, Event, Events, Failed, Memory, Progress, Record, Started
from streamsvm.ingest.streams import without_password
from streamsvm.parallel.machine import cores
from streamsvm.runs.checkpoints import is_at_work, run_folder
from streamsvm.runs.phases import usage_so_far
from streamsvm.runs.records import GrowingFile, flat, is_log, lines_of, opened_lines, parse
from streamsvm.storage.atomic import whole_file
from streamsvm.storage.paths import Place, nearest
from streamsvm.storage.text import JsonObject, jsonable

EVENTS, RESULT, EVALUATION, TUNE = "events.jsonl", "result.json", "evaluation.json", "tune.json"
SEARCHED = "searched.json"  # the result of a finished search
EVERY_S = 1.0  # between progress records, and between samples of memory
LIBRARIES = ("numpy", "scipy", "numba", "dask", "zarr")


class RunLog:
    """A sink that appends records to a run's events.jsonl. Of progress, it keeps at most one record a second. The last
    record of a phase is kept if an earlier one was."""

    def __init__(self, path: Place) -> None:
        self._lines = opened_lines(path)
        self._phases: set[str] = set()
        self._last_t = -EVERY_S

    def __call__(self, record: Record[Event]) -> None:
        if not isinstance(record.event, Progress) or self._is_kept(record.t, record.event):
            self._lines(flat(record))

    def close(self) -> None:
        self._lines.close()

    def _is_kept(self, t: float, progress: Progress) -> bool:
        phase, ends = progress.phase, progress.has_ended
        is_kept = (ends and phase in self._phases) or (not ends and t - self._last_t >= EVERY_S)
        if is_kept:
            self._last_t = t
            (self._phases.discard if ends else self._phases.add)(phase)
        return is_kept


@contextmanager
def _sampled(events: Events) -> Iterator[None]:
    """Emits a `memory` record at the start, every second and at the end: rss_bytes of this process and its children."""
    process, ended = psutil.Process(), threading.Event()

    def sample() -> None:
        events(Memory(_rss_bytes(process)))

    def sample_by_the_clock() -> None:
        while not ended.wait(EVERY_S):
            sample()

    clock = threading.Thread(target=sample_by_the_clock, name="memory", daemon=True)
    sample()
    clock.start()
    try:
        yield
    finally:
        ended.set()
        clock.join()
        sample()


def _rss_bytes(process: psutil.Process) -> int:
    total = process.memory_info().rss
    for child in process.children(recursive=True):
        with suppress(psutil.Error):  # it has ended
            total += child.memory_info().rss
    return int(total)


@contextmanager
def recorded(run_dir: Place | None, events: Events, resume: bool, **facts: Any) -> Iterator[Events]:
    """Events that also go into the run directory, which is locked meanwhile. The first one, `Started`, has the facts.
    Results of an earlier run are removed. The last record is `done`, or `failed` with a message. Without a run
    directory, events are unchanged. Raises StorageError."""
    if run_dir is None:
        yield events
        return
    if not is_log(run_dir / EVENTS):
        raise StorageError(f"{run_dir / EVENTS} has no records of a run; give --run-dir another folder")
    with run_folder(run_dir, events):
        for name in (RESULT, SEARCHED) if resume else (RESULT, SEARCHED, EVALUATION):
            (run_dir / name).unlink(missing_ok=True)
        with closing(RunLog(run_dir / EVENTS)) as log:
            events = events.also(log)
            events(Started(resume=resume, **_machine(), **facts))
            try:
                with _sampled(events):
                    yield events
            except BaseException as error:
                events(Failed(str(error) or type(error).__name__))
                raise
            events(Done())


def require_run(run_dir: Place) -> None:
    """Raises NotFoundError if there is no run directory."""
    if not run_dir.is_dir():
        raise NotFoundError(f"{run_dir}: no such run directory; fit --run-dir makes one{nearest(run_dir)}")


def read_result(run_dir: Place) -> JsonObject | None:
    """The result of a finished run; None if it is not finished, or its result cannot be read."""
    try:
        result = json.loads((run_dir / RESULT).read_bytes())
    except (OSError, ValueError, RecursionError):
        return None
    return result if isinstance(result, dict) else None


def last_start(run_dir: Place) -> Started | None:
    """The record of the last start or resumption of the run in a directory, if there is one."""
    records = filter(None, map(parse, lines_of(run_dir / EVENTS)))
    return next((event for _, event in reversed(list(records)) if isinstance(event, Started)), None)


def write_result(run_dir: Place, name: str, result: object, events: Events | None = None) -> None:
    """Writes a JSON file of a run directory, whole or not at all. Raises StorageError; with events, warns instead."""
    try:
        with whole_file(run_dir / name) as file:
            file.write(json.dumps(jsonable(result)).encode())
    except StorageError as error:
        if events is None:
            raise
        events.warn(str(error))


def end_with(run_dir: Place, events: Events, result: Mapping[str, Any]) -> None:
    """Writes the result of a run with its time and memory; nothing, if the disk is full."""
    write_result(run_dir, RESULT, {**usage_so_far(), **result}, events)


def _machine() -> JsonObject:
    versions = {"streamsvm": __version__, "python": platform.python_version()}
    return {
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": versions | {name: version(name) for name in LIBRARIES},
        "host": socket.gethostname(),
        "process": os.getpid(),
        "cores": cores(),
        "command": _command(),
    }


def _command() -> str | None:
    """The command line of this process, if it is one of this package; else None."""
    name = PurePath(sys.argv[0]).stem if sys.argv else ""
    is_ours = name == PACKAGE or (name == "__main__" and PACKAGE in sys.argv[0])
    return shlex.join([PACKAGE, *map(without_password, sys.argv[1:])]) if is_ours else None


class Tail:
    """The records of a run directory. Each call returns those since the previous call."""

    def __init__(self, run_dir: Place) -> None:
        self._run_dir = run_dir
        self._lines = GrowingFile(run_dir / EVENTS)

    def __call__(self) -> list[Record[Event]]:
        return [record for line in self._lines() if (record := parse(line)) is not None]

    @property
    def is_running(self) -> bool:
        """Whether a process has locked the directory."""
        return is_at_work(self._run_dir)
