"""How much memory values take, the arrays inside them counted; and where in memory these begin."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import numpy as np
from scipy import sparse


class SizedInBytes:
    """Objects whose `sys.getsizeof` counts what they hold, and whose arrays are aligned once they were sent.

    dask asks it: by that it sends tasks to where their data is, sends large values past the scheduler, and spills.
    """

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update({name: aligned(value) for name, value in state.items()})

    def __sizeof__(self) -> int:
        return object.__sizeof__(self) + size_of(vars(self))


def size_of(value: Any) -> int:
    """Bytes of a value: of an array its entries, of a collection its members."""
    if isinstance(value, np.ndarray):
        return value.nbytes
    if sparse.issparse(value):
        return size_of(vars(value))
    if isinstance(value, Mapping):  # copied, as another thread may cache something in an object meanwhile
        return sum(map(size_of, tuple(value.values())))
    if isinstance(value, tuple | list):
        return sum(map(size_of, value))
    return sys.getsizeof(value)


def aligned(value: Any) -> Any:
    """A value that was received, arrays in it that begin between two entries copied.

    numpy multiplies these by other routines than those of tasks that made them themselves, to other last digits.
    """
    if isinstance(value, np.ndarray):
        return value if value.flags.aligned else value.copy()
    if sparse.issparse(value):
        vars(value).update(aligned(vars(value)))
        return value
    if isinstance(value, dict):
        return {key: aligned(own) for key, own in value.items()}
    if type(value) in (tuple, list):
        return type(value)(map(aligned, value))
    return value
