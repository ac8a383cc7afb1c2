"""Lines of a file or pipe, each of them an event: a JSON object, or a CSV row under a header."""

from __future__ import annotations

import codecs
import csv
import json
import os
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from streamsvm.errors import DataError
from streamsvm.storage.human import number_or_text

_fast: Callable[[str], Any] = json.loads
with suppress(ImportError):
    import orjson

    _fast = orjson.loads

BUFFER_BYTES = 1 << 16
Parse = Callable[[str], dict[str, Any]]


class Interruptible:
    """A source of events whose wait for more ends when `stop` is called, also just before it begins to wait."""

    waiting = False
    stopped = False
    before_waiting: Callable[[], None]

    def wait(self) -> None:
        """Called before it waits; `waiting` is false again afterwards. Raises InterruptedError."""
        self.before_waiting()
        self.waiting = True
        if self.stopped:
            raise InterruptedError

    def stop(self) -> None:
        """Called by signal handlers. Raises InterruptedError if it waits; else it will as soon as it does."""
        self.stopped = True
        if self.waiting:
            raise InterruptedError


@dataclass
class Lines(Interruptible):
    """Lines of a file descriptor, as they come. It calls `before_waiting` before it waits for more.

    It holds at most one buffer and one line, so a slow reader of the answers slows the writer of the events.
    """

    source: int
    before_waiting: Callable[[], None]
    read_bytes: int = field(default=0, init=False)

    @property
    def share(self) -> float | None:
        """The share of the file that was read; None if its end is not known."""
        size = self._size
        return min(self.read_bytes / size, 0.999) if size else None

    @cached_property
    def _size(self) -> int:
        found = os.fstat(self.source)
        return found.st_size if stat.S_ISREG(found.st_mode) else 0

    def __iter__(self) -> Iterator[str]:
        rest, is_first = b"", True
        while True:
            self.wait()
            block = os.read(self.source, BUFFER_BYTES)
            self.waiting = False
            self.read_bytes += len(block)
            if not block:
                break
            if is_first:  # a byte order mark does not belong to the first name
                block, is_first = block.removeprefix(codecs.BOM_UTF8), False
            *lines, rest = (rest + block).split(b"\n")
            yield from (line.decode("utf-8", errors="replace") for line in lines)
        if rest:
            yield rest.decode("utf-8", errors="replace")


def json_event(line: str) -> dict[str, Any]:
    """The event of a JSON line. Raises DataError."""
    try:
        event = _loaded(line)
    except ValueError as error:
        raise DataError(f"broken JSON: {error}") from None
    except RecursionError:
        raise DataError("broken JSON: too many nested brackets") from None
    if not isinstance(event, dict):
        raise DataError(f"found {line.strip()[:40]!r}, expected a JSON object")
    return event


def _loaded(line: str) -> Any:
    """What a line holds. orjson refuses NaN and numbers beyond float64, of which the features' check says more."""
    try:
        return _fast(line)
    except ValueError:
        return json.loads(line)


def csv_event(header: list[str]) -> Parse:
    """What turns a CSV row under this header into an event; empty fields are absent. Raises DataError."""

    def parse(line: str) -> dict[str, Any]:
        values = _fields(line)
        if len(values) != len(header):
            raise DataError(f"found {len(values)} fields, expected {len(header)}")
        return {name: number_or_text(text) for name, text in zip(header, values, strict=True) if text != ""}

    return parse


def events(lines: Iterable[str], kind: str) -> Iterator[tuple[int, str, Parse]]:
    """(line number, line, its parser) of each event; empty lines and a CSV header are none."""
    parse: Parse | None = None if kind == "csv" else json_event
    for number, line in enumerate(lines, 1):
        if line.strip():
            if parse is None:
                parse = csv_event(_header(line))
            else:
                yield number, line, parse


def _fields(line: str) -> list[str]:
    """The fields of a CSV line. Raises DataError."""
    try:
        return next(csv.reader([line]))
    except csv.Error as error:
        raise DataError(f"broken CSV: {error}") from None


def _header(line: str) -> list[str]:
    """The names in a CSV header. Raises DataError."""
    names = _fields(line)
    for name in names:
        if names.count(name) > 1:
            raise DataError(f"header: found column {name!r} twice, expected names that differ")
    return names
