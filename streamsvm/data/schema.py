"""The columns of a table: numbers, times and text, which is one-hot encoded."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy import sparse

from streamsvm.errors import DataError

MAX_CATEGORIES = 10_000
FEW, MANY = 5, 20  # different texts that tell of numbers, and of names
MOSTLY = 0.8
_NUMBER = re.compile(r"[-+]?\d{1,3}(,\d{3})+(\.\d+)?|[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?")


KINDS = ("number", "bool", "time", "text")


@dataclass
class Feature:
    """A column of the table: a number, true or false, a time in days since 1970, or text.

    hash: how many columns of the store texts are hashed into; 0: each text is a category with a column of its own,
    numbered from 1 in order of appearance.
    """

    name: str
    kind: str = "number"
    categories: dict[str, int] = field(default_factory=dict)
    hash: int = 0

    @property
    def width(self) -> int:
        """How many columns of the store it becomes."""
        return (self.hash or len(self.categories)) if self.kind == "text" else 1

    def remark(self, n: int) -> str | None:
        """What its texts, of n rows, look like where they are hardly categories."""
        count = len(self.categories)
        numbers = [text for text in self.categories if _NUMBER.fullmatch(text)]
        if count >= FEW and len(numbers) >= MOSTLY * count:
            other = next((text for text in self.categories if not _NUMBER.fullmatch(text)), None)
            reason = f"text such as {other[:40]!r}" if other else f"marks in thousands, as {numbers[0]!r}"
            return (
                f"column {self.name!r} has numbers, but for {reason}: each of {count:,} texts became a column of 0 and "
                "1; correct the file, or leave the value out where it is missing"
            )
        if count >= MANY and count > n / 2:
            return (
                f"column {self.name!r} has {count:,} different texts in {n:,} rows, as names do: each became a column "
                f"of 0 and 1; leave it out with --ignore {self.name}"
            )
        return None

    def to_attrs(self) -> dict[str, Any]:
        own: dict[str, Any] = {} if self.kind == "number" else {"kind": self.kind}
        if self.kind == "text":
            own = {"hash": self.hash} if self.hash else {"categories": [*self.categories]}
        return {"name": self.name} | own

    @classmethod
    def from_attrs(cls, attrs: Mapping[str, Any]) -> Feature:
        if "hash" in attrs:
            return cls(attrs["name"], "text", hash=attrs["hash"])
        if "categories" in attrs:
            return cls(attrs["name"], "text", {text: i for i, text in enumerate(attrs["categories"], 1)})
        return cls(attrs["name"], attrs.get("kind", "number"))


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
    def is_text(self) -> np.ndarray:
        """(features,) bool."""
        return np.array([f.kind == "text" for f in self.features])

    @property
    def has_text(self) -> bool:
        return bool(self.is_text.any())

    def codes(self, feature: Feature, texts: list[str], where: str) -> np.ndarray:
        """The column that each text is in, counted from 1, negative where -1 stands there; 0 for an empty or (when
        frozen) unseen one. Raises DataError."""
        if feature.hash:
            return hashed(texts, feature.hash)
        known = feature.categories
        if not self.frozen:
            for text in texts:
                if text:
                    known.setdefault(text, len(known) + 1)
            if len(known) > MAX_CATEGORIES:
                raise DataError(
                    f"{where}: column {feature.name!r} has more than {MAX_CATEGORIES} different texts; "
                    f"that is an identifier rather than a category: remove the column"
                )
        return np.array([known.get(text, 0) for text in texts], dtype=np.float64)

    def values(self, raw: np.ndarray) -> np.ndarray:
        """(m, features) what stands in the store for each cell of raw rows, where a text feature holds codes."""
        return np.where(self.is_text, np.sign(raw), raw) if self.has_text else raw

    def encode(self, raw: np.ndarray) -> np.ndarray | sparse.csr_array:
        """(m, d) store rows for raw (m, features): CSR where there is text."""
        if not self.has_text:
            return raw
        within = np.where(self.is_text & (raw != 0), np.abs(raw) - 1, 0).astype(np.int64)
        columns, ends = self.offsets[:-1] + within, np.arange(0, raw.size + 1, raw.shape[1])
        shape = len(raw), int(self.offsets[-1])
        rows = sparse.csr_array((self.values(raw).ravel(), columns.ravel(), ends), shape=shape)
        rows.eliminate_zeros()
        return rows

    def remarks(self, n: int) -> list[str]:
        """What texts of n rows look like that are no categories."""
        return [remark for f in self.features if (remark := f.remark(n))]

    def to_attrs(self) -> dict[str, Any]:
        label = [*self.label] if len(self.label) > 1 else next(iter(self.label), None)
        return {"columns": [feature.to_attrs() for feature in self.features], "label": label}

    @classmethod
    def from_attrs(cls, attrs: Mapping[str, Any]) -> Schema:
        """The schema that `to_attrs` wrote, frozen. Raises DataError where the store was made from no table."""
        if "columns" not in attrs:
            raise DataError(
                "the store to be like was not made from a table, so it has no columns to take over"
            )
        label = attrs.get("label") or ()
        features = [Feature.from_attrs(c) for c in attrs["columns"]]
        return cls(features, (label,) if isinstance(label, str) else tuple(label), frozen=True)


def hashed(texts: list[str], width: int) -> np.ndarray:
    """(m,) float64 codes of texts by their MurmurHash3 (32 bits, signed, of UTF-8): its remainder by `width` is the
    column, its sign what stands there, as scikit-learn's FeatureHasher has them (Weinberger et al. 2009)."""
    from sklearn.utils import murmurhash3_32  # which tables without a hash do without

    found = np.array([murmurhash3_32(text) for text in texts], np.float64)
    codes = np.where(found >= 0, 1, -1) * (np.abs(found) % width + 1)
    return codes * np.array([bool(text) for text in texts])
