"""Some rows of a store, as a source of rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from streamsvm.data.rows import Rows
from streamsvm.parallel.sizes import Weighed

if TYPE_CHECKING:
    from streamsvm.data.store import Store


class Chosen(Weighed):
    """The source of a subset."""

    def __init__(self, store: Store, ids: np.ndarray) -> None:
        self._store, self._ids, self.n = store, ids, len(ids)
        self.d, self.dtype, self.is_sparse = store.d, store.dtype, store.is_sparse
        share = self.n / store.n
        self.chunk_rows = max(
            1, round(store.chunk_rows * share)
        )  # about the number that one chunk of the store has
        self.nbytes = int(store.nbytes * share)

    @property
    def has_gaps(self) -> bool:
        return self._store.has_gaps

    def read(self, start: int, stop: int) -> Rows:
        return self._store.take(self._ids[start:stop])

    def take(self, ids: np.ndarray) -> Rows:
        return self._store.take(self._ids[ids])

    def origin(self, row: int) -> tuple[Store, int]:
        return self._store.origin(int(self._ids[row]))

    def original_ids(self, ids: np.ndarray) -> np.ndarray:
        return self._store.original_ids(self._ids[ids])
