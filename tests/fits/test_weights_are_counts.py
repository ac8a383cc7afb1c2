"""A row of weight w is w rows: in what a solver minimises, in scaling, gamma "scale" and balanced classes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from making import write
from scipy import sparse

from streamsvm.config import build_config
from streamsvm.data.rows import Rows
from streamsvm.data.statistics import Moments, merge, moments_of
from streamsvm.data.store import Store
from streamsvm.train import train_in_memory

LINEAR: dict[str, Any] = {"solver": "cutting-plane", "kernel": {"name": "linear"}}
SOLVERS: dict[str, dict[str, Any]] = {
    "dcsvm": {},
    "alfpgm": {"solver": "alfpgm"},
    "hss": {"solver": "admm-hss", "admm_hss": {"polish": 1000}},
    "planes": LINEAR,
    "logistic": LINEAR | {"cutting_plane": {"loss": "logistic"}},
    "sets": LINEAR | {"task": "multilabel"},
    "numbers": {"solver": "alfpgm", "task": "regress", "scale_targets": True, "class_weight": None},
}
SCALES = ("standard", "none", "minmax")


def data() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(X, y, counts) of two classes, the rarer with more weight."""
    rng = np.random.default_rng(0)
    y = (rng.random(90) < 0.3).astype(int)
    X = rng.normal(size=(90, 3)) * [1, 10, 0.1] + y[:, None]
    return X.astype(np.float32), y, rng.integers(0, 4, 90) + y


def fitted(store: Store, **options: Any) -> Any:
    base = {"class_weight": "balanced", "C": 0.7, "tol": 1e-5, "threads": 1}
    return train_in_memory(store, build_config(("test", base | options)))[0]


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("name", SOLVERS)
def test_decisions_are_those_of_repeated_rows(name, scale):
    X, y, counts = data()
    labels = np.where(y == 1, "a,b", np.where(X[:, 1] > 5, "b", "a")) if name == "sets" else y
    labels = 100 + 30 * X[:, 0] if name == "numbers" else labels
    options = SOLVERS[name] | {"scale": scale}
    weighted = fitted(Store.from_arrays(X, labels, sample_weight=counts.astype(float)), **options)
    repeated = fitted(Store.from_arrays(np.repeat(X, counts, axis=0), np.repeat(labels, counts)), **options)
    np.testing.assert_allclose(weighted.header.scaling.scale, repeated.header.scaling.scale, rtol=1e-5)
    f, expected = (model.decision_function(Rows(X)) for model in (weighted, repeated))
    np.testing.assert_allclose(f, expected, atol=5e-3 * max(1.0, float(np.abs(expected).max())))


def test_a_store_with_weights_is_as_rows_in_memory(tmp_path: Path):
    X, y, counts = data()
    weight = counts / 7
    kept = write(tmp_path / "s.zarr", Rows(X), y, step=30, chunk_rows=20)
    import zarr

    zarr.open_group(str(tmp_path / "s.zarr"), mode="r+").create_array("sample_weight", data=weight)
    there = fitted(Store.open(str(tmp_path / "s.zarr")), scale="standard")
    here = fitted(Store.from_arrays(X, y, sample_weight=weight), scale="standard")
    assert kept.n == len(X)
    np.testing.assert_allclose(there.header.scaling.offset, here.header.scaling.offset, rtol=1e-12)
    np.testing.assert_allclose(there.decision_function(Rows(X)), here.decision_function(Rows(X)), atol=1e-4)


@pytest.mark.parametrize("gaps", [False, True])
@pytest.mark.parametrize("is_sparse", [False, True])
def test_moments_of_weighted_rows_are_those_of_repeated_ones(is_sparse, gaps):
    rng = np.random.default_rng(1)
    X = np.where(rng.random((40, 5)) < 0.5, rng.normal(size=(40, 5)) + 3, 0)
    counts = rng.integers(0, 3, 40)
    counts[:10] = 0
    if gaps:
        X[rng.random(X.shape) < 0.1] = np.nan
        X[:, 4] = np.nan

    def rows(some: np.ndarray) -> Rows:
        return Rows(sparse.csr_array(some) if is_sparse else some)

    expected = moments_of(rows(np.repeat(X, counts, axis=0)))
    for cuts in ([], [10], [5, 25]):  # a block whose rows all have no weight, too
        blocks = zip(np.split(X, cuts), np.split(counts.astype(float), cuts), strict=True)
        found: Moments | None = None
        for some, weight in blocks:
            own = moments_of(rows(some), weight)
            found = own if found is None else merge(found, own)
        for name in ("n", "low", "high", "mean", "m2", *(["gaps"] if gaps else [])):
            np.testing.assert_allclose(getattr(found, name), getattr(expected, name), rtol=1e-9, atol=1e-9)
