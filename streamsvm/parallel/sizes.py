"""The memory that values take, with the arrays inside them; and the alignment of these arrays."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import numpy as np
from scipy import sparse


class SizedInBytes:
    """Objects whose `sys.getsizeof` counts their contents, and whose arrays are aligned after they were sent. dask uses
    the size: it runs tasks where their data is, sends large values past the scheduler, and spills."""

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update({name: aligned(value) for name, value in state.items()})

    def __sizeof__(self) -> int:
        return object.__sizeof__(self) + size_of(vars(self))


def size_of(value: object) -> int:
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
    """A received value, with copies of arrays in it that are not aligned. For those, numpy's products use other
    routines than for arrays of this process, and give other last digits."""
    if isinstance(value, np.ndarray):
        return value if value.flags.aligned else value.copy()
    if sparse.issparse(value):
        vars(value).update(aligned(vars(value)))
        return value
    if isinstance(value, dict):
        return {key: aligned(item) for key, item in value.items()}
    if type(value) in (tuple, list):
        return type(value)(map(aligned, value))
    return value
