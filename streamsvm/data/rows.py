"""Rows: a block of samples, dense or CSR. The only type that passes from stores to kernels."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, pairwise
from typing import Any, TypeAlias, TypeVar

import numpy as np
from scipy import sparse

from streamsvm.parallel.sizes import SizedInBytes

Matrix: TypeAlias = np.ndarray | sparse.csr_array
Part = TypeVar("Part", np.ndarray, "Rows")
Result = TypeVar("Result")
FEW = 64  # rows that show which columns vary, in most data


@dataclass(frozen=True)
class Rows(SizedInBytes):
    """A block of m samples with d features.

    X: ndarray (m, d), C-contiguous, or scipy `csr_array` (m, d); uint8, float32 or float64.
    """

    X: Matrix

    def __len__(self) -> int:
        return self.X.shape[0]

    @property
    def d(self) -> int:
        return self.X.shape[1]

    @property
    def is_sparse(self) -> bool:
        return sparse.issparse(self.X)

    @property
    def csr(self) -> sparse.csr_array:
        """X of sparse rows."""
        return self.X

    @property
    def nbytes(self) -> int:
        if isinstance(self.X, np.ndarray):
            return self.X.nbytes
        return self.X.data.nbytes + self.X.indices.nbytes + self.X.indptr.nbytes

    def take(self, ids: np.ndarray | slice) -> Rows:
        if isinstance(self.X, np.ndarray) and isinstance(ids, np.ndarray) and ids.dtype.kind == "i":
            return Rows(np.take(self.X, ids, axis=0))  # in half the time of indexing
        return Rows(self.X[ids])

    def columns(self, ids: np.ndarray) -> Rows:
        """The columns with these numbers."""
        X = self.X
        return Rows(np.take(X, ids, axis=1) if isinstance(X, np.ndarray) else X[:, ids])  # X[:, ids] is by columns

    def once(self, make: Callable[[Rows], Result]) -> Result:
        """make(rows), computed once for these rows."""
        results = vars(self).setdefault("_results", {})
        if make not in results:
            results[make] = make(self)
        return results[make]

    def first_nonfinite(self, start: int = 0, *, gaps: bool = False) -> tuple[int, int, float] | None:
        """(row, column, value) of the first NaN or infinity, the first row being row `start`; None if there is none.

        gaps: NaN is allowed.
        """
        if self.X.dtype.kind != "f":
            return None
        entries = self.X if isinstance(self.X, np.ndarray) else self.X.data
        # A sum is finite unless an entry is not, or it overflows, so one fast pass nearly always suffices.
        with np.errstate(over="ignore", invalid="ignore"):
            if np.isfinite(np.add.reduce(entries, axis=None)):
                return None
        bad = np.flatnonzero(np.isinf(entries) if gaps else ~np.isfinite(entries))
        if not len(bad):
            return None
        entry = int(bad[0])
        if isinstance(self.X, np.ndarray):
            row, column = divmod(entry, self.d)
            return start + row, column, float(self.X[row, column])
        row = int(np.searchsorted(self.X.indptr, entry, side="right")) - 1
        return start + row, int(self.X.indices[entry]), float(self.X.data[entry])

    def arranged(self, columns: np.ndarray | None, d: int) -> Rows:
        """The columns with these numbers in order, -1 for zeros, then zeros up to d columns. None: all in order."""
        if columns is None:
            return self
        X: Any = self.X
        if (columns < 0).any():
            empty = sparse.csr_array((len(self), 1))
            X = sparse.hstack([X, empty], "csr") if self.is_sparse else np.pad(X, ((0, 0), (0, 1)))
        X = X[:, columns]
        if self.is_sparse:
            X.sort_indices()
            X.resize((len(self), d))
            return Rows(X)
        out = np.zeros((len(self), d), X.dtype)
        out[:, : len(columns)] = X
        return Rows(out)

    def astype(self, dtype: np.dtype | type) -> Rows:
        return self if self.X.dtype == dtype else Rows(self.X.astype(dtype))

    def times(self, weights: np.ndarray) -> Rows:
        """Columns multiplied by weights (d,), as float32."""
        weights = weights.astype(np.float32)
        X = self.X
        if isinstance(X, np.ndarray):
            return Rows((X * weights).astype(np.float32, copy=False))
        data = (X.data * weights[X.indices]).astype(np.float32, copy=False)
        return Rows(sparse.csr_array((data, X.indices, X.indptr), shape=X.shape))

    def dense(self) -> np.ndarray:
        return self.X if isinstance(self.X, np.ndarray) else self.X.toarray()

    @cached_property
    def sq_norms(self) -> np.ndarray:
        """(m,) float64 squared Euclidean norms."""
        X = self.X
        out = np.empty(len(self))
        if not isinstance(X, np.ndarray):
            cuts = np.searchsorted(X.indptr, np.arange(0, X.nnz, 1 << 16))
            for start, stop in pairwise(np.unique([0, *cuts, len(self)]).tolist()):
                entries = X.data[X.indptr[start] : X.indptr[stop]].astype(np.float64)
                rows = np.repeat(np.arange(stop - start), np.diff(X.indptr[start : stop + 1]))
                squares = np.square(entries, out=entries)
                out[start:stop] = np.bincount(rows, weights=squares, minlength=stop - start)
            return out
        step = max(1, (1 << 16) // max(1, self.d))  # tiles of 512 KiB: no float64 copy of the block
        for start in range(0, len(self), step):
            tile = X[start : start + step].astype(np.float64)
            out[start : start + step] = np.einsum("ij,ij->i", tile, tile)
        return out


def varying(blocks: Sequence[Rows], share: float) -> list[Rows]:
    """Dense blocks without the columns in which all rows of all blocks are equal, if these are at least this share of
    the columns; else the blocks."""
    arrays = [rows.X for rows in blocks if isinstance(rows.X, np.ndarray) and len(rows)]
    if len(arrays) < len(blocks):
        return list(blocks)
    first = arrays[0][0]
    is_equal = np.ones(len(first), bool)
    for X in chain((X[:FEW] for X in arrays), arrays):  # a few rows suffice where columns are continuous
        is_equal &= (X == first).all(axis=0)
        if np.count_nonzero(~is_equal) > (1 - share) * len(first):
            return list(blocks)
    columns = np.flatnonzero(~is_equal)
    if not len(columns):
        return list(blocks)
    return [rows.columns(columns) for rows in blocks]


def concat(blocks: list[Rows]) -> Rows:
    """Joins blocks in order into one. All blocks are dense, or all are CSR."""
    if blocks[0].is_sparse:
        return Rows(sparse.csr_array(sparse.vstack([b.X for b in blocks], format="csr")))
    return Rows(np.concatenate([b.X for b in blocks]))


def rows_state(name: str, rows: Rows) -> dict[str, np.ndarray]:
    """The arrays of a block of rows: one, or three for CSR."""
    X = rows.X
    if isinstance(X, np.ndarray):
        return {name: X}
    return {f"{name}_indptr": X.indptr.astype(np.int64), f"{name}_indices": X.indices, f"{name}_data": X.data}


def rows_from_state(name: str, arrays: Mapping[str, Any], d: int, start: int = 0, stop: int | None = None) -> Rows:
    """Rows start..stop from the arrays of `rows_state`."""
    if name in arrays:
        return Rows(np.asarray(arrays[name][start : len(arrays[name]) if stop is None else stop]))
    indptr = arrays[f"{name}_indptr"]
    indptr = np.asarray(indptr[start : len(indptr) if stop is None else stop + 1])
    entries = slice(int(indptr[0]), int(indptr[-1]))
    data, indices = (np.asarray(arrays[f"{name}_{part}"][entries]) for part in ("data", "indices"))
    return Rows(sparse.csr_array((data, indices, indptr - indptr[0]), shape=(len(indptr) - 1, d)))


def take_in_parts(
    ids: np.ndarray,
    chunks: np.ndarray,
    read: Callable[[list[np.ndarray]], Iterable[Part]],
    join: Callable[[list[Part]], Part],
) -> Part:
    """The rows `ids` (m,), at least one, in their order. chunks (m,): the number of the chunk or block of each row.

    read: gets sorted ids, split by chunk, and returns the rows of each. join: joins them into one.
    """
    order = np.argsort(ids, kind="stable")
    cuts = np.flatnonzero(np.diff(chunks[order])) + 1
    rows = join(list(read(np.split(ids[order], cuts))))
    if np.all(order[1:] > order[:-1]):
        return rows
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    return rows.take(place)
