"""dask: the empty array that tells what an array's blocks are."""

from __future__ import annotations

from typing import Any


def meta(X: Any) -> Any:
    """Of a dask array."""
    return X._meta
