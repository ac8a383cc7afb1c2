"""Runs that have ended: which model is theirs, and whether there is anything left to resume."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from streamsvm.config import FitConfig
from streamsvm.data.store import Store
from streamsvm.errors import ConfigError
from streamsvm.fits.base import Report
from streamsvm.fits.prepare import with_task
from streamsvm.models.files import is_model, read_attrs
from streamsvm.parallel.machine import allowed_bytes
from streamsvm.runs.checkpoints import EXECUTION, by_path, default_options, digest
from streamsvm.runs.directory import last_start, read_result
from streamsvm.solvers.catalogue import renamed
from streamsvm.storage.paths import Place, is_same, place_of


def run_facts(store: Store, config: FitConfig) -> dict[str, Any]:
    """A description of the run, for its first record."""
    return {
        "store": store.url,
        "n": store.n,
        "d": store.d,
        "limit_bytes": allowed_bytes(config.memory_limit),
        "config": config.model_dump(mode="json"),
    }


def is_made_by(model_path: Place, store: Store, configs: Iterable[FitConfig]) -> bool:
    """Whether one of these configurations made the model at `model_path` from this store, wherever it ran, to whatever
    tolerance. So a run that was killed between its model and its end resumes, and does not replace another's model."""
    model = read_attrs(model_path)
    own = [with_task(config, store) for config in configs]
    if store.matches(str(model.get("fingerprint"))) is False:
        return False
    certificate = model.get("certificate") or {}
    asked = certificate.get("asked")
    if asked is not None:  # its configuration is what was chosen
        tol = certificate.get("tol")
        return asked in (digest(config.model_copy(update={"tol": tol})) for config in own)
    free = {*EXECUTION, "tol"}
    options = by_path({name: v for name, v in renamed(model.get("config") or {}).items() if name not in free})
    defaults = default_options()
    for config in own:
        now = by_path(config.model_dump(mode="json", exclude=free))
        if now == options | {name: defaults[name] for name in now.keys() - options.keys() if name in defaults}:
            return True
    return False


def ended(run_dir: Place, model_path: Place, store: Store, config: FitConfig) -> Report | None:
    """The report of a run that has ended, whose model is in place: nothing is left to resume. Else None, also of a fit
    that ended before it had converged, or to another tolerance. Raises ConfigError if it ended with other options."""
    report, config = read_result(run_dir), with_task(config, store)
    if report is None or not is_model(model_path) or not is_same(place_of(str(report.get("model"))), model_path):
        return None
    if is_made_by(model_path, store, [config]):
        tol = (read_attrs(model_path).get("certificate") or {}).get("tol", config.tol)
        return report if report.get("converged") is not False and tol == config.tol else None
    start = last_start(run_dir)
    before = by_path(renamed((start and start.config) or {}))
    now = by_path(config.model_dump(mode="json", exclude=set(EXECUTION)))
    differ = [name for name, value in now.items() if name in before and before[name] != value]
    if differ and differ != ["tol"]:
        told = ", ".join(f"{name} was {before[name]}, is {now[name]}" for name in differ)
        raise ConfigError(
            f"--resume: the run in {run_dir} has ended, with other options ({told}); to train again, drop --resume "
            "and give --force, or another --model"
        )
    return None
