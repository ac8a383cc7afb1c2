"""Labels as codes, without all of them in memory at once, and as text."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from streamsvm.errors import CorruptDataError
from streamsvm.parallel.sizes import Weighed

MOST_SEEN = 100_000  # distinct labels; more are targets of a regression, for which one sort of all is faster


@dataclass(frozen=True)
class Classes(Weighed):
    """The distinct labels of a store: sorted values (k,), and counts (k,) of their rows."""

    values: np.ndarray
    counts: np.ndarray

    def codes(self, labels: np.ndarray) -> np.ndarray:
        """(m,) int32 the index of each of these labels. Raises CorruptDataError for an unknown label."""
        places = np.searchsorted(self.values, labels)
        places[places == len(self.values)] = 0
        strange = np.flatnonzero(self.values[places] != labels)
        if len(strange):
            raise CorruptDataError(
                f"found label {labels[strange[0]]}, which is not among the {len(self.values)} that were counted; "
                "ingest the rows again"
            )
        return places.astype(np.int32)


def counted(pieces: Iterable[np.ndarray]) -> Classes | None:
    """The distinct labels in pieces, all numbers or all text. None if there are more than MOST_SEEN, or with NaN."""
    seen, counts = np.empty(0), np.empty(0, np.int64)
    for piece in pieces:
        places = _places(seen, piece)
        if (places < 0).any():
            new = np.unique(piece[places < 0])
            seen = np.concatenate([seen, new]) if len(seen) else new
            places = _places(seen, piece)
        if len(seen) > MOST_SEEN or (places < 0).any():
            return None
        counts = np.bincount(places, minlength=len(seen)) + np.pad(counts, (0, len(seen) - len(counts)))
    order = np.argsort(seen)
    return Classes(seen[order], counts[order])


def alike(pieces: Callable[[], Iterable[np.ndarray]], classes: Classes | None) -> Iterator[np.ndarray]:
    """Labels in pieces, as they would be in one array: text of one width, and one sign of zero.

    classes: from `counted`. pieces: gives the labels, as often as called.
    """
    if classes is not None:
        yield from (classes.values[classes.codes(piece)] for piece in pieces())
        return
    dtype, zeros = np.result_type(*{piece.dtype for piece in pieces()}), np.empty(0)
    for piece in pieces():
        if dtype.kind == "f":
            zeros = zeros if len(zeros) else piece[piece == 0][:1]
            piece = np.where(piece == 0, zeros, piece) if len(zeros) else piece
        yield piece.astype(dtype)


def _places(seen: np.ndarray, piece: np.ndarray) -> np.ndarray:
    """The index of each label in `seen`, or -1 if it is not in it."""
    if not len(seen):
        return np.full(len(piece), -1)
    order = np.argsort(seen)
    places = order[np.minimum(np.searchsorted(seen, piece, sorter=order), len(seen) - 1)]
    return np.where(seen[places] == piece, places, -1)


def encode(y: np.ndarray, classes: np.ndarray, positive: tuple[str, ...] = ()) -> np.ndarray:
    """(n,) int32 codes of labels in `classes`, -1 if unknown. With `positive`, 1 for those labels and 0 for others.

    For many rows, pass only the distinct labels (`Store.classes`), because each may be converted to text.
    """
    if positive:
        return np.isin(label_texts(y), positive).astype(np.int32)
    if y.dtype.kind != classes.dtype.kind and "U" in (y.dtype.kind, classes.dtype.kind):
        y, classes = label_texts(y), label_texts(classes)
    order = np.argsort(classes)
    codes = np.clip(np.searchsorted(classes[order], y), 0, len(classes) - 1)
    return np.where(classes[order][codes] == y, order[codes], -1).astype(np.int32)


def label_texts(labels: np.ndarray) -> np.ndarray:
    """Labels as text. Whole floats are written like integers."""
    if labels.dtype.kind == "f" and np.all(labels == np.round(labels)):
        labels = labels.astype(np.int64)
    return labels.astype(str)
