"""Answers for the rows of a dask array, as a dask array: made where its blocks are, when somebody asks for them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from streamsvm.data.finite import require_finite
from streamsvm.data.rows import Rows
from streamsvm.data.store import Store

Ask = Callable[[Any, Rows], np.ndarray]


def lazy_answers(model: Any, X: Any, ask: Ask) -> Any:
    """What ask(model, rows) gives for each block of a dask array (n, d). The model is one task of the graph."""
    from dask import delayed

    like = ask(model, Rows(np.zeros((1, X.shape[1]), np.float32)))[:0]
    X = X.rechunk({1: -1})
    shape: dict[str, Any] = {"drop_axis": 1} if like.ndim == 1 else {"chunks": (X.chunks[0], like.shape[1:])}
    once = delayed(model, traverse=False)
    return X.map_blocks(_answered, ask=ask, like=like, model=once, dtype=like.dtype, meta=like, **shape)


def _answered(block: Any, ask: Ask, like: np.ndarray, model: Any) -> np.ndarray:
    if not block.shape[0]:
        return like
    store = Store.from_arrays(block)
    return np.concatenate([_of_rows(store, start, stop, ask, model) for start, stop in store.blocks()])


def _of_rows(store: Store, start: int, stop: int, ask: Ask, model: Any) -> np.ndarray:
    rows = store.read(start, stop)
    require_finite(store, rows, start, gaps=model.takes_gaps)
    return ask(model, rows)
