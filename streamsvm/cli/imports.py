"""Imports of a command, made when it is used."""

from __future__ import annotations

import ctypes
import gc
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event

from streamsvm.parallel.imports import uncollected

M_ARENA_MAX = -8  # of glibc's malloc.h
_is_ours = Event()  # set where this process ends with the command


def own_process() -> None:
    """Says that this process ends with the command, and has a heap of the C library for each core: it would make eight,
    of which each keeps what its threads let go of."""
    _is_ours.set()
    set_option = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if set_option is not None:
        set_option(M_ARENA_MAX, os.cpu_count() or 1)


@contextmanager
def importing() -> Iterator[None]:
    """In a process of its own, modules stay as long as the command: the collector need not look at them again."""
    with uncollected():
        yield
        if _is_ours.is_set():
            gc.freeze()
