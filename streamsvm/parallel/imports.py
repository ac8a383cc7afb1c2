"""Imports on first use."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from streamsvm.errors import ConfigError


@contextmanager
def uncollected() -> Iterator[None]:
    """Without garbage collection, which would take 0.1 s of a fit: imports make many objects and no garbage."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


def imported(place: str) -> Any:
    """The object at `module:name`."""
    module, _, name = place.partition(":")
    with uncollected():
        return getattr(import_module(module), name)


def whole_class(place: str, what: str) -> Any:
    """The class at `module:name`; what: its role, for the error. Raises ConfigError if it does not exist, or lacks
    something that it must define."""
    try:
        defined = imported(place)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(f"{what} {place!r} is not there ({error}); expected module:class") from None
    if missing := sorted(getattr(defined, "__abstractmethods__", ())):
        raise ConfigError(f"{what} {place} has no {' and no '.join(missing)}")
    return defined
