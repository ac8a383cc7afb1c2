"""How much memory values take, the arrays inside them counted."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import numpy as np
from scipy import sparse


class Weighed:
    """Objects whose `sys.getsizeof` counts what they hold.

    dask asks it: by that it sends tasks to where their data is, sends large values past the scheduler, and spills.
    """

    def __sizeof__(self) -> int:
        return object.__sizeof__(self) + size_of(vars(self))


def size_of(value: Any) -> int:
    """Bytes of a value: of an array its entries, of a collection its members."""
    if isinstance(value, np.ndarray):
        return value.nbytes
    if sparse.issparse(value):
        return size_of(vars(value))
    if isinstance(value, Mapping):
        return sum(map(size_of, value.values()))
    if isinstance(value, tuple | list):
        return sum(map(size_of, value))
    return sys.getsizeof(value)
