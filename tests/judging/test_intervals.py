"""Intervals of whole fits: models know nothing of the rows that tell of them, and these keep what they promise."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from cases import config
from clusters import inside
from every_case import every_case
from making import write
from scipy.stats import betabinom
from sklearn.datasets import load_diabetes
from stepwise import train_by_single_steps

from streamsvm.config import FitConfig, build_config
from streamsvm.data.rows import Rows
from streamsvm.data.store import Store
from streamsvm.errors import ConfigError
from streamsvm.events import Events, HeldOut, ignore
from streamsvm.fits import divided
from streamsvm.fits.prepare import prepare
from streamsvm.models.files import load_model
from streamsvm.parallel.engine import Engine
from streamsvm.predict import evaluate
from streamsvm.train import graph_of, plan, train, train_in_memory

WAYS = (
    "dcsvm",
    "dcsvm early",
    "several parts",
    "part metrics",
    "nu",
    "squared losses",
    "alfpgm",
    "one learner",
)
N, KEPT = 600, 129  # a fifth, and 9 rows more: 0.9 of 130 is whole


def numbers(n: int = N, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3)).astype(np.float32)
    return X, 40 + 7 * (np.sin(2 * X[:, 0]) + X[:, 1] + 0.2 * rng.normal(size=n))


def options(name: str = "alfpgm", **more: Any) -> FitConfig:
    return config(name, **{"task": "regress", "interval": 0.9, "scale": "standard"} | more)


def kept_ids(store: Store) -> np.ndarray:
    """By their rows, all of which differ."""
    kept = prepare(store, options(), Engine(1)).held_out
    assert kept is not None
    places = {row.tobytes(): i for i, row in enumerate(store.read(0, store.n).X)}
    return np.array([places[row.tobytes()] for row in kept.rows.X])


@pytest.mark.parametrize("name", [*WAYS, "bsgd", "admm-hss", "cutting-plane"])
def test_a_model_knows_nothing_of_the_rows_that_tell_of_intervals(name, tmp_path):
    X, t = numbers()
    ids = kept_ids(Store.from_arrays(X, t))
    other, told = X.copy(), t.copy()
    other[ids], told[ids] = 50 + 9 * X[ids], -3 * t[ids]
    train(Store.from_arrays(X, t), options(name), model_path=tmp_path / "m", events=ignore)
    one = load_model(tmp_path / "m")
    two, report = train_in_memory(Store.from_arrays(other, told), options(name), ignore)
    np.testing.assert_array_equal(one.decision_function(X), two.decision_function(X))
    assert (report["n"], report["interval"]["rows"]) == (N - KEPT, KEPT)
    for model, rows, labels in ((one, X[ids], t[ids]), (two, other[ids], told[ids])):
        errors = np.sort(np.abs(labels - model.decision_function(rows)))
        np.testing.assert_allclose(model.intervals.errors, errors, rtol=1e-6, atol=1e-5)
    q = one.intervals.errors[int(np.ceil(0.9 * (KEPT + 1))) - 1]
    f = one.decision_function(X)
    np.testing.assert_array_equal(one.predict_interval(X), np.stack([f - q, f + q], axis=1))


def test_coverage_of_fits_has_its_beta_law():
    m, rows, inside = 39, 500, []
    for seed in range(25):
        X, t = numbers(200 + rows, seed)
        train_rows, test = Store.from_arrays(X[:200], t[:200]), Store.from_arrays(X[200:], t[200:])
        model, _ = train_in_memory(train_rows, options(holdout=m, seed=seed), ignore)
        inside.append(evaluate(model, test, engine=Engine(1))["coverage"] * rows)
    law = betabinom(rows, 36, 4)  # k = 36 of 39
    assert abs(np.mean(inside) - law.mean()) < 4 * law.std() / 5
    assert law.ppf(1e-4) <= min(inside) <= max(inside) <= law.ppf(1 - 1e-4)
    assert 0.5 < np.std(inside) / law.std() < 1.6


@pytest.mark.parametrize("seed", range(3))
def test_rows_of_the_world_are_covered(seed):
    """Splits of the same rows: of so many that a function was not trained on, those inside follow the same law."""
    X, t = load_diabetes(return_X_y=True)
    order = np.random.default_rng(seed).permutation(len(t))
    fitted, test = order[:292], order[292:]
    model, report = train_in_memory(
        Store.from_arrays(X[fitted], t[fitted]), options(seed=seed, kernel={"gamma": 0.05}), ignore
    )
    m = report["interval"]["rows"]
    assert m == 59
    k = 54  # 0.9 of 60
    ends = model.predict_interval(X[test])
    inside = np.count_nonzero((ends[:, 0] <= t[test]) & (t[test] <= ends[:, 1]))
    law = betabinom(len(test), k, m + 1 - k)
    assert law.ppf(1e-3) <= inside <= law.ppf(1 - 1e-3)


def test_the_graph_of_a_fit_tells_the_same_intervals(tmp_path, monkeypatch):
    monkeypatch.setattr(divided, "STREAMED_SHARE", 1e12)
    store = write(tmp_path / "s", Rows(numbers()[0]), numbers()[1], step=100, chunk_rows=70)
    own = options("dcsvm early")
    expected, _ = train_in_memory(store, own, ignore)
    found = graph_of(store, own).compute(scheduler="synchronous")
    np.testing.assert_array_equal(found.intervals.errors, expected.intervals.errors)
    np.testing.assert_array_equal(found.predict_interval(store), expected.predict_interval(store))


@pytest.mark.parametrize("name", ["dcsvm", "dcsvm early", "one learner"])
@pytest.mark.slow  # several fits each
def test_a_resumed_fit_keeps_the_same_rows_out(name, tmp_path):
    store = write(tmp_path / "s", Rows(numbers()[0]), numbers()[1], step=100, chunk_rows=70)
    own = options(name, checkpoint_every="1 step")
    assert train_by_single_steps(store, own, tmp_path / "m", tmp_path / "run") > 2
    whole, _ = train_in_memory(store, own, ignore)
    np.testing.assert_array_equal(load_model(tmp_path / "m").intervals.errors, whole.intervals.errors)


@pytest.mark.slow  # fits on a cluster
@pytest.mark.parametrize("name", ["dcsvm", "dcsvm early", "bsgd"])
def test_workers_tell_the_same_intervals(name, tmp_path):
    store = write(tmp_path / "s", Rows(numbers()[0]), numbers()[1], step=100, chunk_rows=70)
    expected, _ = train_in_memory(store, options(name), ignore)
    with inside() as scheduler:
        train(store, options(name, threads=None, scheduler=scheduler), model_path=tmp_path / "m", events=ignore)
    found = load_model(tmp_path / "m")
    np.testing.assert_array_equal(found.intervals.errors, expected.intervals.errors)
    np.testing.assert_array_equal(found.predict(store), expected.predict(store))


@pytest.mark.parametrize("name", ["dcsvm", "alfpgm", "admm-hss"])
@pytest.mark.parametrize("more", [{}, {"rows": 150}, {"interval": None, "rows": 150}])
def test_support_vectors_are_numbered_among_all_rows(name, more):
    X, t = numbers()
    whole = Store.from_arrays(X, t)
    for store in (whole, whole.subset(np.arange(100, N))):  # a part of another store has numbers, too
        model, _ = train_in_memory(store, options(name, scale="none", **more), ignore)
        np.testing.assert_array_equal(model.support.X, store.take(model.ids).X)


@pytest.mark.parametrize("more", [{"interval": 0.9}, {"interval": None, "holdout": 90}])
def test_some_of_the_rows_are_told_to_reports(more):
    seen: list[Any] = []
    X, t = numbers(2 * N)
    model, _ = train_in_memory(
        Store.from_arrays(X, t), options(**more), Events(lambda record: seen.append(record.event))
    )
    [event] = [event for event in seen if isinstance(event, HeldOut)]
    assert event.rows == more.get("holdout", 249)
    assert np.abs(np.diff(event.points)).mean() < 5
    own = model.intervals and model.intervals.half_width()
    assert (event.level, event.half_width) == (more["interval"], own)


@every_case(
    ("n", "more", "message"),
    [
        (
            N,
            {"task": "classify"},
            "interval is 0.9, which needs task regress; found task classify: leave it out",
        ),
        (N, {"interval": 0.999}, "interval is 0.999, which needs 999 held-out rows, at most half"),
        (17, {}, "interval is 0.9, which needs 9 held-out rows, at most half of all; found 17 rows"),
        (N, {"holdout": 8}, "interval is 0.9, which needs 9 held-out rows; found holdout 8"),
        (N, {"holdout": 301}, "holdout is 301, expected at most half of the 600 rows"),
    ],
)
def test_what_cannot_be_kept_out_is_one_line(n, more, message):
    X, t = numbers(n)
    store = Store.from_arrays(X, t > 40 if "task" in more else t)
    with pytest.raises(ConfigError, match=message):
        train_in_memory(store, options(**more), ignore)
    if "task" not in more:
        with pytest.raises(ConfigError, match=message):
            plan(store, options(**more))


def test_values_of_a_kernel_have_no_intervals():
    with pytest.raises(ConfigError, match="probability, threshold or interval"):
        build_config(
            (
                "test",
                {"solver": "alfpgm", "task": "regress", "kernel": {"name": "precomputed"}, "interval": 0.9},
            )
        )
