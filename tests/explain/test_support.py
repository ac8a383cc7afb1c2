"""Support vectors of a row: which they are, their labels, and the raw rows that they were."""

from __future__ import annotations

import numpy as np
import pytest
from explain.made import SUMS, animals, made

from streamsvm.data.rows import Rows
from streamsvm.errors import ModelError
from streamsvm.explain.decisions import answered, decisions
from streamsvm.explain.rows import support_vectors

KERNELS = [kind for kind in SUMS if kind != "cutting-plane"]


def told(kind: str, k: int, at: int, n: int = 5, **options):
    """(weightiest, nearest, what decides) of a training row."""
    model, row = made(kind, k, **options), Rows(animals(k)[0][at : at + 1])
    (_, g), *_ = decisions(model, row, answered(model, row)[1])
    return *support_vectors(model, g, row, n), g


@pytest.mark.parametrize("k", [2, 3])
@pytest.mark.parametrize("kind", KERNELS)
def test_contributions_make_the_decision_and_the_largest_come_first(kind, k):
    every, near, g = told(kind, k, 5, n=10_000)
    row = made(kind, k).header.scaling.apply(Rows(animals(k)[0][5:6]))
    total = sum(vector.contribution for vector in every) + g.intercept
    assert total == pytest.approx(g.values(row)[0], abs=1e-9)
    assert [abs(v.contribution) for v in every] == sorted((abs(v.contribution) for v in every), reverse=True)
    assert [v.distance for v in near] == sorted(v.distance for v in near)
    assert len(every) == len(near) == len(g.support)


@pytest.mark.parametrize("scale", ["none", "minmax", "standard", "maxabs"])
@pytest.mark.parametrize("kind", ["dcsvm", "alfpgm", "admm-hss"])
def test_they_are_the_training_rows_that_they_say(kind, scale):
    (X, y), (weightiest, nearest, _) = animals(3), told(kind, 3, 5, scale=scale)
    for vector in weightiest + nearest:
        np.testing.assert_allclose(vector.values, X[vector.id], rtol=1e-4, atol=1e-4)
        assert vector.label == y[vector.id] or (kind == "admm-hss" and vector.label is None)
    assert any(vector.label for vector in nearest)


@pytest.mark.parametrize("k", [2, 3])
def test_early_models_tell_labels_without_numbers_of_rows(k):
    (X, y), (_, nearest, _) = animals(k), told("dcsvm early", k, 5)
    for vector in nearest:
        assert vector.id is None
        row = np.flatnonzero(np.isclose(X, vector.values, rtol=1e-4, atol=1e-4).all(axis=1))
        assert y[row].tolist() == [vector.label]


def test_weights_have_none():
    with pytest.raises(ModelError, match="keeps a weight for each column, which the gradient is"):
        told("cutting-plane", 2, 5)
