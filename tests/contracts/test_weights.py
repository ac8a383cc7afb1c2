"""Class and sample weights mean the same to every solver of classes: a row of weight 2 is the row twice."""

from __future__ import annotations

import numpy as np
import pytest
from cases import config, labelled

from streamsvm.data.rows import Rows
from streamsvm.data.store import Store
from streamsvm.train import train_in_memory

N = 150
EXACT = {  # solvers of one convex problem, whose decisions both fits come near to; by how much these may differ
    "dcsvm": 0.01,
    "a bias": 0.01,
    "squared losses": 0.01,
    "nu": 0.02,
    "alfpgm": 0.01,
    "admm-hss": 0.05,
    "cutting-plane": 0.02,
}
ORDINAL = {"kernel": {"name": "linear"}, "task": "ordinal"}


def decided(name: str, k: int, store: Store, **values: object) -> np.ndarray:
    model, _ = train_in_memory(store, config(name, **{"tol": 1e-4} | values))
    return model.binary_decisions(Rows(labelled(k)[0]))


def weights(y: np.ndarray, k: int) -> np.ndarray:
    return np.random.default_rng(k).integers(1, 4, len(y)).astype(float)


@pytest.mark.parametrize("k", [2, 3])
@pytest.mark.parametrize("name", EXACT)
def test_weight_two_is_the_row_twice(name, k):
    """Class times sample weight, against rows as often as that."""
    X, y = (part[:N] for part in labelled(k))
    w, by_class = weights(y, k), {"1": 2.0}
    often = np.repeat(np.arange(N), (w * np.where(y == 1, 2, 1)).astype(int))
    weighted = decided(name, k, Store.from_arrays(X, y, sample_weight=w), class_weight=by_class)
    repeated = decided(name, k, Store.from_arrays(X[often], y[often]))
    plain = decided(name, k, Store.from_arrays(X, y))
    size = np.abs(repeated).mean()
    np.testing.assert_allclose(weighted, repeated, atol=EXACT[name] * size)
    assert np.abs(plain - repeated).mean() > 3 * np.abs(weighted - repeated).mean()


def test_of_ranks_too():
    X, y = (part[:N] for part in labelled(3))
    w = weights(y, 3)
    often = np.repeat(np.arange(N), (w * np.where(y == 1, 2, 1)).astype(int))
    stores = Store.from_arrays(X, y, sample_weight=w), Store.from_arrays(X[often], y[often])
    found, expected = (
        decided("cutting-plane", 3, store, class_weight=own, tol=1e-6, **ORDINAL)
        for store, own in zip(stores, ({"1": 2.0}, None), strict=True)
    )
    np.testing.assert_allclose(found, expected, atol=0.02 * np.abs(expected).mean())


@pytest.mark.parametrize("name", ["dcsvm early", "bsgd", "one learner"])
def test_a_heavy_class_is_decided_for_more_often(name):
    """Of solvers that cut rows into parts, or learn one after the other: other rows are another problem."""
    X, y = labelled(2, 600)
    store = Store.from_arrays(X, y)
    shares = [np.mean(decided(name, 2, store, class_weight={"1": own}) > 0) for own in (0.2, 1.0, 5.0)]
    assert shares[0] + 0.05 < shares[1] < shares[2] - 0.05
    doubled = Store.from_arrays(X, y, sample_weight=np.where(y == 1, 5.0, 1.0))
    np.testing.assert_allclose(decided(name, 2, doubled), decided(name, 2, store, class_weight={"1": 5.0}), rtol=1e-6)
