"""Fits of estimators that leave a run directory, as those of the command line do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from streamsvm.config import FitConfig
from streamsvm.data.store import Store
from streamsvm.events import Events
from streamsvm.runs.directory import RESULT, recorded, write_result
from streamsvm.storage.paths import Place
from streamsvm.train import run_facts


@dataclass
class Recording:
    """The run directory of a fit. store: its rows, once it has begun."""

    folder: Place
    store: Store | None = None


_current: ContextVar[Recording | None] = ContextVar("_current", default=None)


def is_recording() -> bool:
    return _current.get() is not None


@contextmanager
def recording(folder: Place) -> Iterator[Recording]:
    """Inside, a fit writes its events and its report to this folder."""
    found = Recording(folder)
    token = _current.set(found)
    try:
        yield found
    finally:
        _current.reset(token)


@contextmanager
def noted(events: Events, store: Store, config: FitConfig) -> Iterator[Events]:
    """Events of a fit, which also go into the folder of `recording`, if there is one."""
    found = _current.get()
    if found is None:
        yield events
        return
    found.store = store
    with recorded(found.folder, events, False, **run_facts(store, config)) as events:
        yield events


def end_with(report: Mapping[str, Any]) -> None:
    """Writes the report of a fit to the folder of `recording`, if there is one."""
    if (found := _current.get()) is not None:
        write_result(found.folder, RESULT, report)
