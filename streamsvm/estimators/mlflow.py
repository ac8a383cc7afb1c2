"""Every `fit` of an estimator as a run of MLflow, as `mlflow.sklearn.autolog` does it for scikit-learn's."""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Callable, Iterator
from functools import wraps
from importlib import import_module
from pathlib import Path
from typing import Any

import mlflow
from mlflow.exceptions import MlflowException

from streamsvm.estimators.base import StoreEstimator, threads
from streamsvm.estimators.recording import Recording, is_recording, recording
from streamsvm.parallel.engine import Engine
from streamsvm.predict import evaluate
from streamsvm.report.mlflow import ended, log_contents, log_metrics, log_model, log_params
from streamsvm.report.read import Run, read_run
from streamsvm.runs.directory import EVENTS
from streamsvm.solvers.catalogue import estimators

Fit = Callable[..., Any]
AUTO = "streamsvm.estimators.auto"  # which no solver's row names
_fits: dict[type, Fit] = {}  # each class's own `fit`, which does not log


def autolog(*, log_models: bool = True, log_scores: bool = True, disable: bool = False) -> None:
    """From now on each `fit` of an estimator logs a run to MLflow, nested in the one that is active, if any.

    The run has the estimator's parameters and the options that came of them, objective, gap and memory as curves, the
    report page, the model as of `log_model`, and its scores on the training rows as `training.accuracy` and so on. A
    fit that fails leaves a run that failed. If MLflow does not answer, there is a warning, and the fit continues.

    Parameters
    ----------
    log_models : bool
    log_scores : bool
        Costs a prediction of all training rows.
    disable : bool
        Logs no more.
    """
    for kind, fit in _fits.items():
        kind.fit = fit  # type: ignore[attr-defined]
    _fits.clear()
    if disable:
        return
    for kind in {kind for kind in _kinds() if "fit" in vars(kind)}:
        _fits[kind] = kind.fit  # type: ignore[attr-defined]
        kind.fit = _logged(_fits[kind], log_models, log_scores)  # type: ignore[attr-defined]


def _kinds() -> Iterator[type]:
    """Every class of estimators there is."""
    for module in {*estimators().values(), AUTO}:
        import_module(module)
    kinds: list[type] = [StoreEstimator]
    while kinds:
        kind = kinds.pop()
        kinds += kind.__subclasses__()
        yield kind


def _logged(fit: Fit, log_models: bool, log_scores: bool) -> Fit:
    @wraps(fit)
    def logged(self: Any, *args: Any, **options: Any) -> Any:
        if is_recording():  # a fit that calls the one of its base
            return fit(self, *args, **options)
        with tempfile.TemporaryDirectory() as folder, recording(Path(folder) / type(self).__name__) as record:
            log = _Log(self, record, log_models=log_models, log_scores=log_scores)
            try:
                fitted = fit(self, *args, **options)
            except BaseException:
                log.failed()
                raise
            log.fitted()
            return fitted

    return logged


class _Log:
    """The run of a fit. Whatever goes wrong with MLflow is a warning: the fit is worth more."""

    def __init__(self, svm: StoreEstimator, record: Recording, *, log_models: bool, log_scores: bool) -> None:
        self._svm, self._record = svm, record
        self._log_models, self._log_scores = log_models, log_scores
        self._run_id: str | None = None
        self._try(self._start)

    def failed(self) -> None:
        self._end(lambda: None, "FAILED")

    def fitted(self) -> None:
        self._end(self._log_fitted, "FINISHED")

    def _end(self, log: Callable[[], None], status: str) -> None:
        if self._run_id is not None:
            self._try(self._log_record)
            self._try(log)
            self._try(lambda: mlflow.end_run(status))
            if (run := self._run) is not None:
                self._try(lambda: ended(str(self._run_id), run))

    def _try(self, log: Callable[[], None]) -> None:
        try:
            log()
        except (MlflowException, OSError) as error:
            warnings.warn(f"MLflow: the fit is not logged in full ({error})", stacklevel=5)

    def _start(self) -> None:
        kind = type(self._svm)
        run = mlflow.start_run(run_name=kind.__name__, nested=mlflow.active_run() is not None)
        self._run_id = run.info.run_id
        names = {"estimator_name": kind.__name__, "estimator_class": f"{kind.__module__}.{kind.__name__}"}
        mlflow.set_tags(names)

    @property
    def _run(self) -> Run | None:
        """What the fit has left; None if it was refused before it began."""
        return read_run(self._record.folder) if (self._record.folder / EVENTS).exists() else None

    def _log_record(self) -> None:
        parameters = {name: value for name, value in self._svm.get_params().items() if value is not None}
        run = self._run
        log_params(str(self._run_id), run, parameters)
        if run is not None:
            log_contents(str(self._run_id), run)

    def _log_fitted(self) -> None:
        store = self._record.store
        if self._log_models:
            log_model(self._svm)
        if self._log_scores and store is not None and store.has_y:
            scores = evaluate(self._svm.model_, store, engine=Engine(threads(self._svm.n_jobs)))
            log_metrics(str(self._run_id), {"training": scores})
