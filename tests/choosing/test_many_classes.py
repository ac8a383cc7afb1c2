"""Many classes: whether a fit chooses pairs of them, or each against the rest."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from conftest import DATA
from making import write
from sklearn.datasets import load_digits, load_svmlight_file

from streamsvm import AutoSVC, Store, load_model
from streamsvm.choosing import against_rest
from streamsvm.choosing.against_rest import CONSTANT, TOL, is_linear, solved
from streamsvm.choosing.metric_search import REST
from streamsvm.choosing.time_budget import FitTimes
from streamsvm.config import build_config
from streamsvm.data.rows import Rows
from streamsvm.fits.prepare import prepare, with_task
from streamsvm.kernels.distance import RBF
from streamsvm.kernels.inner import Linear
from streamsvm.options.layers import read_layer
from streamsvm.parallel.engine import Engine
from streamsvm.search.options import completed
from streamsvm.tasks import task_of
from streamsvm.train import train, train_in_memory

K = 24


def groups(k: int = K, rows: int = 6, d: int = 20) -> tuple[np.ndarray, np.ndarray]:
    """k classes, each about a point of its own."""
    rng = np.random.default_rng(0)
    y = np.arange(k).repeat(rows)
    X = 2 * rng.normal(size=(k, d))[y] + rng.normal(size=(len(y), d))
    return X.astype(np.float32), y


def data(X: np.ndarray, y: np.ndarray, **options: Any) -> Any:
    store = Store.from_arrays(X, y)
    return prepare(store, with_task(build_config(("t", {"threads": 1} | options)), store), Engine(1))


@pytest.mark.parametrize(
    ("k", "left_s", "expected"),
    [
        (19, 20.0, ("",)),
        (20, 20.0, ("", REST)),
        (105, 20.0, ("", REST)),
        (200, 20.0, (REST,)),  # pairs would take all of the time
        (200, math.inf, ("", REST)),
        (300, math.inf, (REST,)),
    ],
)
def test_of_many_classes_each_is_tried_against_the_rest_and_of_too_many_no_pairs(k, left_s, expected):
    config, pairs, rest = completed([]), task_of("classify"), task_of("classify").by(REST)
    prepared: Any = SimpleNamespace(classes=np.arange(k), task=pairs, config=config)
    assert against_rest.ways(prepared, left_s) == expected
    given = completed([("t", {"multiclass": "pairs"})])
    for fixed in ({"task": rest}, {"config": given}):
        assert against_rest.ways(SimpleNamespace(**vars(prepared) | fixed), left_s) == ("",)


def test_a_linear_trial_is_solved_to_its_gap():
    X, y = groups()
    dual_data = data(X, y, C=0.1, multiclass="rest").dual_data
    assert is_linear(Linear(), dual_data, squared=False)
    assert not is_linear(RBF(gamma=1.0), dual_data, squared=False)
    assert not is_linear(Linear(), dual_data, squared=True)
    assert not is_linear(Linear(), data(X, y).dual_data, squared=False)
    alpha, bias = solved(Rows(X), dual_data, np.zeros((len(y), K)))
    ones = np.hstack([X.astype(np.float64), np.full((len(y), 1), CONSTANT)])
    for c in range(K):
        signs = np.where(y == c, 1.0, -1.0)
        w = ones.T @ (signs * alpha[:, c])
        primal = w @ w / 2 + 0.1 * np.maximum(0, 1 - signs * (ones @ w)).sum()
        assert primal - (alpha[:, c].sum() - w @ w / 2) <= TOL * primal + 1e-9
        assert CONSTANT * w[-1] == pytest.approx(bias[c])
    assert np.all((alpha >= 0) & (alpha <= 0.1))
    again, _ = solved(Rows(X), dual_data, alpha.copy())  # a warm start stays solved
    assert np.abs(again - alpha).max() <= 0.1


@pytest.mark.slow  # a hundred classes
def test_sparse_text_of_many_classes_is_separated_from_the_rest_and_the_file_repeats_it(tmp_path: Path):
    if not DATA.exists():
        pytest.skip(f"no data at {DATA}")
    X, y = load_svmlight_file(DATA / "sector.bz2")
    ids = np.sort(np.random.default_rng(0).permutation(len(y))[:1500])
    store = write(tmp_path / "s.zarr", Rows(X[ids].astype(np.float32)), y[ids])
    options = {"threads": 2, "tol": 0.01, "search": {"trials": 2}}
    report = train(store, completed([("t", options)]), model_path=tmp_path / "m.zarr")
    assert (report["metric"]["kernel"], report["metric"]["multiclass"]) == ("linear", "rest")
    assert report["solver"] == "cutting-plane"
    scores = {step["multiclass"]: step["score"] for step in report["metric"]["rungs"]}
    assert scores["rest"] > scores[""]
    again = completed([read_layer(report["config"])])  # without an option that the solver does not read
    assert (again.solver, again.C) == ("cutting-plane", report["metric"]["C"])
    Xt, yt = load_svmlight_file(DATA / "sector.t.bz2", n_features=X.shape[1])
    predicted = load_model(tmp_path / "m.zarr").predict(Rows(Xt.astype(np.float32)))
    assert np.mean(predicted == yt) > 0.74  # 0.67 by pairs


def test_of_too_many_pairs_all_kernels_are_against_the_rest(monkeypatch, tmp_path: Path):
    monkeypatch.setattr(against_rest, "MOST_S", 0.1)  # 276 pairs would take longer
    X, y = groups()
    store = write(tmp_path / "s.zarr", Rows(X), y)
    options = {"threads": 2, "kernel": {"name": "rbf"}, "search": {"trials": 1}}
    report = train(store, completed([("t", options)]), model_path=tmp_path / "m.zarr")
    config = load_model(tmp_path / "m.zarr").header.config
    assert (config["multiclass"], config["solver"], report["metric"]["multiclass"]) == ("rest", "dcsvm", "rest")
    again = completed([read_layer(report["config"])])
    repeated = train(store, again, model_path=tmp_path / "m2.zarr")
    assert repeated["objective"] == report["objective"]
    svm = AutoSVC(search_params={"trials": 1}).fit(X, y)
    assert svm.chosen_["solver"] == "cutting-plane" or svm.chosen_["multi_class"] == "ovr"


@pytest.mark.parametrize("given", [{}, {"multiclass": "pairs"}], ids=["few classes", "given"])
def test_few_classes_and_what_is_given_stay(given):
    X, y = groups() if given else load_digits(return_X_y=True)
    options = {"threads": 2, "search": {"trials": 1}} | given
    model, report = train_in_memory(Store.from_arrays(X[:300], y[:300]), completed([("t", options)]))
    assert "multiclass" not in report["metric"]
    assert {step["multiclass"] for step in report["metric"]["rungs"]} == {""}
    assert model.header.config["multiclass"] == "pairs"


def test_each_pair_takes_time_in_a_fit():
    X, y = groups(k=60, rows=2)
    prepared = data(X, y)
    step = {"rows": 100, "support": 90, "seconds": 0.1, "kernel": "rbf", "multiclass": "", "score": 0.8}
    rest = {**step, "multiclass": REST, "score": 0.9}
    by_pairs, by_rest = (FitTimes.of(steps, prepared) for steps in ([rest | {"score": 0.7}, step], [step, rest]))
    assert (by_pairs.problems, by_rest.problems) == (1770, 60)
    assert [each["multiclass"] for each in by_rest.steps] == [REST]
    assert by_pairs.fit_s(120, 120) - replace(by_pairs, problems=0).fit_s(120, 120) > 1.7
