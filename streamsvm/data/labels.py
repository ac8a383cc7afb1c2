"""Labels as codes, without all of them in memory at once, and as text."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

MOST_SEEN = 100_000  # different labels; more are numbers to predict, for which one sort of all is faster


def coded(pieces: Iterable[np.ndarray], n: int) -> tuple[np.ndarray, np.ndarray] | None:
    """(k,) the different labels, rising, and (n,) int32 each row's place among them; None beyond MOST_SEEN.

    pieces: the n labels in order, all numbers or all text.
    """
    seen, codes, start = np.empty(0), np.empty(n, np.int32), 0
    for piece in pieces:
        places = _places(seen, piece)
        if (places < 0).any():
            new = np.unique(piece[places < 0])
            seen = np.concatenate([seen, new]) if len(seen) else new
            places = _places(seen, piece)
        if len(seen) > MOST_SEEN:
            return None
        codes[start : start + len(piece)] = places
        start += len(piece)
    order = np.argsort(seen)
    ranks = np.empty(len(seen), np.int32)
    ranks[order] = np.arange(len(seen))
    np.take(ranks, codes, out=codes, mode="clip")  # every code is there, and other modes make a copy
    return seen[order], codes


def _places(seen: np.ndarray, piece: np.ndarray) -> np.ndarray:
    """Where each label is in `seen`, -1 where nowhere."""
    if not len(seen):
        return np.full(len(piece), -1)
    order = np.argsort(seen)
    places = order[np.minimum(np.searchsorted(seen, piece, sorter=order), len(seen) - 1)]
    return np.where(seen[places] == piece, places, -1)


def encode(y: np.ndarray, classes: np.ndarray, positive: tuple[str, ...] = ()) -> np.ndarray:
    """(n,) int32 codes of labels in `classes`, -1 where unknown; with `positive`, 1 for those labels and 0 else.

    Of many rows, only the different labels should come here (`Store.coded`): each may become text.
    """
    if positive:
        return np.isin(label_texts(y), positive).astype(np.int32)
    if y.dtype.kind != classes.dtype.kind and "U" in (y.dtype.kind, classes.dtype.kind):
        y, classes = label_texts(y), label_texts(classes)
    order = np.argsort(classes)
    codes = np.clip(np.searchsorted(classes[order], y), 0, len(classes) - 1)
    return np.where(classes[order][codes] == y, order[codes], -1).astype(np.int32)


def label_texts(labels: np.ndarray) -> np.ndarray:
    """Labels as text; whole floats as integers are written."""
    if labels.dtype.kind == "f" and np.all(labels == np.round(labels)):
        labels = labels.astype(np.int64)
    return labels.astype(str)
