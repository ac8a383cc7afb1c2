"""The picture of a compressed matrix."""

from __future__ import annotations

import re

import numpy as np
import pytest

from streamsvm.data.rows import Rows
from streamsvm.hss.compress import HSSOptions, Tolerances
from streamsvm.hss.kernel_matrix import approximate
from streamsvm.kernels.distance import RBF
from streamsvm.parallel.engine import Engine
from streamsvm.report.drawing import write_plot
from streamsvm.report.part_plots import rank_blocks


def matrix(n: int):
    rows = Rows(np.random.default_rng(0).random((n, 2), np.float32))
    options = HSSOptions(Tolerances(1e-3, 0.0, 50), leaf_rows=50, landmarks=0)
    return approximate(RBF(5.0), rows, options, Engine(1))[1].H


@pytest.mark.parametrize("n", [30, 400])
def test_every_block_is_drawn(n, tmp_path):
    drawn = matrix(n)
    figure = rank_blocks(drawn.tree.n, [level.tolist() for level in drawn.ranks()])
    write_plot(figure, tmp_path / "ranks.svg")
    patches = re.findall(r'id="patch_\d+"', (tmp_path / "ranks.svg").read_text())
    depth = drawn.tree.depth
    assert len(patches) >= 2 * (2**depth - 1) + 2**depth
