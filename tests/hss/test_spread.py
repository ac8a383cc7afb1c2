"""Subtrees that are elsewhere: every number is that of one process."""

from __future__ import annotations

import numpy as np
import pytest
from hss.compressed import ENGINE, Elsewhere, cancer, dense, rbf, relative, roll, tolerances

from streamsvm.data.rows import Rows
from streamsvm.errors import ConfigError, MemoryLimitError
from streamsvm.hss.compress import HSSOptions
from streamsvm.hss.kernel_matrix import KernelMatrix, approximate, estimated_errors, facts_of
from streamsvm.hss.tree import ClusterTree
from streamsvm.kernels.base import Kernel
from streamsvm.parallel.machine import MiB

BETA = 0.5


@pytest.fixture(autouse=True)
def several_subtrees(monkeypatch):
    """Of 300 rows four, and strips that divide none of them evenly."""
    monkeypatch.setattr("streamsvm.hss.tree.SUBTREE_ROWS", 90)
    monkeypatch.setattr("streamsvm.hss.kernel_matrix.STRIP_ROWS", 32)


def close(found, expected):
    """Products of other shapes may be rounded otherwise, as OpenBLAS's for Haswell are."""
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-11)


def options(landmarks: int, *, single: bool = False, **wanted) -> HSSOptions:
    return HSSOptions(tolerances(1e-3, **wanted), 32, 32, landmarks, single=single)


def both(kernel: Kernel, rows: Rows, chosen: HSSOptions) -> tuple[KernelMatrix, KernelMatrix]:
    (order, here), (same, there) = (approximate(kernel, rows, chosen, e) for e in (ENGINE, Elsewhere()))
    np.testing.assert_array_equal(order, same)
    assert here.held is None
    assert there.held is not None
    return here, there


@pytest.mark.parametrize("single", [False, True])
@pytest.mark.parametrize("landmarks", [0, 16])
def test_products_solves_and_facts_are_those_of_one_process(landmarks, single):
    here, there = both(rbf(2.0), cancer(), options(landmarks, single=single))
    assert there.landmarks == landmarks
    assert len(there.held.subtrees) == 4
    assert facts_of(there) == facts_of(here)
    assert there.fullness(20) == pytest.approx(here.fullness(20))
    inverses = [matrix.shifted(BETA, e) for matrix, e in ((here, ENGINE), (there, Elsewhere()))]
    assert inverses[0].nbytes == inverses[1].nbytes
    for V in (np.random.default_rng(0).normal(size=(300, 3)), np.ones(300)):
        close(there.product(V), here.product(V))
        close(inverses[1].solve(V), inverses[0].solve(V))
    of = rbf(2.0), cancer()
    errors = [estimated_errors(*of, *made, 0, 2) for made in zip((here, there), inverses, strict=True)]
    assert errors[0] == pytest.approx(errors[1], rel=1e-6)


def test_leaves_that_are_subtrees(monkeypatch):
    monkeypatch.setattr("streamsvm.hss.tree.SUBTREE_ROWS", 1)
    here, there = both(rbf(1.0), cancer(100), options(0))
    assert there.tree.cut == there.tree.depth == 2
    V = np.random.default_rng(0).normal(size=100)
    close(there.product(V), here.product(V))
    far = there.shifted(BETA, Elsewhere())
    close(far.solve(V), here.shifted(BETA, ENGINE).solve(V))


def test_where_trees_are_cut_hardly_matters(monkeypatch):
    several, _ = both(rbf(2.0), cancer(), options(16))
    monkeypatch.setattr("streamsvm.hss.tree.SUBTREE_ROWS", 300)
    _, whole = approximate(rbf(2.0), cancer(), options(16), Elsewhere())
    assert whole.held is None  # one subtree stays in this process
    assert relative(dense(several.H) - dense(whole.H), dense(whole.H)) < 1e-6


def test_an_indefinite_subtree_is_told():
    _, there = both(rbf(2.0), roll(), options(0, definite=False))
    with pytest.raises(ConfigError, match=r"beta = 1e-09 is not positive definite"):
        there.shifted(1e-9, Elsewhere())


def test_workers_with_too_little_memory_are_told():
    with pytest.raises(MemoryLimitError, match=r"workers' memory for each subtree of 0.* 75 rows \(before"):
        approximate(rbf(2.0), cancer(), options(0), Elsewhere(300 * MiB))


def test_as_many_subtrees_as_rows_need():
    assert ClusterTree.of(90, 32).cut == 0
    assert ClusterTree.of(91, 32).cut == 1
    assert ClusterTree.of(300, 32).levels(4) == [range(19, 23), range(9, 11), range(4, 5)]
