"""Blocks and readers: the interface between file formats and the store."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from streamsvm.data.labels import label_texts
from streamsvm.data.rows import Rows
from streamsvm.errors import DataError
from streamsvm.ingest.streams import Stream


@dataclass(frozen=True)
class Block:
    """m samples as read from a source; y (m,) int64, float64 or text, qid (m,) int64.

    group (m,) int64: rows with the same number stay together. key (m,): a number or time to split rows by, which is not
    stored.
    """

    rows: Rows
    y: np.ndarray | None = None
    qid: np.ndarray | None = None
    group: np.ndarray | None = None
    key: np.ndarray | None = None

    @property
    def all_columns(self) -> tuple[np.ndarray | None, ...]:
        """The columns next to the rows, in the order of the fields."""
        return self.y, self.qid, self.group, self.key

    def take(self, ids: np.ndarray | slice) -> Block:
        return Block(self.rows.take(ids), *(None if v is None else v[ids] for v in self.all_columns))


OpenStream = Callable[[str], Stream]


class Reader:
    """Reads sources of one format, one after the other. After the last one it knows the layout."""

    dense_below: float  # by default, a CSR store is made below this fraction of nonzeros
    dtype: np.dtype  # of features in the store

    def blocks(self, path: str) -> Iterator[Block]:
        """The samples of a source, in blocks of bounded memory. Raises DataError naming file and row."""
        raise NotImplementedError

    def finish(self) -> None:
        """Called after the last source. Raises DataError if the sources do not fit together."""
        raise NotImplementedError

    def width(self) -> int:
        """The number of features in a row of the store."""
        raise NotImplementedError

    def is_final(self) -> bool:
        """Whether `width`, `encode` and `attrs` are final after the first block."""
        return False

    def assume_complete(self) -> bool:
        """Assumes that later blocks have nothing new, so that `width` and the rest are final. Returns whether it can.

        From then on, a block with something new raises UnknownText.
        """
        return False

    def density(self) -> float:
        """The fraction of nonzero features, 0 to 1."""
        return 1.0

    def encode(self, rows: Rows) -> Rows:
        """The rows of the store for rows of a block."""
        return rows

    def remarks(self) -> list[str]:
        """Warnings about the data that was read."""
        return []

    def attrs(self) -> dict[str, object]:
        """Attributes that the store keeps, so that later data can be read in the same way."""
        return {}


def cast(X: np.ndarray, dtype: np.dtype, where: str, first_row: int, *, gaps: bool = False) -> np.ndarray:
    """X (m, d) as dtype; `gaps` may be NaN. Raises DataError naming row and column of other values that do not fit."""
    with np.errstate(over="ignore", invalid="ignore"):
        out = X.astype(dtype, copy=False)
    bad = Rows(np.atleast_2d(out)).first_nonfinite(first_row, gaps=gaps)
    if bad is not None:
        row, column, _ = bad
        value = X[row - first_row, column]
        limit = f"{dtype} holds up to {np.finfo(dtype).max:.2g}"
        expected = limit if np.isfinite(value) else "expected finite"
        raise DataError(f"{where}: row {row + 1}, column {column + 1} is {value}; {expected}")
    if dtype == np.uint8 and not np.array_equal(out, X):
        row, column = np.argwhere(out != X)[0]
        problem = f"{where}: row {first_row + row + 1}, column {column + 1} is {X[row, column]}"
        raise DataError(f"{problem}; uint8 holds whole numbers from 0 to 255")
    return out


def join_columns(parts: Sequence[np.ndarray]) -> np.ndarray:
    """Columns of several blocks as one. If integers and text meet, they become text."""
    kinds = {part.dtype.kind for part in parts}
    return np.concatenate(parts if len(kinds) == 1 or "U" not in kinds else [label_texts(part) for part in parts])
