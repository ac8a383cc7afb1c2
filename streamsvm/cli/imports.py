"""Imports of a command, made when it is used."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def importing() -> Iterator[None]:
    """Modules make hundreds of thousands of objects and no garbage: looking for some takes a fifth of their time.

    So that is put off, and what was imported is not looked at later either.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
