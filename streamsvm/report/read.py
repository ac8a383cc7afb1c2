"""From a run directory to what happened in it, whatever state it is in.

Runs that were interrupted, resumed or are still at work, torn lines, records of other versions: what can be read is.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from streamsvm.errors import NotFoundError
from streamsvm.report.values import Record, number, parse, table, table_rows
from streamsvm.runs import EVALUATION, EVENTS, RESULT, TUNE, require_run
from streamsvm.solvers.catalogue import renamed, renamed_option

SCORE = "mean_score"
NOT_OPTIONS = ("rank", SCORE, "std_score", "fold_scores", "rows", "seconds")  # what else a trial of tune says


@dataclass(frozen=True)
class Run:
    """A run: its records with `t` in seconds since it began, time going on where it was resumed; its result files.

    tune: the trials of a search, the best first. notes: what could not be read.
    """

    name: str
    records: tuple[Record, ...]
    result: Record
    evaluation: Record
    tune: tuple[Record, ...]
    notes: tuple[str, ...] = ()

    def of(self, kind: str, **fields: Any) -> list[Record]:
        """The records of an event that have these fields."""
        return [r for r in self.records if r["event"] == kind and fields.items() <= r.items()]

    def first(self, kind: str) -> Record:
        """The first record of an event, or an empty one."""
        return next((r for r in self.records if r["event"] == kind), {})

    def last(self, kind: str) -> Record:
        return next((r for r in reversed(self.records) if r["event"] == kind), {})

    @property
    def config(self) -> Record:
        """The options of a run; of a search, whose first record has those that all share, with the best trial's."""
        config = renamed(table(self.first("start").get("config")))
        return _with(config, self.tune[0]) if self.tune else config

    @property
    def solver(self) -> str:
        return str(self.result.get("solver") or self.config.get("solver") or "")

    @property
    def seconds(self) -> float | None:
        """Of the whole run so far."""
        return self.records[-1]["t"] if self.records else None

    @property
    def status(self) -> str:
        """How it ended; a run without an end is at work, or was killed."""
        last = next((r for r in reversed(self.records) if r["event"] in ("start", "done", "failed")), {})
        if last.get("event") == "failed":
            return "interrupted" if last.get("message") == "KeyboardInterrupt" else "failed"
        return {"done": "finished", "start": "not finished"}.get(str(last.get("event")), "")


def read_run(folder: Path) -> Run:
    """The run in a directory. Raises NotFoundError where nothing of a run is there."""
    require_run(folder)
    names = (EVENTS, RESULT, EVALUATION, TUNE)
    if not any((folder / name).is_file() for name in names):
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


def columns(records: Iterable[Record], *names: str) -> list[np.ndarray]:
    """The fields as arrays, of those records in which all of them are numbers."""
    rows = [[number(record.get(name)) for name in names] for record in records]
    kept = [row for row in rows if None not in row]
    return list(np.array(kept, np.float64).reshape(-1, len(names)).T)


def matrix(value: Any, width: int | None = None) -> np.ndarray | None:
    """(m, k) finite numbers from lists of rows, m > 0 and k the width where it is given; else None."""
    try:
        found = np.array(value, np.float64)
    except (ValueError, TypeError, OverflowError):
        return None
    whole = found.ndim == 2 and found.size > 0 and np.isfinite(found).all()
    return found if whole and width in (None, found.shape[1]) else None


def by_number(records: Sequence[Record], name: str) -> list[Record]:
    """Each number of a field once, its last record, in order: a resumed run makes some rounds again."""
    found = {value: record for record in records if (value := number(record.get(name))) is not None}
    return [found[value] for value in sorted(found)]


def _trial(row: Record) -> Record:
    """A record of tune with its options as columns."""
    return table(row.get("params")) | {name: value for name, value in row.items() if name != "params"}


def _place(trial: Record) -> tuple[float, float]:
    """Trials in order, the best first: by rank, which knows that a score on few rows says less than one on all."""
    rank, score = number(trial.get("rank")), number(trial.get(SCORE))
    return np.inf if rank is None else rank, np.inf if score is None else -score


def options_of(trials: Iterable[Record]) -> list[str]:
    """The columns of trials that are options."""
    names = dict.fromkeys(name for trial in trials for name in trial)
    return [name for name in names if name not in NOT_OPTIONS]


def _with(config: Record, trial: Record) -> Record:
    """A configuration with a trial's options, by dotted name, in place of its own."""
    merged = {name: dict(value) if isinstance(value, dict) else value for name, value in config.items()}
    for name in options_of([trial]):
        group, _, member = renamed_option(name).rpartition(".")
        place = merged[group] if isinstance(merged.get(group), dict) else merged
        place[member if place is not merged else name] = trial[name]
    return merged


def _json(path: Path, notes: list[str]) -> Any:
    try:
        return json.loads(path.read_bytes())
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError) as error:
        notes.append(f"{path.name} cannot be read and is left out ({error})")
        return {}


def _records(path: Path) -> Iterator[Record]:
    """Those of the file, their time going on where another process went on."""
    if not path.is_file():
        return
    before, offset = 0.0, 0.0
    with path.open("rb") as file:
        for line in file:
            if (record := parse(line)) is None:
                continue
            if record["t"] + offset < before and (
                record["event"] == "start" or before - offset - record["t"] > 1
            ):
                offset = before - record["t"]
            before = max(before, record["t"] + offset)
            yield record | {"t": record["t"] + offset}


def _last_run(records: Iterable[Record]) -> list[Record]:
    """The records since a run began anew in the folder; what was there before is another run's."""
    found: list[Record] = []
    for record in records:
        if record["event"] == "start" and not record.get("resume"):
            found = []
        found.append(record)
    began = found[0]["t"] if found else 0.0
    return [record | {"t": record["t"] - began} for record in found]
