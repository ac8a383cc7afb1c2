"""MLflow's autologging: each fit is a run with its parameters, scores, report and model, and off again."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of its own dependencies
    mlflow = pytest.importorskip("mlflow", reason="needs MLflow: pip install mlflow-skinny")

from sklearn.datasets import load_diabetes, load_iris

from streamsvm import ALFPGMSVC, DCSVC, BudgetedSVR, CuttingPlaneSVC
from streamsvm.estimators.mlflow import autolog

pytestmark = pytest.mark.filterwarnings("ignore")  # MLflow's own
X, Y = load_iris(return_X_y=True)


@pytest.fixture(autouse=True)
def _server(tmp_path, monkeypatch):
    """A folder in place of a server."""
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    mlflow.set_tracking_uri((tmp_path / "mlruns").as_uri())
    autolog()
    yield
    autolog(disable=True)
    while mlflow.active_run():
        mlflow.end_run()


def runs():
    return mlflow.search_runs(output_format="list")


def test_a_fit_logs_parameters_scores_report_and_model():
    svm = DCSVC(C=10.0).fit(X, Y)
    [run] = runs()
    assert mlflow.active_run() is None
    assert (run.info.run_name, run.info.status) == ("DCSVC", "FINISHED")
    assert run.data.tags["estimator_class"] == "streamsvm.estimators.dcsvm.DCSVC"
    assert (run.data.params["C"], run.data.params["kernel"], run.data.params["solver"]) == (
        "10.0",
        "rbf",
        "dcsvm",
    )
    assert run.data.metrics["training.accuracy"] == svm.score(X, Y)
    assert run.data.metrics["result.objective"] == svm.objective_
    page = mlflow.MlflowClient().download_artifacts(run.info.run_id, "report.html")
    assert "<title>DCSVC" in Path(page).read_text(encoding="utf-8")
    (model,) = run.outputs.model_outputs
    loaded = mlflow.pyfunc.load_model(f"models:/{model.model_id}")
    np.testing.assert_array_equal(loaded.predict(X), svm.predict(X))


def test_runs_are_nested_in_the_one_that_is_active():
    autolog(log_models=False)
    with mlflow.start_run() as outer:
        ALFPGMSVC().fit(X, Y)
        BudgetedSVR().fit(*load_diabetes(return_X_y=True))
        assert mlflow.active_run().info.run_id == outer.info.run_id
    inner = [run for run in runs() if run.info.run_id != outer.info.run_id]
    assert {run.info.run_name for run in inner} == {"ALFPGMSVC", "BudgetedSVR"}
    assert {run.data.tags["mlflow.parentRunId"] for run in inner} == {outer.info.run_id}
    assert not any(run.outputs and run.outputs.model_outputs for run in inner)
    [regression] = [run for run in inner if run.info.run_name == "BudgetedSVR"]
    assert regression.data.metrics["training.r2"] < 1


def test_a_fit_that_fails_is_a_run_that_failed():
    with pytest.raises(ValueError, match="C"):
        CuttingPlaneSVC(C=-1.0).fit(X, Y)
    [run] = runs()
    assert run.info.status == "FAILED"
    assert run.data.params["C"] == "-1.0"
    assert mlflow.active_run() is None


def test_off_again_and_without_a_server_the_fit_goes_on(monkeypatch):
    plain = DCSVC.fit
    autolog(disable=True)
    assert DCSVC.fit is plain.__wrapped__
    DCSVC().fit(X, Y)
    assert runs() == []
    autolog()

    def refused(*args, **options):
        raise mlflow.exceptions.MlflowException("no server")

    monkeypatch.setattr(mlflow, "start_run", refused)
    with pytest.warns(UserWarning, match="not logged in full .no server"):
        assert DCSVC().fit(X, Y).score(X, Y) > 0.9
