"""A cache of the latest result."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

import numpy as np

Answer = TypeVar("Answer")


class SingleEntryCache(Generic[Answer]):
    """Caches the result for the latest array. Arrays are compared entry by entry with a copy.

    So an array that was changed in place is computed again, and a copy of the latest one is not. A comparison costs a
    pass over the array, little compared to a result that is worth caching.
    """

    def __init__(self) -> None:
        self._array: np.ndarray | None = None
        self._answer: Answer | None = None

    def of(self, array: np.ndarray, make: Callable[[np.ndarray], Answer]) -> Answer:
        """make(array), or the cached result for equal entries."""
        if self._array is None or self._answer is None or not np.array_equal(array, self._array):
            self._array = self._answer = None  # free the old result before making the new one
            self._answer = make(array)
            self._array = array.copy()
        return self._answer
