"""The options of ingest."""

from __future__ import annotations

import os
from itertools import combinations
from typing import TYPE_CHECKING, Annotated, Literal, get_args

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from streamsvm.config import Count, Options, Real, Size, Whole
from streamsvm.storage.text import cut_quoted, name_of, names_in, split_quoted

if TYPE_CHECKING:
    import numpy as np

Format = Literal["svmlight", "csv", "tsv", "parquet", "arrow", "sqlite", "duckdb", "postgresql", "npy", "npz", "idx"]
FORMATS: tuple[str, ...] = get_args(Format)
DIALECT = ("delimiter", "decimal", "thousands", "missing", "skip_rows", "comment")  # of CSV files
LEAST_BYTES = 32 << 20
MOST_HASHED = 1 << 20  # columns, as in scikit-learn's FeatureHasher; float32 counts them exactly


def _fraction(value: float) -> float:
    if not 0 < value < 1:
        raise ValueError("expected a fraction between 0 and 1")
    return value


def _enough(value: int) -> int:
    if value < LEAST_BYTES:
        raise ValueError("expected at least 32MiB")
    return value


def _text(value: object) -> object:
    return os.fspath(value) if isinstance(value, os.PathLike) else value


def _mark(value: str | None) -> str | None:
    value = {"\\t": "\t", "tab": "\t", "space": " "}.get(value or "", value)
    if value is not None and len(value) != 1:
        raise ValueError("expected one character, or `tab` or `space`")
    return value


def _listed(value: object) -> object:
    return tuple(names_in(value)) if isinstance(value, str) else value


def _widths(value: object) -> object:
    """A table parsed from text such as a=16,b=32."""
    if not isinstance(value, str):
        return value
    pairs = [cut_quoted(pair, "=") for pair in split_quoted(value)]
    if not all(name and width.isdecimal() for name, width in pairs):
        raise ValueError("expected COL=WIDTH[,COL=WIDTH...]")
    return _once([(name_of(name), int(width)) for name, width in pairs])


def smooths(value: object) -> object:
    """A table parsed from text such as a,b=20, or from names."""
    if isinstance(value, str):
        pairs = [split_quoted(pair, "=") for pair in split_quoted(value)]
        value = _once([(name_of(name), _number("=".join(smooth)) if smooth else "auto") for name, *smooth in pairs])
    elif isinstance(value, list | tuple):
        value = _once([(name, "auto") for name in value])
    return value


def _number(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


def _once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    if len(dict(pairs)) < len(pairs):
        raise ValueError("expected each column once")
    return dict(pairs)


Place = Annotated[str, BeforeValidator(_text)] | None
Mark = Annotated[str | None, AfterValidator(_mark)]
Names = Annotated[tuple[str, ...], BeforeValidator(_listed)]
FromZero = Annotated[Whole, Field(ge=0)]
Smooth = Annotated[float, Field(ge=0, allow_inf_nan=False)] | Literal["auto"]
Widths = Annotated[dict[str, Annotated[int, Field(ge=2, le=MOST_HASHED)]], BeforeValidator(_widths)]
Smooths = Annotated[dict[str, Smooth], BeforeValidator(smooths)]


class IngestOptions(Options):
    """Flags of `ingest`, whose names have hyphens on the command line. Without a default, the data decide."""

    format: Format | None = Field(
        default=None, description="Format of the files (default: by their names and first bytes)"
    )
    label: str | None = Field(
        default=None,
        description="Label column: name, position, `first`, `last`, `none`. Positions count from 0. `a,b,c`: columns "
        "of 0 and 1, one for each label of multilabel rows (default: that of the model or `--like` store if there is "
        "one, otherwise the last)",
    )
    query: str | None = Field(default=None, description="Table of a database, or a SELECT (default: its only table)")
    delimiter: Mark = Field(
        default=None,
        description="Delimiter of columns; a space stands for any number of them (default: the one that gives the "
        "first lines equally many columns)",
    )
    decimal: Mark = Field(
        default=None, description="Decimal mark of numbers in CSV files (default: by their numbers, . or ,)"
    )
    thousands: Mark = Field(
        default=None,
        description="Mark between thousands in CSV files, as in 1,299.5 (default: none, unless other numbers have "
        "decimal commas)",
    )
    missing: Names = Field(
        default=(), description="Values of CSV files that stand for a missing one, next to NA, null, nan and empty"
    )
    skip_rows: FromZero = Field(
        default=0, description="Lines of CSV files before the names, or before the rows without names"
    )
    comment: str | None = Field(
        default=None, min_length=1, description="Lines of CSV files that begin with this text are left out"
    )
    multilabel: bool = Field(
        default=False, description="Rows have any number of labels: a label such as `1,3,7`, or empty for none"
    )
    header: bool = Field(default=True, description="Whether a CSV or TSV table begins with column names")
    labels: Place = Field(
        default=None, description="File with a label for each row (idx, npy or text), for npy, npz and idx"
    )
    qid: str | None = Field(default=None, description="Query id column of a table; svmlight files have `qid:`")
    group: str | None = Field(
        default=None,
        description="Column of a table with the group of each row, which fits do not learn from. Splits, folds and "
        "standard errors keep groups whole",
    )
    ignore: Names = Field(default=(), description="Columns of a table to leave out")
    text: Names = Field(default=(), description="Columns to read as text, as it is written: 007 and 7 differ")
    category: Names = Field(
        default=(), description="Columns of number codes to read as categories: 7, 7.0 and 007 are the same one"
    )
    hash: Widths = Field(default={}, description="Text columns to hash, each into WIDTH columns of -1, 0 and 1")
    target_encode: Smooths = Field(
        default={},
        description="Text columns to replace by the mean of the label for each text, which a fit computes. SMOOTH: "
        "`auto`, or the number of rows that the mean of all rows counts as",
    )
    min_frequency: Count = Field(
        default=None, description="Texts in fewer rows share one column, (rare), with texts never seen before"
    )
    dense: bool | None = Field(default=None, description="Dense or CSR rows (default: by density)")
    dtype: Literal["uint8", "float32", "float64"] | None = Field(
        default=None, description="Number type of the store (default: uint8 for files of bytes, else float32)"
    )
    rows_per_chunk: Count = Field(default=None, description="Rows of a chunk (default: by the size of a row)")
    split: Annotated[Real, AfterValidator(_fraction)] | None = Field(
        default=None, description="Fraction of the rows for the store, at random. The others go to the test store"
    )
    split_by: str | None = Field(
        default=None,
        description="Column of times or numbers to split by: the last rows go to the test store, instead of "
        "random ones",
    )
    test_store: Place = Field(default=None, description="Store for the other rows of split")
    shuffle: bool = Field(default=False, description="Store rows in random order")
    seed: FromZero = Field(default=0, description="Seed of split and shuffle")
    like: Place = Field(default=None, description="Store from which to copy columns, categories, width and layout")
    memory_limit: Annotated[Size, AfterValidator(_enough)] = Field(
        default=512 << 20, description="Memory for data that is being processed"
    )
    force: bool = Field(default=False, description="Replace existing stores, once the new ones are complete")

    @model_validator(mode="after")
    def _split_and_marks_fit(self) -> IngestOptions:
        if (self.split is None) != (self.test_store is None):
            raise ValueError("split and test_store go together: a fraction, and a store for the other rows")
        if self.split_by is not None and self.split is None:
            raise ValueError("split_by goes with split, the fraction of the rows that come first")
        if self.split_by is not None and self.group is not None:
            raise ValueError("found group, too, whose rows may be on both sides of a value; leave one out")
        if self.thousands is not None and self.thousands == self.decimal:
            raise ValueError(f"thousands and decimal are both {self.decimal!r}; expected different marks")
        return self

    @model_validator(mode="after")
    def _text_fits(self) -> IngestOptions:
        read = {"text": [*self.text], "category": [*self.category]}
        encoded = {"hash": [*self.hash], "target_encode": [*self.target_encode]}
        named = read | encoded | {"ignore": [*self.ignore]}
        for one, other in combinations(named, 2):
            if one in read and other in encoded:
                continue
            twice = [name for name in named[one] if name in named[other]]
            if twice:
                raise ValueError(f"{one} and {other} both name column {twice[0]!r}; expected one of them")
        if self.like is not None:
            if self.target_encode:
                raise ValueError("text is encoded as in that store; leave target_encode out")
            if self.text or self.category:
                raise ValueError("columns are read as in that store; leave text and category out")
            if self.hash or self.min_frequency:
                raise ValueError("text is encoded as in that store; leave hash and min_frequency out")
        if self.target_encode and self.dtype == "uint8":
            raise ValueError("target_encode numbers texts beyond 255; expected float32 or float64")
        if self.hash and self.dtype == "uint8":
            raise ValueError("hash makes columns of -1, 0 and 1; expected float32 or float64")
        return self

    @property
    def reorders(self) -> bool:
        """Whether rows are put in random order. A split by values does not need it."""
        return self.shuffle or (self.split is not None and self.split_by is None)

    @property
    def block_bytes(self) -> int:
        """Bytes of a source to read at a time. 2 MiB is fastest; larger blocks do not fit in the cache."""
        return min(max(self.memory_limit // 256, 1 << 18), 2 << 20)

    def feature_dtype(self, source: np.dtype | None = None) -> np.dtype:
        """The dtype of stored features if the source holds `source`."""
        import numpy as np  # not needed by --help

        if self.dtype is not None:
            return np.dtype(self.dtype)
        return np.dtype(np.uint8 if source == np.uint8 else np.float32)
