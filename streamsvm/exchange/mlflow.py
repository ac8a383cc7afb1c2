"""Models as MLflow's `pyfunc`, which it serves and registers; `report.mlflow` has runs.

A logged model is the model's own folder: MLflow loads it with `_load_pyfunc` below, and no file is a pickle.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import mlflow
import numpy as np
from mlflow.models.model import ModelInfo

from streamsvm._version import __version__
from streamsvm.errors import ConfigError
from streamsvm.models.files import load_model, save_model

ANSWERS = {
    "label": "predict",
    "decision": "decision_function",
    "proba": "predict_proba",
    "interval": "predict_interval",
}


class PyfuncModel:
    """What MLflow calls: `predict` of raw rows, an array or a data frame whose columns are the model's."""

    def __init__(self, model: Any) -> None:
        self.model = model

    def predict(self, X: Any, params: dict[str, Any] | None = None) -> np.ndarray:
        """(n,) labels; with params {"answer": "decision"}, "proba" or "interval", those. Raises ConfigError."""
        answer = (params or {}).get("answer", "label")
        if answer not in ANSWERS:
            raise ConfigError(f"answer: found {answer!r}, expected one of {', '.join(ANSWERS)}")
        return np.asarray(getattr(self.model, ANSWERS[answer])(X))


def _load_pyfunc(data_path: str) -> PyfuncModel:
    """The loader that MLflow calls for a model that `log_model` wrote."""
    return PyfuncModel(load_model(data_path))


def log_model(model: Any, name: str = "model", **options: Any) -> ModelInfo:
    """Logs a model, a fitted estimator's or `load_model`'s, to the active run, else to a new one.

    options: of `mlflow.pyfunc.log_model`: `registered_model_name`, `input_example`, `signature`. Returns its ModelInfo;
    `mlflow.pyfunc.load_model(info.model_uri).predict(X)` answers. Raises StorageError.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.zarr"
        save_model(getattr(model, "model_", model), path)
        requirements = {"pip_requirements": [f"streamsvm=={__version__}"]}
        return mlflow.pyfunc.log_model(name=name, loader_module=__name__, data_path=str(path), **requirements | options)
