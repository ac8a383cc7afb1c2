"""What every fit keeps: the time that it has, whatever its solver."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest

from streamsvm import Store
from streamsvm.config import build_config
from streamsvm.data.rows import Rows
from streamsvm.events import Event, Events, Record, Warned
from streamsvm.fits.prepare import with_task
from streamsvm.train import Run, fit_models

LINEAR = {"kernel": {"name": "linear"}}
OPTIONS: dict[str, dict[str, Any]] = {
    "alfpgm": {"tol": 1e-6, "C": 1000.0},
    "admm-hss": {"C": 1000.0},
    "admm-hss polished": {"C": 1000.0, "admm_hss": {"polish": 1000, "iterations": 1}},
    "cutting-plane": {"tol": 1e-9} | LINEAR,
    "bsgd": {"bsgd": {"epochs": 1000, "budget": 20}},
    "bsgd in partitions": {"bsgd": {"epochs": 1000, "budget": 20, "partitions": 2}},
}


def blobs(k: int) -> tuple[np.ndarray, np.ndarray]:
    """1500 rows of k classes, which overlap."""
    rng = np.random.default_rng(0)
    y = np.arange(1500) % k
    return (y[:, None] == np.arange(k)) * 2.0 + rng.normal(size=(1500, k)), y


@pytest.mark.parametrize("k", [2, 10])  # one problem, or many: 45 pairs
@pytest.mark.parametrize("name", OPTIONS)
def test_a_fit_whose_time_is_up_ends_with_a_model_and_says_so(name, k):
    X, y = blobs(k)
    store, said = Store.from_arrays(X.astype(np.float32), y), list[Event]()

    def hear(record: Record[Event]) -> None:
        said.append(record.event)

    config = build_config(("t", {"solver": name.split()[0], "threads": 1} | OPTIONS[name]))
    [(model, report)] = fit_models(store, with_task(config, store), Run(Events(hear), until=0.0))
    assert report["converged"] is (None if name.startswith("bsgd") else False)
    assert any(isinstance(e, Warned) and "the time budget ended the fit" in e.message for e in said)
    assert np.mean(model.predict(Rows(X.astype(np.float32))) == y) > (0.3 if k == 10 else 0.8)


def test_a_kernel_matrix_too_large_for_its_time_is_of_fewer_rows(monkeypatch):
    """Compressing is not ended once it has begun."""
    monkeypatch.setattr("streamsvm.fits.admm_hss.FEW_ROWS", 300)
    X, y = blobs(2)
    store, said = Store.from_arrays(X.astype(np.float32), y), list[str]()
    config = with_task(build_config(("t", {"solver": "admm-hss", "threads": 1})), store)
    events = Events(lambda record: said.append(str(record.event)))
    [(model, _)] = fit_models(store, config, Run(events, until=0.0))
    assert any("the time left is enough to learn from 300 of 1,500 rows" in text for text in said)
    assert np.mean(model.predict(Rows(X.astype(np.float32))) == y) > 0.8
    [(whole, report)] = fit_models(store, config, Run(until=time.time() + 1000))
    assert report["converged"] is True
    assert len(whole.ids) > len(model.ids)


def test_numbers_are_learned_from_few_rows_where_time_is_up():
    """Each row has two variables, and some rows of all have theirs."""
    X = np.linspace(-3, 3, 2000, dtype=np.float32)[:, None]
    t = np.sin(X[:, 0].astype(np.float64))
    options = {"solver": "alfpgm", "task": "regress", "threads": 1, "C": 100.0, "tol": 1e-6}
    config = with_task(build_config(("t", options)), store := Store.from_arrays(X, t))
    [(model, report)] = fit_models(store, config, Run(until=0.0))
    assert report["converged"] is False
    assert model.n_support <= 250
    assert np.abs(model.predict(Rows(X)) - t).mean() < 0.2
