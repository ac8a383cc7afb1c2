"""The layout of rows read from files, which rows of other files have to share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from streamsvm.parallel.sizes import SizedInBytes

Attrs = Mapping[str, Any]  # of a store: JSON

GAPS = "has_gaps"  # attribute of a store in memory
LAYOUT_ATTRS = (
    "columns",
    "label",
    "ignored",
    "qid",
    "header",
    "delimiter",
    "decimal",
    "thousands",
    "missing",
    "skip_rows",
    "comment",
    "decimal_commas",
    "first_index",
    "format",
)  # names among a store's attributes


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
