"""The result of a finished search in its run directory, so that resuming it does nothing."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from streamsvm.config import FitConfig
from streamsvm.data.store import Store
from streamsvm.errors import StorageError
from streamsvm.events import Events, Warned
from streamsvm.fits.earlier import is_made_by
from streamsvm.fits.task import with_task
from streamsvm.models.files import is_model
from streamsvm.runs.checkpoints import identity
from streamsvm.runs.directory import SEARCHED, write_result
from streamsvm.search.options import Point, TuneConfig
from streamsvm.storage.jsonable import JsonObject, jsonable
from streamsvm.storage.paths import Place

Result = JsonObject


def identity_of(store: Store, config: FitConfig, options: TuneConfig | None) -> JsonObject:
    """Identifies a search: its data, the options of its first point or of the fit, and how points are compared."""
    compared = {} if options is None else options.model_dump(mode="json")
    return identity(store, config) | {f"tune.{name}": value for name, value in compared.items()}


def save_result(run_dir: Place, search: Mapping[str, Any], result: Result, events: Events) -> None:
    """Writes the result of the search with this identity. Warns if the disk is full: then the file is missing."""
    try:
        write_result(run_dir, SEARCHED, {"identity": search, "found": result})
    except StorageError as error:
        events(Warned(str(error)))


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
