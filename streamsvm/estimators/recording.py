"""Fits of estimators that leave a run directory, as those of the command line do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from streamsvm.config import FitConfig
from streamsvm.data.store import Store
from streamsvm.events import Events
from streamsvm.fits.earlier import run_facts
from streamsvm.runs.directory import RESULT, recorded, write_result
from streamsvm.storage.paths import Place, place_of


@dataclass
class Recording:
    """The run directory of a fit. store: its rows, once it has begun."""

    folder: Place
    store: Store | None = None


_current: ContextVar[Recording | None] = ContextVar("_current", default=None)


def is_recording() -> bool:
    return _current.get() is not None


@contextmanager
def recording(folder: str | Place) -> Iterator[Recording]:
    """Inside, a `fit` of an estimator leaves a run directory, as the command's `--run-dir` does.

    `streamsvm report` makes a page of it, and `streamsvm evaluate --run-dir` adds scores. Several fits need a folder
    each: one in the same folder adds to its events and replaces its result.

    Parameters
    ----------
    folder : str or Path
        Folder or URL. It is made if needed.

    Raises
    ------
    StorageError
        By the fit, if the folder cannot be written, or another run is at work in it.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from sklearn.datasets import load_iris
    >>> from streamsvm import DCSVC, recording
    >>> folder = Path(tempfile.mkdtemp())
    >>> with recording(folder):
    ...     svm = DCSVC().fit(*load_iris(return_X_y=True))
    >>> sorted(path.name for path in folder.glob("*.json*"))
    ['events.jsonl', 'result.json']
    """
    record = Recording(place_of(folder))
    token = _current.set(record)
    try:
        yield record
    finally:
        _current.reset(token)


@contextmanager
def record_events(events: Events, store: Store, config: FitConfig) -> Iterator[Events]:
    """Events of a fit, which also go into the folder of `recording`, if there is one."""
    record = _current.get()
    if record is None:
        yield events
        return
    record.store = store
    with recorded(record.folder, events, False, **run_facts(store, config)) as events:
        yield events


def record_report(report: Mapping[str, object]) -> None:
    """Writes the report of a fit to the folder of `recording`, if there is one."""
    if (record := _current.get()) is not None:
        write_result(record.folder, RESULT, report)
