"""Which solver, kernel and class weights a fit chooses."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from clusters import inside
from making import write

from streamsvm import DCSVC
from streamsvm.choosing.metric_search import Trial
from streamsvm.choosing.time_budget import FitTimes
from streamsvm.choosing.trials import TrialSettings
from streamsvm.config import KernelConfig, build_config
from streamsvm.data.metric import Metric
from streamsvm.data.rows import Rows
from streamsvm.data.store import Store
from streamsvm.errors import ConfigError, DataError
from streamsvm.events import Event, Events, Progress, Record, ignore
from streamsvm.fits.prepare import prepare
from streamsvm.kernels.distance import RBF
from streamsvm.options.layers import read_layer
from streamsvm.parallel.engine import Engine
from streamsvm.search.options import completed
from streamsvm.train import train, train_in_memory

FEW: dict[str, Any] = {"threads": 2, "metric": {"kind": "none"}}
LINEAR: dict[str, Any] = FEW | {"search": {"options": ["solver", "kernel", "C"]}}


def halves(n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Two classes on the sides of a plane."""
    X = np.random.default_rng(seed).normal(size=(n, 40)).astype(np.float32)
    return X, (X.sum(axis=1) > 0).astype(int)


def unbalanced(n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """One row of twelve is of the second class, whose rows are among those of the first."""
    rng = np.random.default_rng(seed)
    y = (rng.random(n) < 0.08).astype(int)
    return rng.normal(size=(n, 4)) + y[:, None], y


def test_where_a_linear_kernel_is_best_cutting_planes_learn_and_the_file_repeats_it(tmp_path: Path):
    X, y = halves(400)
    store = write(tmp_path / "s.zarr", Rows(X), y)
    report = train(store, completed([("t", LINEAR)]), model_path=tmp_path / "m.zarr")
    assert (report["metric"]["kernel"], report["solver"]) == ("linear", "cutting-plane")
    again = completed([read_layer(report["config"])])
    assert again.solver == "cutting-plane"
    repeated = train(store, again, model_path=tmp_path / "m2.zarr")
    assert (repeated["objective"], repeated["n_support"]) == (report["objective"], report["n_support"])


def test_a_search_that_is_interrupted_resumes_at_its_last_step(tmp_path: Path):
    X, y = halves(400)
    store, steps = write(tmp_path / "s.zarr", Rows(X), y), list[int]()

    def hear(record: Record[Event]) -> None:
        if isinstance(record.event, Progress) and record.event.phase == "search":
            steps.append(int(record.event.done))
            if len(steps) == 3:
                raise KeyboardInterrupt

    run = {"model_path": tmp_path / "m.zarr", "run_dir": tmp_path / "run", "events": Events(hear)}
    with pytest.raises(KeyboardInterrupt):
        train(store, completed([("t", LINEAR)]), **run)
    train(store, completed([("t", LINEAR)]), **run, resume=True)
    assert steps[:4] == [1, 2, 3, 4]


def test_a_solver_that_is_not_asked_for_stays():
    config = completed([("t", LINEAR | {"search": {"options": ["kernel", "C"]}})])
    _, report = train_in_memory(Store.from_arrays(*halves(400)), config)
    assert (report["metric"]["kernel"], report["solver"]) == ("linear", "dcsvm")


def test_under_balanced_accuracy_classes_are_weighted_and_expected_to_be():
    (X, y), (new, truth) = unbalanced(900), unbalanced(4000, seed=1)
    by = {}
    for scoring in ("accuracy", "balanced_accuracy"):
        config = completed([("t", FEW | {"kernel": {"name": "rbf"}, "search": {"scoring": scoring}})])
        model, report = train_in_memory(Store.from_arrays(X, y), config)
        recalls = [np.mean(model.predict(Rows(new[truth == c])) == c) for c in (0, 1)]
        by[scoring] = np.mean(recalls), report
    (plain, _), (balanced, report) = by.values()
    assert balanced > plain + 0.1
    assert report["metric"]["class_weight"] == "balanced"
    expected = report["expected"]
    assert expected["scoring"] == "balanced_accuracy"
    assert expected["low"] - 0.02 < balanced < expected["high"] + 0.02
    assert expected["score"] == pytest.approx(balanced, abs=0.08)


@pytest.mark.slow  # processes have to start
@pytest.mark.parametrize(
    ("data", "options", "chosen"),
    [
        (halves(400), LINEAR, {"solver": "cutting-plane"}),
        (
            unbalanced(600),
            {"metric": {"kind": "none"}, "search": {"scoring": "balanced_accuracy"}},
            {"class_weight": "balanced"},
        ),
    ],
    ids=["linear", "weights"],
)
def test_on_a_cluster_the_same_is_chosen(data, options, chosen):
    found = []
    with inside() as scheduler:
        for where in ({"threads": 2}, {"threads": None, "scheduler": scheduler}):
            model, report = train_in_memory(Store.from_arrays(*data), completed([("t", options | where)]))
            assert chosen.items() <= model.header.config.items()
            steps = [{k: v for k, v in step.items() if k != "seconds"} for step in report["metric"]["rungs"]]
            found.append((steps, report["objective"]))
    assert found[0] == found[1]


def test_an_estimator_s_class_weights_may_be_searched():
    X, y = unbalanced(500)
    svm = DCSVC(class_weight="search", C=3.0, gamma=0.2, search_params={"scoring": "balanced_accuracy"})
    assert svm.fit(X, y).chosen_ == {"class_weight": "balanced"}
    assert svm.expected_["scoring"] == "balanced_accuracy"


def test_a_score_of_classes_is_not_one_of_numbers():
    X, _ = unbalanced(100)
    config = completed([("t", {"task": "regress", "search": {"scoring": "balanced_accuracy"}})])
    with pytest.raises(ConfigError, match="search.scoring is 'balanced_accuracy', which is for classes"):
        train_in_memory(Store.from_arrays(X, X[:, 0]), config)


@pytest.mark.parametrize(
    ("options", "most_s"),
    [
        ({"solver": "bsgd", "bsgd": {"budget": 100}}, 15.0),
        ({"solver": "cutting-plane", "kernel": {"name": "linear"}}, 10.0),
        ({"solver": "admm-hss"}, 10.0),  # takes as many rows as there is time for
        ({"solver": "dcsvm", "dcsvm": {"early": False}}, 1e5),
    ],
)
def test_a_fit_of_passes_takes_as_long_as_they_do(options, most_s):
    """Not as long as an exact one, which would have it learn from fewer rows."""
    speed = FitTimes([{"rows": 10_000, "support": 4000, "seconds": 2.0}], 1)
    config = completed([("t", options)])
    assert most_s / 10 < speed.least_fit_s(1_000_000, config, pass_s=0.1) < most_s


def far(n: int, *, broken: int = 0, rises: bool = False, seed: int = 0) -> np.ndarray:
    """Rows in six clumps whose columns lie at 4,000 to 4,600, with a spread of 30.

    broken: values in the hundred thousands. rises: the first half of the rows lies at 0.
    """
    rng = np.random.default_rng(seed)
    Z = rng.normal(size=(6, 5))[np.arange(n) % 6] + 0.4 * rng.normal(size=(n, 5))
    X = np.linspace(4000, 4600, 5) * (np.arange(n)[:, None] >= n // 2 if rises else 1) + 30 * Z
    X[rng.choice(n, broken, replace=False), rng.integers(0, 5, broken)] = rng.uniform(1e5, 7e5, broken)
    return X


PLAIN, BROKEN, HALVES = far(600), far(600, broken=4), np.arange(600) % 6 % 2
GAPS = np.where(np.arange(3000).reshape(600, 5) % 97, PLAIN, np.nan)
FAR_TABLES: dict[str, tuple[np.ndarray, np.ndarray, dict[str, Any]]] = {
    "plain": (PLAIN, HALVES, {}),
    "unscaled": (PLAIN, HALVES, {"scale": "none"}),
    "broken and unscaled": (BROKEN, np.arange(600) % 3, {"scale": "none", "kernel": {"name": "rbf"}}),
    "rising": (far(600, rises=True), HALVES, {"kernel": {"name": "rbf"}}),
    "filled": (GAPS, HALVES, {"gaps": "median", "kernel": {"name": "matern"}}),
    "marked": (GAPS, HALVES, {"mark_gaps": True, "kernel": {"name": "rbf"}}),
    "quantiles": (BROKEN, HALVES, {"scale": "quantile", "kernel": {"name": "rbf"}}),
    "metric": (
        PLAIN,
        HALVES,
        {"metric": {"kind": "diagonal", "factor": [0.01, 0.02, 0.01, 0.03, 0.02]}, "kernel": {"gamma": 1.0}},
    ),
    "learned": (BROKEN, HALVES, {"metric": {"kind": "diagonal"}, "kernel": {"name": "rbf"}}),
    "polynomial": (
        PLAIN,
        HALVES,
        {
            "kernel": {"name": "poly", "degree": 2},
            "scale": "minmax",
            "search": {"trials": 2, "options": ["C"]},
        },
    ),
    "numbers": (BROKEN, PLAIN[:, 0] / 30 - PLAIN[:, 1] / 30, {"task": "regress", "kernel": {"name": "rbf"}}),
}


@pytest.mark.parametrize("name", FAR_TABLES)
def test_what_was_chosen_is_what_is_trained(name):
    """As where the same options are given: preparing does not depend on who chose them."""
    X, y, options = FAR_TABLES[name]
    store = Store.from_arrays(X, y)
    config = completed([("t", FEW | {"search": {"trials": 4}} | options)])
    model, report = train_in_memory(store, config, ignore)
    chosen = build_config(("t", model.header.config | {"search": {"options": []}}))
    anew = prepare(store, chosen, Engine(1))
    assert anew.kernel == model.header.kernel
    for given, trained in zip(*(s.to_arrays().items() for s in (anew.scaling, model.header.scaling)), strict=True):
        assert given[0] == trained[0]
        np.testing.assert_array_equal(given[1], trained[1])
    rows = Rows(X)
    if name == "numbers":
        score = 1 - np.mean((model.predict(rows) - y) ** 2) / y.var()
    else:
        score = np.mean(model.predict(rows) == y)
    assert score >= report["expected"]["low"]


def test_gamma_as_given_is_tried_as_all_rows_have_made_it():
    """A sample may lack the broken values that make it small."""
    typical, ones = Rows(PLAIN.astype(np.float32)), np.ones(5)
    learner = TrialSettings(KernelConfig(name="rbf"), None, typical, given=(Metric(ones), RBF(gamma=1e-8)))
    given = Trial("rbf", math.nan, 1.0)
    assert learner.kernel(given, Metric(ones)).gamma == 1e-8
    assert learner.kernel(given, Metric(ones * 2)).gamma > 1e-7
    assert learner.kernel(replace(given, gamma=1.0), Metric(ones)).gamma > 1e-7


@pytest.mark.parametrize("size", [1e20, 1e30, 1e100])
@pytest.mark.parametrize("kind", ["none", "diagonal"])
def test_scales_at_which_kernels_overflow_are_dropped(size, kind):
    """No warning of NumPy, which would be an error here."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 2)) * [size, 1.0]
    y = (X[:, 0] / size + X[:, 1] > 0).astype(int)
    options = {"options": ["kernel", "gamma", "C", "scale", *(["metric"] if kind != "none" else [])]}
    model, report = train_in_memory(
        Store.from_arrays(X, y), completed([("t", {"search": options, "metric": {"kind": kind}})])
    )
    assert report["metric"]["failed"] > 0
    assert report["metric"]["scale"] == "standard"
    assert "given_score" not in report["metric"]
    assert np.mean(model.predict(Rows(X)) == y) > 0.95


@pytest.mark.parametrize("options", [(), ("C", "gamma")])
def test_values_beyond_all_scales_are_named(options):
    X = np.random.default_rng(0).normal(size=(200, 2)) * [1.0, 1e160]
    with pytest.raises(DataError, match="column 1 has values up to .*e\\+160, expected at most 1e\\+150"):
        train_in_memory(Store.from_arrays(X, X[:, 0] > 0), completed([("t", {"search": {"options": options}})]))


def test_what_cannot_be_chosen_is_said():
    store = Store.from_arrays(np.random.default_rng(0).normal(size=(60, 2)))
    config = completed([("t", {"task": "oneclass", "nu": 0.1, "search": {"options": ["C"], "sample": 100}})])
    with pytest.raises(ConfigError, match="nothing is chosen for task oneclass"):
        train_in_memory(store, config)


def test_a_choice_that_is_no_better_than_the_most_frequent_label_is_said(
    tmp_path: Path, recwarn: pytest.WarningsRecorder
):
    """An accuracy of 92 % looks well where 92 of 100 rows are of one class."""
    rng = np.random.default_rng(0)
    y = np.array(["fine", "bad"])[(rng.random(600) < 0.08).astype(int)]
    store = Store.from_arrays(rng.normal(size=(600, 4)), y)
    with pytest.warns(
        UserWarning, match=r"no better, beyond chance, than by their most frequent label, fine \(9\d\.\d %"
    ):
        train_in_memory(store, completed([("t", LINEAR)]))
    balanced = {"search": {"options": ["kernel", "C"], "scoring": "balanced_accuracy"}}
    train_in_memory(store, completed([("t", FEW | balanced)]))
    train_in_memory(Store.from_arrays(*halves(400)), completed([("t", LINEAR)]))  # clearly better
    assert [str(w.message) for w in recwarn if "beyond chance" in str(w.message)] == []
