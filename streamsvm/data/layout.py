"""The layout of rows read from files, which rows of other files have to share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from streamsvm.parallel.sizes import SizedInBytes

GAPS = "has_gaps"  # attribute of a store in memory
KEPT = (
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
    attrs: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, d: int, dtype: np.dtype, is_sparse: bool, attrs: Mapping[str, Any]) -> Layout | None:
        """The layout of a store with these attributes, or None if `ingest` did not make it."""
        own = {name: attrs[name] for name in KEPT if name in attrs}
        return cls(d, dtype, is_sparse, own) if "format" in own else None

    def to_attrs(self) -> dict[str, Any]:
        return {"dtype": self.dtype.name, "is_sparse": self.is_sparse, **self.attrs}

    @classmethod
    def from_attrs(cls, d: int, attrs: Mapping[str, Any]) -> Layout:
        own = {name: attrs[name] for name in KEPT if name in attrs}
        return cls(d, np.dtype(attrs["dtype"]), bool(attrs["is_sparse"]), own)
