"""Duals of a task's subproblems over rows in memory."""

from __future__ import annotations

import numpy as np
import pytest

from streamsvm.data.rows import Rows
from streamsvm.kernels.distance import RBF
from streamsvm.kernels.row_cache import WIDE
from streamsvm.problems.dual import KernelDual, MatrixDual
from streamsvm.solvers import blockws
from streamsvm.tasks.pairs import pairs
from streamsvm.training.subproblems import in_memory


@pytest.mark.parametrize(("width", "kind"), [(2 * WIDE, MatrixDual), (8, KernelDual)])
def test_few_wide_rows_have_their_kernel_values_made_once(width, kind):
    """Sums of narrow ones are to be those of rows in files, bit for bit."""
    rng = np.random.default_rng(0)
    rows, codes = Rows(rng.normal(size=(300, width)).astype(np.float32)), rng.integers(0, 3, 300)
    make = in_memory(RBF(1 / width), rows, 2, 1 << 20)
    for part in pairs(codes, 3, single=False):
        upper, own = np.ones(len(part.ids)), rows.take(part.ids)
        dual, again = make(part, upper, None), KernelDual(RBF(1 / width), own, part.y, upper)
        assert isinstance(dual, kind)
        solved = [blockws.solve(each, tol=1e-4).alpha for each in (dual, again)]
        np.testing.assert_allclose(*solved, atol=1e-3)
