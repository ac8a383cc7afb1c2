"""Who is at work: owners of unfinished writes, and locks, the same on every system; and names flushed to disk.

Machines that share a disk leave the writes of others alone. In an object store a lock is a lease: an object that only
one process can create, and rewrites while it is alive.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

from streamsvm.errors import StorageError
from streamsvm.storage.paths import Place, URLPath, filesystem, is_remote_failure
from streamsvm.storage.text import JsonObject

OLD_S = 24 * 3600.0  # after their last change, before unfinished writes of other machines are removed
_TOKEN = r"(?:(?P<host>[\w.-]+)-)?(?P<process>\d+)-[0-9a-f]{8}"  # version 0.2 named no host


def this_process() -> JsonObject:
    """This process, as the owner of its writes."""
    return {"process": os.getpid(), "host": socket.gethostname()}


def is_alive(pid: int) -> bool:
    """Whether a process of this machine exists."""
    return psutil.pid_exists(pid)


def has_ended(owner: Mapping[str, object]) -> bool:
    """Whether the owner was a process of this machine that does not exist any more."""
    pid = owner.get("process")
    return owner.get("host") == socket.gethostname() and isinstance(pid, int) and not is_alive(pid)


def is_abandoned(owner: Mapping[str, object], idle_s: float) -> bool:
    """Whether the owner of a write, last changed idle_s seconds ago, does not continue it.

    Processes of other machines cannot be seen, so their writes have to be old.
    """
    return has_ended(owner) or (owner.get("host") != socket.gethostname() and idle_s > OLD_S)


def token() -> str:
    """A unique name for a write, which names its owner."""
    return f"{_named(socket.gethostname())}-{os.getpid()}-{secrets.token_hex(4)}"


def owner_in(name: str, before: str) -> JsonObject | None:
    """The owner in a name that is `before` and a token; None for other names."""
    match = re.fullmatch(re.escape(before) + _TOKEN, name)
    if match is None:
        return None
    host = socket.gethostname()
    return {"process": int(match["process"]), "host": host if match["host"] == _named(host) else match["host"]}


def _named(host: str) -> str:
    return re.sub(r"[^\w.-]", "_", host, flags=re.ASCII)[:64]


BEAT_S = 5.0  # between two writes of a lock
STALE_S = 30.0  # after so long without a write, another process may take the lock
Say = Callable[[str], None]
_leases: dict[URLPath, URLPath] = {}  # by lock, the object of it that this process has made


class InUse(Exception):
    """A lock that another process holds; the text says which."""


@contextmanager
def leased(lock: URLPath, say: Say) -> Iterator[None]:
    """Holds `lock`, a folder of numbered objects: the process that creates the next number has it. Raises InUse.

    A conditional write creates it, so that one of two processes succeeds. If the service has none, `say` is called with
    a warning that two processes are not kept apart. The lock of a killed process is taken over once it is STALE_S old.
    """
    lease, body = _take_lease(lock, say)
    ended = threading.Event()
    beat = threading.Thread(target=_beat, args=(lease, body, ended), name="lease", daemon=True)
    _leases[lock] = lease
    beat.start()
    try:
        yield
    finally:
        del _leases[lock]
        ended.set()
        beat.join()
        with suppress(OSError):
            lease.unlink(missing_ok=True)


def require_lease(lock: URLPath) -> None:
    """Raises StorageError if this process held a lock, and another one took it over while this one was stopped."""
    lease = _leases.get(lock)
    if lease is not None and not lease.exists():
        raise StorageError(f"{lock.parent} was taken over by another process while this one was away")


def is_leased(lock: URLPath) -> bool:
    """Whether a process holds the lock, by the time of its last write: clocks may differ by some seconds."""
    stamps = [_read_json(lease).get("time") for lease in lock.iterdir()]
    return any(time.time() - (stamp if isinstance(stamp, int | float) else 0.0) < STALE_S for stamp in stamps)


def _take_lease(lock: URLPath, say: Say) -> tuple[URLPath, JsonObject]:
    earlier = list(lock.iterdir())
    _require_abandoned(earlier, say)
    number = 1 + max((int(other.name) for other in earlier if other.name.isdecimal()), default=0)
    lease = lock / f"{number:06d}"
    body = this_process() | {"token": secrets.token_hex(8)}
    if not _created(lease, body, say):
        raise InUse(_lease_owner(_read_json(lease)))
    if others := [other for other in lock.iterdir() if other not in (lease, *earlier)]:
        lease.unlink(missing_ok=True)  # both started at once, and neither has it
        raise InUse(_lease_owner(_read_json(others[0])))
    for old in earlier:
        old.unlink(missing_ok=True)
    return lease, body


def _require_abandoned(earlier: list[URLPath], say: Say) -> None:
    """Raises InUse unless the processes that wrote these have ended: a lock is written every BEAT_S."""
    first = {lease: _read_json(lease) for lease in earlier}
    waited = {lease: body for lease, body in first.items() if body and not has_ended(body)}
    if waited:
        owner = _lease_owner(next(iter(waited.values())))
        say(f"found the lock of {owner}; waiting up to {STALE_S:g} s to see whether it is alive")
    until = time.monotonic() + STALE_S
    while waited and time.monotonic() < until:
        time.sleep(BEAT_S / 5)
        for lease, body in list(waited.items()):
            now = _read_json(lease)
            if now and now != body:
                raise InUse(_lease_owner(now))
            if not now:
                del waited[lease]


def _created(lease: URLPath, body: JsonObject, say: Say) -> bool:
    """Whether this process created the object, and no other."""
    text, (fs, path) = _stamped(body), filesystem(lease.url)
    try:
        for _ in range(2):  # a service that accepts it twice has no conditional writes
            fs.pipe_file(path, text, mode="create")
    except Exception as error:
        if not (is_remote_failure(error) or isinstance(error, NotImplementedError | TypeError)):
            raise
        if holder := _read_json(lease):
            return holder.get("token") == body["token"]
    lease.write_bytes(text)  # says in one line what it is, where it was no condition that failed
    say(f"{lease.parent.parent}: the service has no conditional writes: two runs in it are not kept apart")
    return True


def _beat(lease: URLPath, body: JsonObject, ended: threading.Event) -> None:
    while not ended.wait(BEAT_S):
        with suppress(OSError):  # the next write may succeed; until STALE_S the lock is valid
            if not lease.exists():
                return  # taken over
            lease.write_bytes(_stamped(body))


def _stamped(body: JsonObject) -> bytes:
    return json.dumps(body | {"time": time.time()}).encode()


def _read_json(place: URLPath) -> JsonObject:
    """The contents of an object; empty if it is gone or damaged."""
    try:
        content = json.loads(place.read_bytes())
    except (FileNotFoundError, ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


def _lease_owner(body: JsonObject) -> str:
    return f"process {body['process']} on {body['host']}" if {"process", "host"} <= set(body) else "another process"


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


@contextmanager
def locked(path: Place, say: Say = lambda message: None) -> Iterator[None]:
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
        match = re.fullmatch(r"process (\d+) on (.+)", _owner(path))
        return match is not None and match[2] == socket.gethostname() and is_alive(int(match[1]))


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
