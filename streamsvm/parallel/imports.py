"""Imports that are made when they are used."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from streamsvm.errors import ConfigError


@contextmanager
def uncollected() -> Iterator[None]:
    """Modules make objects by the hundred thousand and no garbage: to look for some takes 0.1 s of a fit."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


def imported(place: str) -> Any:
    """What `module:name` says."""
    module, _, name = place.partition(":")
    with uncollected():
        return getattr(import_module(module), name)


def whole_class(place: str, what: str) -> Any:
    """The class that `module:name` says, which is a solver's or kernel's `what`.

    Raises ConfigError if it is not there, or does not say all that it has to.
    """
    try:
        found = imported(place)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(f"{what} {place!r} is not there ({error}); expected module:class") from None
    if missing := sorted(getattr(found, "__abstractmethods__", ())):
        raise ConfigError(f"{what} {place} has no {' and no '.join(missing)}")
    return found
