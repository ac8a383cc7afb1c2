"""Locks in object stores: an object that only one process can create, and rewrites while it is alive."""

from __future__ import annotations

import json
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from streamsvm.errors import StorageError
from streamsvm.storage.jsonable import JsonObject
from streamsvm.storage.owners import has_ended, this_process
from streamsvm.storage.paths import URLPath, filesystem, is_remote_failure

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
    lease, body = _take(lock, say)
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
    return any(time.time() - _number(_read(lease), "time") < STALE_S for lease in lock.iterdir())


def _take(lock: URLPath, say: Say) -> tuple[URLPath, JsonObject]:
    earlier = list(lock.iterdir())
    _require_abandoned(earlier, say)
    number = 1 + max((int(other.name) for other in earlier if other.name.isdecimal()), default=0)
    lease = lock / f"{number:06d}"
    body = this_process() | {"token": secrets.token_hex(8)}
    if not _created(lease, body, say):
        raise InUse(_owner(_read(lease)))
    if others := [other for other in lock.iterdir() if other not in (lease, *earlier)]:
        lease.unlink(missing_ok=True)  # both started at once, and neither has it
        raise InUse(_owner(_read(others[0])))
    for old in earlier:
        old.unlink(missing_ok=True)
    return lease, body


def _require_abandoned(earlier: list[URLPath], say: Say) -> None:
    """Raises InUse unless the processes that wrote these have ended: a lock is written every BEAT_S."""
    first = {lease: _read(lease) for lease in earlier}
    waited = {lease: body for lease, body in first.items() if body and not has_ended(body)}
    if waited:
        owner = _owner(next(iter(waited.values())))
        say(f"found the lock of {owner}; waiting up to {STALE_S:g} s to see whether it is alive")
    until = time.monotonic() + STALE_S
    while waited and time.monotonic() < until:
        time.sleep(BEAT_S / 5)
        for lease, body in list(waited.items()):
            now = _read(lease)
            if now and now != body:
                raise InUse(_owner(now))
            if not now:
                del waited[lease]


def _created(lease: URLPath, body: JsonObject, say: Say) -> bool:
    """Whether this process created the object, and no other."""
    text, (fs, path) = _text(body), filesystem(lease.url)
    try:
        for _ in range(2):  # a service that accepts it twice has no conditional writes
            fs.pipe_file(path, text, mode="create")
    except Exception as error:
        if not (is_remote_failure(error) or isinstance(error, NotImplementedError | TypeError)):
            raise
        if holder := _read(lease):
            return holder.get("token") == body["token"]
    lease.write_bytes(text)  # says in one line what it is, where it was no condition that failed
    say(f"{lease.parent.parent}: the service has no conditional writes: two runs in it are not kept apart")
    return True


def _beat(lease: URLPath, body: JsonObject, ended: threading.Event) -> None:
    while not ended.wait(BEAT_S):
        with suppress(OSError):  # the next write may succeed; until STALE_S the lock is valid
            if not lease.exists():
                return  # taken over
            lease.write_bytes(_text(body))


def _text(body: JsonObject) -> bytes:
    return json.dumps(body | {"time": time.time()}).encode()


def _read(place: URLPath) -> JsonObject:
    """The contents of an object; empty if it is gone or damaged."""
    try:
        content = json.loads(place.read_bytes())
    except (FileNotFoundError, ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


def _number(body: JsonObject, name: str) -> float:
    value = body.get(name)
    return float(value) if isinstance(value, int | float) else 0.0


def _owner(body: JsonObject) -> str:
    return f"process {body['process']} on {body['host']}" if {"process", "host"} <= set(body) else "another process"
