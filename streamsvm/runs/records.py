"""Events as lines of JSON, which any version can read, in files that are read while they grow.

Objects in an object store cannot grow: there, a file is a folder of numbered pieces, and the last piece is uploaded
again.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any, Protocol, get_args, get_type_hints

from streamsvm import events
from streamsvm.events import Event, Phase, Record
from streamsvm.storage.paths import Place, URLPath, remove_tree
from streamsvm.storage.text import JsonObject, jsonable

Row = dict[str, Any]
Read = Callable[[Any], Any]  # returns a value of a line, or None if it has another type
FACTS, SCOPE = "facts", "scope"
FIRST_LINES = 10  # one of which is a record, if a file is a run's


@dataclass(frozen=True)
class Unknown(Event, kind=""):
    """A line of another version: its kind is unknown here, or lacks required fields."""

    name: str


def flat(record: Record[Event]) -> JsonObject:
    """A record as it is written in a line: its fields, optional ones if they are set, and its facts next to them."""
    line: JsonObject = {"event": record.event.kind, "t": record.t}
    optional = _layouts()[record.event.kind].optional
    for name, value in vars(record.event).items():
        if name == FACTS:
            line |= value
        elif value is not None or name not in optional:
            line[name] = value
    phase = line.get("phase")
    if isinstance(phase, Phase) and phase.scope != Phase.named(phase).scope:  # of an unknown solver
        line[SCOPE] = phase.scope
    flattened: dict[str, Any] = jsonable(line)
    return flattened


def parse(line: bytes) -> Record[Event] | None:
    """The record of a line, or None if it is not a record."""
    try:
        values = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(values, dict) or not isinstance(values.get("event"), str):
        return None
    t = number(values.get("t"))
    return None if t is None else Record(t, _event(values))


def is_log(path: Place) -> bool:
    """Whether a file may be the log of a run: it is missing or empty, or has a record in its first lines."""
    first = list(islice(lines_of(path), FIRST_LINES))
    return not first or any(map(parse, first))


def number(value: object) -> float | None:
    """A finite number, or None."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < 1e300:
        return None
    return float(value)


def table(value: object) -> Row:
    """A dictionary, empty for anything else."""
    return value if isinstance(value, dict) else {}


def table_rows(value: object) -> list[Row]:
    """The dictionaries of a list, none for anything else."""
    return [row for row in value if isinstance(row, dict)] if isinstance(value, list) else []


def _event(line: JsonObject) -> Event:
    """The event of a line. Fields that are missing or have another type become None, if they may be None."""
    form = _layouts().get(line["event"])
    if form is None:
        return Unknown(line["event"])
    values = {name: read(line.get(name)) for name, read in form.readers.items()}
    if any(values[name] is None for name in form.needed):
        return Unknown(line["event"])
    if isinstance(values.get("phase"), Phase) and line.get(SCOPE) in get_args(events.Scope):
        values["phase"] = Phase(values["phase"], line[SCOPE])
    if form.has_facts:
        values[FACTS] = {name: value for name, value in line.items() if name not in {"event", "t", *values}}
    return form.make(**values)


@dataclass(frozen=True)
class _EventLayout:
    """How a kind of event is written and read. readers: by field; they return None for a value of another type. needed:
    fields that are never None. optional: fields that a line may leave out."""

    make: Callable[..., Event]
    readers: dict[str, Read]
    needed: frozenset[str]
    optional: frozenset[str]
    has_facts: bool


@cache
def _layouts() -> dict[str, _EventLayout]:
    kinds = [kind for kind in vars(events).values() if isinstance(kind, type) and issubclass(kind, Event)]
    return {kind.kind: _layout(kind) for kind in kinds if hasattr(kind, "kind")}


def _layout(kind: Any) -> _EventLayout:
    types = {name: hint for name, hint in get_type_hints(kind).items() if name not in ("kind", FACTS)}
    return _EventLayout(
        kind,
        {name: READERS[_plain(hint)] for name, hint in types.items()},
        frozenset(name for name, hint in types.items() if type(None) not in get_args(hint)),
        frozenset(field.name for field in fields(kind) if field.default is None),
        any(field.name == FACTS for field in fields(kind)),
    )


def _plain(annotation: object) -> object:
    return next((arg for arg in get_args(annotation) if type(None) in get_args(annotation)), annotation)


def _instance(*types: type) -> Read:
    return lambda value: value if isinstance(value, types) else None


def _number(*types: type) -> Read:
    """A number as it is: counts stay int, shares float."""
    return lambda value: value if isinstance(value, types) and number(value) is not None else None


READERS: dict[Any, Read] = {
    int: _number(int),
    float: _number(int, float),
    bool: _instance(bool),
    str: _instance(str),
    Phase: lambda value: Phase.named(value) if isinstance(value, str) else None,
    events.Facts: _instance(dict),
    Sequence[Any]: _instance(list),
}


BLOCK = 1 << 16  # bytes searched at once for the end of a line
PIECE = 1 << 18  # bytes of a piece, small because it is uploaded again and again
EVERY_S = 5.0  # between uploads of a piece


class Lines(Protocol):
    """Appends to a file, one JSON object a line. A full disk does not end a run: lines that do not fit are missing."""

    def __call__(self, record: Mapping[str, Any]) -> None: ...

    def close(self) -> None: ...


def opened_lines(path: Place, every_s: float = EVERY_S) -> Lines:
    """Appends to the file at `path`; in an object store every `every_s` seconds, and at the end."""
    return ObjectLines(path, every_s) if isinstance(path, URLPath) else JsonLines(path)


class JsonLines:
    """A local file, flushed at once. A last line that was cut off is removed first."""

    def __init__(self, path: Path) -> None:
        _truncate_torn_line(path)
        self._file = path.open("ab", buffering=0)

    def __call__(self, record: Mapping[str, Any]) -> None:
        line, end = (json.dumps(record) + "\n").encode(), self._file.tell()
        with suppress(OSError):
            if self._file.write(line) == len(line):
                return
        self._file.truncate(end)

    def close(self) -> None:
        self._file.close()


class ObjectLines:
    """A file in an object store: objects 000001, 000002, ... of a folder. Each process starts a new one."""

    def __init__(self, folder: URLPath, every_s: float) -> None:
        self._folder, self._every_s = folder, every_s
        self._number = 1 + max((int(p.name) for p in folder.iterdir() if p.name.isdecimal()), default=0)
        self._text, self._is_new, self._put_at = b"", False, -every_s
        self._lock = threading.Lock()  # a separate thread reports memory

    def __call__(self, record: Mapping[str, Any]) -> None:
        with self._lock:
            self._text += (json.dumps(record) + "\n").encode()
            self._is_new = True
            if time.monotonic() - self._put_at >= self._every_s or len(self._text) >= PIECE:
                self._put()

    def _put(self) -> None:
        with suppress(OSError):  # the service is unavailable: the next upload has all lines
            (self._folder / f"{self._number:06d}").write_bytes(self._text)
            self._is_new = False
            if len(self._text) >= PIECE:
                self._number, self._text = self._number + 1, b""
        self._put_at = time.monotonic()

    def close(self) -> None:
        with self._lock:
            if self._is_new:
                self._put()


class GrowingFile:
    """New whole lines of a growing file. Each call returns those since the previous call."""

    def __init__(self, path: Place) -> None:
        self._path = path
        self._read: dict[str, int] = {}  # bytes, by piece

    def __call__(self) -> list[bytes]:
        if isinstance(self._path, Path):
            return self._of(self._path) if self._path.is_file() else []
        pieces = [piece for piece in self._path.iterdir() if piece.name >= max(self._read, default="")]
        return [line for piece in pieces for line in self._of(piece)]

    def _of(self, piece: Place) -> list[bytes]:
        before = self._read.get(piece.name, 0)
        text = _bytes_from(piece, before)
        if text is None:  # the file was replaced
            before, text = 0, _bytes_from(piece, 0) or b""
        whole = text[: text.rfind(b"\n") + 1]  # the rest is still being written
        self._read[piece.name] = before + len(whole)
        return whole.splitlines()


def _bytes_from(piece: Place, start: int) -> bytes | None:
    """The bytes from this offset on, or None if there are fewer."""
    if isinstance(piece, URLPath):
        content = piece.read_bytes()
        return content[start:] if len(content) >= start else None
    with piece.open("rb") as file:
        if piece.stat().st_size < start:
            return None
        file.seek(start)
        return file.read()


def lines_of(path: Place) -> Iterator[bytes]:
    """The raw lines of a file, with their line ends; none if it does not exist."""
    if isinstance(path, URLPath):
        for piece in path.iterdir():
            yield from piece.read_bytes().splitlines(keepends=True)
    elif path.is_file():
        with path.open("rb") as file:
            yield from file


def remove_lines(path: Place) -> None:
    """Removes a file if it exists."""
    if isinstance(path, URLPath):
        remove_tree(path)
    else:
        path.unlink()


def _truncate_torn_line(path: Path) -> None:
    if not path.exists():
        return
    with path.open("rb+") as file:
        end = file.seek(0, os.SEEK_END)
        while end > 0:
            start = max(0, end - BLOCK)
            file.seek(start)
            last = file.read(end - start).rfind(b"\n")
            if last >= 0:
                file.truncate(start + last + 1)
                return
            end = start
        file.truncate(0)
