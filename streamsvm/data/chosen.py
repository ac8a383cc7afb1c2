"""Some rows of a store, or its rows in other columns, as sources of rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from streamsvm.data.rows import Rows
from streamsvm.parallel.sizes import Weighed

if TYPE_CHECKING:
    from streamsvm.data.store import Store


class View(Weighed):
    """A source that reads the rows of a store."""

    n: int
    d: int
    dtype: np.dtype
    is_sparse: bool
    chunk_rows: int
    nbytes: int

    def __init__(self, store: Store) -> None:
        self.store = store

    def read(self, start: int, stop: int) -> Rows:
        raise NotImplementedError

    @property
    def has_gaps(self) -> bool:
        return self.store.has_gaps

    def origin(self, row: int) -> tuple[Store, int]:
        return self.store.origin(row)

    def ids_in(self, whole: Store, ids: np.ndarray) -> np.ndarray:
        return self.store.ids_in(whole, ids)


class Chosen(View):
    """The source of a subset."""

    def __init__(self, store: Store, ids: np.ndarray) -> None:
        super().__init__(store)
        self._ids, self.n = ids, len(ids)
        self.d, self.dtype, self.is_sparse = store.d, store.dtype, store.is_sparse
        share = self.n / store.n
        self.chunk_rows = max(
            1, round(store.chunk_rows * share)
        )  # about the number that one chunk of the store has
        self.nbytes = int(store.nbytes * share)

    def read(self, start: int, stop: int) -> Rows:
        return self.store.take(self._ids[start:stop])

    def take(self, ids: np.ndarray) -> Rows:
        return self.store.take(self._ids[ids])

    def origin(self, row: int) -> tuple[Store, int]:
        return self.store.origin(int(self._ids[row]))

    def ids_in(self, whole: Store, ids: np.ndarray) -> np.ndarray:
        return self.store.ids_in(whole, self._ids[ids])
