"""Metrics of parts: learned where columns count differently from part to part, and left alone where they do not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from making import write
from scipy import sparse
from stepwise import train_by_single_steps

from streamsvm import DCSVC
from streamsvm.config import FitConfig, build_config
from streamsvm.data.rows import Rows
from streamsvm.data.store import Store
from streamsvm.fits import parts as partitions
from streamsvm.fits.parts import PartitionMetric, PartitionSolver, is_surely_better, refitted
from streamsvm.kernels.distance import RBF
from streamsvm.models.files import load_model
from streamsvm.problems.subproblems import DualData
from streamsvm.tasks.classify import Classify
from streamsvm.train import train, train_in_memory

D = 8


def regions(n: int, seed: int = 0, layout: str = "dense") -> tuple[Any, np.ndarray]:
    """Two heaps along column 0; in the first column 1 decides, in the second column 2; the rest is noise."""
    rng = np.random.default_rng(seed)
    X, second = rng.normal(size=(n, D)).astype(np.float32), rng.random(n) < 0.5
    X[:, 0] = np.where(second, 8.0, -8.0) + 0.1 * X[:, 0]
    decides = np.where(second, X[:, 2], X[:, 1])
    y = (np.sin(3 * decides) > 0).astype(np.int64)
    return (sparse.csr_array(X) if layout == "csr" else X), y


def config(refits: int = 2, **values: Any) -> FitConfig:
    dcsvm = {"early": True, "levels": 1, "children": 2, "part_metric": refits} | values.pop("dcsvm", {})
    own = {"C": 10.0, "tol": 1e-2, "kernel": {"gamma": 0.2}, "threads": 2, "dcsvm": dcsvm}
    return build_config(("test", own | values))


@pytest.mark.parametrize("layout", ["dense", "csr"])
def test_each_part_finds_the_columns_that_count_there(layout):
    X, y = regions(2400, layout=layout)
    model, report = train_in_memory(Store.from_arrays(X, y), config())
    plain, _ = train_in_memory(Store.from_arrays(X, y), config(0))
    new, labels = regions(1000, seed=1)
    score, without = (np.mean(m.predict(Rows(new)) == labels) for m in (model, plain))
    assert score > 0.9 > without + 0.1
    assert plain.weights is None
    first = model.partition.assign(Rows(new))[new[:, 0] < 0][0]
    assert np.argmax(model.weights[first]) == 1
    assert np.argmax(model.weights[1 - first]) == 2

    parts = report["parts"]
    assert parts["own"] == 2
    assert sum(parts["rows"]) == 2400
    assert set(parts["columns"][:2]) == {"1", "2"}
    places = [parts["columns"].index(name) for name in ("1", "2")]
    shares = np.array(parts["shares"])
    assert shares.shape == (2, D)
    np.testing.assert_allclose(shares.sum(axis=1), 1, atol=1e-3)
    assert sorted(np.argmax(shares, axis=1)) == sorted(places)


def test_labels_that_tell_nothing_leave_the_metric_alone():
    X, _ = regions(2400)
    y = np.random.default_rng(5).integers(0, 2, len(X))
    model, report = train_in_memory(Store.from_arrays(X, y), config())
    plain, before = train_in_memory(Store.from_arrays(X, y), config(0))
    assert report["parts"]["own"] == 0
    np.testing.assert_array_equal(model.weights, 1)
    assert report["objective"] == pytest.approx(before["objective"], rel=1e-3)
    new = Rows(regions(500, seed=1)[0])
    np.testing.assert_allclose(model.decision_function(new), plain.decision_function(new), atol=0.1)


def dual_data_of(y: np.ndarray, upper: float = 10.0) -> DualData:
    classes, codes = np.unique(y, return_inverse=True)
    targets = Classify().targets(Store.from_arrays(np.zeros((len(y), 1)), y), config())
    assert list(targets.codes) == list(codes)
    return DualData(Classify(), targets, np.full(len(y), upper))


def learned(X: np.ndarray, asked: DualData, refits: int = 1) -> tuple[np.ndarray, np.ndarray]:
    solver = PartitionSolver(RBF(0.2), 1e-2, 1, 0, False, refits)
    return PartitionMetric(solver.kernel, refits, 1, solver._trial)(Rows(X), asked, np.zeros(asked.shape))


@pytest.mark.parametrize("n", [partitions.LEAST_ROWS - 1, partitions.LEAST_ROWS])
def test_small_parts_and_those_of_one_class_have_nothing_to_learn(n):
    X, y = regions(n)
    X, y = X[:, 1:].copy(), (np.sin(3 * X[:, 1]) > 0).astype(int)
    weights, _ = learned(X, dual_data_of(y))
    assert np.any(weights != 1) == (n >= partitions.LEAST_ROWS)
    y[0] = 1 - y[0]
    one = dual_data_of(y).take(np.flatnonzero(y == 1))
    weights, alpha = learned(X[y == 1], one)
    assert np.all(weights == 1)
    assert not alpha.any()


def test_gradients_are_those_of_several_pairs_of_classes():
    X, _ = regions(1500)
    X = X[:, 1:6].copy()
    y = np.digitize(X[:, 2], [-0.5, 0.5])
    weights, alpha = learned(X, dual_data_of(y))
    assert alpha.shape == (1500, 2)
    assert np.argmax(weights) == 2


def test_weights_stay_above_0_and_keep_what_gamma_means():
    rng = np.random.default_rng(0)
    before, spread, G = rng.uniform(1, 2, 4), rng.uniform(1, 9, 4), rng.normal(size=(50, 4)) * [1, 0, 5, 0.1]
    found = refitted(before, G, spread)
    assert spread @ found**2 == pytest.approx(spread.sum())
    assert found.argmax() == 2
    assert found.min() == found[1] == pytest.approx(partitions.NEGLIGIBLE * found.max())
    roots = before * np.sqrt(np.mean(G**2, axis=0))
    np.testing.assert_allclose(found[[0, 2, 3]] / found[2], roots[[0, 2, 3]] / roots[2])


def test_rows_that_are_all_the_same_change_nothing():
    np.testing.assert_array_equal(refitted(np.ones(3), np.ones((5, 3)), np.zeros(3)), np.ones(3))


def test_better_is_beyond_chance():
    rng = np.random.default_rng(0)
    plain = rng.uniform(-1, 1, 1000)
    assert not is_surely_better(plain, plain)
    assert not is_surely_better(plain + 0.01 + rng.normal(size=1000), plain)
    assert is_surely_better(plain + 0.2 + rng.normal(size=1000), plain)
    assert not is_surely_better(plain - 0.2, plain)


def store(folder: Path) -> Store:
    return write(folder / "store", Rows(regions(2400)[0]), regions(2400)[1], step=600, chunk_rows=600)


def test_stopped_after_every_step_the_model_is_the_same(tmp_path):
    """Weights are in the state; support rows of parts that were solved before are read again as they are stored."""
    chosen = config(1, dcsvm={"levels": 2, "early_level": 1}, checkpoint_every="1 step")
    there = store(tmp_path)
    train(there, chosen, model_path=tmp_path / "whole")
    assert train_by_single_steps(there, chosen, tmp_path / "m", tmp_path / "run") > 4
    whole, resumed = (load_model(tmp_path / name) for name in ("whole", "m"))
    assert np.any(whole.weights != 1)
    np.testing.assert_array_equal(resumed.weights, whole.weights)
    rows = Rows(regions(300, seed=2)[0])
    np.testing.assert_array_equal(resumed.decision_function(rows), whole.decision_function(rows))


def test_integers_are_kept_as_they_are():
    """Weighed rows are float32; the model's support rows stay uint8."""
    X, y = regions(2400)
    X = np.clip(X * 8 + 100, 0, 255).astype(np.uint8)
    model, report = train_in_memory(Store.from_arrays(X, y), config(kernel={"gamma": 0.2 / 64}))
    assert report["parts"]["own"] == 2
    assert model.part(0)[0].X.dtype == np.uint8


def test_the_estimator_has_it_too():
    X, y = regions(2400)
    svm = DCSVC(C=10, gamma=0.2, early=True, levels=1, children=2, part_metric=1, tol=1e-2).fit(X, y)
    assert svm.model_.weights.shape == (2, D)
