"""The columns of a table: numbers, times and text, which is one-hot encoded, hashed or target-encoded."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from scipy import sparse

from streamsvm.data.layout import Attrs, listed
from streamsvm.data.rows import Matrix
from streamsvm.data.statistics import NeedsFloat64, first_rounded_in
from streamsvm.errors import DataError
from streamsvm.storage.text import as_names

MAX_CATEGORIES, MAX_COLUMNS = 10_000, 100_000  # of a text column, and of all columns
MAX_TEXTS = 1_000_000  # to count, in about 200 MiB
MAX_TARGET = 100_000  # of a target-encoded column
HASH = 1024  # columns to suggest for more texts
RARE = "(rare)"
FEW, MANY, WIDE = (5, 20, 1000)  # distinct texts at which a column is checked for numbers, for names, always reported
MOSTLY, PROBED = 0.8, 1000
DENSE_FROM = 0.05  # share of nonzero entries; rows with fewer are sparse
EXACT, WHOLE = 2.0**24, 2.0**53  # float32 and float64 hold whole numbers up to these
LARGEST = 2.0**63  # ids are below it
TICKS = {"seconds": 1, "milliseconds": 10**3, "microseconds": 10**6}  # per second
SINCE, UNTIL = 315_532_800, 4_102_444_800  # seconds from 1970 to 1980, and to 2100
_MONTH = r"(Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[a-z]*"
_DATE = re.compile(
    rf"(\d{{4}}-?([01]\d|[QW]\d\d?)(-\d)?|(\d\d?[ -])?{_MONTH}\.?[ -](\d\d?, )?(\d{{4}}|\d\d)|"
    r"\d{4}[./-]\d\d?[./-]\d\d?|\d\d?[.-]\d\d?[.-]\d{4}|\d\d?/\d\d?/(\d{4}|\d\d))([ T,].*)?"
)
_DIGITS = r"(\d{1,3}([,. '\u00a0\u202f]\d{3})+|\d+)?([.,]\d*)?([eE][-+]?\d+)?"
_CODE = re.compile(r"0*(\d+)(\.0*)?")
_MONEY = r"([$€£¥₹]|USD|EUR|GBP|CHF|JPY|INR|kr)"
_UNIT = rf"({_MONEY}|[kmµ]?g|[kcmµ]?m|[kM]?Wh?|m?l|L|h|min|s|ms|°[CF]|km/h|mph|[kMGT]?B|[kKM])"
HEXADECIMAL = re.compile(r"[-+]?0[xX][0-9a-fA-F]+")
AS_NUMBERS = "write them as numbers"
QUANTITIES = {  # texts that are probably numbers, and how to have them as numbers
    "numbers": (re.compile(rf"(?=.*\d)[-+]?{_DIGITS}"), "--decimal and --thousands say how they are written"),
    "negative numbers": (
        re.compile(rf"(?=.*\d)(\({_DIGITS}\)|\u2212{_DIGITS}|{_DIGITS}-|[-+]?{_DIGITS})"),
        "write them with a hyphen before, as -5",
    ),
    "percentages": (re.compile(rf"(?=.*\d)[-+]?{_DIGITS}\s?%"), AS_NUMBERS),
    "hexadecimal numbers": (HEXADECIMAL, "write them as decimal numbers"),
    "numbers of other programs": (re.compile(r"[-+]?(\d+(_\d+)+|[\d.]*\d[\d.]*[dD][-+]?\d+|0[bB][01]+)"), AS_NUMBERS),
    "times of day": (re.compile(r"\d?\d:\d\d(:\d\d([.,]\d+)?)?( ?[aApP][mM])?"), "write them as numbers of hours"),
    "amounts": (re.compile(rf"(?=.*\d)([-+]?{_MONEY}\s?[-+]?{_DIGITS}|[-+]?{_DIGITS}\s?{_UNIT})"), AS_NUMBERS),
}


AS_TEXT = "--text {quoted}"
KINDS = ("number", "bool", "time", "text")
NUMBER = r"[-+]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][-+]?[0-9]+)?"  # as programs write them
CODE = r"[-+]?0[0-9]+|[-+]?[0-9]{16,}|\+[0-9]{7,}"  # digits of codes, ids and telephone numbers
_NUMBER, _OF_CODE = re.compile(NUMBER), re.compile(CODE)
HOLDS = {"number": "numbers", "bool": "true and false", "time": "times"}


class UnknownText(Exception):
    """Rows have a text that earlier rows did not have."""


class KindChanged(DataError):
    """A value is unlike those in the first rows of its column. Another pass can judge the column by all rows. marker:
    the value, which may stand for a missing one."""

    def __init__(self, message: str, column: str, marker: str) -> None:
        super().__init__(message)
        self.column, self.marker = column, marker


@dataclass
class Feature:
    """A column of the table: a number, true or false, a time in days since 1970, or text.

    hash: the number of store columns that texts are hashed into. 0: each text is a category with its own column,
    numbered from 1 in order of appearance. min_rows: minimum rows of a category. Once all rows are known, rarer texts
    share the last one, `(rare)`. rare: whether there is this category, which also holds texts never seen before.
    smooth: "auto" or a number of rows if texts are target-encoded: a store has one column of codes, of empty text, too,
    and a model `values`, (categories + 1, outputs), the last for new texts. classes: of the outputs, if several.
    is_code: whether texts are number codes, where 7, 7.0 and 007 are one category. from_text: whether the table has its
    numbers as texts.
    """

    name: str
    kind: str = "number"
    categories: dict[str, int] = field(default_factory=dict)
    hash: int = 0
    min_rows: int = 1
    rare: bool = False
    smooth: float | str | None = None
    values: np.ndarray | None = None
    classes: tuple[str, ...] = ()
    is_code: bool = False
    from_text: bool = False
    stays_text: bool = field(init=False, default=False)  # as text, even if it is numbers
    is_csv: bool = field(init=False, default=False)  # whether options say how to read its texts
    marker: str | None = field(init=False, default=None)  # the text among what seemed to be numbers
    counts: np.ndarray = field(init=False, default_factory=lambda: np.zeros(1, np.int64))  # rows of each code
    settled: np.ndarray | None = field(init=False, default=None)  # final codes, once all rows are known
    rounded: tuple[float, float] | None = field(init=False, default=None)  # a whole number, and float32's value of it
    has_fractions: bool = field(init=False, default=False)  # among numbers of this size

    def __post_init__(self) -> None:
        if self.smooth is not None and not self.categories:
            self.categories = {"": 1}  # so that the code of missing text does not depend on the order of rows

    @property
    def is_spread(self) -> bool:
        """Whether it is text with several columns of 0 and 1, or -1."""
        return self.kind == "text" and self.smooth is None

    @property
    def may_be_numbers(self) -> bool:
        """Whether it is text that nobody asked to be read as text."""
        return self.is_spread and not (self.hash or self.stays_text)

    def take_numbers(self) -> None:
        """From now on its texts are numbers."""
        self.kind, self.from_text, self.min_rows = "number", True, 1

    @property
    def store_width(self) -> int:
        """The number of its columns in a store, where target-encoded texts are codes."""
        return (self.hash or len(self.categories)) if self.is_spread else 1

    @property
    def width(self) -> int:
        """The number of its columns in rows of a model."""
        return self.store_width if self.values is None else self.values.shape[1]

    def learn(self, texts: list[str], where: str) -> None:
        """Makes categories for new texts. Raises DataError if there are too many."""
        for text in texts:
            if text:
                self.categories.setdefault(text, len(self.categories) + 1)
        self.require_few(where)

    def require_few(self, where: str) -> None:
        """Raises DataError if there are too many categories for columns, or for target-encoded codes."""
        if self.smooth is not None:
            if len(self.categories) > MAX_TARGET + 1:
                message = f"{where}: column {self.name!r} has more than {MAX_TARGET:,} different texts to target-encode"
                raise DataError(f"{message}; {self.fewer(rare=False, means=False)}")
            return
        is_final = self.min_rows == 1 or self.settled is not None
        limit = MAX_CATEGORIES if is_final else MAX_TEXTS
        if len(self.categories) > limit:
            frequency = f" in {self.min_rows} rows or more" if is_final and self.min_rows > 1 else ""
            message = f"{where}: column {self.name!r} has more than {limit:,} different texts{frequency}"
            raise DataError(f"{message}, a column of 0 and 1 for each; {self.fewer(rare=is_final)}")

    def fewer(self, *, rare: bool = True, means: bool = True) -> str:
        """The options that give fewer columns."""
        least, name, hash_option = 10 * self.min_rows, as_names(self.name), as_names(self.name, end=f"={HASH}")
        options = [f"--hash {hash_option} makes {HASH} columns of them"]
        quantities = None if self.stays_text or not self.is_csv else self._quantities([*self.categories][:PROBED])
        if quantities is not None and quantities[0] == "numbers":  # as most of its first texts are
            marker = "VALUES" if self.marker is None else as_names(self.marker[:40])
            options.insert(0, f"--missing {marker} reads the others as numbers")
        options += [f"--target-encode {name} one, with the label's mean for each"] * means
        options += [f"--min-frequency {least} one column of those in fewer than {least} rows"] * rare
        return ", ".join([*options, f"--ignore {name} none"])

    def codes(self, texts: list[str]) -> np.ndarray:
        """(m,) float64 the column of each text, counted from 1, negative for an entry of -1. 0: no column."""
        if self.hash:
            return hash_codes(texts, self.hash)
        if self.smooth is not None:
            new = len(self.categories) + 1
            return np.array([self.categories.get(text, new) for text in texts], np.float64)
        other = len(self.categories) if self.rare else 0
        return np.array([self.categories.get(text, other) if text else 0 for text in texts], np.float64)

    def count(self, codes: np.ndarray) -> None:
        """Counts the rows with each code."""
        counts = np.bincount(codes.astype(np.int64), minlength=len(self.counts))
        counts[: len(self.counts)] += self.counts
        self.counts = counts

    def settle(self) -> None:
        """Joins the categories with too few rows into one, once all rows are known."""
        if self.min_rows == 1 or self.settled is not None:
            return
        is_frequent = self.counts >= self.min_rows
        frequent = [text for text, code in self.categories.items() if is_frequent[code] and text != RARE]
        self.rare = len(frequent) < len(self.categories)
        final = {text: code for code, text in enumerate([*frequent, *[RARE] * self.rare], 1)}
        self.settled = np.array([0, *(final.get(text, len(final)) for text in self.categories)])
        self.categories = final

    def require_float32(self, values: np.ndarray, narrow: np.ndarray) -> None:
        """Raises NeedsFloat64 if float32, `narrow` (m,), loses seconds of times or differences of numbers (m,)."""
        if self.kind == "time":
            if np.any((values != narrow) & ~np.isnan(values)):
                message = f"column {self.name!r} has times of day, which float32 rounds to minutes"
                raise NeedsFloat64(f"{message}: the rows are float64")
        elif (rounded := first_rounded_in(values[:, None])) is not None:
            is_id = rounded.value.is_integer() and abs(rounded.value) < LARGEST
            hint = f"; leave the column out if it is {_looks_like(rounded.value)}" * is_id
            raise NeedsFloat64.of(f"column {self.name!r}", rounded, hint)

    def note_rounding(self, values: np.ndarray, narrow: np.ndarray, *, was_float: bool = False) -> None:
        """Remembers a whole number among values (m,) that float32 rounds to another one, or that float64 may have
        rounded. was_float: whether the table has it as float64."""
        if self.has_fractions:
            return
        large = np.flatnonzero(np.abs(values) > EXACT)
        if not len(large):
            return
        values, narrow = values[large], narrow[large]
        self.has_fractions = bool(np.any(values != np.rint(values)) or np.abs(values).max() >= LARGEST)
        differs = np.flatnonzero((values != narrow) | ((np.abs(values) > WHOLE) & (not was_float)))
        if self.rounded is None and len(differs):
            self.rounded = float(values[differs[0]]), float(narrow[differs[0]])

    def rounding_remark(self, remedy: str = "--dtype float64 keeps them") -> str | None:
        """A warning of precision lost in its numbers, unless it looks like noise. remedy: how to keep it."""
        if self.rounded is None or self.has_fractions:
            return None
        number, rounded = self.rounded
        remedy = remedy if abs(number) <= WHOLE else "neither does float64"
        if number == rounded:
            return (
                f"column {self.name!r} has whole numbers above 2^53, about {number:.0f}, which float64 rounds; leave "
                f"the column out if it is {_looks_like(number)}"
            )
        return (
            f"column {self.name!r} has whole numbers that float32 cannot hold: {number:.0f} becomes {rounded:.0f}; "
            f"{remedy}, or leave the column out if it is {_looks_like(number)}"
        )

    def remark(self, n: int, fewer: str | None = None, as_category: str = AS_TEXT) -> str | None:
        """A warning if its texts, in n rows, hardly look like categories. fewer: how to get fewer columns of them.
        as_category: the option that reads it as categories, see `option_for`."""
        if self.smooth is not None:
            return None
        texts = [*self.categories][: -1 if self.rare else None]
        count = len(texts)
        dates = [text for text in texts if _DATE.fullmatch(text)]
        if count >= FEW and len(dates) >= MOSTLY * count:
            return (
                f"column {self.name!r} has dates such as {dates[0][:40]!r}, which are read as text: each of {count:,} "
                "became a column of 0 and 1; write them as in 2026-01-31 12:00, or leave the column out"
            )
        if not self.stays_text and (quantities := self._quantities(texts)) is not None:
            kind, example, remedy = quantities
            return (
                f"column {self.name!r} has {kind}{example}: each of {count:,} texts became a column of 0 and 1; "
                f"{remedy}, or {option_for(as_category, self.name)} takes them as categories"
            )
        if count >= MANY and (count > n / 2 or count > WIDE):
            are_names = count > n / 2
            message = f"column {self.name!r} has {count:,} different texts in {n:,} rows{', as names do' * are_names}"
            return f"{message}: each became a column of 0 and 1; {fewer or self.fewer(means=not are_names)}"
        return None

    def _quantities(self, texts: list[str]) -> tuple[str, str, str] | None:
        """The kind of quantities that most texts are, an example of those or of the others, and what to do."""
        unlike = {
            kind: [text for text in texts if not pattern.fullmatch(text)] for kind, (pattern, _) in QUANTITIES.items()
        }
        for kind, (_, remedy) in QUANTITIES.items():
            if len(texts) > 1 and not unlike[kind]:
                marks = remedy if self.is_csv or kind != "numbers" else AS_NUMBERS
                return kind, f" such as {texts[0][:40]!r}, which are read as text", marks
        for kind, others in unlike.items():
            if len(texts) >= FEW and len(texts) - len(others) >= MOSTLY * len(texts):
                markers = as_names(*(other[:40] for other in others[:3]))
                gaps = f"--missing {markers} reads such text as missing" if self.is_csv else "leave such text empty"
                return kind, f", but for text such as {others[0][:40]!r}", gaps
        return None

    def to_attrs(self) -> dict[str, object]:
        attrs: dict[str, object] = {} if self.kind == "number" else {"kind": self.kind}
        if self.from_text:
            attrs["from_text"] = True
        if self.kind == "text":
            attrs = {"hash": self.hash} if self.hash else {"categories": [*self.categories]}
        if self.rare:
            attrs["rare"] = True
        if self.smooth is not None:
            attrs["target"] = self.smooth
        if self.values is not None:
            attrs |= {"values": self.values.tolist(), "classes": [*self.classes]}
        return {"name": self.name} | attrs | ({"code": True} if self.is_code else {})

    @classmethod
    def from_attrs(cls, attrs: Attrs) -> Feature:
        is_code = attrs.get("code", False)
        if "hash" in attrs:
            return cls(attrs["name"], "text", hash=attrs["hash"], is_code=is_code)
        if "categories" in attrs:
            categories = {text: code for code, text in enumerate(attrs["categories"], 1)}
            values = np.array(attrs["values"], np.float64) if "values" in attrs else None
            encoded = attrs.get("target"), values, tuple(attrs.get("classes", ()))
            return cls(attrs["name"], "text", categories, 0, 1, attrs.get("rare", False), *encoded, is_code)
        return cls(attrs["name"], attrs.get("kind", "number"), from_text=attrs.get("from_text", False))


@dataclass
class Schema:
    """The features of a table in order, and the columns of its label.

    Frozen (read from a store): new texts are rare, or become all zeros.
    """

    features: list[Feature]
    label: tuple[str, ...] = ()
    frozen: bool = False
    is_complete: bool = field(init=False, default=False)

    def assume_complete(self) -> bool:
        """Assumes that there are no more texts, if none have to be counted. Returns whether it did. From then on a new
        text raises UnknownText."""
        self.is_complete = all(feature.min_rows == 1 for feature in self.features)
        return self.is_complete

    @property
    def offsets(self) -> np.ndarray:
        """(features + 1,) int, the first store column of each feature."""
        return np.concatenate([[0], np.cumsum([f.width for f in self.features])]).astype(np.int64)

    @property
    def store_offsets(self) -> np.ndarray:
        """`offsets` in rows where target-encoded texts are codes."""
        return np.concatenate([[0], np.cumsum([f.store_width for f in self.features])]).astype(np.int64)

    @property
    def coded(self) -> dict[int, Feature]:
        """The target-encoded features, by their column in a store."""
        return {
            int(column): f for column, f in zip(self.store_offsets, self.features, strict=False) if f.smooth is not None
        }

    def settle(self, where: str) -> None:
        """Called once all rows are known. Raises DataError if too many categories remain."""
        if self.frozen:
            return
        for feature in self.features:
            feature.settle()
            feature.require_few(where)
        spread = [f for f in self.features if f.smooth is None]
        total = sum(len(f.categories) for f in spread)
        if total > MAX_COLUMNS:
            widest = max(spread, key=lambda f: len(f.categories))
            problem = f"texts would make {total:,} columns of 0 and 1, column {widest.name!r} most of them"
            raise DataError(f"{where}: {problem}; {widest.fewer()}")

    @property
    def is_text(self) -> np.ndarray:
        """(features,) bool: whether it is text with a column of 0 and 1 for each."""
        return np.array([f.is_spread for f in self.features])

    @property
    def has_text(self) -> bool:
        return bool(self.is_text.any())

    def codes(self, feature: Feature, texts: list[str], ids: np.ndarray, where: str) -> np.ndarray:
        """(m,) `Feature.codes` of rows with these indices of the texts. A schema that is not frozen adds new texts.
        Raises DataError."""
        texts = [*map(as_code, texts)] if feature.is_code else texts
        if not (self.frozen or feature.hash):
            is_fixed = self.is_complete and feature.smooth is None
            if is_fixed and not feature.categories.keys() >= {*filter(None, texts)}:
                raise UnknownText(f"{where}: column {feature.name!r} has a text that the first rows did not have")
            feature.learn(texts, where)
        codes = feature.codes(texts)[ids]
        if feature.min_rows > 1:
            feature.count(codes)
        return codes

    def values(self, raw: np.ndarray) -> np.ndarray:
        """(m, features) the store entry for each cell of raw rows, in which text features hold codes."""
        return np.where(self.is_text, np.sign(raw), raw) if self.has_text else raw

    def encode(self, raw: np.ndarray) -> np.ndarray | sparse.csr_array:
        """(m, d) store rows for raw (m, features): CSR if there is text that is not target-encoded."""
        rows: np.ndarray | sparse.csr_array = raw
        if self.has_text:
            raw = raw.copy()
            for codes, feature in zip(raw.T, self.features, strict=True):
                if feature.settled is not None:  # all rows are known
                    codes[:] = feature.settled[codes.astype(np.int64)]
            within = np.where(self.is_text & (raw != 0), np.abs(raw) - 1, 0).astype(np.int64)
            columns, ends = self.store_offsets[:-1] + within, np.arange(0, raw.size + 1, raw.shape[1])
            shape = len(raw), int(self.store_offsets[-1])
            rows = sparse.csr_array((self.values(raw).ravel(), columns.ravel(), ends), shape=shape)
            rows.eliminate_zeros()
        values = {at: feature.values for at, feature in self.coded.items() if feature.values is not None}
        return decode_categories(rows, values)

    def numbers_remark(self, as_category: str) -> str | None:
        """How numbers stored as text were read, if there are any. as_category: the option that reads a column as
        categories, see `option_for`."""
        names = [f.name for f in self.features if f.from_text]
        if not names:
            return None
        first, *others = names
        columns = f"columns {listed(names)} have" if others else f"column {first!r} has"
        message = f"{columns} numbers stored as text, which are read as numbers"
        return f"{message}; {option_for(as_category, 'COL' if others else first)} takes them as categories"

    def remarks(self, n: int) -> list[str]:
        """Warnings of texts in n rows that do not look like categories, and of numbers that lose digits."""
        return [remark for f in self.features if (remark := f.remark(n) or f.rounding_remark())]

    def to_attrs(self) -> dict[str, object]:
        label = [*self.label] if len(self.label) > 1 else next(iter(self.label), None)
        return {"columns": [feature.to_attrs() for feature in self.features], "label": label}

    @classmethod
    def from_attrs(cls, attrs: Attrs) -> Schema:
        """The schema that `to_attrs` wrote, frozen. Raises DataError if the store was not made from a table."""
        if "columns" not in attrs:
            raise DataError("the store given as --like was not made from a table, so it has no columns to copy")
        label = attrs.get("label") or ()
        features = [Feature.from_attrs(c) for c in attrs["columns"]]
        return cls(features, (label,) if isinstance(label, str) else tuple(label), frozen=True)


def require_texts(path: str, kinds: Mapping[str, str], encodings: Mapping[str, str], of_numbers: str = "") -> None:
    """Raises DataError if a named column is not a feature or not text. named: with what is done to it. of_numbers: what
    to do about numbers, see `option_for`."""
    for name, encoding in encodings.items():
        if name not in kinds:
            raise DataError(f"{path} has no feature column {name!r} to {encoding}; it has {listed([*kinds])}")
        if kinds[name] != "text":
            holds = HOLDS.get(kinds[name], kinds[name])
            hint = option_for(of_numbers, name) if kinds[name] == "number" else ""
            raise DataError(f"{path}: column {name!r} to {encoding} holds {holds}; expected text{hint}")


def is_number(text: str) -> bool:
    """Whether a text without spaces around it is a number, and rather no code."""
    return _NUMBER.fullmatch(text) is not None and _OF_CODE.fullmatch(text) is None


def option_for(template: str, name: str) -> str:
    """The option for a column from its template: `--text {quoted}` in a shell, `category={name!r}` in Python."""
    return template.format(name=name, quoted=as_names(name))


def as_code(text: str) -> str:
    """A number code in its shortest form: 7 for 007 and 7.0. Other texts as they are."""
    code = _CODE.fullmatch(text)
    return text if code is None else code[1]


def _looks_like(number: float) -> str:
    """The likely meaning of a large whole number that is not a quantity."""
    for unit, ticks in TICKS.items():
        if SINCE <= number / ticks <= UNTIL:
            return f"an id, or a time in {unit} since 1970, which is better written as a date"
    return "an id"


def hash_codes(texts: list[str], width: int) -> np.ndarray:
    """(m,) float64 codes of texts by their MurmurHash3 (32 bits, signed, of UTF-8): its remainder by `width` is the
    column, its sign the entry, as in scikit-learn's FeatureHasher (Weinberger et al. 2009)."""
    from sklearn.utils import murmurhash3_32  # not needed by tables without a hash

    hashes = np.array([murmurhash3_32(text) for text in texts], np.float64)
    codes = np.where(hashes >= 0, 1, -1) * (np.abs(hashes) % width + 1)
    return codes * np.array([bool(text) for text in texts])


def column(X: Matrix, number: int) -> np.ndarray:
    """(m,) int64 a column of codes, dense or CSR."""
    codes = X[:, number] if isinstance(X, np.ndarray) else X[:, [number]].toarray().ravel()
    return codes.astype(np.int64)


def decode_categories(X: Matrix, values: Mapping[int, np.ndarray], fold: np.ndarray | None = None) -> Matrix:
    """Rows (m, d) with the values of their categories instead of their codes, which count from 1.

    values: by column, (categories, outputs), or with `fold` (m,), (categories, folds, outputs): a row has those of its
    fold.
    """
    if not values:
        return X
    pieces, done = [], 0
    for number, category_values in sorted(values.items()):
        codes = column(X, number) - 1
        columns = category_values[codes] if fold is None else category_values[codes, fold]
        pieces += [X[:, done:number], columns.astype(X.dtype)]
        done = number + 1
    pieces = [piece for piece in [*pieces, X[:, done:]] if piece.shape[1]]
    if isinstance(X, np.ndarray):
        return np.concatenate(pieces, axis=1)
    return sparse.csr_array(sparse.hstack([sparse.csr_array(piece) for piece in pieces], format="csr"))
