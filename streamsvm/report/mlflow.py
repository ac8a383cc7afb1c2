"""Runs as MLflow's runs: options as parameters, steps and results as metrics, the page of `report` as an artifact."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import mlflow
from mlflow.entities import Metric, Param

from streamsvm.events import STEPS, Event, Memory, Record, Round
from streamsvm.exchange.mlflow import log_model as log_model
from streamsvm.models.files import load_model
from streamsvm.report.html import contents, page
from streamsvm.report.read import Run, read_run
from streamsvm.runs.records import flat, number
from streamsvm.storage.paths import place_of

MOST_METRICS, MOST_PARAMS, MOST_TEXT = 1000, 100, 500  # of one request, and of a parameter, that servers take
ENDS = {"failed": "FAILED", "interrupted": "KILLED"}
COUNTS = ("event", "t", "round", "step", "epoch", "problem")  # of a step, which say where it is


class Log:
    """A sink of events that logs the steps of a fit, and its memory, while it is at work.

    `train(store, config, model_path=path, events=Events(Log()))` logs to the run of MLflow that is active.
    """

    def __init__(self) -> None:
        self._curves = Curves()

    def __call__(self, record: Record[Event]) -> None:
        for metric in self._curves.points(record):
            mlflow.log_metric(metric.key, metric.value, step=metric.step)


class Curves:
    """The points of a run's curves: `round.solve.gap`, `step.objective`, `memory.rss_bytes`; the steps of each count
    from 1. began_ms: when the run did, since 1970."""

    def __init__(self, began_ms: float | None = None) -> None:
        self._began_ms = time.time() * 1e3 if began_ms is None else began_ms
        self._steps: Counter[str] = Counter()

    def points(self, record: Record[Event]) -> Iterator[Metric]:
        event = record.event
        if not isinstance(event, (*STEPS, Memory)):
            return
        name = f"{event.kind}.{event.phase}" if isinstance(event, Round) else event.kind
        self._steps[name] += 1
        for field, value in flat(record).items():
            if field not in COUNTS and (as_number := number(value)) is not None:
                when = int(self._began_ms + 1e3 * record.t)
                yield Metric(f"{name}.{field}", as_number, when, self._steps[name])


def log_run(folder: str | Path, model: Any = None) -> str:
    """Logs what a run directory holds, and where `model` is given, a model or the place of one, that as `log_model`.

    Returns the id of MLflow's run, which ends as the run did, and is nested in the one that is active, if any.
    Raises NotFoundError where nothing of a run is there.
    """
    run = read_run(place_of(folder))
    with mlflow.start_run(run_name=run.name, nested=True) as started:
        name = str(started.info.run_id)
        log_params(name, run)
        log_contents(name, run)
        if model is not None:
            log_model(load_model(model) if isinstance(model, str | Path) else model)
    ended(name, run)
    return name


def log_params(name: str, run: Run | None, parameters: Mapping[str, Any] = MappingProxyType({})) -> None:
    """Logs to a run, by its id, the options of one of ours and `own`, which win."""
    options = {} if run is None else {"solver": run.solver} | run.config
    params = [Param(key, str(value)[:MOST_TEXT]) for key, value in {**dict(_plain(options)), **parameters}.items()]
    for start in range(0, len(params), MOST_PARAMS):
        mlflow.MlflowClient().log_batch(name, params=params[start : start + MOST_PARAMS])


def log_contents(name: str, run: Run) -> None:
    """Logs curves, results, scores and the page."""
    curves = Curves(mlflow.get_run(name).info.start_time)
    _log_metrics(name, [point for record in run.records for point in curves.points(record)])
    log_metrics(name, {"result": run.result, "evaluation": run.evaluation})
    mlflow.MlflowClient().log_text(name, page([run], contents([run])), "report.html")


def log_metrics(name: str, values: Mapping[str, Any]) -> None:
    """Logs all that is a number in tables, under dotted names."""
    now = int(1e3 * time.time())
    numbers = ((key, number(value)) for key, value in _plain(values) if not key.startswith("result.config."))
    _log_metrics(name, [Metric(key, value, now, 0) for key, value in numbers if value is not None])


def _log_metrics(name: str, metrics: list[Metric]) -> None:
    for start in range(0, len(metrics), MOST_METRICS):
        mlflow.MlflowClient().log_batch(name, metrics=metrics[start : start + MOST_METRICS])


def ended(name: str, run: Run) -> None:
    """Gives a run, which has ended, the status of ours."""
    if run.status in ENDS:
        mlflow.MlflowClient().set_terminated(name, ENDS[run.status])


def _plain(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Dotted names of all that is not a table."""
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _plain(value, f"{prefix}{name}.")
        elif value is not None:
            yield f"{prefix}{name}", value
