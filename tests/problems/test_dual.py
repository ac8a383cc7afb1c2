"""Oracles: in memory and streamed they are the same matrix Q."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest
import reference
from scipy import sparse

from streamsvm.data import regroup
from streamsvm.data.regroup import PartitionsInMemory, PartitionsOnDisk
from streamsvm.data.rows import Rows
from streamsvm.data.samples import SamplesInMemory
from streamsvm.data.vectors import VectorInMemory
from streamsvm.kernels.distance import RBF
from streamsvm.parallel.engine import Engine
from streamsvm.problems import streamed
from streamsvm.problems.dual import KernelDual
from streamsvm.problems.streamed import NearRows, StreamedDual
from streamsvm.solvers import blockws

KERNEL = RBF(0.4)
N = 250


def rows(layout: str) -> Rows:
    X = np.random.default_rng(0).normal(size=(N, 5)).astype(np.float32)
    X[np.abs(X) < 0.4] = 0
    return Rows(sparse.csr_array(X)) if layout == "csr" else Rows(X)


def duals(layout: str, where: str, folder: Path) -> tuple[KernelDual, StreamedDual]:
    """The same binary problem over 180 of 250 rows, whose parts are 7 random ones."""
    rng = np.random.default_rng(1)
    X, parts = rows(layout), rng.integers(0, 7, N)
    ids = np.sort(rng.choice(N, 180, replace=False))
    y, upper = rng.choice([-1.0, 1.0], 180), rng.uniform(0.1, 2, 180)
    samples = SamplesInMemory(X)
    groups = (
        PartitionsInMemory(samples, parts, 7)
        if where == "memory"
        else PartitionsOnDisk(samples, VectorInMemory(parts), 7, folder / "g", Engine(2))
    )
    return KernelDual(KERNEL, X.take(ids), y, upper), StreamedDual(KERNEL, groups, ids, y, upper, Engine(2))


@pytest.mark.parametrize("where", ["memory", "disk"])
@pytest.mark.parametrize("layout", ["dense", "csr"])
class TestStreamed:
    def test_gram(self, layout, where, tmp_path):
        held, streamed = duals(layout, where, tmp_path)
        ids = np.array([5, 170, 3, 44, 99])
        Q = held.y[:, None] * reference.kernel_matrix(KERNEL, held.rows.X, held.rows.X) * held.y
        np.testing.assert_allclose(held.gram(ids), Q[np.ix_(ids, ids)], atol=2e-6)
        np.testing.assert_array_equal(streamed.gram(ids), held.gram(ids))

    def test_cross_and_diagonal(self, layout, where, tmp_path):
        held, streamed = duals(layout, where, tmp_path)
        a, b = np.array([9, 1, 170]), np.array([100, 9, 3, 44, 179])
        np.testing.assert_array_equal(streamed.cross(a, b), held.cross(a, b))
        np.testing.assert_array_equal(streamed.diagonal(b), held.diagonal(b))

    @pytest.mark.parametrize("subset", [None, [0], [170, 2, 61], list(range(0, 180, 3))])
    def test_apply(self, layout, where, subset, tmp_path):
        held, streamed = duals(layout, where, tmp_path)
        ids, delta = np.array([9, 1, 100, 179]), np.array([0.5, -0.2, 1.0, 0.1])
        wanted = None if subset is None else np.array(subset)
        Q = held.y[:, None] * reference.kernel_matrix(KERNEL, held.rows.X, held.rows.X) * held.y
        expected = (Q[:, ids] @ delta)[slice(None) if wanted is None else wanted]
        np.testing.assert_allclose(held.apply(ids, delta, wanted), expected, atol=1e-5)
        np.testing.assert_allclose(streamed.apply(ids, delta, wanted), expected, atol=1e-5)

    def test_no_columns(self, layout, where, tmp_path):
        for dual in duals(layout, where, tmp_path):
            none = np.empty(0, np.int64)
            np.testing.assert_array_equal(dual.apply(none, np.empty(0)), np.zeros(180))

    def test_same_solution(self, layout, where, tmp_path):
        held, streamed = duals(layout, where, tmp_path)
        a, b = blockws.solve(held, tol=1e-4), blockws.solve(streamed, tol=1e-4)
        assert blockws.objective(streamed, b) == pytest.approx(blockws.objective(held, a), rel=1e-6)
        np.testing.assert_allclose(b.alpha, a.alpha, atol=5e-3)


@pytest.mark.parametrize(("most", "share"), [(0, 1.0), (90, 0.5)])
@pytest.mark.parametrize("layout", ["dense", "csr"])
def test_rows_near_are_those_asked_for(layout, most, share, monkeypatch):
    """In any order and more than once; what is there is not fetched again, until there is no room."""
    monkeypatch.setattr(streamed, "BATCHES", 3)
    X, near, rng, fetched, distinct = rows(layout), NearRows(N, most), np.random.default_rng(3), 0, 0
    for _ in range(40):
        ids = rng.integers(0, 100, 20)
        new = near.missing(ids)
        if len(new):
            near.add(new[::-1], X.take(new[::-1]))
        assert len(near.missing(ids)) == 0
        np.testing.assert_array_equal(near.take(ids).dense(), X.take(ids).dense())
        fetched, distinct = fetched + len(new), distinct + len(np.unique(ids))
    assert fetched <= share * distinct


@pytest.mark.parametrize("layout", ["dense", "csr"])
def test_files_that_stay_closed_are_opened_for_each_part(layout, tmp_path, monkeypatch):
    X, parts = rows(layout), np.random.default_rng(2).integers(0, 5, N)
    samples = SamplesInMemory(X)
    samples.blocks = lambda: [(lo, min(N, lo + 37)) for lo in range(0, N, 37)]
    monkeypatch.setattr(regroup, "SPOOL_BYTES", 1)
    monkeypatch.setattr(regroup, "MOST_OPEN", 2)
    reader = pickle.loads(
        pickle.dumps(PartitionsOnDisk(samples, VectorInMemory(parts), 5, tmp_path / "g", Engine(2)).reader)
    )
    assert len(list((tmp_path / "g").iterdir())) == 7
    for part in range(5):
        np.testing.assert_array_equal(reader.rows(part).dense(), X.dense()[parts == part])


@pytest.mark.parametrize("layout", ["dense", "csr"])
def test_spooled_parts_are_those_in_memory(layout, tmp_path):
    X, parts = rows(layout), np.random.default_rng(2).integers(0, 5, N)
    samples = SamplesInMemory(X)
    samples.blocks = lambda: [(lo, min(N, lo + 37)) for lo in range(0, N, 37)]  # parts grow over many blocks
    held, spooled = (
        PartitionsInMemory(samples, parts, 5),
        PartitionsOnDisk(samples, VectorInMemory(parts), 5, tmp_path / "groups", Engine(2)),
    )
    for part in range(5):
        np.testing.assert_array_equal(spooled.ids(part), np.flatnonzero(parts == part))
        np.testing.assert_array_equal(spooled.reader.rows(part).dense(), held.rows(part).dense())
        np.testing.assert_array_equal(spooled.reader.rows(part).dense(), X.dense()[parts == part])
