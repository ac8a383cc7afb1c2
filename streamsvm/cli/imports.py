"""Imports of a command, made when it is used."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event

from streamsvm.parallel.heaps import few_heaps
from streamsvm.parallel.imports import uncollected

_is_ours = Event()  # set where this process ends with the command


def own_process() -> None:
    """Says that this process ends with the command."""
    _is_ours.set()
    few_heaps()


@contextmanager
def importing() -> Iterator[None]:
    """In a process of its own, modules stay as long as the command: the collector need not look at them again."""
    with uncollected():
        yield
        if _is_ours.is_set():
            gc.freeze()
