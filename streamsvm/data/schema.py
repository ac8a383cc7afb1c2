"""The columns of a table: numbers, times and text, which is one-hot encoded or hashed."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy import sparse

from streamsvm.errors import DataError

MAX_CATEGORIES, MAX_COLUMNS = 10_000, 100_000  # of a column of text, and of all together
MAX_TEXTS = 1_000_000  # that are counted, in some 200 MiB
HASH = 1024  # columns that are suggested for more
RARE = "(rare)"
FEW, MANY, WIDE = 5, 20, 1000  # different texts that tell of numbers, and of names; that are told in any case
MOSTLY = 0.8
DENSE_FROM = 0.05  # of entries that are not 0; rows with fewer are sparse
EXACT, LARGEST = 2.0**24, 2.0**63  # whole numbers that float32 holds up to this one, and that ids are below
TICKS = {"seconds": 1, "milliseconds": 10**3, "microseconds": 10**6}  # in a second
SINCE, UNTIL = 315_532_800, 4_102_444_800  # seconds from 1970 to 1980, and to 2100
_NUMBER = re.compile(r"[-+]?\d{1,3}(,\d{3})+(\.\d+)?|[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?")


KINDS = ("number", "bool", "time", "text")


class Unsettled(Exception):
    """Rows have a text that those before did not tell of."""


@dataclass
class Feature:
    """A column of the table: a number, true or false, a time in days since 1970, or text.

    hash: how many columns of the store texts are hashed into; 0: each text is a category with a column of its own,
    numbered from 1 in order of appearance. least: rows of a category; as soon as all rows are known, texts of fewer
    become the last one, `(rare)`. rare: whether there is this one, which texts never seen belong to, too.
    """

    name: str
    kind: str = "number"
    categories: dict[str, int] = field(default_factory=dict)
    hash: int = 0
    least: int = 1
    rare: bool = False
    counts: np.ndarray = field(init=False, default_factory=lambda: np.zeros(1, np.int64))  # rows of each code
    settled: np.ndarray | None = field(init=False, default=None)  # what codes become when all rows are known
    lost: tuple[float, float] | None = field(
        init=False, default=None
    )  # a whole number, and what is kept of it
    has_fractions: bool = field(init=False, default=False)  # among numbers as large

    @property
    def width(self) -> int:
        """How many columns of the store it becomes."""
        return (self.hash or len(self.categories)) if self.kind == "text" else 1

    def learn(self, texts: list[str], where: str) -> None:
        """Makes categories of texts not seen before. Raises DataError where there are too many."""
        for text in texts:
            if text:
                self.categories.setdefault(text, len(self.categories) + 1)
        self.require_few(where)

    def require_few(self, where: str) -> None:
        """Raises DataError where categories are more than anybody wants columns of."""
        is_final = self.least == 1 or self.settled is not None
        most = MAX_CATEGORIES if is_final else MAX_TEXTS
        if len(self.categories) <= most:
            return
        often = f" in {self.least} rows or more" if is_final and self.least > 1 else ""
        told = f"{where}: column {self.name!r} has more than {most:,} different texts{often}"
        raise DataError(f"{told}, a column of 0 and 1 for each; {self.fewer(rare=is_final)}")

    def fewer(self, *, rare: bool = True) -> str:
        """What to type for fewer columns."""
        least, name, hashed = 10 * self.least, shlex.quote(self.name), shlex.quote(f"{self.name}={HASH}")
        ways = [f"ingest's --hash {hashed} makes {HASH} columns of them"]
        ways += [f"--min-frequency {least} one column of those in fewer than {least} rows"] * rare
        return ", ".join([*ways, f"--ignore {name} none"])

    def codes(self, texts: list[str]) -> np.ndarray:
        """(m,) float64 column that each text is in, counted from 1, negative where -1 stands there; 0: in none."""
        if self.hash:
            return hashed(texts, self.hash)
        other = len(self.categories) if self.rare else 0
        return np.array([self.categories.get(text, other) if text else 0 for text in texts], np.float64)

    def count(self, codes: np.ndarray) -> None:
        """Notes how many rows have each code."""
        found = np.bincount(codes.astype(np.int64), minlength=len(self.counts))
        found[: len(self.counts)] += self.counts
        self.counts = found

    def settle(self) -> None:
        """Makes one category of those that have too few rows, now that all are known."""
        if self.least == 1 or self.settled is not None:
            return
        often = self.counts >= self.least
        kept = [text for text, code in self.categories.items() if often[code] and text != RARE]
        self.rare = len(kept) < len(self.categories)
        final = {text: code for code, text in enumerate([*kept, *[RARE] * self.rare], 1)}
        self.settled = np.array([0, *(final.get(text, len(final)) for text in self.categories)])
        self.categories = final

    def see_lost(self, values: np.ndarray, kept: np.ndarray) -> None:
        """Notes a whole number, of values (m,), that is another one among those that are kept, as float32 makes it."""
        if self.has_fractions or kept.dtype != np.float32:
            return
        large = np.flatnonzero(np.abs(values) > EXACT)
        if not len(large):
            return
        values, kept = values[large], kept[large]
        self.has_fractions = bool(np.any(values != np.rint(values)) or np.abs(values).max() > LARGEST)
        differs = np.flatnonzero(values != kept)
        if self.lost is None and len(differs):
            self.lost = float(values[differs[0]]), float(kept[differs[0]])

    def remark_lost(self, way: str = "--dtype float64 keeps them") -> str | None:
        """What is lost of its numbers, where it is more than the noise of measured ones. way: to keep it."""
        if self.lost is None or self.has_fractions:
            return None
        number, kept = self.lost
        return (
            f"column {self.name!r} has whole numbers that float32 does not hold: {number:.0f} becomes {kept:.0f}; "
            f"{way}, or leave the column out if it is {_looks_like(number)}"
        )

    def remark(self, n: int) -> str | None:
        """What its texts, of n rows, look like where they are hardly categories."""
        texts = [*self.categories][: -1 if self.rare else None]
        count, numbers = len(texts), [text for text in texts if _NUMBER.fullmatch(text)]
        if count >= FEW and len(numbers) >= MOSTLY * count:
            other = next((text for text in texts if not _NUMBER.fullmatch(text)), None)
            reason = f"text such as {other[:40]!r}" if other else f"marks in thousands, as {numbers[0]!r}"
            return (
                f"column {self.name!r} has numbers, but for {reason}: each of {count:,} texts became a column of 0 and "
                "1; correct the file, or leave the value out where it is missing"
            )
        if count >= MANY and (count > n / 2 or count > WIDE):
            names = ", as names do" if count > n / 2 else ""
            told = f"column {self.name!r} has {count:,} different texts in {n:,} rows{names}"
            return f"{told}: each became a column of 0 and 1; {self.fewer()}"
        return None

    def to_attrs(self) -> dict[str, Any]:
        own: dict[str, Any] = {} if self.kind == "number" else {"kind": self.kind}
        if self.kind == "text":
            own = {"hash": self.hash} if self.hash else {"categories": [*self.categories]}
        if self.rare:
            own["rare"] = True
        return {"name": self.name} | own

    @classmethod
    def from_attrs(cls, attrs: Mapping[str, Any]) -> Feature:
        if "hash" in attrs:
            return cls(attrs["name"], "text", hash=attrs["hash"])
        if "categories" in attrs:
            known = {text: code for code, text in enumerate(attrs["categories"], 1)}
            return cls(attrs["name"], "text", known, rare=attrs.get("rare", False))
        return cls(attrs["name"], attrs.get("kind", "number"))


@dataclass
class Schema:
    """The features of a table in order, and the columns of its label.

    Frozen (taken from a store): texts not seen before are rare, or become all zeros.
    """

    features: list[Feature]
    label: tuple[str, ...] = ()
    frozen: bool = False
    closed: bool = field(init=False, default=False)

    def close(self) -> bool:
        """Takes the texts so far for all that there are, where none has to be counted; whether it did. From then on
        another one raises Unsettled."""
        self.closed = all(feature.least == 1 for feature in self.features)
        return self.closed

    @property
    def offsets(self) -> np.ndarray:
        """(features + 1,) int, the store column at which each feature starts."""
        return np.concatenate([[0], np.cumsum([f.width for f in self.features])]).astype(np.int64)

    def settle(self, where: str) -> None:
        """Called when all rows are known. Raises DataError where too many categories are left."""
        if self.frozen:
            return
        for feature in self.features:
            feature.settle()
            feature.require_few(where)
        total = sum(len(f.categories) for f in self.features)
        if total > MAX_COLUMNS:
            widest = max(self.features, key=lambda f: len(f.categories))
            found = f"texts would make {total:,} columns of 0 and 1, column {widest.name!r} most of them"
            raise DataError(f"{where}: {found}; {widest.fewer()}")

    @property
    def is_text(self) -> np.ndarray:
        """(features,) bool."""
        return np.array([f.kind == "text" for f in self.features])

    @property
    def has_text(self) -> bool:
        return bool(self.is_text.any())

    def codes(self, feature: Feature, texts: list[str], ids: np.ndarray, where: str) -> np.ndarray:
        """(m,) `Feature.codes` of rows with these ones of the texts, which a schema that is not frozen learns. Raises
        DataError."""
        if not (self.frozen or feature.hash):
            if self.closed and not feature.categories.keys() >= {*filter(None, texts)}:
                raise Unsettled(
                    f"{where}: column {feature.name!r} has a text that the first rows did not have"
                )
            feature.learn(texts, where)
        codes = feature.codes(texts)[ids]
        if feature.least > 1:
            feature.count(codes)
        return codes

    def values(self, raw: np.ndarray) -> np.ndarray:
        """(m, features) what stands in the store for each cell of raw rows, where a text feature holds codes."""
        return np.where(self.is_text, np.sign(raw), raw) if self.has_text else raw

    def encode(self, raw: np.ndarray) -> np.ndarray | sparse.csr_array:
        """(m, d) store rows for raw (m, features): CSR where there is text."""
        if not self.has_text:
            return raw
        raw = self._final(raw)
        within = np.where(self.is_text & (raw != 0), np.abs(raw) - 1, 0).astype(np.int64)
        columns, ends = self.offsets[:-1] + within, np.arange(0, raw.size + 1, raw.shape[1])
        shape = len(raw), int(self.offsets[-1])
        rows = sparse.csr_array((self.values(raw).ravel(), columns.ravel(), ends), shape=shape)
        rows.eliminate_zeros()
        return rows

    def _final(self, raw: np.ndarray) -> np.ndarray:
        """Raw rows with the codes that theirs became when all rows were known."""
        raw = raw.copy()
        for codes, feature in zip(raw.T, self.features, strict=True):
            if feature.settled is not None:
                codes[:] = feature.settled[codes.astype(np.int64)]
        return raw

    def remarks(self, n: int) -> list[str]:
        """What texts of n rows look like that are no categories, and numbers that lose digits."""
        return [remark for f in self.features if (remark := f.remark(n) or f.remark_lost())]

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


def _looks_like(number: float) -> str:
    """What a large whole number may stand for, which is no quantity to learn from."""
    for unit, ticks in TICKS.items():
        if SINCE <= number / ticks <= UNTIL:
            return f"an id, or a time in {unit} since 1970, which is better written as a date"
    return "an id"


def hashed(texts: list[str], width: int) -> np.ndarray:
    """(m,) float64 codes of texts by their MurmurHash3 (32 bits, signed, of UTF-8): its remainder by `width` is the
    column, its sign what stands there, as scikit-learn's FeatureHasher has them (Weinberger et al. 2009)."""
    from sklearn.utils import murmurhash3_32  # which tables without a hash do without

    found = np.array([murmurhash3_32(text) for text in texts], np.float64)
    codes = np.where(found >= 0, 1, -1) * (np.abs(found) % width + 1)
    return codes * np.array([bool(text) for text in texts])
