"""Arrays as few: what was packed comes back, and nothing else is taken for it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as of_numpy

from streamsvm.storage.arrays import packed, unpacked

ARRAYS = st.sampled_from(["float32", "float64", "int64", "bool"]).flatmap(
    lambda dtype: of_numpy.arrays(dtype, of_numpy.array_shapes(min_dims=0, min_side=0, max_dims=3))
)


@given(st.dictionaries(st.text(min_size=1), ARRAYS, max_size=6))
def test_packed_arrays_come_back(state):
    arrays, places = packed(state)
    assert len(arrays) == len({array.dtype for array in state.values()})
    found = unpacked(arrays, places)
    assert list(found) == list(state)
    for name, array in state.items():
        assert found[name].dtype == array.dtype
        np.testing.assert_array_equal(found[name], array)


@pytest.mark.parametrize("length", [0, 5, 7])
def test_other_lengths_are_refused(length):
    _, places = packed({"a": np.zeros((2, 3)), "b": np.zeros(0)})
    with pytest.raises(ValueError, match=r"reshape|longer"):
        unpacked({"float64": np.zeros(length)}, places)
