"""Imports of a command, made when it is used."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

from streamsvm.parallel.imports import uncollected

_process = {"is_ours": False}


def own_process() -> None:
    """Says that this process ends with the command."""
    _process["is_ours"] = True


@contextmanager
def importing() -> Iterator[None]:
    """In a process of its own, modules stay as long as the command: the collector need not look at them again."""
    with uncollected():
        yield
        if _process["is_ours"]:
            gc.freeze()
