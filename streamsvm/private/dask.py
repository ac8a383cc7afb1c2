"""dask: the empty array that describes an array's blocks."""

from __future__ import annotations

from typing import Any


def meta(X: Any) -> Any:
    """The empty array that describes the blocks of a dask array."""
    return X._meta
