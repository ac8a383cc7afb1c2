"""Vectors of an entry a row, in memory and in files."""

import numpy as np
import pytest

from streamsvm.data.vectors import VectorFactory


@pytest.mark.parametrize("in_files", [False, True])
def test_what_is_written_is_read_again_zeros_too(in_files, tmp_path):
    blocks = [(0, 4), (4, 8), (8, 10)]
    vector = VectorFactory(blocks, tmp_path / "vectors" if in_files else None).new("parts", np.int32)
    values = np.array([0, 0, 0, 0, 1, 2, 3, 4, 0, 0], np.int32)
    for start, stop in blocks:
        vector.write(start, values[start:stop])
    np.testing.assert_array_equal(vector.all(), values)
    np.testing.assert_array_equal(vector.take(np.array([1, 5, 9])), values[[1, 5, 9]])
