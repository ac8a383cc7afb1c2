"""Duals of other losses: one model for any number of threads, wherever the rows are, and after any interruption."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
from cases import EARLY, EVERY_STEP, SMALL, labelled
from making import write
from stepwise import train_by_single_steps

from streamsvm.config import FitConfig, build_config
from streamsvm.data.rows import Rows
from streamsvm.data.store import Store
from streamsvm.fits.dcsvm import DCSVMFit
from streamsvm.models.files import load_model
from streamsvm.train import train_in_memory

SQUARED = {"loss": "squared"}
DUALS: dict[str, dict[str, Any]] = {
    "squared hinge": {"dcsvm": SMALL["dcsvm"] | SQUARED},
    "squared hinge, a bias, early": {"dcsvm": EARLY | SQUARED | {"bias": True}},
    "squared epsilon": {"task": "regress", "dcsvm": SMALL["dcsvm"] | SQUARED},
    "squared epsilon, early": {"task": "regress", "dcsvm": EARLY | SQUARED},
    "nu-SVC": {"C": 1.0, "nu": 0.3, "dcsvm": SMALL["dcsvm"]},
    "nu-SVC, early": {"C": 1.0, "nu": 0.3, "dcsvm": EARLY},
    "nu-SVR": {"task": "regress", "nu": 0.4, "dcsvm": SMALL["dcsvm"]},
    "nu-SVR, early": {"task": "regress", "nu": 0.4, "dcsvm": EARLY},
}
pytestmark = pytest.mark.filterwarnings("ignore:.*more than the classes of some partitions")
every = pytest.mark.parametrize("name", DUALS)


def options(name: str, **values: Any) -> FitConfig:
    common = {"C": 2.0, "kernel": {"gamma": 0.5}, "threads": 2}
    return build_config(("test", common), ("dual", DUALS[name]), ("own", values))


def data(name: str, n: int = 600, k: int = 3) -> tuple[np.ndarray, np.ndarray]:
    X, y = labelled(k, n)
    is_regression = DUALS[name].get("task") == "regress"
    return X, (np.sin(2 * X[:, 0]) + X[:, 1] if is_regression else y)


@cache
def in_memory(name: str) -> tuple[np.ndarray, dict[str, Any]]:
    X, y = data(name)
    model, report = train_in_memory(Store.from_arrays(X, y), options(name))
    return model.decision_function(Rows(X)), report


@every
def test_one_thread_gives_the_same_bits(name):
    X, y = data(name)
    model, report = train_in_memory(Store.from_arrays(X, y), options(name, threads=1))
    np.testing.assert_array_equal(model.decision_function(Rows(X)), in_memory(name)[0])
    assert report["objective"] == in_memory(name)[1]["objective"]


@every
def test_folds_are_not_solved_as_those_of_other_duals(name):
    config = options(name, dcsvm={"early": False, "levels": None})
    assert not DCSVMFit.shares_folds(600, config)
    assert DCSVMFit.shares_folds(600, FitConfig())


@every
@pytest.mark.slow  # fits over files
def test_rows_in_files_give_the_same_model(name, monkeypatch, tmp_path):
    X, y = data(name)
    monkeypatch.setattr("streamsvm.fits.divided.stay_in_memory", lambda *_: False)
    store = write(tmp_path / "s.zarr", Rows(X), y, step=100, chunk_rows=100)
    model, report = train_in_memory(store, options(name))
    expected, told = in_memory(name)  # margins are float64 sums, of rows in another order
    np.testing.assert_allclose(model.decision_function(Rows(X)), expected, rtol=0, atol=1e-9)
    assert report["objective"] == pytest.approx(told["objective"], rel=1e-9)


@every
@pytest.mark.slow  # as many fits as steps
def test_stopped_after_every_step_it_is_the_same(name, tmp_path):
    X, y = data(name, 150, k=2)
    store = write(tmp_path / "s.zarr", Rows(X), y, step=100, chunk_rows=100)
    each = options(name, **EVERY_STEP)
    whole, _ = train_in_memory(store, each)
    assert train_by_single_steps(store, each, tmp_path / "model", tmp_path / "run") > 3
    found = load_model(tmp_path / "model").decision_function(Rows(X))
    np.testing.assert_array_equal(found, whole.decision_function(Rows(X)))
