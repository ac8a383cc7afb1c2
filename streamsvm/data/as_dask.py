"""A store as lazy Dask arrays. Each process that computes a block reads it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import sparse

if TYPE_CHECKING:
    from streamsvm.data.store import Store


def as_dask(store: Store, encoded: Any = None) -> tuple[Any, Any]:
    """X (n, d), of dense or CSR blocks, and y (n,) or None; see `Store.to_dask`. encoded: X of a dask dataframe."""
    from dask import array, delayed

    if encoded is not None:
        return encoded, array.from_array(store.y, chunks=encoded.chunks[:1]) if store.has_y else None
    sizes = tuple(stop - start for start, stop in store.blocks())
    meta = np.empty((0, store.d), store.dtype)
    X = array.map_blocks(
        _block,
        store=delayed(store, traverse=False),  # each worker opens it once
        chunks=(sizes, (store.d,)),
        dtype=store.dtype,
        meta=sparse.csr_array(meta) if store.is_sparse else meta,
    )
    return X, array.from_array(store.y, chunks=(sizes,)) if store.has_y else None


def _block(store: Store, block_info: Any = None) -> Any:
    (start, stop), _ = block_info[None]["array-location"]
    return store.read(start, stop).X
