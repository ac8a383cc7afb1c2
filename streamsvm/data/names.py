"""The names of columns, and the check that rows have the columns that a model was trained on.

The names of a store are in its attribute `columns`, which `ingest` writes. Stores of other programs have them where
anndata and xarray put them, and data frames have column names. A text column becomes one column for each value,
`colour=red`, `colour=blue`, or for each hash, `colour#0`, `colour#1`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, islice, zip_longest
from typing import TYPE_CHECKING, Any

import numpy as np
import zarr

from streamsvm.data.layout import Layout
from streamsvm.errors import ModelError
from streamsvm.storage.checked_array import CheckedArray

if TYPE_CHECKING:
    from streamsvm.data.store import Store

Names = tuple[str, ...]
ANSWER = "give it the model's columns in their order, as `streamsvm ingest FILE --store S --like TRAINING_STORE` does"


def names_of(X: Any) -> Names | None:
    """The column names of a data frame or an Arrow table if all are text. None for anything else."""
    names = getattr(X, "column_names", None) or getattr(X, "columns", None)
    return _all_text(names) if isinstance(names, Iterable) else None


def names_in_attrs(attrs: Mapping[str, Any], d: int) -> Names | None:
    """The names of a store of d columns that `ingest` made from a table with a header: d + 1 names if there are too
    many."""
    if "columns" not in attrs or not attrs.get("header", True):
        return None
    return tuple(islice(chain.from_iterable(map(_expanded, attrs["columns"])), d + 1))


def shown_in_attrs(attrs: Mapping[str, Any], d: int) -> Names | None:
    """What to call the columns of a store from a table without a header: each has its number in the table, a text `12`
    as `12=yes`. None for other stores."""
    if "columns" not in attrs or attrs.get("header", True):
        return None
    numbered = [{**column, "name": str(column["name"]).removeprefix("f")} for column in attrs["columns"]]
    return names_in_attrs({"columns": numbered}, d)


def _expanded(column: Mapping[str, Any]) -> Iterable[str]:
    name = str(column["name"])
    if "hash" in column:
        return (f"{name}#{slot}" for slot in range(column["hash"]))
    if "target" in column:  # as scikit-learn's TargetEncoder names them
        return [f"{name}_{label}" for label in column.get("classes", ())] or [name]
    return [f"{name}={text}" for text in column["categories"]] if "categories" in column else [name]


def names_of_others(group: zarr.Group, x: str, d: int) -> Names | None:
    """The column names of array `x` in a store of anndata (the index of `var`) or xarray (a text coordinate)."""
    folder, dimension = x.rpartition("/")[0], _dimension(group[x])
    var = "/".join(["raw", "var"] if folder == "raw" else ["var"])
    index = group[var].attrs.get("_index") if folder in ("", "layers", "raw") and var in group else None
    candidates = [
        f"{var}/{index}" if isinstance(index, str) else None,
        "/".join(filter(None, [folder, dimension])),
    ]
    found = (_read(group, path, d) for path in candidates if path)
    return next((names for names in found if names), None)


def _dimension(member: zarr.Array | zarr.Group) -> str | None:
    """xarray's name for the second dimension of an array, in zarr formats 3 and 2."""
    if isinstance(member, zarr.Group):
        return None
    names: Any = getattr(member.metadata, "dimension_names", None) or member.attrs.get("_ARRAY_DIMENSIONS")
    is_pair = isinstance(names, list | tuple) and len(names) == 2 and isinstance(names[1], str)
    return names[1] if is_pair else None


def _read(group: zarr.Group, path: str, d: int) -> Names | None:
    """The (d,) texts of an array, or of anndata's nullable text. None if there are none."""
    member = group.get(path)
    if isinstance(member, zarr.Group):
        member = member.get("values")
    if not isinstance(member, zarr.Array) or member.shape != (d,):
        return None
    return _all_text(CheckedArray(member, path).all().tolist())


def _all_text(names: Iterable[Any]) -> Names | None:
    names = tuple(names)
    return tuple(map(str, names)) if names and all(isinstance(name, str) for name in names) else None


def is_frame(X: Any) -> bool:
    """Whether X is a data frame in memory with column names."""
    return not hasattr(X, "__dask_graph__") and names_of(X) is not None


class Named(ABC):
    """A model with names for the d columns of its input rows.

    by_name: columns come in any order, as in the events of a stream. There may then be further columns without a name,
    after the others. text_features: of a stream; rows may have texts of them that it has not met, and lack others.
    """

    by_name = False

    @property
    def text_features(self) -> frozenset[str]:
        return frozenset()

    @property
    def categories(self) -> tuple[str, ...]:
        """Features of a stream whose numbers are codes, which files have as numbers."""
        return ()

    @property
    @abstractmethod
    def d(self) -> int:
        """The number of columns."""

    @property
    def feature_names(self) -> Names | None:
        return None

    @property
    def shown_names(self) -> Names | None:
        """What to call the columns: their names, or numbers of the table that they come from. None: their own
        numbers."""
        if self.feature_names is not None or self.layout is None:
            return self.feature_names
        return shown_in_attrs(self.layout.attrs, self.d)

    @property
    def takes_gaps(self) -> bool:
        """Whether rows may have missing values."""
        return False

    @property
    def layout(self) -> Layout | None:
        """The layout of its training rows, if they came from files. Other files are read in the same way."""
        return None

    def columns_in(self, store: Store) -> tuple[np.ndarray | None, str | None]:
        """The store's column for each column of the model (None: all are in order), and a note on what cannot be
        checked.

        If both have names, names decide, else the number of columns. Raises ModelError naming the first difference.
        """
        found, expected, where = store.feature_names, self.feature_names, store.url or "X"
        if self.by_name and expected:
            numbers = tuple(map(str, range(store.d)))
            found = (
                numbers if set(expected) == set(numbers) else found
            )  # features named by number are those columns
        if not (found and expected):
            return _by_position(store.d, expected, self.d, where, by_name=self.by_name)
        if self.by_name:
            return _by_name(found, expected, self.d, where, self.text_features), None
        _require_same(found, expected, where)
        return None, None


def _by_position(
    n: int, expected: Names | None, d: int, where: str, *, by_name: bool
) -> tuple[np.ndarray | None, str | None]:
    known = len(expected) if by_name and expected else d
    if n != known:
        raise ModelError(f"{where} has {n} columns, the model was trained on {known}; {ANSWER}")
    told = f"{where} has no column names; assuming the model's: {listed(expected or ())}"
    return None if known == d else np.arange(known), told if expected else None


def _by_name(found: Names, expected: Names, d: int, where: str, texts: frozenset[str]) -> np.ndarray | None:
    """-1 for a text that no row has."""
    place, known = {name: column for column, name in enumerate(found)}, set(expected)
    there = texts & set(map(feature_of, found))
    for name in expected:
        if name not in place and feature_of(name) not in there:
            raise ModelError(
                f"{where} has no column {name[:80]!r}, a feature of the stream that the model was trained on"
            )
    for column, name in enumerate(found):
        if (name not in known and feature_of(name) not in there) or place[name] != column:
            what = "twice" if name in known else "not a feature of the stream that the model was trained on"
            raise ModelError(f"{where}: column {column} is {name[:80]!r}, {what}; leave it out")
    columns = np.array([place.get(name, -1) for name in expected], np.intp)
    return None if found == expected and len(found) == d else columns


def feature_of(name: str) -> str:
    """The feature of a text's column, `colour` of `colour=red`; empty of others."""
    return name.partition("=")[0] if "=" in name else ""


def categories_of(stream: Mapping[str, Any] | None) -> tuple[str, ...]:
    """The features of a stream whose numbers are codes, from what its model keeps of it."""
    return tuple((stream or {}).get("categories", ()))


def text_features_of(stream: Mapping[str, Any] | None) -> frozenset[str]:
    """The features of a stream that are texts, from what its model keeps of it."""
    stream = stream or {}
    kinds = stream.get("kinds_unscaled", stream.get("kinds"))
    if kinds is None:  # of an earlier version
        names = {str(name) for name in stream.get("features", ())}
        return frozenset(map(feature_of, names)) - names - {""}
    return frozenset(str(name) for name, kind in kinds if kind == "text")


def _require_same(found: Names, expected: Names, where: str) -> None:
    if found != expected:
        counts = f" has {len(found)} columns, the model was trained on {len(expected)}"
        raise ModelError(
            f"{where}{counts if len(found) != len(expected) else ''}: {first_difference(found, expected)}; {ANSWER}"
        )


def have_same_columns(store: Store, other: Store) -> bool:
    """Whether both have the same number of columns, and if both have names, the same names in the same order."""
    named = store.feature_names, other.feature_names
    return store.d == other.d and (None in named or named[0] == named[1])


def first_difference(found: Names, expected: Names) -> str:
    """The first difference between names."""
    pairs = enumerate(zip_longest(found, expected))
    column, names = next((column, names) for column, names in pairs if names[0] != names[1])
    here, there = ("none" if name is None else repr(name[:80]) for name in names)
    order = " (the same columns in another order)" if sorted(found) == sorted(expected) else ""
    return f"column {column}: found {here}, expected {there}{order}"


def listed(names: Sequence[str], most: int = 8, of: int | None = None) -> str:
    """The first `most` names, and how many more there are (of: their number, if not all are given)."""
    shown, more = ", ".join(repr(name[:80]) for name in names[:most]), (of or len(names)) - most
    return f"{shown} and {more:,} more" if more > 0 else shown
