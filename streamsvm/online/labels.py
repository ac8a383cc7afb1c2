"""Labels of a stream, numbered as they come."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable
from typing import Any

import numpy as np

from streamsvm.data.labels import is_unicode
from streamsvm.errors import DataError
from streamsvm.online.kinds import shown
from streamsvm.tasks.pairs import signs


class Labels(list[Any]):
    """The labels of a stream in order of arrival; a label's code is its place. New ones are added until there are
    `most`, or never if all classes were given.

    All are of the first one's kind: booleans, numbers, or texts. types: of the labels so far.
    targets (labels, columns): the target of each label in the columns, -1 or +1.
    """

    def __init__(self, labels: Iterable[Hashable], most: int) -> None:
        super().__init__(labels)
        self.types = set(map(type, self))
        self.most, self._is_fixed = most, False
        self.targets = _targets(len(self))

    @classmethod
    def of(cls, classes: Iterable[Hashable] | None, most: int) -> Labels:
        """The labels of these classes, to which none is added; None: no labels so far. Raises DataError for a class
        that cannot be a label."""
        if classes is None:
            return cls((), most)
        named = list(classes)
        cls((), max(most, len(named))).require(named)
        labels = cls(named, most)
        labels._is_fixed = True
        return labels

    def has(self, y: object) -> bool:
        """Whether a label has come before: 1 is not true."""
        return type(y) in self.types and y in self

    def require(self, labels: list[object]) -> None:
        """Raises DataError for labels that cannot be added."""
        new: list[object] = []
        for y in labels:
            if not self.has(y):
                self._require_new(y, new)

    def _require_new(self, y: Any, new: list[object]) -> None:
        """Adds a label to the new ones, unless it is known. Raises DataError for one that cannot be added."""
        kind = _kind_of(y)
        if y is None or (kind is float and y != y):  # each NaN would be a separate class
            raise DataError(f"found label {y!r}, which is missing; leave out events without a label")
        example = self[0] if self else new[0] if new else y
        if kind is None or kind is not _kind_of(example):
            expected = {bool: "true or false", float: "a number", str: "a text"}
            kind_before = expected[_kind_of(example) or float]
            expectation = f"expected {kind_before}, as before: a model holds labels of one kind"
            raise DataError(f"found label {shown(y)}, {expectation if kind else EXPECTED}")
        if y in self or y in new:
            return
        if self._is_fixed:
            raise DataError(f"found label {y!r}, expected one of {', '.join(map(str, self))}")
        if len(self) + len(new) >= self.most:
            raise DataError(
                f"found label {y!r} in addition to {self.most} others, expected at most max_classes; check that this "
                "is the label"
            )
        if not _is_storable([*self, *new, y]):
            raise DataError(f"found label {shown(y)}, which a model cannot hold; {EXPECTED}")
        new.append(y)

    def code(self, y: object) -> int:
        """The label's number; a new one is added."""
        self.types.add(type(y))
        if y in self:
            return self.index(y)
        self.append(y.item() if isinstance(y, np.generic) else y)
        self.targets = _targets(len(self))
        return len(self) - 1


EXPECTED = "expected a boolean, a finite number of 64 bits, or a text that is Unicode, without a zero at its end"


def _kind_of(y: object) -> type | None:
    """bool, float or str; None for what is not a label."""
    if isinstance(y, bool | np.bool_):
        return bool
    if isinstance(y, int | float | np.integer | np.floating):
        return float
    return str if isinstance(y, str) else None


def _is_storable(labels: list[object]) -> bool:
    """Whether labels of one kind are the same after they were written to a model and read again."""
    array = np.array(labels)
    return array.dtype.kind in "bifU" and array.tolist() == labels and all(map(_is_written, labels))


def _is_written(y: Any) -> bool:
    return is_unicode(y) if isinstance(y, str) else math.isfinite(y)


def _targets(k: int) -> np.ndarray:
    k = max(2, k)
    return signs(np.arange(k), k)
