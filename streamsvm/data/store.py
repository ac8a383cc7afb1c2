"""Store: samples with their labels and optional columns, read in blocks of rows, from zarr, memory or dask.

A `Store` reads its rows from a `Source` (sources.py) and its columns through `ColumnValues` (columns.py). A
`StoreView` is a source that reads the rows of another store; `SubsetSource` reads some of them. A store knows nothing
of tables: `Store.from_arrays` loads the encoder of data frames when it gets the first one.
"""

from __future__ import annotations

import hashlib
import json
import os
import zlib
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import cached_property, partial
from itertools import pairwise
from typing import Any

import numpy as np
from scipy import sparse

from streamsvm.data.columns import ColumnValues, check_column, labels_of, open_column, queries_of, values_of, weights_of
from streamsvm.data.labels import Classes, count_labels, uniform_pieces
from streamsvm.data.layout import GAPS, Layout, Names, names_in_attrs, names_of_others, shown_in_attrs
from streamsvm.data.rows import Matrix, Rows, concat, take_in_parts
from streamsvm.data.sources import (
    CSRSource,
    DaskCollection,
    Source,
    computed,
    default_chunk_rows,
    is_dask_frame,
    is_table,
    open_group,
    open_source,
    source_of,
)
from streamsvm.data.statistics import MISSING, StoredStatistics
from streamsvm.errors import DataError
from streamsvm.parallel.imports import imported
from streamsvm.parallel.prefetch import ahead
from streamsvm.parallel.sizes import SizedInBytes
from streamsvm.storage.atomic import PARTIAL
from streamsvm.storage.chunks import whole_metadata
from streamsvm.storage.paths import STORE_MARK, local_path
from streamsvm.texts.documented import FactsRepr, fill
from streamsvm.texts.parameters import STORE_METHODS

TABLE_ENCODER = "streamsvm.tables.frames:encoded"  # makes rows of data frames; loaded with the first one
WHOLE = "2-"  # begins fingerprints that know all of the data
LARGEST = 1e150  # of rows that are scaled: their squares fit float64
READERS = 2  # threads that read ahead: more are not faster, because zarr decompresses in one
MANY_BLOCKS, LARGE_BYTES = (256, 32 << 20)  # beyond so many blocks, blocks grow to this size, because each is a task


class Store(FactsRepr, SizedInBytes):
    """n samples of d features with their labels. Read-only, read block by block, and never loaded whole.

    Make one with `Store.open` (zarr) or `Store.from_arrays` (numpy, scipy CSR, dask). Row ids are 0..n-1.
    A store opened by URL pickles as its URL.

    >>> import numpy as np
    >>> from streamsvm import Store
    >>> store = Store.from_arrays(np.eye(4), ["a", "b", "a", "b"])
    >>> store, store.blocks(2), store.read(0, 2).X.shape
    (Store(in memory, 4 x 4 float64 dense, y), [(0, 2), (2, 4)], (2, 4))
    """

    def __init__(
        self,
        source: Source,
        columns: dict[str, Any],
        *,
        url: str | None = None,
        names: dict[str, str] | None = None,
        attrs: dict[str, Any] | None = None,
        feature_names: Names | None = None,
    ) -> None:
        self._source, self._columns = source, columns
        self.url, self.attrs, self._names = url, attrs or {}, names or {}
        self._feature_names = feature_names
        self._stored: StoredStatistics | None = None
        self.n, self.d, self.dtype = source.n, source.d, source.dtype
        self.is_sparse, self.chunk_rows, self.nbytes = source.is_sparse, source.chunk_rows, source.nbytes
        for name, column in columns.items():
            check_column(name, column, self.n)

    @classmethod
    def open(
        cls,
        url: str | os.PathLike[str],
        *,
        x: str = "X",
        y: str = "y",
        qid: str = "qid",
        group: str = "group",
        sample_weight: str = "sample_weight",
    ) -> Store:
        """The store at a path or URL. Raises NotFoundError if there is nothing, DataError if it is not a store.

        Parameters
        ----------
        x : str
            Name of its array of rows, or of its CSR group.
        y : str
            Name of its array of labels.
        qid : str
            Name of its array of queries.
        group : str
            Name of its array of groups.
        sample_weight : str
            Name of its array of weights.
        """
        opened = open_group(url)
        with whole_metadata(str(url)):
            if opened.attrs.get(PARTIAL):
                raise DataError(f"{url} is an unfinished write; ingest it again")
            source = open_source(opened, x, str(url))
            names = {"y": y, "qid": qid, "group": group, "sample_weight": sample_weight}
            columns = {k: open_column(opened, name) for k, name in names.items() if name in opened}
            store = cls(source, columns, url=str(url), names={"x": x, **names}, attrs=dict(opened.attrs))
            store._stored = StoredStatistics(opened, store.n) if STORE_MARK in opened.attrs else None
            return store

    @classmethod
    def from_arrays(
        cls,
        X: Any,
        y: object = None,
        *,
        sample_weight: object = None,
        qid: object = None,
        group: object = None,
        feature_names: Names | None = None,
        like: Layout | Mapping[str, float | str] | None = None,
        category: Collection[str] = (),
    ) -> Store:
        """A store over numpy arrays, scipy CSR, dask arrays, or frames of pandas, polars, dask and Arrow.

        Data frames are encoded as `streamsvm ingest` encodes tables: a column for each value of text, times as days.
        Raises DataError.
        """
        columns_given = {"y": y, "sample_weight": sample_weight, "qid": qid, "group": group}
        columns_given = {k: computed(v) if is_dask_frame(v) else v for k, v in columns_given.items()}
        columns = {k: v if hasattr(v, "ndim") else np.asarray(v) for k, v in columns_given.items() if v is not None}
        if is_table(X):
            source, attrs = imported(TABLE_ENCODER)(X, like, category)
            if attrs:
                return cls(source, columns, attrs=attrs, feature_names=names_in_attrs(attrs, source.d))
        if isinstance(like, Mapping) and like:
            raise DataError("target_encode names text columns of a data frame, found an array; leave it out")
        if category:
            raise DataError("category names columns of a data frame, found an array; leave it out")
        return cls(source_of(X), columns, feature_names=feature_names)

    def __reduce__(self) -> tuple[object, ...]:
        if self.url is not None and not isinstance(self._source, StoreView):
            path = local_path(self.url)  # absolute, because another process may run in another folder
            return partial(Store.open, self.url if path is None else str(path.absolute()), **self._names), ()
        facts: dict[str, Any] = {"attrs": self.attrs, "feature_names": self._feature_names}
        return partial(Store, url=self.url, names=self._names, **facts), (self._source, self._columns)

    def facts(self) -> dict[str, str]:
        """Place, shape and columns, as a notebook shows them."""
        layout = "CSR" if self.is_sparse else "dense"
        facts = {"place": self.url or "in memory", "rows x features": f"{self.n} x {self.d} {self.dtype} {layout}"}
        return facts | ({"columns": ", ".join(self._columns)} if self._columns else {})

    def __len__(self) -> int:
        return self.n

    def blocks(self, max_rows: int | None = None) -> list[tuple[int, int]]:
        """Half-open row ranges that cover 0..n in order, on chunk borders where possible."""
        if max_rows is None:  # a chunk, or small chunks together; float_bytes: of a row as it is computed with
            row_bytes = self.nbytes / self.n
            float_bytes = row_bytes if self.is_sparse else max(row_bytes, 4 * self.d)
            many = min(self.n // MANY_BLOCKS, int(LARGE_BYTES / float_bytes))
            max_rows = max(self.chunk_rows, default_chunk_rows(row_bytes), many)
        return row_ranges(self.n, self.chunk_rows, max_rows)

    def read(self, start: int, stop: int) -> Rows:
        """Rows start..stop, as stored. Raises CorruptDataError naming array, chunk and rows."""
        if not 0 <= start <= stop <= self.n:
            raise IndexError(f"rows {start} to {stop} of a store of {self.n} rows")
        return self._source.read(start, stop)

    def is_canonical(self, start: int, stop: int) -> bool:
        """Whether rows start..stop are stored with sorted, unique indices. If not, `read` sorts and sums them."""
        if not isinstance(self._source, CSRSource):
            return True
        return bool(self._source.read_as_stored(start, stop).has_canonical_format)

    def take(self, ids: np.ndarray) -> Rows:
        """The rows with these ids, in the order of ids. Each chunk that holds some is read once."""
        ids = np.asarray(ids, dtype=np.int64)
        if len(ids) and not 0 <= ids.min() <= ids.max() < self.n:
            raise IndexError(f"row ids {ids.min()} to {ids.max()} of a store of {self.n} rows")
        if hasattr(self._source, "take"):
            return self._source.take(ids)
        if not len(ids):
            return self.read(0, 0)

        def pick(part: np.ndarray) -> Rows:
            return self.read(int(part[0]), int(part[-1]) + 1).take(part - part[0])

        return take_in_parts(ids, ids // self.chunk_rows, lambda parts: ahead(pick, parts, READERS), concat)

    def subset(self, ids: np.ndarray) -> Store:
        """The rows with these sorted ids, as a separate store that reads them from this one."""
        ids = np.asarray(ids, dtype=np.int64)
        if not len(ids) or np.any(np.diff(ids) <= 0) or not 0 <= ids[0] <= ids[-1] < self.n:
            raise IndexError(f"expected rising row ids from 0 to {self.n - 1}, at least one")
        return Store(SubsetSource(self, ids), self.columns_at(ids), feature_names=self.feature_names)

    def columns(self) -> dict[str, np.ndarray]:
        """y, qid, group and sample_weight, if present."""
        return {name: getattr(self, name) for name in self._columns}

    def columns_at(self, ids: np.ndarray) -> dict[str, np.ndarray]:
        """`columns` of the rows with these ids."""
        readers: dict[str, Callable[[np.ndarray], Any]] = {"y": self.labels_at, "sample_weight": self.weights_at}
        return {k: readers[k](ids) if k in readers else getattr(self, k)[ids] for k in self._columns}

    def origin(self, row: int) -> tuple[Store, int]:
        """The store that a row is read from, and its id there."""
        source = self._source
        return source.store.origin(int(source.ids(np.array(row)))) if isinstance(source, StoreView) else (self, row)

    def ids_in(self, whole: Store, ids: np.ndarray) -> np.ndarray:
        """The ids of rows of this store in the one that they were chosen from.

        Parameters
        ----------
        whole : Store
            That store.
        ids : ndarray of shape (m,)
            Row numbers, from 0 to n - 1.
        """
        source = self._source
        if self is whole or not isinstance(source, StoreView):
            return ids
        return source.store.ids_in(whole, source.ids(ids))

    def to_dask(self) -> tuple[Any, Any]:
        """(X, y) as lazy Dask arrays, chunk for chunk. Only labels are read at once. Without labels, y is None.

        Blocks of sparse rows are SciPy's csr_array. Reading raises CorruptDataError naming array, chunk and rows.
        """
        from dask import array, delayed

        X: DaskCollection = getattr(self._source, "encoded", None)  # of a dask dataframe
        if X is None:
            sizes = tuple(stop - start for start, stop in self.blocks())
            empty = np.empty((0, self.d), self.dtype)
            X = array.map_blocks(
                _block,
                store=delayed(self, traverse=False),  # each worker opens it once
                chunks=(sizes, (self.d,)),
                dtype=self.dtype,
                meta=sparse.csr_array(empty) if self.is_sparse else empty,
            )
        return X, array.from_array(self.y, chunks=X.chunks[:1]) if self.has_y else None

    @property
    def row_entries(self) -> float:
        """Stored entries per row, on average."""
        return self.nbytes / (self.n * (self.dtype.itemsize + 4 * self.is_sparse))

    @property
    def has_y(self) -> bool:
        return "y" in self._columns

    @cached_property
    def _y(self) -> ColumnValues:
        if not self.has_y:
            name = self._names.get("y", "y")
            problem = f"{self.url or 'the data'} has no labels (no array {name!r})"
            raise DataError(f"{problem}; --label names the column of a file, --y the array of a store")
        return ColumnValues(self._columns["y"], self.n, labels_of)

    @property
    def y(self) -> np.ndarray:
        """(n,) labels of int64, float64 or str. Raises DataError if there are none or one is missing."""
        return self._y.all

    @property
    def reads_labels(self) -> bool:
        """Whether labels of some rows can be read without all others."""
        return self.has_y and self._y.in_parts

    def labels(self, start: int, stop: int) -> np.ndarray:
        """`y` of rows start..stop. Raises as `y`."""
        return self._y.read(start, stop)

    def label_blocks(self) -> Iterator[tuple[int, int]]:
        """Stretches that cover all rows, each of rows whose labels are best read together."""
        return self._y.blocks()

    def labels_at(self, ids: np.ndarray) -> np.ndarray:
        """`y` of the rows with these ids. Raises as `y`."""
        return self._y.take(ids)

    @cached_property
    def classes(self) -> Classes:
        """The distinct labels and their counts, as ingest kept them, else from one pass. Raises as `y`.

        Labels of a file are read in pieces, because text takes many times the memory of its codes.
        """
        return self._known_classes or Classes(*np.unique(self.y, return_counts=True))

    @cached_property
    def stored_classes(self) -> Classes | None:
        """`classes`, if ingest kept them."""
        return self._stored.classes() if self._stored and self.has_y and self._names["y"] == "y" else None

    @cached_property
    def _known_classes(self) -> Classes | None:
        return self.stored_classes or self.count_labels()

    def count_labels(self) -> Classes | None:
        """`classes` from a pass, or None if they are too many to count in this way."""
        return count_labels(self._y.pieces())

    @cached_property
    def coded(self) -> tuple[np.ndarray, np.ndarray]:
        """(k,) the distinct labels, sorted, and (n,) int32 the index of each row's label. Raises as `y`."""
        classes, codes = self.classes, np.empty(self.n, np.int32)
        for start, stop in self.label_blocks():
            codes[start:stop] = classes.codes(self.labels(start, stop))
        return classes.values, codes

    @property
    def has_qid(self) -> bool:
        return "qid" in self._columns

    @cached_property
    def qid(self) -> np.ndarray | None:
        """(n,) query ids, whole numbers >= 0 or text, or None. Raises DataError."""
        if not self.has_qid:
            return None
        return queries_of(values_of(self._columns["qid"]), self.url or "the data")

    @cached_property
    def group(self) -> np.ndarray | None:
        """(n,) numbers or text, or None. Rows with the same value are never in two folds, and are held out together."""
        return values_of(self._columns["group"]) if "group" in self._columns else None

    @property
    def connected_groups(self) -> np.ndarray | None:
        """(n,) numbers from 0: rows that share a query or a group, directly or through others, have one. Or None."""
        columns = [np.unique(v, return_inverse=True)[1] for v in (self.qid, self.group) if v is not None]
        if len(columns) < 2:
            return columns[0] if columns else None
        query, group = columns
        n_queries, n = int(query.max()) + 1, int(query.max() + group.max()) + 2
        edges = sparse.coo_array((np.ones(self.n, bool), (query, n_queries + group)), shape=(n, n))
        return sparse.csgraph.connected_components(edges, directed=False)[1][query]

    @cached_property
    def _weights(self) -> ColumnValues | None:
        column = self._columns.get("sample_weight")
        return None if column is None else ColumnValues(column, self.n, weights_of)

    @property
    def sample_weight(self) -> np.ndarray | None:
        """(n,) float64 finite non-negative weights, or None. Raises DataError."""
        return None if self._weights is None else self._weights.all

    def weights(self, start: int, stop: int) -> np.ndarray | None:
        """`sample_weight` of rows start..stop. Raises DataError."""
        return None if self._weights is None else self._weights.read(start, stop)

    def weights_at(self, ids: np.ndarray) -> np.ndarray | None:
        """`sample_weight` of the rows with these ids. Raises DataError."""
        return None if self._weights is None else self._weights.take(ids)

    def require_weights(self) -> None:
        """Reads all weights without keeping them. Raises DataError for an invalid weight."""
        for _ in () if self._weights is None else self._weights.pieces():
            pass

    @cached_property
    def statistics(self) -> dict[str, np.ndarray] | None:
        """min, max, mean and std of each feature, (d,) float64 each, and counts of gaps, if ingest kept them."""
        return self._stored.columns() if self._stored and self._names["x"] == "X" else None

    @property
    def has_gaps(self) -> bool:
        """Whether ingest found missing values, in these rows or in the rows that they were selected from."""
        if isinstance(self._source, StoreView):
            return self._source.store.has_gaps
        return bool(self.attrs.get(GAPS)) or (self.statistics is not None and MISSING in self.statistics)

    @cached_property
    def feature_names(self) -> Names | None:
        """(d,) names of the columns of X, if they have any. Raises CorruptDataError."""
        names = self._feature_names
        with whole_metadata(self.url or "X"):
            if STORE_MARK in self.attrs:
                names = names_in_attrs(self.attrs, self.d)
            elif self.url is not None:
                names = names_of_others(open_group(self.url), self._names["x"], self.d)
        return names if names and len(names) == self.d else None

    @property
    def shown_names(self) -> Names | None:
        """(d,) names to show for the columns: `feature_names`, or numbers in the table if there is no header."""
        return self.feature_names or shown_in_attrs(self.table, self.d)

    @property
    def layout(self) -> Layout | None:
        """The layout of its rows, if `ingest` made it."""
        return Layout.of(self.d, self.dtype, self.is_sparse, self.attrs)

    @property
    def table(self) -> dict[str, Any]:
        """The attributes of the store that its rows were chosen from, or its own, with the columns of its table."""
        return self._source.store.table if isinstance(self._source, SubsetSource) else self.attrs

    def in_columns(self, view: StoreView, attrs: dict[str, Any]) -> Store:
        """This store with the rows of a view of it, in the columns that these attributes describe."""
        names = names_in_attrs(attrs, view.d)
        facts: dict[str, Any] = {"url": self.url, "names": self._names, "attrs": attrs, "feature_names": names}
        return Store(view, self._columns, **facts)

    def gaps_option(self, value: str = "") -> str:
        """The option that fills missing values: of a store on the command line, of data in memory in Python.

        Parameters
        ----------
        value : str
            Value of the option. Empty: the option alone.
        """
        if self.url is None:
            return f'gaps="{value}"' if value else "gaps"
        return f"--gaps {value}".rstrip()

    def read_finite(self, start: int, stop: int, *, gaps: bool = False) -> Rows:
        """As `read`. Raises DataError as `require_finite`, too.

        Parameters
        ----------
        gaps : bool
            Whether NaN is allowed.
        """
        rows = self.read(start, stop)
        self.require_finite(rows, start, gaps=gaps)
        return rows

    def require_finite(self, rows: Rows, first_row: int | np.ndarray, *, gaps: bool = False) -> None:
        """Raises DataError naming chunk, row and column if rows of this store hold infinity, or NaN without `gaps`.

        Parameters
        ----------
        rows : Rows
            A block of this store.
        first_row : int or ndarray of shape (m,)
            The number of its first row, or the numbers of all its rows.
        gaps : bool
            Whether NaN is allowed.
        """
        bad = rows.first_nonfinite(gaps=gaps)
        if bad is None:
            return
        block_row, column, value = bad
        number = first_row[block_row] if isinstance(first_row, np.ndarray) else first_row + block_row
        store, row = self.origin(int(number))
        advice = "correct the source and ingest it again"
        if np.isnan(value):
            advice = f"fill it in, or fit with {store.gaps_option('mean')} (or median, most_frequent)"
        problem = f"{store.url or 'X'}: row {row}, column {column} (chunk {row // store.chunk_rows}) is {value}"
        raise DataError(f"{problem}; expected finite numbers: {advice}")

    def require_squares(self, low: np.ndarray, high: np.ndarray) -> None:
        """Raises DataError naming a column whose values are too large for variances.

        Parameters
        ----------
        low : ndarray of shape (d,)
            Lowest value of each column.
        high : ndarray of shape (d,)
            Highest value of each column.
        """
        largest = np.maximum(-low, high)
        largest[~np.isfinite(largest)] = 0.0  # without values
        column = int(np.argmax(largest))
        if largest[column] > LARGEST:
            names = self.feature_names
            name = column if names is None else repr(names[column])
            problem = f"{self.url or 'X'}: column {name} has values up to {largest[column]:.3g}"
            raise DataError(f"{problem}, expected at most {LARGEST:.0e}: give them in other units")

    def fingerprint(self) -> str:
        """The identity of all that a fit may read: rows, columns, labels, weights, groups and queries.

        Rows of a store that ingest wrote are known by its checksum; those of others are read once, block by block.
        """
        return self._fingerprint

    @cached_property
    def _fingerprint(self) -> str:
        source = self._source
        if isinstance(source, SubsetSource):
            state = hashlib.blake2b(source.store.fingerprint().encode(), digest_size=16)
            state.update(source.ids(np.arange(self.n)).tobytes())
            return WHOLE + state.hexdigest()
        if isinstance(source, StoreView):
            return source.store.fingerprint()
        state = self._digest()
        if self.attrs.get("content") is None or self._names.get("x") != "X":
            state.update(json.dumps(self._row_checksums()).encode())
        for name, column in (("qid", self.qid), ("sample_weight", self._weights)):
            if column is not None:
                state.update(name.encode())
                for piece in column.pieces() if isinstance(column, ColumnValues) else [column]:
                    state.update(piece.tobytes())
        return WHOLE + state.hexdigest()

    def matches(self, fingerprint: str) -> bool | None:
        """Whether a fingerprint is that of this data. None: it is of version 0.2 and equal, but that version left out
        weights and queries, and of stores without a checksum all rows after the first 64.

        Parameters
        ----------
        fingerprint : str
            That of a model or a run.
        """
        if fingerprint.startswith(WHOLE):
            return fingerprint == self.fingerprint()
        if isinstance(self._source, StoreView) and not isinstance(self._source, SubsetSource):
            return self._source.store.matches(fingerprint)
        return None if fingerprint == self._digest().hexdigest() else False

    def _digest(self) -> hashlib.blake2b:
        """The hash of shape, columns, checksum, first rows, labels and groups."""
        state = hashlib.blake2b(digest_size=16)
        facts = [self.n, self.d, str(self.dtype), self.is_sparse]
        facts += map(self.attrs.get, ("content", "columns"))
        state.update(json.dumps(facts, sort_keys=True, default=str).encode())
        first = self.read(0, min(self.n, 64)).X
        state.update(np.ascontiguousarray(first.data).tobytes() if self.is_sparse else first.tobytes())
        if self.has_y:
            for labels in uniform_pieces(self._y.pieces, self._known_classes):
                state.update(labels.tobytes())
        if self.group is not None:  # folds depend on it
            state.update(self.group.tobytes())
        return state

    def _row_checksums(self) -> list[int]:
        """Checksums of all rows, independent of chunks: one for dense rows, or those of entries, indices and counts."""
        checksums = [0] * (3 if self.is_sparse else 1)
        for block in self.blocks():
            X = self.read(*block).X
            if isinstance(X, np.ndarray):
                parts = [X]
            else:
                parts = [X.data, X.indices.astype(np.int64), np.diff(X.indptr).astype(np.int64)]
            checksums = [zlib.crc32(part.tobytes(), crc) for part, crc in zip(parts, checksums, strict=True)]
        return checksums


def have_same_columns(store: Store, other: Store) -> bool:
    """Whether both have the same number of columns, and if both have names, the same names in the same order."""
    names = store.feature_names, other.feature_names
    return store.d == other.d and (None in names or names[0] == names[1])


fill(Store, STORE_METHODS)


def _block(store: Store, block_info: Any = None) -> Matrix:
    (start, stop), _ = block_info[None]["array-location"]
    return store.read(start, stop).X


class StoreView(Source, SizedInBytes):
    """A source that reads the rows of a store."""

    def __init__(self, store: Store) -> None:
        self.store = store

    def ids(self, ids: np.ndarray) -> np.ndarray:
        """The ids in the store of rows with these ids."""
        return ids


class SubsetSource(StoreView):
    """The source of a subset."""

    def __init__(self, store: Store, ids: np.ndarray) -> None:
        super().__init__(store)
        self._ids, self.n = ids, len(ids)
        self.d, self.dtype, self.is_sparse = store.d, store.dtype, store.is_sparse
        share = self.n / store.n
        self.chunk_rows = max(1, round(store.chunk_rows * share))  # about as many as one chunk of the store has
        self.nbytes = int(store.nbytes * share)

    def read(self, start: int, stop: int) -> Rows:
        return self.store.take(self._ids[start:stop])

    def take(self, ids: np.ndarray) -> Rows:
        return self.store.take(self._ids[ids])

    def ids(self, ids: np.ndarray) -> np.ndarray:
        return self._ids[ids]


def row_ranges(n: int, chunk_rows: int, limit: int) -> list[tuple[int, int]]:
    """Half-open ranges that cover 0..n in order, of at most `limit` rows, on chunk borders where possible."""
    if limit >= chunk_rows:
        edges = list(range(0, n, limit // chunk_rows * chunk_rows))
    else:
        step = -(-chunk_rows // -(-chunk_rows // limit))  # equal parts of a chunk
        edges = [e for c in range(0, n, chunk_rows) for e in range(c, min(c + chunk_rows, n), step)]
    return list(pairwise([*edges, n]))
