"""Labels of a stream, added as they come."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from streamsvm.errors import DataError
from streamsvm.tasks.pairs import signs


class Labels(list[Any]):
    """In order of arrival; a label's code is its place. New ones are added until there are `most`, or never.

    targets (labels, columns): the target of each in the columns, -1 or +1.
    """

    def __init__(self, labels: Iterable[Any], most: int, *, closed: bool) -> None:
        super().__init__(labels)
        self.most, self._closed = most, closed
        self.targets = _targets(len(self))

    def require(self, labels: list[Any]) -> None:
        """Raises DataError for labels that cannot be added."""
        new: list[Any] = []
        for y in labels:
            if y is None or y != y:  # each NaN would be a separate class
                raise DataError(f"found label {y!r}, which is missing; leave out events without a label")
            if y in self or y in new:
                continue
            if self._closed:
                raise DataError(f"found label {y!r}, expected one of {', '.join(map(str, self))}")
            if len(self) + len(new) >= self.most:
                raise DataError(
                    f"found label {y!r} in addition to {self.most} others, expected at most max_classes; raise it, or "
                    "check that this is the label"
                )
            new.append(y)

    def code(self, y: Any) -> int:
        """The label's number; a new one is added."""
        if y in self:
            return self.index(y)
        self.append(y.item() if isinstance(y, np.generic) else y)
        self.targets = _targets(len(self))
        return len(self) - 1


def _targets(k: int) -> np.ndarray:
    k = max(2, k)
    return signs(np.arange(k), k)
