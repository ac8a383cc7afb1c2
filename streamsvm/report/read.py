"""From a run directory to what happened in it, whatever state it is in.

Runs that were interrupted, resumed or are still at work, torn lines, records of other versions: what can be read is.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from streamsvm.errors import NotFoundError
from streamsvm.events import Done, Event, Failed, Record, Started
from streamsvm.runs.directory import EVALUATION, EVENTS, RESULT, TUNE, require_run
from streamsvm.runs.records import Row, lines_of, number, parse, table, table_rows
from streamsvm.solvers.catalogue import renamed, renamed_option
from streamsvm.storage.paths import Place

E = TypeVar("E", bound=Event)
T = TypeVar("T")

SCORE = "mean_score"
NOT_OPTIONS = ("rank", SCORE, "std_score", "fold_scores", "rows", "seconds")  # what else a trial of tune says


@dataclass(frozen=True)
class Run:
    """A run: its records with `t` in seconds since it began, also across resumes, and its result files.

    tune: the trials of a search, the best first. notes: what could not be read.
    """

    name: str
    records: tuple[Record[Event], ...]
    result: Row
    evaluation: Row
    tune: tuple[Row, ...]
    notes: tuple[str, ...] = ()

    def of(self, kind: type[E]) -> list[Record[E]]:
        """The records of a kind of event."""
        return [Record(r.t, r.event) for r in self.records if isinstance(r.event, kind)]

    def events(self, kind: type[E]) -> list[E]:
        """The events of a kind."""
        return [r.event for r in self.records if isinstance(r.event, kind)]

    def last(self, kind: type[E]) -> E | None:
        """The last event of a kind."""
        return next(reversed(self.events(kind)), None)

    @property
    def started(self) -> Started:
        """Its first record; an empty one if the records lack it."""
        return next(iter(self.events(Started)), Started())

    @property
    def config(self) -> Row:
        """The options of a run, as it was last resumed; of a search, which has those that all trials share, with the
        best trial's."""
        resumed = next((e.config for e in reversed(self.events(Started)) if e.config is not None), None)
        config = renamed(table(resumed))
        return _with(config, self.tune[0]) if self.tune else config

    @property
    def metric(self) -> Row:
        """What a search reported, see `metric` of `result.json`."""
        return table(self.result.get("metric"))

    @property
    def data(self) -> str:
        """The source of its rows."""
        store = self.started.store
        return "stdin" if store == "-" else store or "in memory"

    @property
    def solver(self) -> str:
        return str(self.result.get("solver") or self.config.get("solver") or "")

    @property
    def seconds(self) -> float | None:
        """Of the whole run so far."""
        return self.records[-1].t if self.records else None

    @property
    def status(self) -> str:
        """How it ended; a run without an end is at work, or was killed."""
        match next((r.event for r in reversed(self.records) if isinstance(r.event, Started | Done | Failed)), None):
            case Failed(message):
                return "interrupted" if message == "KeyboardInterrupt" else "failed"
            case Done():
                return "finished"
            case Started():
                return "not finished"
        return ""


def read_run(folder: Place) -> Run:
    """The run in a directory. Raises NotFoundError where nothing of a run is there."""
    require_run(folder)
    names = (EVENTS, RESULT, EVALUATION, TUNE)
    if not any((folder / name).exists() for name in names):
        raise NotFoundError(f"{folder}: found none of {', '.join(names)}, expected the directory of a run")
    notes: list[str] = []
    result, evaluation, tune = (_json(folder / name, notes) for name in (RESULT, EVALUATION, TUNE))
    trials = tune.get("results") if isinstance(tune, dict) else tune
    return Run(
        folder.resolve().name,
        tuple(_last_run(_records(folder / EVENTS))),
        table(result),
        table(evaluation),
        tuple(sorted(map(_trial, table_rows(trials)), key=_place)),
        tuple(notes),
    )


def columns(width: int, rows: Iterable[Sequence[Any]]) -> list[np.ndarray]:
    """The columns of rows of so many values as arrays, of those rows in which all are numbers."""
    numbers = ([number(value) for value in row] for row in rows)
    complete = [row for row in numbers if None not in row]
    return list(np.array(complete, np.float64).reshape(-1, width).T)


def matrix(value: object, width: int | None = None) -> np.ndarray | None:
    """(m, k) finite numbers from lists of rows, m > 0 and k the width where it is given; else None."""
    try:
        numbers = np.array(value, np.float64)
    except (ValueError, TypeError, OverflowError):
        return None
    whole = numbers.ndim == 2 and numbers.size > 0 and np.isfinite(numbers).all()
    return numbers if whole and width in (None, numbers.shape[1]) else None


def by_number(records: Iterable[T], value: Callable[[T], float | None]) -> list[T]:
    """Each number once, its last record, in order: a resumed run makes some rounds again."""
    by_place = {at: record for record in records if (at := value(record)) is not None}
    return [by_place[at] for at in sorted(by_place)]


def _trial(row: Row) -> Row:
    """A record of tune with its options as columns."""
    return table(row.get("params")) | {name: value for name, value in row.items() if name != "params"}


def _place(trial: Row) -> tuple[float, float]:
    """Trials in order, the best first: by rank, which knows that a score on few rows says less than one on all."""
    rank, score = number(trial.get("rank")), number(trial.get(SCORE))
    return np.inf if rank is None else rank, np.inf if score is None else -score


def options_of(trials: Iterable[Row]) -> list[str]:
    """The columns of trials that are options."""
    names = dict.fromkeys(name for trial in trials for name in trial)
    return [name for name in names if name not in NOT_OPTIONS]


def _with(config: Row, trial: Row) -> Row:
    """A configuration with the options of a trial, by dotted name, which replace those it has."""
    merged = {name: dict(value) if isinstance(value, dict) else value for name, value in config.items()}
    for name in options_of([trial]):
        group, _, member = renamed_option(name).rpartition(".")
        place = merged[group] if isinstance(merged.get(group), dict) else merged
        place[member if place is not merged else name] = trial[name]
    return merged


def _json(path: Place, notes: list[str]) -> Any:
    try:
        return json.loads(path.read_bytes())
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError) as error:
        notes.append(f"{path.name} cannot be read and is left out ({error})")
        return {}


def _records(path: Place) -> Iterator[Record[Event]]:
    """Those of the file, with times that continue when another process resumed the run."""
    latest, offset = 0.0, 0.0
    for line in lines_of(path):
        if (record := parse(line)) is None:
            continue
        t, event = record
        if t + offset < latest and (isinstance(event, Started) or latest - offset - t > 1):
            offset = latest - t
        latest = max(latest, t + offset)
        yield Record(t + offset, event)


def _last_run(records: Iterable[Record[Event]]) -> list[Record[Event]]:
    """The records since a run last started from scratch in the folder; earlier ones are another run's."""
    run: list[Record[Event]] = []
    for record in records:
        if isinstance(record.event, Started) and not record.event.resume:
            run = []
        run.append(record)
    start = run[0].t if run else 0.0
    return [Record(t - start, event) for t, event in run]
