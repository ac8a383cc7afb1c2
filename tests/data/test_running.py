"""Standardisation of rows as they come."""

from __future__ import annotations

import numpy as np
import pytest

from streamsvm.data.rows import Rows
from streamsvm.data.running import LARGEST, RunningScaling


def test_columns_that_are_there_mostly_are_standardised_by_the_rows_before():
    rng = np.random.default_rng(0)
    X = (rng.normal(size=(300, 3)) * [1, 1e-4, 1e6] + [0, 5, 1e7]).astype(np.float32)
    scaling = RunningScaling(3)
    Z = np.concatenate([scaling.learn(X[:100]), scaling.learn(X[100:])])
    for i in (2, 50, 299):
        before = X[:i].astype(np.float64)
        expected = ((X[i] - before.mean(axis=0)) / before.std(axis=0)).clip(-LARGEST, LARGEST)
        np.testing.assert_allclose(Z[i], expected, rtol=1e-4)
    np.testing.assert_array_equal(Z[0], 0)
    assert scaling.spread == pytest.approx(3)
    np.testing.assert_allclose(
        scaling.scaling().apply(Rows(X)).dense().clip(-LARGEST, LARGEST),
        scaling.scale(X),
        rtol=1e-4,
        atol=1e-5,
    )


def test_columns_that_are_mostly_absent_are_zero_there():
    rng = np.random.default_rng(0)
    X = np.where(rng.random((400, 2)) < [0.1, 0.9], [3.0, 2.0] + rng.normal(size=(400, 2)), np.nan)
    X = X.astype(np.float32)
    scaling = RunningScaling(2)
    scaling.learn(X)
    Z = scaling.scale(X)
    assert (Z[np.isnan(X)] == 0).all()
    seldom, often = (X[~np.isnan(X[:, j]), j].astype(np.float64) for j in range(2))
    np.testing.assert_allclose(Z[~np.isnan(X[:, 0]), 0], seldom / np.sqrt((seldom**2).mean()), rtol=1e-4)
    np.testing.assert_allclose(Z[~np.isnan(X[:, 1]), 1], (often - often.mean()) / often.std(), rtol=1e-4, atol=1e-5)
    assert scaling.spread == pytest.approx(1.1, abs=0.05)
    np.testing.assert_allclose(scaling.scaling().apply(Rows(X)).dense(), Z, rtol=1e-4, atol=1e-5)


def test_a_column_that_comes_late_counts_from_there_on():
    scaling = RunningScaling(1)
    scaling.learn(np.ones((500, 1), np.float32))
    scaling.widen(2)
    rng = np.random.default_rng(0)
    X = np.column_stack([np.ones(100), rng.normal(7, 2, 100)]).astype(np.float32)
    scaling.learn(X)
    late = X[:, 1].astype(np.float64)
    np.testing.assert_allclose(scaling.scale(X)[:, 1], (late - late.mean()) / late.std(), rtol=1e-3, atol=1e-5)
    assert (scaling.scale(X)[:, 0] == 1).all()  # constant


def test_texts_that_take_turns_are_told_apart():
    X = np.full((100, 2), np.nan, np.float32)
    X[::2, 0] = X[1::2, 1] = 1
    scaling = RunningScaling(2)
    scaling.learn(X)
    np.testing.assert_array_equal(scaling.scale(X), np.nan_to_num(X))
    assert scaling.spread == pytest.approx(0.5, abs=0.01)
    np.testing.assert_array_equal(scaling.scaling().apply(Rows(X)).dense(), np.nan_to_num(X))
