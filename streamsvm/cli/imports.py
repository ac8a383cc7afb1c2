"""Imports that a command makes when it runs."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event

from streamsvm.parallel.heaps import few_heaps
from streamsvm.parallel.imports import uncollected

_is_ours = Event()  # set if this process ends with the command


def own_process() -> None:
    """Marks this process as one that ends with the command."""
    _is_ours.set()
    few_heaps()


@contextmanager
def importing() -> Iterator[None]:
    """If the process ends with the command, modules stay loaded, so the collector need not scan them again."""
    with uncollected():
        yield
        if _is_ours.is_set():
            gc.freeze()
