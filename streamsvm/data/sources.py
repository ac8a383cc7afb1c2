"""Sources of rows with one small interface, `Source`: a zarr array, a CSR group, an array in memory, a Dask array.

`open_group` and `open_source` open those of a zarr store, and report every problem as an error of one line.
`source_of` wraps arrays, and `computed` computes values of Dask.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from threading import Lock
from typing import Any, Protocol, TypeAlias

import numpy as np
import zarr
from numpy.typing import DTypeLike
from scipy import sparse

from streamsvm.data.rows import Matrix, Rows, concat
from streamsvm.errors import ConfigError, CorruptDataError, DataError, NotFoundError, StorageError
from streamsvm.parallel.sizes import SizedInBytes
from streamsvm.private.dask import meta
from streamsvm.private.zarr import has_key, member_of, opened_as_is
from streamsvm.storage.chunks import CHUNK_BYTES, CheckedArray
from streamsvm.storage.paths import is_remote_failure, local_path, nearest

MAX_CHUNK_ROWS = 1 << 16
DaskCollection: TypeAlias = Any  # a Dask array or dataframe: Dask declares no types
TABLE_ATTRIBUTES = (  # attributes that arrays do not have; of a lazy frame the last ones would find out its columns
    "collect_schema",
    "to_table",
    "read_all",
    "__arrow_c_stream__",
    "column_names",
    "columns",
)


class Source(Protocol):
    """n rows of d features. `read` returns rows start..stop as `dtype`."""

    n: int
    d: int
    dtype: np.dtype
    is_sparse: bool
    chunk_rows: int
    nbytes: int

    def read(self, start: int, stop: int) -> Rows: ...


def default_chunk_rows(row_bytes: float) -> int:
    """The number of rows of `row_bytes` bytes in a chunk of about CHUNK_BYTES, from 1 to MAX_CHUNK_ROWS."""
    return int(np.clip(CHUNK_BYTES // max(1.0, row_bytes), 1, MAX_CHUNK_ROWS))


def row_dtype(dtype: DTypeLike, name: str = "X") -> np.dtype:
    """The dtype as which rows of `dtype` are read: uint8, float32 or float64, the first exact one. Raises DataError."""
    dtype = np.dtype(dtype)
    if dtype.kind == "b" or dtype == np.uint8:
        return np.dtype(np.uint8)
    if (dtype.kind in "iu" and dtype.itemsize <= 2) or (dtype.kind == "f" and dtype.itemsize <= 4):
        return np.dtype(np.float32)
    if dtype.kind in "iu" or dtype == np.float64 or (dtype.kind == "f" and dtype.itemsize == 8):
        return np.dtype(np.float64)
    raise DataError(f"{name} has dtype {dtype}; expected numbers (uint8, float32 or float64)")


def check_shape(shape: tuple[int, ...], name: str) -> None:
    """Raises DataError unless shape is (n, d) with at least one row and one column."""
    if len(shape) != 2:
        raise DataError(f"{name} has shape {shape}; expected (rows, features), reshape it to two axes")
    if 0 in shape:
        raise DataError(f"{name} of shape {shape} is empty; expected at least one row and one feature")


class DenseSource:
    """A zarr array (n, d)."""

    is_sparse = False

    def __init__(self, array: zarr.Array, name: str) -> None:
        check_shape(array.shape, f"array {name!r}")
        packed = {"scale_factor", "add_offset"} & set(array.attrs)
        if packed:
            raise DataError(f"array {name!r} is packed ({', '.join(sorted(packed))}); write it unpacked")
        self._array = CheckedArray(array, name)
        self.n, self.d = array.shape
        self.dtype = row_dtype(array.dtype, f"array {name!r}")
        self.chunk_rows = self._array.chunk_rows
        self.nbytes = self.n * self.d * self.dtype.itemsize

    def read(self, start: int, stop: int) -> Rows:
        return Rows(np.ascontiguousarray(self._array.read(start, stop), dtype=self.dtype))


class CSRSource:
    """A zarr group in anndata's `csr_matrix` encoding: data, indices, indptr and the attribute `shape`."""

    is_sparse = True

    def __init__(self, group: zarr.Group, name: str) -> None:
        self._name = name
        encoding = group.attrs.get("encoding-type")
        if encoding == "csc_matrix":
            problem = f"group {name!r} is stored by columns (csc_matrix)"
            raise DataError(f"{problem}; expected rows: write it again with anndata after `adata.X = adata.X.tocsr()`")
        if encoding != "csr_matrix":
            raise DataError(f"group {name!r} has encoding-type {encoding!r}; expected 'csr_matrix' or an array")
        self._data, self._indices, self._indptr = (_member(group, name, k) for k in ("data", "indices", "indptr"))
        shape: Any = group.attrs.get("shape", ())
        check_shape(tuple(shape), f"group {name!r}")
        self.n, self.d = int(shape[0]), int(shape[1])
        if len(self._indptr) != self.n + 1 or len(self._data) != len(self._indices):
            raise DataError(
                f"group {name!r} of {self.n} rows has {len(self._indptr)} indptr, {len(self._indices)} indices and "
                f"{len(self._data)} data entries; expected {self.n + 1} indptr and as many indices as data"
            )
        self.dtype = row_dtype(self._data.dtype, f"array '{name}/data'")
        self.nnz = len(self._data)
        if int(self._indptr.read(0, 1)[0]) != 0 or int(self._indptr.read(self.n, self.n + 1)[0]) != self.nnz:
            raise self._bad(0, self.n, f"indptr does not run from 0 to the number of entries, {self.nnz}")
        self.chunk_rows = int(np.clip(self._data.chunk_rows * self.n // max(1, self.nnz), 1, self.n))
        self.nbytes = self.nnz * (self.dtype.itemsize + 4) + 8 * (self.n + 1)

    def read(self, start: int, stop: int) -> Rows:
        X = self.read_as_stored(start, stop)
        if not X.has_canonical_format:
            X.sum_duplicates()
        return Rows(X)

    def read_as_stored(self, start: int, stop: int) -> sparse.csr_array:
        """Rows start..stop with their indices as stored. Raises CorruptDataError."""
        indptr = self._indptr.read(start, stop + 1).astype(np.int64)
        lo, hi = int(indptr[0]), int(indptr[-1])
        if lo < 0 or hi > self.nnz or np.any(np.diff(indptr) < 0):
            raise self._bad(start, stop, "indptr is not rising from 0 to the number of entries")
        indices = self._indices.read(lo, hi)
        if len(indices) and not 0 <= indices.min() <= indices.max() < self.d:
            span = f"{indices.min()} to {indices.max()}"
            raise self._bad(start, stop, f"column indices {span} do not fit {self.d} columns")
        return narrow_csr(self._data.read(lo, hi).astype(self.dtype, copy=False), indices, indptr - lo, self.d)

    def _bad(self, start: int, stop: int, what: str) -> CorruptDataError:
        return CorruptDataError(f"group {self._name!r}, rows {start} to {stop - 1}: {what}; write the store again")


def narrow_csr(data: np.ndarray, indices: np.ndarray, indptr: np.ndarray, d: int) -> sparse.csr_array:
    """A csr_array of d columns with the narrowest index type that holds it."""
    width = np.int32 if max(d, len(data)) < 2**31 else np.int64
    index = indices.astype(width, copy=False), indptr.astype(width, copy=False)
    return sparse.csr_array((data, *index), shape=(len(indptr) - 1, d))


def csr(data: np.ndarray, indices: np.ndarray, indptr: np.ndarray, d: int) -> sparse.csr_array:
    """A canonical (sorted, no duplicates) csr_array with the narrowest index type that holds it."""
    X = narrow_csr(data, indices, indptr, d)
    if not X.has_canonical_format:
        X.sum_duplicates()
    return X


def _member(group: zarr.Group, name: str, key: str) -> CheckedArray:
    if key not in group:
        raise CorruptDataError(f"group {name!r} has no {key!r} array; a csr_matrix has data, indices and indptr")
    member = group[key]
    if not isinstance(member, zarr.Array):
        raise DataError(f"'{name}/{key}' is a group; expected an array")
    return CheckedArray(member, f"{name}/{key}")


def as_rows(X: Matrix, dtype: np.dtype) -> Rows:
    """Dense or CSR rows as canonical ones of this dtype."""
    if isinstance(X, np.ndarray):
        return Rows(np.ascontiguousarray(X, dtype=dtype))
    return Rows(csr(X.data.astype(dtype, copy=False), X.indices, X.indptr, X.shape[1]))


class ArraySource(SizedInBytes):
    """A numpy array or scipy CSR matrix in memory."""

    def __init__(self, X: Any) -> None:
        self.is_sparse = sparse.issparse(X)
        self._X: Matrix = sparse.csr_array(X) if self.is_sparse else np.asarray(X)
        check_shape(self._X.shape, "X")
        self.n, self.d = self._X.shape
        self.dtype = row_dtype(self._X.dtype)
        entries = X.nnz if self.is_sparse else self.n * self.d
        entry_bytes = self.dtype.itemsize + (4 if self.is_sparse else 0)
        self.nbytes = entries * entry_bytes
        self.chunk_rows = default_chunk_rows(self.nbytes / self.n)

    def read(self, start: int, stop: int) -> Rows:
        return self._rows(self._X[start:stop])

    def take(self, ids: np.ndarray) -> Rows:
        return self._rows(self._X[ids])

    def _rows(self, X: Matrix) -> Rows:
        return as_rows(X, self.dtype)


class DaskSource:
    """A dask array of dense or scipy CSR blocks; `read` computes the blocks it needs."""

    def __init__(self, X: DaskCollection) -> None:
        if any(np.isnan(size) for size in X.shape):
            raise DataError("dask array X has chunks of unknown size; call X.compute_chunk_sizes() first")
        check_shape(X.shape, "X")
        self._X = X
        self._edges = np.cumsum([0, *X.chunks[0]])
        self.n, self.d = X.shape
        self.dtype = row_dtype(X.dtype)
        self.is_sparse = sparse.issparse(meta(X))
        self.chunk_rows = max(X.chunks[0])
        self.nbytes = self.n * self.d * self.dtype.itemsize

    def read(self, start: int, stop: int) -> Rows:
        cuts = self._edges[(self._edges > start) & (self._edges < stop)]
        bounds = [start, *cuts.tolist(), stop]
        return concat([self._piece(lo, hi) for lo, hi in zip(bounds, bounds[1:], strict=False)])

    def _piece(self, start: int, stop: int) -> Rows:
        return self._rows(computed(self._X[start:stop]))

    def _rows(self, X: Matrix) -> Rows:
        return as_rows(sparse.csr_array(X) if sparse.issparse(X) else np.asarray(X), self.dtype)


class PartitionSource(DaskSource):
    """A Dask array of encoded partitions, read in the blocks that its rows would have in memory.

    The last partition is kept, because it may have several of these blocks.
    """

    def __init__(self, X: DaskCollection, nbytes: int) -> None:
        super().__init__(X)
        self.nbytes = nbytes
        self.chunk_rows = default_chunk_rows(nbytes / self.n)
        self._lock, self._last, self._partition = Lock(), -1, None

    @property
    def encoded(self) -> DaskCollection:
        """The dask array."""
        return self._X

    def __reduce__(self) -> tuple[object, ...]:
        return PartitionSource, (self._X, self.nbytes)

    def _piece(self, start: int, stop: int) -> Rows:
        part = int(np.searchsorted(self._edges[1:-1], start, side="right"))
        with self._lock:
            if part != self._last:
                self._last, self._partition = part, computed(self._X.blocks[part])
            X: Any = self._partition
        first = self._edges[part]
        return self._rows(X[start - first : stop - first])


def computed(X: DaskCollection) -> Any:
    """The values of a Dask array or frame, computed in the calling thread, or by a cluster that keeps its blocks."""
    if "distributed" in sys.modules:
        from distributed import futures_of

        if _is_in_task() and not is_dask_frame(X):
            return _in_task(X)
        futures = futures_of(X)
        if futures:
            return futures[0].client.compute(X, sync=True)
    if is_dask_frame(X):
        return X.compute(scheduler="synchronous")
    import dask

    (X,) = dask.optimize(X)
    return _finished(X, X.__dask_graph__())


def _is_in_task() -> bool:
    """Whether a worker of a cluster runs this. Computing on the same cluster would wait for itself."""
    from distributed import get_worker

    with suppress(ValueError):
        return get_worker() is not None
    return False


def _in_task(X: DaskCollection) -> Any:
    """The values of a Dask array, computed by this task from blocks of the workers that keep them."""
    from dask.core import flatten
    from distributed import Future

    from streamsvm.private.distributed import worker_values

    graph = dict(X.__dask_graph__().cull(set(flatten(X.__dask_keys__()))))
    future_keys = [key for key, value in graph.items() if isinstance(value, Future)]
    return _finished(X, graph | worker_values(future_keys))


def _finished(X: DaskCollection, graph: Mapping[Any, Any]) -> Any:
    """X.compute() of this graph in the calling thread, without the warning of an active client."""
    import dask

    finish, options = X.__dask_postcompute__()
    return finish(dask.get(graph, X.__dask_keys__()), *options)


def is_dask(X: object) -> bool:
    """Whether X is a Dask array, dataframe or series."""
    return is_dask_frame(X) or type(X).__module__.startswith("dask.array")


def is_dask_frame(X: object) -> bool:
    """Whether X is a Dask dataframe or series."""
    return type(X).__module__.startswith(("dask.dataframe", "dask_expr"))


def is_table(X: object) -> bool:
    """Whether X may be a table with named columns: a data frame of any library, in memory, lazy or of Dask."""
    return is_dask_frame(X) or any(hasattr(X, name) for name in TABLE_ATTRIBUTES)


def source_of(X: object) -> Source:
    """The source for an array in memory or a dask array."""
    return DaskSource(X) if is_dask(X) else ArraySource(X)


def open_group(url: str | os.PathLike[str]) -> zarr.Group:
    """The zarr group at url, read-only. Raises NotFoundError, ConfigError, StorageError or DataError of one line."""
    path = local_path(url)
    if path is not None and not path.exists():
        raise NotFoundError(f"{url} does not exist; expected a zarr store{nearest(path)}")
    if path is not None and not path.is_dir():
        raise DataError(f"{url} is a file, not a zarr store; make one with `streamsvm ingest {url} --store S`")
    try:
        return opened_as_is(path or str(url))
    except FileNotFoundError:
        what = "is a directory but not a zarr group" if path else "holds no zarr group"
        raise NotFoundError(f"{url} {what}; expected a store that `streamsvm ingest` or zarr wrote") from None
    except ImportError as error:
        raise ConfigError(f"{url}: {error}; pip install s3fs, gcsfs or the like") from None
    except Exception as error:
        reason = " ".join(str(error).split())
        if path is None and is_remote_failure(error):
            raise StorageError(f"{url} cannot be reached: {reason}") from error
        if isinstance(error, ValueError | LookupError | TypeError | AttributeError | RuntimeError | OSError):
            raise DataError(f"{url} cannot be opened as a zarr group: {reason}") from error
        raise


def open_source(group: zarr.Group, x: str, url: str) -> Source:
    """The rows of array or CSR group `x`. Raises DataError, CorruptDataError."""
    if x not in group:
        if any(has_key(group, f"{x}/{name}") for name in ("zarr.json", ".zarray")):
            raise CorruptDataError(f"{url}: the metadata of array {x!r} is damaged; restore it from a copy")
        members = ", ".join(sorted(k for k, _ in group.members())) or "nothing"
        raise DataError(f"{url} has no array {x!r} (it holds: {members}); name the feature array with --x")
    member = member_of(group, x)
    return DenseSource(member, x) if isinstance(member, zarr.Array) else CSRSource(member, x)
