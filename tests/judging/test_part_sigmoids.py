"""Sigmoids of the parts of a model: against a general minimiser and plain loops, and in whole fits."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from making import write
from scipy.optimize import minimize

from streamsvm.config import ProbabilityConfig, build_config
from streamsvm.data.rows import Rows
from streamsvm.data.store import Store
from streamsvm.errors import ModelError
from streamsvm.judging.probabilities import SHRINK, held_out, with_parts
from streamsvm.judging.thresholds import DecidedRows
from streamsvm.models.calibration import Calibration, calibrate, coupled, own_problems, sigmoid
from streamsvm.models.files import load_model, save_model
from streamsvm.parallel.engine import Engine
from streamsvm.predict import evaluate
from streamsvm.train import train, train_in_memory


def rows_of(k: int, differ: bool, h: int = 6000) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Decisions of pairs (h, n_pairs) and of own ones (h, k - 1), codes, and parts of which the second is less sure."""
    rng = np.random.default_rng(k)
    codes, parts = rng.integers(0, k, h), rng.integers(0, 3, h)
    noise = np.where((parts == 1) & differ, 4.0, 0.7)
    truth = 2.0 * (codes[:, None] == np.arange(k)) + noise[:, None] * rng.normal(size=(h, k))
    pairs = np.stack([truth[:, j] - truth[:, i] for i in range(k) for j in range(i + 1, k)], axis=1)
    return pairs, own_problems(pairs, codes, k, pairwise=True), codes, parts


def fitted(k: int, differ: bool, weight: np.ndarray | None = None) -> Calibration:
    _, own, codes, parts = rows_of(k, differ)
    weight = np.ones(len(codes)) if weight is None else weight
    plain = calibrate(own, codes, k, method="sigmoid", pairwise=True, weight=weight)
    rows = DecidedRows(own, codes, weight, k, pairwise=True)
    found = with_parts(plain, rows, parts, n_parts=4, seed=0)
    np.testing.assert_array_equal(found.points, plain.points)
    return found


def test_parts_that_say_the_same_have_one_sigmoid():
    assert fitted(2, differ=False).by_part is None


def test_a_part_minimises_what_is_stated():
    pairs, _, codes, parts = rows_of(2, differ=True)
    weight = np.random.default_rng(0).uniform(0.5, 1.5, len(codes))
    found = fitted(2, True, weight)
    one, own = found.points[0], weight / weight.mean()
    for part in range(3):
        f, y, v = pairs[parts == part, 0], codes[parts == part] == 1, own[parts == part]
        q = sigmoid(one[0] * f + one[1])

        def loss(at: np.ndarray, f: np.ndarray = f, y: np.ndarray = y, v: np.ndarray = v, q: Any = q) -> float:
            p = sigmoid(at[0] * f + at[1])
            cross = [-(t * np.log(p) + (1 - t) * np.log(1 - p)) for t in (y, q)]
            return float(v @ cross[0] + SHRINK / v.sum() * (v @ cross[1]))

        best = minimize(loss, one, tol=1e-10).x
        np.testing.assert_allclose(found.by_part[part, 0], best, rtol=1e-4)
    np.testing.assert_array_equal(found.by_part[3, 0], one)  # which has no rows


def test_probabilities_are_those_of_plain_loops():
    found, (pairs, _, codes, parts) = fitted(3, differ=True), rows_of(3, True)
    assert found.by_part is not None
    p = found.probabilities(pairs, 3, pairwise=True, parts=parts)
    own = [found.by_part[part] for part in parts]
    by_hand = np.array([sigmoid(maps[:, 0] * f + maps[:, 1]) for f, maps in zip(pairs, own, strict=True)])
    np.testing.assert_allclose(p, coupled(by_hand, 3))
    plain = replace(found, by_part=None).probabilities(pairs, 3, pairwise=True)
    told = np.arange(len(codes)), codes
    assert -np.log(p[told]).mean() < -np.log(plain[told]).mean() - 0.01
    again = Calibration.from_state(*found.to_state())
    np.testing.assert_array_equal(again.probabilities(pairs, 3, pairwise=True, parts=parts), p)
    arrays, attrs = found.to_state()
    for wrong in (np.ones((3, 2)), np.full((3, 3, 2), np.nan), np.ones((3, 2, 2))):
        with pytest.raises((ValueError, IndexError)):
            Calibration.from_state(arrays | {"calibration_by_part": wrong}, attrs)


EARLY = {"C": 3.0, "kernel": {"gamma": 1.0}, "dcsvm": {"early": True, "levels": 1, "part_rows": 700}}
BUDGET = {"kernel": {"gamma": 1.0}, "solver": "bsgd", "bsgd": {"budget": 40, "partitions": 3}}


@cache
def data() -> tuple[np.ndarray, np.ndarray]:
    """Two clouds: in the first a column tells the class for sure, in the second hardly."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(2400, 2)).astype(np.float32)
    cloud = np.arange(2400) % 2
    y = (X[:, 0] + np.where(cloud, 3.0, 0.1) * rng.normal(size=2400) > 0).astype(int)
    return X + np.float32(12.0) * cloud[:, None].astype(np.float32), y


@pytest.mark.parametrize("values", [EARLY, BUDGET], ids=["early", "regions"])
def test_of_folds_and_of_a_held_out_store(values, tmp_path):
    X, y = data()
    first, last = (Store.from_arrays(X[some], y[some]) for some in (slice(1600), slice(1600, None)))
    how = build_config(("t", values | {"probability": {"method": "sigmoid", "folds": 3}}))
    by_folds, _ = train_in_memory(first, how)
    plain, _ = train_in_memory(first, build_config(("t", values)))
    by_store, _ = held_out(plain, last, ProbabilityConfig(method="sigmoid"), engine=Engine(1))
    for model in (by_folds, by_store):
        own = model.header.calibration
        assert len(own.by_part) == model.n_parts > 1
        one = replace(model, header=replace(model.header, calibration=replace(own, by_part=None)))
        scores = [evaluate(m, last, engine=Engine(1)) for m in (model, one)]
        assert scores[0]["log_loss"] < scores[1]["log_loss"] - 0.01
        save_model(model, tmp_path / "m")
        np.testing.assert_array_equal(load_model(tmp_path / "m").predict_proba(Rows(X)), model.predict_proba(Rows(X)))
        short = replace(own, by_part=own.by_part[1:])
        with pytest.raises(ModelError, match="partitions"):
            replace(model, header=replace(model.header, calibration=short)).predict_proba(Rows(X))
    there = write(tmp_path / "s", Rows(X[:1600]), y[:1600], step=400, chunk_rows=400)
    train(there, how, model_path=tmp_path / "m")
    np.testing.assert_allclose(
        load_model(tmp_path / "m").predict_proba(Rows(X)), by_folds.predict_proba(Rows(X)), atol=1e-6
    )


@pytest.mark.parametrize("grouped", [False, True])
def test_copies_of_a_row_tell_nothing_of_it(grouped):
    """Few rows, each many times, in parts that do not differ: sigmoids of parts that know a row's copies fit it."""
    _, own, codes, parts = (values[np.repeat(np.arange(150), 20)] for values in rows_of(2, False, 150))
    groups = np.repeat(np.arange(150), 20) if grouped else None
    rows = DecidedRows(own, codes, np.ones(3000), 2, pairwise=True, groups=groups)
    plain = calibrate(own, codes, 2, method="sigmoid", pairwise=True, weight=rows.weight)
    found = with_parts(plain, rows, parts, n_parts=4, seed=0)
    assert (found.by_part is None) == grouped
