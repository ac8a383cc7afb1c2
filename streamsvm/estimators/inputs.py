"""What batch estimators take: parameters, and rows with labels and weights, by scikit-learn's rules, as stores."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from numbers import Number
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.random import RandomState as NumpyRandomState
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_X_y, column_or_1d, validate_data

from streamsvm.config import validated
from streamsvm.data.labels import CUT, is_cut
from streamsvm.data.layout import GAPS, Layout, Names, is_frame, names_of
from streamsvm.data.rows import Rows
from streamsvm.data.sources import computed, is_dask, is_dask_frame
from streamsvm.data.store import Store
from streamsvm.errors import DataError
from streamsvm.kernels.table import DefiniteKernel
from streamsvm.options.base import Scale
from streamsvm.options.probability import Calibrator
from streamsvm.options.search import MetricKind
from streamsvm.private.sklearn import check_sample_weight
from streamsvm.tables.frames import read_once
from streamsvm.tables.target_encoding import encoded_features

# Types of parameters, made of those of options: type checkers and editors know the values.
Search = Literal["search"]
Searched = float | Search
SearchedGamma = float | Literal["scale", "auto", "search"]
SearchedKernel = Literal[DefiniteKernel, Search]
SearchedMetric = Literal[MetricKind, Search]
SearchedScale = Literal[Scale, Search]
Gamma = float | Literal["scale", "auto"]
Balanced = Mapping[Any, float] | Literal["balanced"] | None
ClassWeight = Balanced | Search
Probability = bool | Calibrator
MultiClass = Literal["ovo", "ovr"]
Options = dict[str, Any] | None
Costs = Mapping[tuple[object, object], float] | None
RandomState = int | NumpyRandomState | None
Columns = str | Sequence[str] | None
TargetEncode = str | Sequence[str] | Mapping[str, object] | None
Client: TypeAlias = Any  # distributed.Client, False or None
Data: TypeAlias = Any  # rows, labels or weights of any kind that estimators take


class StoreInputs(BaseEstimator):
    """An estimator that turns arrays, frames and stores into stores. `model_` is what it learned."""

    gaps: str | None = None  # defaults of estimators without these parameters
    mark_gaps = False
    category: Columns = None
    target_encode: TargetEncode = None

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.allow_nan = self._takes_gaps
        return tags

    def _training_store(
        self, X: Data, y: Data, sample_weight: Data, qid: Data = None, groups: Data = None
    ) -> tuple[Store, np.ndarray]:
        """(store with labels, y as the caller names them)."""
        if isinstance(X, Store):
            if any(values is not None for values in (y, sample_weight, qid, groups)):
                raise ValueError(
                    "X is a Store, which brings its own y, sample_weight, qid and group; found them given as well"
                )
            for name in ("category", "target_encode"):
                if getattr(self, name):
                    raise ValueError(f"X is a Store, which says what is encoded: give {name} to ingest")
            return self._store(X, reset=True), X.y
        X, y = self._checked(X, y, reset=True)
        if sample_weight is not None:
            sample_weight = check_sample_weight(in_memory(sample_weight), y)
        if groups is not None:
            groups = column_or_1d(_plain(np.asarray(in_memory(groups)), "group"))
        facts: dict[str, Any] = {"sample_weight": sample_weight, "qid": in_memory(qid), "group": groups}
        smooths = dict(self._as_ingest("target_encode")) if self.target_encode else {}
        columns = {"feature_names": self._names(), "like": smooths, "category": self._categories()}
        return self._new_store(X, y, **facts, **columns), y

    def _new_store(self, X: Data, y: Data = None, **facts: Any) -> Store:
        """A store of checked rows to fit, which knows whether rows in memory have gaps, as one of a table does."""
        store = Store.from_arrays(X, y, **facts)
        if self._takes_gaps and not (is_dask(X) or is_frame(X)) and _has_gaps(X):
            store.attrs[GAPS] = True
        return store

    def _categories(self) -> tuple[str, ...]:
        """The columns of number codes. Raises ConfigError."""
        return self._as_ingest("category") if self.category else ()

    def _as_ingest(self, name: str) -> Any:
        """A parameter as the option of `ingest` that has its name. Raises ConfigError."""
        from streamsvm.ingest.options import IngestOptions

        return getattr(validated(IngestOptions, (type(self).__name__, {name: getattr(self, name)})), name)

    def _store(self, X: Data, *, reset: bool) -> Store:
        """X as a store, its columns checked."""
        if isinstance(X, Store):
            self._check_columns(X.d, X.feature_names, reset=reset)
            return X
        X, like = read_once(X), None if reset else self._layout
        if not reset:
            _require_numbers(X, like)
        if like is None or not self._is_table(X, like):
            X = self._checked(X, "no_validation", reset=reset)[0]
        return Store.from_arrays(X, like=like)

    def _lazy_rows(self, X: Data) -> Any:
        """A dask array, or a dask dataframe encoded as its training rows were, whose columns are checked."""
        if not is_dask_frame(X):
            return self._checked(X, "no_validation", reset=False)[0]
        store = self._store(X, reset=False)
        self.model_.columns_in(store)
        return store.to_dask()[0]

    def _checked(self, X: Data, y: Data, *, reset: bool) -> tuple[Any, Any]:
        """X and y by scikit-learn's rules; of a frame or dask array the columns alone: rows are checked as they are
        read."""
        X, y = read_once(X), _plain(in_memory(y), "label")
        if is_dask(X) or is_frame(X):
            self._check_columns(X.shape[1], names_of(X), y, reset=reset)
            return X, y if isinstance(y, str) else _labels(y, None if is_dask(X) else len(X))
        if not reset and self._has_text:
            raise ValueError("it was fitted on a data frame with columns of text; give it a data frame")
        model = None if reset else getattr(self, "model_", None)
        checked = validate_data(
            self,
            X,
            y,
            reset=reset,
            accept_sparse="csr",
            dtype=[np.float64, np.float32, np.uint8],
            ensure_all_finite="allow-nan",
            ensure_min_samples=1 if reset else 0,
        )
        X, y = checked if isinstance(checked, tuple) else (checked, y)
        if model is None and not self._takes_gaps:
            _require_no_gaps(X, f"gaps is {self.gaps!r}")
        elif model is not None and not model.takes_gaps:
            _require_no_gaps(X, "the model learned from rows without missing values")
        return X, y

    def _check_columns(self, d: int, names: Names | None, y: Data = "no_validation", *, reset: bool) -> None:
        """Notes or compares the number of features and their names by scikit-learn's rules, without the data."""
        X = np.broadcast_to(0.0, (1, d)) if names is None else _table(names)
        validate_data(self, X, y, reset=reset, skip_check_array=True)

    @property
    def _fills(self) -> bool:
        """Whether missing values are to be filled, as the parameters ask."""
        return bool(self.mark_gaps) if self.gaps is None else self.gaps != "refuse"

    @property
    def _takes_gaps(self) -> bool:
        """Whether arrays to fit may have missing values: without `gaps` these are filled if there are any, as a
        table's. Given kernel values are not features."""
        return self._fills or (self.gaps is None and getattr(self, "kernel", None) != "precomputed")

    @property
    def _layout(self) -> Layout | None:
        """How the rows that it was fitted on came out of a data frame or files, where they did."""
        model = getattr(self, "model_", None)
        return None if model is None else model.layout

    @property
    def _has_text(self) -> bool:
        """Whether rows have other columns than the data frame that it was fitted on."""
        layout = self._layout
        return layout is not None and (self.model_.d != self.n_features_in_ or bool(encoded_features(layout.attrs)))

    def _is_table(self, X: Data, layout: Layout) -> bool:
        """Whether X is a data frame, and it was fitted on a store whose columns are not those of its table."""
        names, columns = self._names(), layout.attrs.get("columns", ())
        is_any = is_frame(X) or is_dask_frame(X)
        return bool(names and columns) and is_any and names != tuple(c["name"] for c in columns)

    def _names(self) -> Names | None:
        """Of the columns that it was fitted on, where they had any."""
        names = getattr(self, "feature_names_in_", None)
        return None if names is None else tuple(names)


def _has_gaps(X: Data) -> bool:
    """Whether rows in memory, numpy or CSR without infinity, have NaN."""
    entries = X if isinstance(X, np.ndarray) else X.data
    with np.errstate(over="ignore", invalid="ignore"):
        return entries.dtype.kind == "f" and bool(np.isnan(np.add.reduce(entries, axis=None)))


def _require_no_gaps(X: Data, why: str) -> None:
    """Raises DataError that names the first NaN of rows in memory."""
    if _has_gaps(X) and (bad := Rows(X).first_nonfinite()) is not None:
        raise DataError(
            f"Input X contains NaN, first in row {bad[0]}, column {bad[1]}, and {why}; fill it in, or fit with "
            "gaps='mean' (or median, most_frequent)"
        )


def has_no_rows(X: Data) -> bool:
    """Whether an array, matrix or data frame in memory has columns and no rows."""
    shape: Any = getattr(X, "shape", ())
    return not is_dask(X) and len(shape) == 2 and shape[0] == 0


def _require_numbers(X: Data, like: Layout | None) -> None:
    """Raises DataError for a data frame with text, of a model that has no columns of a table."""
    if not is_frame(X) or (like is not None and "columns" in like.attrs):
        return
    from streamsvm.tables.frames import new_schema, table_of

    columns = new_schema(table_of(X)).features
    other = [(column.name, column.kind) for column in columns if column.kind not in ("number", "bool")]
    if other:
        name, kind = other[0]
        raise DataError(
            f"X: column {name!r} holds {kind}, and the model was fitted on an array of numbers: give it an array, or a "
            "data frame of numbers, or fit it on a data frame"
        )


def in_memory(values: Data) -> Any:
    """Labels or weights of a dask array or frame in memory; anything else as it is."""
    return computed(values) if is_dask(values) else values


def _labels(y: Data, n: int | None) -> np.ndarray:
    """(n,) labels by scikit-learn's rules. n: None where the rows are not counted yet."""
    if n is None:
        y = column_or_1d(y, warn=True)
    return check_X_y(np.zeros((len(y) if n is None else n, 1)), y, dtype=None)[1]


def _plain(values: Data, what: str) -> Any:
    """Labels or groups of frames as numpy has them, others as they are. Raises DataError where one is missing."""
    if type(values).__module__.startswith(("pandas", "polars")):
        values = values.to_numpy()
    elif type(values).__module__.startswith("pyarrow"):
        values = np.asarray(values)
    elif isinstance(values, (list, tuple)) and _are_mixed({*map(type, values)}):  # else all would become text
        values = np.array(values, dtype=object)
    elif isinstance(values, (list, tuple)):
        _require_whole(values, what)
    if isinstance(values, np.ndarray) and values.ndim == 1 and values.dtype.kind in "fO":
        is_float = values.dtype.kind == "f"
        missing = np.isnan(values) if is_float else np.fromiter(map(_is_missing, values), bool, len(values))
        if missing.any():
            raise DataError(f"the {what} of row {int(missing.argmax())} is missing; every row needs one")
        if not is_float:
            return _of_one_kind(values, what)
    return values


def _are_mixed(types: set[type]) -> bool:
    """Whether there are missing values, or texts and others."""
    return type(None) in types or (str in types and bool(types - {str, np.str_}))


def _of_one_kind(values: np.ndarray, what: str) -> np.ndarray:
    """Objects that are all numbers as numpy has numbers, others as they are. Raises DataError for text and numbers."""
    is_number = np.fromiter((isinstance(value, Number) for value in values), bool, len(values))
    if is_number.all():
        return np.array(values.tolist())
    is_text = np.fromiter((isinstance(value, str) for value in values), bool, len(values))
    if is_number.any() and is_text.any():
        number, text = int(is_number.argmax()), int(is_text.argmax())
        raise DataError(
            f"the {what} of row {text} is text, {str(values[text])!r}, and that of row {number} a number, "
            f"{values[number]}; expected one of them: {what}s.astype(str) makes all of them text"
        )
    _require_whole(values, what)
    return values


def _require_whole(values: Iterable[object], what: str) -> None:
    """Raises DataError for a text that an array or a file would change."""
    for row, value in enumerate(values):
        if isinstance(value, str) and is_cut(value):
            raise DataError(f"the {what} of row {row} is {value!r}, {CUT}")


def _is_missing(value: Any) -> bool:
    return value is None or type(value).__name__ in ("NAType", "NaTType") or bool(value != value)


def _table(names: Names) -> Any:
    """No rows under these names, in a table that scikit-learn knows. Raises DataError if one is there twice."""
    import pyarrow as pa

    if len({*names}) < len(names):
        twice = next(name for at, name in enumerate(names) if name in names[:at])
        raise DataError(f"X has two columns {twice!r}; expected different names")

    return pa.Table.from_arrays([pa.array([], pa.float32())] * len(names), names=list(names))
