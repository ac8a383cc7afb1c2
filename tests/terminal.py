"""Terminals that commands write to."""

from __future__ import annotations

import os
import pty
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest


@contextmanager
def on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], str]]:
    """Inside, stdout and stderr are one terminal. Afterwards the yielded function returns what was written to it."""
    ours, theirs = pty.openpty()
    with ThreadPoolExecutor(1) as reader:
        shown = reader.submit(read_all, ours)
        with open(theirs, "w", encoding="utf-8") as terminal, monkeypatch.context() as patch:
            patch.setattr(sys, "stdout", terminal)
            patch.setattr(sys, "stderr", terminal)
            yield lambda: shown.result().decode()


def read_all(ours: int) -> bytes:
    """What is written to the other end until it is closed. Closes this one."""
    shown = b""
    while chunk := _read(ours):
        shown += chunk
    os.close(ours)
    return shown


def _read(ours: int) -> bytes:
    try:
        return os.read(ours, 1 << 16)
    except OSError:  # the other end is closed
        return b""
