"""MLflow, as far as `mlflow-skinny` has it: models load and answer as they do here, runs arrive with all they hold."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of its own dependencies
    mlflow = pytest.importorskip("mlflow", reason="needs MLflow: pip install mlflow-skinny")

from commands import run
from sklearn.datasets import load_iris

from streamsvm import DCSVC, Store, load_model
from streamsvm.config import build_config
from streamsvm.errors import ConfigError, NotFoundError
from streamsvm.events import Events
from streamsvm.exchange.mlflow import PyfuncModel, log_model
from streamsvm.report.mlflow import Log, log_run
from streamsvm.train import train

pytestmark = pytest.mark.filterwarnings("ignore")  # MLflow's own
NAMES = ["sepal length", "sepal width", "petal length", "petal width"]


@pytest.fixture(autouse=True)
def _server(tmp_path, monkeypatch):
    """A folder in place of a server."""
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")  # MLflow 3.7 and later ask whether one means it
    mlflow.set_tracking_uri((tmp_path / "mlruns").as_uri())
    yield
    while mlflow.active_run():
        mlflow.end_run()


@pytest.fixture(scope="module")
def fitted():
    X, y = load_iris(return_X_y=True)
    return DCSVC(probability=True).fit(pd.DataFrame(X, columns=NAMES), y)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A store, a model, and the run that made it."""
    place = tmp_path_factory.mktemp("run")
    table = pd.DataFrame(load_iris().data, columns=NAMES).assign(y=load_iris().target)
    table.to_csv(place / "d.csv", index=False)
    store, model = place / "d.zarr", place / "m.zarr"
    assert run("ingest", place / "d.csv", "--store", store, "--label", "y") == 0
    fit = (
        "fit",
        "--store",
        store,
        "--model",
        model,
        "--no-search",
        "--C",
        "10",
        "--run-dir",
        place / "first",
    )
    assert run(*fit) == 0
    assert run("evaluate", "--model", model, "--store", store, "--run-dir", place / "first") == 0
    return place


def test_a_model_comes_back_without_a_pickle(fitted, tmp_path):
    info = log_model(fitted)
    X = pd.DataFrame(load_iris().data, columns=NAMES)
    loaded = mlflow.pyfunc.load_model(info.model_uri)
    np.testing.assert_array_equal(loaded.predict(X), fitted.predict(X))
    held = mlflow.artifacts.download_artifacts(info.model_uri, dst_path=str(tmp_path / "there"))
    names = {path.name for path in Path(held).rglob("*") if path.is_file()}
    assert not [name for name in names if name.endswith((".pkl", ".py"))]


def test_what_else_it_answers(fitted):
    X, answers = load_iris().data, PyfuncModel(fitted.model_)
    np.testing.assert_array_equal(answers.predict(X, {"answer": "proba"}), fitted.predict_proba(X))
    np.testing.assert_array_equal(answers.predict(X, {"answer": "decision"}), fitted.decision_function(X))
    with pytest.raises(ConfigError, match="found 'odds', expected one of label"):
        answers.predict(X, {"answer": "odds"})


def test_a_run_arrives_whole(folder):
    name = log_run(folder / "first", model=folder / "m.zarr")
    found = mlflow.get_run(name)
    result = json.loads((folder / "first" / "result.json").read_text())
    assert found.info.status == "FINISHED"
    assert found.data.params["kernel.name"] == "rbf"
    assert (found.data.params["solver"], float(found.data.params["C"])) == ("dcsvm", 10)
    assert found.data.metrics["result.objective"] == result["objective"]
    assert found.data.metrics["evaluation.accuracy"] > 0.9
    client = mlflow.MlflowClient()
    history = client.get_metric_history(name, "round.top.violation")
    assert [point.step for point in history] == list(range(1, len(history) + 1))
    page = Path(client.download_artifacts(name, "report.html")).read_text(encoding="utf-8")
    assert page.startswith("<!DOCTYPE html>") or "<html" in page[:200]
    (model,) = [one.model_id for one in mlflow.get_run(name).outputs.model_outputs]
    store = Store.open(folder / "d.zarr")
    loaded = mlflow.pyfunc.load_model(f"models:/{model}")
    np.testing.assert_array_equal(
        loaded.predict(store.read(0, 150).dense()), load_model(folder / "m.zarr").predict(store)
    )


def test_a_run_that_was_interrupted_says_so(tmp_path):
    (tmp_path / "cut").mkdir()
    lines = [{"event": "start", "t": 0.0}, {"event": "failed", "t": 1.0, "message": "KeyboardInterrupt"}]
    (tmp_path / "cut" / "events.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    with mlflow.start_run() as outer:
        found = mlflow.get_run(log_run(tmp_path / "cut"))
    assert found.info.status == "KILLED"
    assert found.data.tags["mlflow.parentRunId"] == outer.info.run_id
    with pytest.raises(NotFoundError):
        log_run(tmp_path / "none")


def test_steps_are_logged_while_a_fit_is_at_work(tmp_path):
    X, y = load_iris(return_X_y=True)
    config = build_config(("test", {"solver": "cutting-plane", "kernel": {"name": "linear"}}))
    with mlflow.start_run() as active:
        train(Store.from_arrays(X, y), config, model_path=tmp_path / "m", events=Events(Log()))
    metrics = mlflow.get_run(active.info.run_id).data.metrics
    assert metrics["step.gap"] < 1
    assert metrics["step.planes"] > 1
