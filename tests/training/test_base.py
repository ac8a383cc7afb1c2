"""What every fit keeps: the time that it has, whatever its solver."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from streamsvm import Store
from streamsvm.config import build_config
from streamsvm.data.rows import Rows
from streamsvm.events import Event, Events, Record, Warned
from streamsvm.train import Run, learned, with_task

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
    [(model, report)] = learned(store, with_task(config, store), Run(Events(hear), until=0.0))
    assert report["converged"] is (None if name.startswith("bsgd") else False)
    assert any(isinstance(e, Warned) and "the time budget ended it" in e.message for e in said)
    assert np.mean(model.predict(Rows(X.astype(np.float32))) == y) > (0.3 if k == 10 else 0.8)
