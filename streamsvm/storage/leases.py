"""Locks in object stores: an object that one process alone can make, and rewrites while it is alive."""

from __future__ import annotations

import json
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from streamsvm.errors import StorageError
from streamsvm.storage.owners import has_ended, this_process
from streamsvm.storage.paths import URLPath, filesystem, is_remote_failure

BEAT_S = 5.0  # between two writes of a lock that is held
STALE_S = 30.0  # one that was not written for so long is another's to take
Tell = Callable[[str], None]
_held: dict[URLPath, URLPath] = {}  # by lock, the object of it that this process has made


class InUse(Exception):
    """A lock that another process holds; the text says which."""


@contextmanager
def leased(lock: URLPath, tell: Tell) -> Iterator[None]:
    """Holds the lock `lock`, a folder of numbered objects: who makes the next number has it. Raises InUse.

    A conditional write makes it, so one of two processes succeeds. If the service has none, `tell` is called with the
    warning that two are not kept apart. What a killed process has left is taken over once it is STALE_S old.
    """
    own, body = _taken(lock, tell)
    ended = threading.Event()
    beat = threading.Thread(target=_beat, args=(own, body, ended), name="lease", daemon=True)
    _held[lock] = own
    beat.start()
    try:
        yield
    finally:
        del _held[lock]
        ended.set()
        beat.join()
        with suppress(OSError):
            own.unlink(missing_ok=True)


def require_held(lock: URLPath) -> None:
    """Raises StorageError if this process held a lock, and was away for so long that another took it over."""
    own = _held.get(lock)
    if own is not None and not own.exists():
        raise StorageError(f"{lock.parent} was taken over by another process while this one was away")


def is_leased(lock: URLPath) -> bool:
    """Whether a process holds the lock, by when it was written: by a clock that may be some seconds off."""
    return any(time.time() - _number(_read(found), "time") < STALE_S for found in lock.iterdir())


def _taken(lock: URLPath, tell: Tell) -> tuple[URLPath, dict[str, Any]]:
    there = list(lock.iterdir())
    _require_left(there, tell)
    number = 1 + max((int(found.name) for found in there if found.name.isdecimal()), default=0)
    own = lock / f"{number:06d}"
    body = this_process() | {"token": secrets.token_hex(8)}
    if not _made(own, body, tell):
        raise InUse(_owner(_read(own)))
    if others := [found for found in lock.iterdir() if found not in (own, *there)]:
        own.unlink(missing_ok=True)  # both began at once, and neither has it
        raise InUse(_owner(_read(others[0])))
    for left in there:
        left.unlink(missing_ok=True)
    return own, body


def _require_left(there: list[URLPath], tell: Tell) -> None:
    """Raises InUse unless those who made these are gone: an object that is held is written every BEAT_S."""
    first = {found: _read(found) for found in there}
    waited = {found: body for found, body in first.items() if body and not has_ended(body)}
    if waited:
        owner = _owner(next(iter(waited.values())))
        tell(f"found the lock of {owner}; waiting up to {STALE_S:g} s to see whether it is alive")
    until = time.monotonic() + STALE_S
    while waited and time.monotonic() < until:
        time.sleep(BEAT_S / 5)
        for found, body in list(waited.items()):
            now = _read(found)
            if now and now != body:
                raise InUse(_owner(now))
            if not now:
                del waited[found]


def _made(own: URLPath, body: dict[str, Any], tell: Tell) -> bool:
    """Whether this process made the object, and no other."""
    text, (fs, path) = _text(body), filesystem(own.url)
    try:
        for _ in range(2):  # a service that takes it twice has no such condition
            fs.pipe_file(path, text, mode="create")
    except Exception as error:
        if not (is_remote_failure(error) or isinstance(error, NotImplementedError | TypeError)):
            raise
        if found := _read(own):
            return found.get("token") == body["token"]
    own.write_bytes(text)  # says in one line what it is, where it was no condition that failed
    tell(f"{own.parent.parent}: the service has no conditional writes: two runs in it are not kept apart")
    return True


def _beat(own: URLPath, body: dict[str, Any], ended: threading.Event) -> None:
    while not ended.wait(BEAT_S):
        with suppress(OSError):  # the next one may come through; until STALE_S nobody minds
            if not own.exists():
                return  # taken over
            own.write_bytes(_text(body))


def _text(body: dict[str, Any]) -> bytes:
    return json.dumps(body | {"time": time.time()}).encode()


def _read(place: URLPath) -> dict[str, Any]:
    """The contents of an object; empty if it is gone or damaged."""
    try:
        found = json.loads(place.read_bytes())
    except (FileNotFoundError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _number(body: dict[str, Any], name: str) -> float:
    value = body.get(name)
    return float(value) if isinstance(value, int | float) else 0.0


def _owner(body: dict[str, Any]) -> str:
    return (
        f"process {body['process']} on {body['host']}"
        if {"process", "host"} <= set(body)
        else "another process"
    )
