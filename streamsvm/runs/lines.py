"""Growing files of JSON lines: written at once, and read while they are written.

Objects in an object store cannot grow: there, a file is a folder of numbered pieces, and the last piece is uploaded
again.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

from streamsvm.storage.paths import Place, URLPath, remove_tree

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
    """Truncates a file after the last whole line."""
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
