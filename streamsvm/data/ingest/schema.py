"""The columns of a table: which are features, label and query id; text is one-hot encoded."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from streamsvm.data.ingest.options import IngestOptions
from streamsvm.data.names import listed
from streamsvm.errors import DataError

MAX_CATEGORIES = 10_000


@dataclass
class Feature:
    """A column of the table: a number, or text with its categories in order of appearance."""

    name: str
    categories: dict[str, int] | None = None

    @property
    def width(self) -> int:
        """How many columns of the store it becomes."""
        return 1 if self.categories is None else len(self.categories)


@dataclass
class Schema:
    """The features of a table in order, and the columns of its label.

    Frozen (taken from a store): texts not seen before become all zeros.
    """

    features: list[Feature]
    label: tuple[str, ...] = ()
    frozen: bool = False
    offsets: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        self.settle()

    def settle(self) -> None:
        """Recomputes the store column at which each feature starts, (features + 1,) int."""
        self.offsets = np.concatenate([[0], np.cumsum([f.width for f in self.features])]).astype(np.int64)

    @property
    def has_text(self) -> bool:
        return any(f.categories is not None for f in self.features)

    def codes(self, feature: Feature, texts: list[str], where: str) -> np.ndarray:
        """The category number of each text, -1 for an empty or (when frozen) unseen one. Raises DataError."""
        known = feature.categories
        assert known is not None
        if not self.frozen:
            for text in texts:
                if text:
                    known.setdefault(text, len(known))
            if len(known) > MAX_CATEGORIES:
                raise DataError(
                    f"{where}: column {feature.name!r} has more than {MAX_CATEGORIES} different texts; "
                    f"that is an identifier rather than a category: remove the column"
                )
        return np.array([known.get(text, -1) for text in texts], dtype=np.float64)

    def encode(self, raw: np.ndarray) -> np.ndarray:
        """(m, d) store rows for raw (m, features), where a text feature holds category numbers."""
        if not self.has_text:
            return raw
        out = np.zeros((len(raw), int(self.offsets[-1])), raw.dtype)
        for j, feature in enumerate(self.features):
            at = int(self.offsets[j])
            if feature.categories is None:
                out[:, at] = raw[:, j]
            else:
                rows = np.flatnonzero(raw[:, j] >= 0)
                out[rows, at + raw[rows, j].astype(np.int64)] = 1
        return out

    def to_attrs(self) -> dict[str, Any]:
        columns: list[dict[str, Any]] = [{"name": f.name} for f in self.features]
        for column, feature in zip(columns, self.features, strict=True):
            if feature.categories is not None:
                column["categories"] = [*feature.categories]
        return {
            "columns": columns,
            "label": [*self.label] if len(self.label) > 1 else next(iter(self.label), None),
        }

    @classmethod
    def from_attrs(cls, attrs: dict[str, Any]) -> Schema:
        """The schema that `to_attrs` wrote, frozen. Raises DataError where the store was made from no table."""
        if "columns" not in attrs:
            raise DataError(
                "the store to be like was not made from a table, so it has no columns to take over"
            )
        features = [
            Feature(c["name"], {t: i for i, t in enumerate(c["categories"])} if "categories" in c else None)
            for c in attrs["columns"]
        ]
        label = attrs.get("label") or ()
        return cls(features, (label,) if isinstance(label, str) else tuple(label), frozen=True)


def new_schema(path: str, kinds: dict[str, str], options: IngestOptions) -> Schema:
    """The schema for columns of these names and kinds (`number` or `text`). Raises DataError."""
    label = find_label(path, [*kinds], options.label or "last")
    left = {name: kind for name, kind in kinds.items() if name not in (*label, options.qid)}
    if not left:
        raise DataError(f"{path} has no feature columns besides {listed(label)}; expected at least one")
    return Schema([Feature(name, {} if kind == "text" else None) for name, kind in left.items()], label)


def find_label(path: str, names: list[str], wanted: str) -> tuple[str, ...]:
    """The names of the label's columns: by name, `first`, `last` or a position one, `a,b` several, `none` for `none`.

    Raises DataError.
    """
    if wanted in names:
        return (wanted,)
    if wanted == "none":
        return ()
    if wanted in ("first", "last"):
        return (names[0 if wanted == "first" else -1],)
    if wanted.lstrip("-").isdigit() and -len(names) <= int(wanted) < len(names):
        return (names[int(wanted)],)
    several = tuple(dict.fromkeys(wanted.split(",")))
    missing = [name for name in several if name not in names]
    if missing:
        raise DataError(f"{path} has no column {missing[0]!r} for the label; it has {listed(names)}")
    return several


def match(path: str, schema: Schema, names: set[str]) -> tuple[str, ...]:
    """Checks that a table has the schema's features; returns the columns of its label. Raises DataError."""
    missing = [f.name for f in schema.features if f.name not in names]
    if missing:
        raise DataError(
            f"{path} lacks column {missing[0]!r}; expected {listed([f.name for f in schema.features])}"
        )
    return schema.label if names.issuperset(schema.label) else ()
