"""Duals of a task's subproblems over rows in memory."""

from __future__ import annotations

import numpy as np
import pytest
from kernels.made import rows

from streamsvm.data.rows import Rows
from streamsvm.kernels.distance import RBF, Laplacian, Matern
from streamsvm.kernels.inner import Poly
from streamsvm.kernels.row_cache import WIDE
from streamsvm.problems import subproblems
from streamsvm.problems.dual import KernelDual, MatrixDual
from streamsvm.problems.subproblems import DualData, in_memory, task_gradients
from streamsvm.solvers import blockws
from streamsvm.tasks import task_of
from streamsvm.tasks.base import Targets
from streamsvm.tasks.pairs import against_rest, pairs


@pytest.mark.parametrize(("width", "kind"), [(2 * WIDE, MatrixDual), (8, KernelDual)])
def test_few_wide_rows_have_their_kernel_values_made_once(width, kind):
    """Sums of narrow ones are to be those of rows in files, bit for bit."""
    rng = np.random.default_rng(0)
    rows, codes = Rows(rng.normal(size=(300, width)).astype(np.float32)), rng.integers(0, 3, 300)
    make = in_memory(RBF(1 / width), rows, 2, 1 << 20)
    for part in pairs(codes, 3, single=False):
        upper, members = np.ones(len(part.ids)), rows.take(part.ids)
        dual, again = make(part, upper), KernelDual(RBF(1 / width), members, part.y, upper)
        assert isinstance(dual, kind)
        solved = [blockws.solve(each, tol=1e-4).alpha for each in (dual, again)]
        np.testing.assert_allclose(*solved, atol=1e-3)


def test_classes_against_the_rest_share_kernel_values_and_come_to_the_same(monkeypatch):
    rng, made, block = np.random.default_rng(0), list[int](), RBF.block
    monkeypatch.setattr(RBF, "block", lambda *args: made.append(len(args[1])) or block(*args))
    rows, codes = Rows(rng.normal(size=(200, 2 * WIDE)).astype(np.float32)), rng.integers(0, 4, 200)
    kernel, upper = RBF(0.5 / WIDE), np.ones(200)
    shared, parts = in_memory(kernel, rows, 2, 0), list(against_rest(codes, 4, single=False))
    states = [blockws.solve(shared(part, upper), tol=1e-4) for part in parts]
    assert made == [200]
    for part, own in zip(parts, states, strict=True):
        alone = blockws.solve(in_memory(kernel, rows, 2, 0)(part, upper), tol=1e-4)
        np.testing.assert_array_equal(own.alpha, alone.alpha)
        np.testing.assert_array_equal(own.gradient, alone.gradient)


@pytest.mark.parametrize("layout", ["float32", "csr"])
@pytest.mark.parametrize("kernel", [RBF(0.1), Laplacian(0.1), Matern(0.4, 0.5), Poly(0.1, 2, 1.0)], ids=str)
@pytest.mark.parametrize(("k", "way", "most"), [(2, "pairs", 9), (3, "rest", 9), (3, "pairs", 9), (14, "pairs", 40)])
def test_gradients_are_those_of_each_subproblem(k, way, most, kernel, layout, monkeypatch):
    monkeypatch.setattr(subproblems, "MOST_SUBPROBLEMS", most)  # of many pairs every third one is computed
    rng, n, d = np.random.default_rng(k), 90, 7
    codes = np.concatenate([rng.integers(0, k - 2, n - 1) if k > 3 else rng.integers(0, k, n - 1), [k - 1]])
    task = task_of("classify").by(way)
    data = DualData(task, Targets(np.arange(k), codes), rng.uniform(1, 2, n))
    alpha = np.where(rng.random(data.shape) < 0.4, rng.random(data.shape), 0.0)
    members, at = rows(n, d, layout, 1), np.sort(rng.choice(n, 50, replace=False))
    step = -(-task.n_subproblems(k) // most)
    squares, count = np.zeros((d, d)), 0
    for part in list(task.subproblems(data.targets))[::step]:
        coef = part.coefficients(alpha[part.places])
        points = np.intersect1d(part.ids, at)
        G = kernel.gradient(members.take(points), members.take(part.ids), coef)
        G *= np.sqrt(data.upper[points, None] / data.upper.max())
        squares, count = squares + G.T @ G, count + len(points)
    found = task_gradients(kernel, members, data, alpha, at).astype(np.float64)
    assert found.shape == (count, d)
    np.testing.assert_allclose(found.T @ found, squares, rtol=1e-5, atol=1e-5 * squares.max())


def test_rows_of_one_class_have_no_gradients():
    data = DualData(task_of("classify"), Targets(np.arange(4), np.full(5, 2)), np.ones(5))
    assert task_gradients(RBF(), rows(5, 3, "float32", 0), data, np.ones((5, 3)), np.arange(5)).shape == (0, 3)
