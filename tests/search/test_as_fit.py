"""A search without a table: what a fit would choose, told as a search tells."""

from __future__ import annotations

from itertools import count
from types import SimpleNamespace

import numpy as np
import pytest

from streamsvm import Store, load_model
from streamsvm.config import validated
from streamsvm.errors import ConfigError
from streamsvm.search.options import TuneConfig, completed, points
from streamsvm.search.search import tune, tune_as_fit

FEW = ("few", {"search": {"trials": 4}, "threads": 2})


def store(n: int = 300) -> Store:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 4)).astype(np.float32)
    return Store.from_arrays(X * [1, 100, 1, 1], (X[:, 0] * X[:, 1] > 0).astype(int))


def test_the_best_is_what_the_fit_uses(tmp_path):
    config = completed([FEW])
    alone = tune_as_fit(store(), config)
    found = tune_as_fit(store(), config, model_path=tmp_path / "m", run_dir=tmp_path / "run")
    options = load_model(tmp_path / "m").header.config
    assert alone["best"] == found["best"]
    assert found["best"]["params"]["kernel.gamma"] == options["kernel"]["gamma"]
    assert found["best"]["params"]["scale"] == options["scale"] == "standard"
    assert len(alone["results"]) == 4  # as many steps as trials
    rows = [record["rows"] for record in alone["results"]]
    assert rows == sorted(rows, reverse=True)
    assert found["refit"]["metric"]["score"] == found["best"]["score"]


def test_what_leaves_nothing_to_choose_is_said():
    with pytest.raises(ConfigError, match="nothing is left out: give fewer options, or a table"):
        tune_as_fit(store(), completed([], searches=False))
    few = pytest.raises(ConfigError, match="nothing can be chosen: 20 rows are too few")
    with few, pytest.warns(UserWarning, match="Scale the features"):  # as without a search
        tune_as_fit(store(20), completed([FEW]))


def test_a_table_ends_when_its_time_is_up(monkeypatch):
    grid = {"C": [0.5, 5.0, 50.0], "kernel": {"gamma": [0.3, 1.5]}}
    tried = validated(TuneConfig, ("tune", {"grid": grid, "folds": 2, "share": False, "time_budget": 5}))
    ticks = count(0.0, 2.0)
    clock = SimpleNamespace(time=lambda: 0.0, perf_counter=lambda: 0.0)
    monkeypatch.setattr("streamsvm.search.search.time", clock)
    monkeypatch.setattr("streamsvm.search.search.is_late", lambda until: next(ticks) > until)
    monkeypatch.setattr("streamsvm.search.search.used_s", lambda: (0.0, 0.0))
    found = tune(store(), tried, points(tried, ("base", {"threads": 1})))
    assert 0 < len(found["results"]) < 6
    scored = found["results"][0]
    assert scored["mean_score"] == np.mean(scored["fold_scores"])
