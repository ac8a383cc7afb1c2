"""What readers give and what they know: the interface between file formats and the store."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from streamsvm.data.finite import first_nonfinite
from streamsvm.data.ingest.streams import Stream
from streamsvm.data.rows import Rows
from streamsvm.errors import DataError


@dataclass(frozen=True)
class Block:
    """m samples as a reader found them; y (m,) float64 or text, qid (m,) int64.

    group (m,) int64: rows of one number are never parted. key (m,): a number or time that rows are split by, which no
    store keeps.
    """

    rows: Rows
    y: np.ndarray | None = None
    qid: np.ndarray | None = None
    group: np.ndarray | None = None
    key: np.ndarray | None = None

    @property
    def beside(self) -> tuple[np.ndarray | None, ...]:
        """What there is beside the rows, in the order of the fields."""
        return self.y, self.qid, self.group, self.key

    def take(self, ids: np.ndarray | slice) -> Block:
        return Block(self.rows.take(ids), *(None if v is None else v[ids] for v in self.beside))

    def columns(self) -> dict[str, np.ndarray]:
        """Those that a store keeps."""
        given = {"y": self.y, "qid": self.qid, "group": self.group}
        return {name: values for name, values in given.items() if values is not None}


OpenStream = Callable[[str], Stream]


class Reader(Protocol):
    """Reads sources of one format, one after the other; after the last one it knows the layout."""

    dense_below: float  # fraction of non-zeros under which a CSR store is made, unless told otherwise
    dtype: np.dtype  # of features in the store

    def blocks(self, path: str) -> Iterator[Block]:
        """The samples of a source, in blocks of bounded memory. Raises DataError naming file and row."""

    def finish(self) -> None:
        """Called after the last source. Raises DataError where the sources do not fit together."""

    def settled(self) -> bool:
        """Whether `width`, `encode` and `attrs` are final after the first block."""

    def guess(self) -> bool:
        """Takes what the first block had for all that there is, so that `width` and the rest are final; whether it can.
        From then on a block that has more raises Unsettled."""

    def width(self) -> int:
        """Features in a row of the store."""

    def density(self) -> float:
        """The fraction of non-zero features, 0 to 1."""

    def encode(self, rows: Rows) -> Rows:
        """The rows of the store for rows of a block."""

    def remarks(self) -> list[str]:
        """What a person should know of what was read."""

    def attrs(self) -> dict[str, Any]:
        """What the store keeps so that later data can be read the same way."""


def cast(X: np.ndarray, dtype: np.dtype, where: str, first_row: int, *, gaps: bool = False) -> np.ndarray:
    """X (m, d) as dtype. Raises DataError naming row and column where a value is not finite, but for NaN with gaps, or
    does not fit."""
    with np.errstate(over="ignore", invalid="ignore"):
        out = X.astype(dtype, copy=False)
    bad = first_nonfinite(Rows(np.atleast_2d(out)), first_row, gaps=gaps)
    if bad is not None:
        row, column, _ = bad
        raise DataError(
            f"{where}: row {row + 1}, column {column + 1} is {X[row - first_row, column]}; expected finite"
        )
    if dtype == np.uint8 and not np.array_equal(out, X):
        row, column = np.argwhere(out != X)[0]
        raise DataError(
            f"{where}: row {first_row + row + 1}, column {column + 1} is {X[row, column]}; "
            f"uint8 holds whole numbers from 0 to 255"
        )
    return out


def labels_of(texts: np.ndarray) -> np.ndarray:
    """(m,) float64 where all texts are numbers, else the texts themselves."""
    try:
        return texts.astype(np.float64)
    except ValueError:
        return texts.astype(str)
