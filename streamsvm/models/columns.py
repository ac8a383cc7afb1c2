"""The columns of a model, and the check that rows have the columns that it was trained on."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np

from streamsvm.data.layout import Layout, Names, first_difference, listed, shown_in_attrs
from streamsvm.data.store import Store
from streamsvm.errors import ModelError
from streamsvm.storage.arrays import Attrs

ANSWER = "give it the model's columns in their order, as `streamsvm ingest FILE --store S --like TRAINING_STORE` does"


class NamedColumns(ABC):
    """A model with names for the d columns of its input rows. by_name: columns come in any order, as in the events of a
    stream. There may then be further columns without a name, after the others. text_features: of a stream; rows may
    have new texts of them, and lack others."""

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
        checked. If both have names, names decide, else the number of columns. Raises ModelError naming the first
        difference."""
        names, expected, where = store.feature_names, self.feature_names, store.url or "X"
        if self.by_name and expected:
            numbers = tuple(map(str, range(store.d)))
            if set(expected) == set(numbers):  # features named by number are those columns
                names = numbers
        if not (names and expected):
            return _by_position(store.d, expected, self.d, where, by_name=self.by_name)
        if self.by_name:
            return _by_name(names, expected, self.d, where, self.text_features), None
        if names != expected:
            counts = f" has {len(names)} columns, the model was trained on {len(expected)}"
            counts = counts if len(names) != len(expected) else ""
            raise ModelError(f"{where}{counts}: {first_difference(names, expected)}; {ANSWER}")
        return None, None


class StreamColumns(NamedColumns):
    """A model whose columns are the features of a stream, if it has one: `stream` is what its learner adds."""

    stream: Attrs | None

    @property
    def by_name(self) -> bool:  # type: ignore[override]
        return self.stream is not None

    @property
    def text_features(self) -> frozenset[str]:
        stream = self.stream or {}
        kinds = stream.get("kinds_unscaled", stream.get("kinds"))
        if kinds is None:  # of an earlier version
            names = {str(name) for name in stream.get("features", ())}
            return frozenset(map(feature_of, names)) - names - {""}
        return frozenset(str(name) for name, kind in kinds if kind == "text")

    @property
    def categories(self) -> tuple[str, ...]:
        return tuple((self.stream or {}).get("categories", ()))

    @property
    def layout(self) -> Layout | None:
        return super().layout if self.stream is None else None  # streams have separate columns

    @property
    def feature_names(self) -> Names | None:
        """For a stream, the features seen so far, in the order of their columns; there may be spare columns for new
        ones."""
        return super().feature_names if self.stream is None else tuple(map(str, self.stream["features"]))


def _by_position(
    n: int, expected: Names | None, d: int, where: str, *, by_name: bool
) -> tuple[np.ndarray | None, str | None]:
    trained_on = len(expected) if by_name and expected else d
    if n != trained_on:
        raise ModelError(f"{where} has {n} columns, the model was trained on {trained_on}; {ANSWER}")
    note = f"{where} has no column names; assuming the model's: {listed(expected or ())}"
    return None if trained_on == d else np.arange(trained_on), note if expected else None


def _by_name(names: Names, expected: Names, d: int, where: str, texts: frozenset[str]) -> np.ndarray | None:
    """-1 for a text that no row has."""
    place, expected_set = {name: column for column, name in enumerate(names)}, set(expected)
    present = texts & set(map(feature_of, names))
    for name in expected:
        if name not in place and feature_of(name) not in present:
            raise ModelError(
                f"{where} has no column {name[:80]!r}, a feature of the stream that the model was trained on"
            )
    for column, name in enumerate(names):
        if (name not in expected_set and feature_of(name) not in present) or place[name] != column:
            what = "twice" if name in expected_set else "not a feature of the stream that the model was trained on"
            raise ModelError(f"{where}: column {column} is {name[:80]!r}, {what}; leave it out")
    columns = np.array([place.get(name, -1) for name in expected], np.intp)
    return None if names == expected and len(names) == d else columns


def feature_of(name: str) -> str:
    """The feature of a text's column, `colour` of `colour=red`; empty of others."""
    return name.partition("=")[0] if "=" in name else ""
