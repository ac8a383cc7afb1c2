"""The layout of rows read from files, which rows of other files have to share, and the names of columns.

The names of a store are in its attribute `columns`, which `ingest` writes. Stores of other programs have them where
anndata and xarray put them, and data frames have column names. A text column becomes one column for each value,
`colour=red`, `colour=blue`, or for each hash, `colour#0`, `colour#1`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice, zip_longest
from typing import Any

import numpy as np
import zarr

from streamsvm.parallel.sizes import SizedInBytes
from streamsvm.storage.chunks import CheckedArray

Attrs = Mapping[str, Any]  # of a store: JSON

GAPS = "has_gaps"  # attribute of a store in memory
LAYOUT_ATTRS = (  # names among a store's attributes
    "columns label ignored qid header delimiter decimal thousands missing skip_rows comment decimal_commas "
    "first_index format"
).split()


@dataclass(frozen=True)
class Layout(SizedInBytes):
    """d features of this dtype, CSR or dense. attrs: columns with their categories, the label, the first index."""

    d: int
    dtype: np.dtype
    is_sparse: bool
    attrs: Attrs = field(default_factory=dict)

    @classmethod
    def of(cls, d: int, dtype: np.dtype, is_sparse: bool, attrs: Attrs) -> Layout | None:
        """The layout of a store with these attributes, or None if `ingest` did not make it."""
        layout_attrs = {name: attrs[name] for name in LAYOUT_ATTRS if name in attrs}
        return cls(d, dtype, is_sparse, layout_attrs) if "format" in layout_attrs else None

    def to_attrs(self) -> dict[str, object]:
        return {"dtype": self.dtype.name, "is_sparse": self.is_sparse, **self.attrs}

    @classmethod
    def from_attrs(cls, d: int, attrs: Attrs) -> Layout:
        layout_attrs = {name: attrs[name] for name in LAYOUT_ATTRS if name in attrs}
        return cls(d, np.dtype(attrs["dtype"]), bool(attrs["is_sparse"]), layout_attrs)


Names = tuple[str, ...]


def names_of(X: object) -> Names | None:
    """The column names of a data frame or an Arrow table if all are text. None for anything else."""
    names = getattr(X, "column_names", None) or getattr(X, "columns", None)
    return _all_text(names) if isinstance(names, Iterable) else None


def names_in_attrs(attrs: Attrs, d: int) -> Names | None:
    """The names of a store of d columns from a table with a header: d + 1 names if there are too many."""
    if "columns" not in attrs or not attrs.get("header", True):
        return None
    return tuple(islice(chain.from_iterable(map(_expanded, attrs["columns"])), d + 1))


def columns_in_attrs(attrs: Attrs) -> dict[str, Names]:
    """The columns of the table that a store comes from, each with the names of its columns in the store, as shown."""
    columns = attrs.get("columns", ()) if attrs.get("header", True) else _numbered(attrs["columns"])
    return {str(column["name"]): tuple(_expanded(column)) for column in columns}


def shown_in_attrs(attrs: Attrs, d: int) -> Names | None:
    """Names to show for the columns of a store from a table without a header: each is its number in the table, a text
    `12` as `12=yes`. None for other stores."""
    if "columns" not in attrs or attrs.get("header", True):
        return None
    return names_in_attrs({"columns": _numbered(attrs["columns"])}, d)


def _numbered(columns: Iterable[Attrs]) -> list[Attrs]:
    return [{**column, "name": str(column["name"]).removeprefix("f")} for column in columns]


def _expanded(column: Attrs) -> Iterable[str]:
    name = str(column["name"])
    if "hash" in column:
        return (f"{name}#{slot}" for slot in range(column["hash"]))
    if "target" in column:  # as scikit-learn's TargetEncoder names them
        return [f"{name}_{label}" for label in column.get("classes", ())] or [name]
    return [f"{name}={text}" for text in column["categories"]] if "categories" in column else [name]


def names_of_others(group: zarr.Group, x: str, d: int) -> Names | None:
    """The column names of array `x` in a store of anndata (the index of `var`) or xarray (a text coordinate)."""
    folder, dimension = x.rpartition("/")[0], _dimension(group[x])
    var = "raw/var" if folder == "raw" else "var"
    index = group[var].attrs.get("_index") if folder in ("", "layers", "raw") and var in group else None
    candidates = [f"{var}/{index}" if isinstance(index, str) else None, "/".join(filter(None, [folder, dimension]))]
    name_lists = (_read(group, path, d) for path in candidates if path)
    return next((names for names in name_lists if names), None)


def _dimension(member: zarr.Array | zarr.Group) -> str | None:
    """xarray's name for the second dimension of an array, in zarr formats 3 and 2."""
    if isinstance(member, zarr.Group):
        return None
    names: object = getattr(member.metadata, "dimension_names", None) or member.attrs.get("_ARRAY_DIMENSIONS")
    if isinstance(names, list | tuple) and len(names) == 2 and isinstance(names[1], str):
        return names[1]
    return None


def _read(group: zarr.Group, path: str, d: int) -> Names | None:
    """The (d,) texts of an array, or of anndata's nullable text. None if there are none."""
    member = group.get(path)
    if isinstance(member, zarr.Group):
        member = member.get("values")
    if not isinstance(member, zarr.Array) or member.shape != (d,):
        return None
    return _all_text(CheckedArray(member, path).all().tolist())


def _all_text(names: Iterable[object]) -> Names | None:
    names = tuple(names)
    return tuple(map(str, names)) if names and all(isinstance(name, str) for name in names) else None


def is_frame(X: object) -> bool:
    """Whether X is a data frame in memory with column names."""
    return not hasattr(X, "__dask_graph__") and names_of(X) is not None


def first_difference(actual: Names, expected: Names) -> str:
    """The first difference between names."""
    pairs = enumerate(zip_longest(actual, expected))
    column, names = next((column, names) for column, names in pairs if names[0] != names[1])
    actual_name, expected_name = ("none" if name is None else repr(name[:80]) for name in names)
    order = " (the same columns in another order)" if sorted(actual) == sorted(expected) else ""
    return f"column {column}: found {actual_name}, expected {expected_name}{order}"


def listed(names: Sequence[str], most: int = 8, of: int | None = None) -> str:
    """The first `most` names, and how many more there are (of: their number, if not all are given)."""
    shown, more = ", ".join(repr(name[:80]) for name in names[:most]), (of or len(names)) - most
    return f"{shown} and {more:,} more" if more > 0 else shown
