"""Duals of a task's subproblems over rows in memory."""

from __future__ import annotations

import numpy as np
import pytest

from streamsvm.data.rows import Rows
from streamsvm.kernels.distance import RBF
from streamsvm.kernels.row_cache import WIDE
from streamsvm.problems.dual import KernelDual, MatrixDual
from streamsvm.problems.subproblems import in_memory
from streamsvm.solvers import blockws
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
