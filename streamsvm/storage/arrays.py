"""State that is arrays, which a learner saves and restores."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

Arrays = Mapping[str, np.ndarray]  # by name
Attrs = dict[str, Any]  # JSON
State = tuple[dict[str, np.ndarray], Attrs]  # of what files keep
Packed = Sequence[tuple[str, str, Sequence[int]]]  # name, dtype and shape of each array, in order


def packed(state: Mapping[str, np.ndarray]) -> tuple[dict[str, np.ndarray], Packed]:
    """Arrays of one dtype as one, by dtype, and their places: many small arrays take long to write to files."""
    by_dtype: defaultdict[str, list[np.ndarray]] = defaultdict(list)
    for array in state.values():
        by_dtype[str(array.dtype)].append(array.ravel())
    places = [(name, str(array.dtype), array.shape) for name, array in state.items()]
    return {dtype: np.concatenate(arrays) for dtype, arrays in by_dtype.items()}, places


def unpacked(arrays: Arrays, places: Packed) -> dict[str, np.ndarray]:
    """The arrays that `packed` concatenated. Raises ValueError if they do not have these places."""
    whole = {dtype: np.asarray(arrays[dtype]) for dtype in {dtype for _, dtype, _ in places}}
    ends: defaultdict[str, int] = defaultdict(int)
    state = {}
    for name, dtype, shape in places:
        start = ends[dtype]
        ends[dtype] += math.prod(shape)
        state[name] = whole[dtype][start : ends[dtype]].reshape(shape)
    if any(len(whole[dtype]) != end for dtype, end in ends.items()):
        raise ValueError("arrays are longer than their places say")
    return state


def arrays_of(learner: InArrays) -> tuple[np.ndarray, ...]:
    """The arrays of a learner, in order, as compiled code takes them."""
    return tuple(learner.to_state().values())


class InArrays:
    """A learner whose state is the arrays of these names, changed in place."""

    ARRAYS: ClassVar[tuple[str, ...]]

    def to_state(self) -> dict[str, np.ndarray]:
        return {name: getattr(self, name) for name in self.ARRAYS}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restores a state of `to_state`."""
        for name in self.ARRAYS:
            getattr(self, name)[:] = np.asarray(state[name])
