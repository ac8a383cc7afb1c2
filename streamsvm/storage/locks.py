"""Locks, and flushing the names in a folder to disk: the same on every system."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from streamsvm.storage.leases import InUse as InUse
from streamsvm.storage.leases import Say, is_leased, leased
from streamsvm.storage.owners import is_alive
from streamsvm.storage.paths import Place, URLPath

WAIT_S = 0.2  # for a lock: `is_locked` of another process holds it for a moment


def sync_folder(folder: Path) -> None:
    """Waits until a folder's names are on disk, if the system supports it."""
    try:
        handle = os.open(folder, os.O_RDONLY)
    except PermissionError:  # Windows opens no folders
        return
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _silent(message: str) -> None:
    """Ignores the message."""


@contextmanager
def locked(path: Place, say: Say = _silent) -> Iterator[None]:
    """Holds the lock file `path`, which a killed process releases. Raises InUse, OSError.

    The holder is written next to it: on Windows nobody else can read a locked file. In an object store it is a lease,
    see `leases`, which may call `say` with a warning.
    """
    if isinstance(path, URLPath):
        with leased(path, say):
            yield
        return
    owner = _owner_file(path)
    with _locked(path, WAIT_S):
        with suppress(OSError):  # the disk is full: locked all the same
            owner.write_text(f"process {os.getpid()} on {socket.gethostname()}", encoding="utf-8")
        try:
            yield
        finally:
            with suppress(OSError):
                owner.unlink()


def is_locked(path: Place) -> bool:
    """Whether a process holds the lock file `path`."""
    if isinstance(path, URLPath):
        return is_leased(path)
    if not path.exists():
        return False
    try:
        with _locked(path, 0.0):
            return False
    except InUse:
        return True
    except OSError:  # another user's, which is not ours to lock
        return _owner_lives(path)


@contextmanager
def _locked(path: Path, wait_s: float) -> Iterator[None]:
    from filelock import FileLock, Timeout

    lock = FileLock(path, timeout=wait_s, thread_local=False)
    try:
        lock.acquire()
    except Timeout:
        raise InUse(_owner(path)) from None
    try:
        yield
    finally:
        lock.release()


def _owner_file(path: Path) -> Path:
    return path.with_name(f"{path.name}.owner")


def _owner(path: Path) -> str:
    with suppress(OSError, ValueError):
        return _owner_file(path).read_text(encoding="utf-8").strip() or "another process"
    return "another process"


def _owner_lives(path: Path) -> bool:
    match = re.fullmatch(r"process (\d+) on (.+)", _owner(path))
    return match is not None and match[2] == socket.gethostname() and is_alive(int(match[1]))
