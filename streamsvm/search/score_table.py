"""The scores of points and folds, saved in the run directory as they come, and the table of a search as a file.

A finished search leaves its result in the run directory, so that resuming it does nothing.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import fields
from typing import Any

import numpy as np

from streamsvm.config import FitConfig
from streamsvm.data.columns import ColumnWriter
from streamsvm.data.folds import FOLDS_BY
from streamsvm.data.store import Store
from streamsvm.errors import ConfigError, StorageError
from streamsvm.events import Events
from streamsvm.fits.earlier import is_made_by
from streamsvm.fits.prepare import with_task
from streamsvm.models.files import is_model
from streamsvm.runs.checkpoints import identity, require_same_run, without_tol
from streamsvm.runs.directory import SEARCHED, write_result
from streamsvm.runs.records import Lines, lines_of, opened_lines, remove_lines
from streamsvm.search.folds import Outcome
from streamsvm.search.options import Point, TuneConfig
from streamsvm.storage.atomic import Target, whole_file
from streamsvm.storage.chunks import GrowingArray
from streamsvm.storage.paths import Place
from streamsvm.storage.text import JsonObject, jsonable

SCORES = "scores.jsonl"
RESULTS = "streamsvm_tune"  # group attribute of a table as zarr


def has_scores(run_dir: Place) -> bool:
    """Whether a search has saved scores to resume from."""
    return len(_lines(run_dir / SCORES)) > 1


class ScoreTable:
    """scores: outcomes by (point, fold, share of the rows). With a run directory, each is a line of a file at once.
    Raises ConfigError if the directory holds scores of another store or search."""

    def __init__(
        self,
        run_dir: Place | None,
        store: Store,
        options: TuneConfig,
        points: list[tuple[Point, FitConfig]],
        resume: bool,
        events: Events,
    ) -> None:
        self.scores: dict[tuple[int, int, float], Outcome] = {}
        self._file: Lines | None = None
        if run_dir is None:
            return
        path = run_dir / SCORES
        search = identity_of(store, points[0][1], options)
        lines = _lines(path) if resume else []
        if lines:
            require_same_run(path, json.dumps(lines[0].get("identity")), without_tol(search), store, events)
        reason = _difference(lines[0], search["tol"]) if lines else ""
        if path.exists() and (reason or not resume):
            message = f"{run_dir} holds the scores of an earlier search, which this one replaces"
            events.warn(f"{message}; {reason or '--resume would continue from them'}")
            remove_lines(path)
            lines = []
        self._file = opened_lines(path, every_s=0.0)
        if not lines:
            self._file({"event": "search", "identity": search, "folds": FOLDS_BY})
        for line in lines[1:]:
            names = (field.name for field in fields(Outcome))
            outcome = Outcome(**{name: line[name] for name in names if name in line})
            self.scores[outcome.point, outcome.fold, line["share"]] = outcome

    def add(self, outcome: Outcome, share: float) -> None:
        self.scores[outcome.point, outcome.fold, share] = outcome
        if self._file is not None:
            self._file({"event": "score", "share": share, **vars(outcome)})

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


def _difference(search: Mapping[str, Any], tol: float) -> str:
    """Why saved scores, by the first line of their file, are not those of this search; empty if they are."""
    if search.get("folds") != FOLDS_BY:
        return "its folds were split differently"
    tol_before = search["identity"].get("tol")
    return "" if tol_before == tol else f"its tol was {tol_before}, and is {tol} now"


def _lines(path: Place) -> list[JsonObject]:
    """The whole lines of a file; a last line that was cut short does not count."""
    records = []
    for line in lines_of(path):
        with suppress(ValueError):
            records += [json.loads(line)] if line.endswith(b"\n") else []
    return records


def write_records(records: Sequence[JsonObject], out: Place) -> None:
    """Writes the table as .csv, .json (a list of objects) or .zarr (an array a column), completely or not at all."""
    writers = {".csv": _write_csv, ".json": _write_json, ".zarr": _write_zarr}
    require_suffix("--out", out, *writers)
    writers[out.suffix](records, out)


def require_suffix(option: str, path: Place, *suffixes: str) -> None:
    """Raises ConfigError if the name ends in none of these."""
    if path.suffix not in suffixes:
        expected = " or ".join([", ".join(suffixes[:-1]), suffixes[-1]]) if len(suffixes) > 1 else suffixes[0]
        raise ConfigError(f"{option} {path}: expected a name ending in {expected}")


def require_free(option: str, path: Place) -> None:
    """Raises StorageError if a table or picture would replace a folder; files are replaced."""
    if path.is_dir():
        raise StorageError(f"{option} {path}: found a folder, which is not replaced; take another {option}")


def _write_json(records: Sequence[JsonObject], out: Place) -> None:
    with whole_file(out) as file:
        file.write((json.dumps(jsonable(records), indent=1) + "\n").encode())


def _write_csv(records: Sequence[JsonObject], out: Place) -> None:
    flat = [_flat(record) for record in records]
    with whole_file(out) as file, io.TextIOWrapper(file, encoding="utf-8", newline="") as text:
        writer = csv.DictWriter(text, list(flat[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(flat)


def _write_zarr(records: Sequence[JsonObject], out: Place) -> None:
    target = Target(str(out), overwrite=False)
    with target.errors(), ExitStack() as cleanup:
        cleanup.callback(target.discard)
        group = target.begin()
        for name in records[0]:
            column = cleanup.enter_context(closing(ColumnWriter(name, target.folder)))
            values = np.array([record[name] for record in records])  # numbers, or text where any is
            if values.ndim == 1:
                column.append(values)
                column.write(group)
            else:
                array = GrowingArray(group, name)
                array.append(values)
                array.close()
        group.attrs.put({RESULTS: 1})
        target.commit()


def _flat(record: JsonObject) -> JsonObject:
    columns = {name: value for name, value in record.items() if name != "fold_scores"}
    return columns | {f"score_{fold}": score for fold, score in enumerate(record["fold_scores"])}


Result = JsonObject


def identity_of(store: Store, config: FitConfig, options: TuneConfig | None) -> JsonObject:
    """Identifies a search: its data, the options of its first point or of the fit, and how points are compared."""
    compared = {} if options is None else options.model_dump(mode="json")
    return identity(store, config) | {f"tune.{name}": value for name, value in compared.items()}


def save_result(run_dir: Place, search: Mapping[str, Any], result: Result, events: Events) -> None:
    """Writes the result of the search with this identity. Warns if the disk is full: then the file is missing."""
    write_result(run_dir, SEARCHED, {"identity": search, "found": result}, events)


def saved_result(
    run_dir: Place,
    model_path: Place | None,
    store: Store,
    points: Sequence[tuple[Point, FitConfig]],
    options: TuneConfig | None,
) -> Result | None:
    """The result of the same search, if it is finished and its model, if requested, is in place; else None."""
    try:
        saved = json.loads((run_dir / SEARCHED).read_bytes())
        search, result = saved["identity"], saved["found"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
    configs = [config for _, config in points]
    first = configs[0] if options is not None else with_task(configs[0], store)
    if search != jsonable(identity_of(store, first, options)) or not isinstance(result, dict):
        return None
    if model_path is None or (is_model(model_path) and is_made_by(model_path, store, configs)):
        return result
    return None
