"""The owner of an unfinished write, a host and a process, so that machines that share a disk leave those of others
alone."""

from __future__ import annotations

import os
import re
import secrets
import socket
from collections.abc import Mapping

import psutil

from streamsvm.storage.jsonable import JsonObject

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
