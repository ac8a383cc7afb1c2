"""A log of the requests learned since the last snapshot, so that no acknowledged request is lost.

A folder of segments, each named by the number of its first event. A record is a line `FIRST BYTES CRC32`, with the name
of the request if it has one, and the body of the request, as it came. Its end may be torn by a kill: it was not
acknowledged yet, and is cut off.
"""

from __future__ import annotations

import os
import re
import threading
import zlib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from streamsvm.errors import ConfigError, CorruptDataError, StorageError
from streamsvm.storage.atomic import storage_errors, whole_file
from streamsvm.storage.locks import sync_folder

HEAD = re.compile(rb"(\d{1,18}) (\d{1,12}) ([0-9a-f]{8})(?: ([!-~]{1,200}))?\n")
MOST_HEAD_BYTES = 248


class RequestLog:
    """Appends by one thread, the learner's; `sync` and `drop` by others. Raises StorageError."""

    def __init__(self, folder: Path, fields: str) -> None:
        """fields: of label and id, as options, with which logged events are learned again. Raises ConfigError if the
        log was written with others."""
        self.folder, self._lock = folder, threading.Lock()
        with storage_errors(str(folder)):
            folder.mkdir(parents=True, exist_ok=True)
        self._open: list[int] = []  # descriptors: the last one grows, others are to be synced and closed
        self._at = 0  # bytes of the last segment that are whole
        self.broken: str | None = None
        self._require(fields)

    @property
    def is_empty(self) -> bool:
        return not any(path.stat().st_size for _, path in self._segments())

    def _require(self, fields: str) -> None:
        file = self.folder / "label"
        before = file.read_text(encoding="utf-8") if file.exists() else fields
        if before != fields and not self.is_empty:
            raise ConfigError(
                f"--label {fields}: {self.folder} holds events with label {before!r}, expected --label {before}"
            )
        if before != fields or not file.exists():
            with whole_file(file) as out:
                out.write(fields.encode())

    def records(self, after: int) -> Iterator[tuple[int, bytes, str | None]]:
        """(number of its first event, body, name or None) of the records, but for segments that end before event
        `after` + 1.

        What is torn at the very end is cut off. Raises CorruptDataError for damage anywhere else.
        """
        segments = self._segments()
        for i, (_, path) in enumerate(segments):
            is_last = i + 1 == len(segments)
            if is_last or segments[i + 1][0] > after + 1:
                yield from _records(path, may_be_torn=is_last)

    def begin(self, first: int) -> None:
        """A segment whose first event has this number; the one before stays until it is dropped."""
        path = self.folder / f"{first:018d}"
        with storage_errors(str(self.folder)):
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
            with self._lock:
                self._open.append(descriptor)
            self._at = os.fstat(descriptor).st_size

    def append(self, first: int, body: bytes, name: str | None = None) -> None:
        """Writes a record, whole or not at all."""
        if self.broken:
            raise StorageError(self.broken)
        named = b"" if name is None else b" " + name.encode()
        record = b"%d %d %08x%b\n%b\n" % (first, len(body), zlib.crc32(body), named, body)
        descriptor = self._open[-1]
        try:
            with storage_errors(str(self.folder)):
                done = 0
                while done < len(record):
                    done += os.write(descriptor, record[done:])
        except StorageError:
            os.ftruncate(descriptor, self._at)
            raise
        self._at += len(record)

    def sync(self) -> None:
        """Waits until all that was appended before is on the disk."""
        with self._lock:
            before, is_new = list(self._open), len(self._open) > 1
        try:
            with storage_errors(str(self.folder)):
                for descriptor in before:
                    os.fsync(descriptor)
                if is_new:
                    sync_folder(self.folder)
        except StorageError as error:  # the content of the disk is unknown now: the state continues in memory alone
            self.broken = f"{error}; start the server again"
            raise
        with self._lock:
            for descriptor in before[:-1]:
                self._open.remove(descriptor)
                os.close(descriptor)

    def drop(self, before: int) -> None:
        """Removes segments all of whose events are below `before`, which a snapshot has."""
        segments = self._segments()
        with storage_errors(str(self.folder)):
            for (_, path), (following, _) in zip(segments, segments[1:], strict=False):
                if following <= before:
                    path.unlink()

    def close(self) -> None:
        with self._lock:
            while self._open:
                os.close(self._open.pop())

    @property
    def bytes(self) -> int:
        """Bytes of all segments."""
        total = 0
        for _, path in self._segments():
            with suppress(FileNotFoundError):  # it was dropped just now
                total += path.stat().st_size
        return total

    def _segments(self) -> list[tuple[int, Path]]:
        paths = (path for path in self.folder.iterdir() if re.fullmatch(r"\d{18}", path.name))
        return sorted((int(path.name), path) for path in paths)


def _records(path: Path, *, may_be_torn: bool) -> Iterator[tuple[int, bytes, str | None]]:
    at, size = 0, path.stat().st_size
    with path.open("rb+") as file:
        while at < size:
            head = HEAD.match(file.read(MOST_HEAD_BYTES))
            length = int(head[2]) if head else 0
            end = at + (head.end() if head else 0) + length + 1
            file.seek(end - length - 1)
            body = file.read(length + 1) if head and end <= size else b""
            if not head or end > size or body[-1:] != b"\n" or zlib.crc32(body[:-1]) != int(head[3], 16):
                is_end = end >= size or not head
                if may_be_torn and is_end:
                    file.truncate(at)
                    return
                raise CorruptDataError(
                    f"{path}: damaged at byte {at:,}, expected a record; events from there on cannot be learned "
                    "again: move the file away to continue without them"
                )
            yield int(head[1]), body[:-1], None if head[4] is None else head[4].decode()
            at = end


def sync_tree(folder: Path) -> None:
    """Waits until a folder and all in it are on the disk."""
    for path in [*folder.rglob("*"), folder]:
        if path.is_dir():
            sync_folder(path)
        else:
            with path.open("rb+") as file:
                os.fsync(file.fileno())
    sync_folder(folder.parent)
