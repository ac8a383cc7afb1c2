"""Labels: counted and encoded piece by piece, written as text and read from text, and sets of labels.

`Classes` are the distinct labels of a store. A set of labels is one text, with commas between its members.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from streamsvm.errors import CorruptDataError, DataError
from streamsvm.parallel.sizes import SizedInBytes

FEW_ROWS = 5  # of a class; if most labels that are numbers have fewer rows, they look like values
FEW, IDS = 20, 0.5  # labels that are few, and share of the rows from which on more labels look like ids
MOST_SEEN = 100_000  # distinct labels; more are targets of a regression, for which one sort of all is faster
EXACT = 2**53  # float64 has all whole numbers below
FALSE, TRUE = "false", "true"  # as labels
CUT = "which a model cannot hold; expected text that is Unicode, without a zero at its end"
_WHOLE = re.compile(r"0|-?[1-9]\d*", re.ASCII)
_CODE = re.compile(r"\s*[-+]?0\d|.*_")  # Python's numbers may have underscores, those of files do not
NONE = np.empty(0, str)
NAMED = "expected a name before and after each comma"


@dataclass(frozen=True)
class Classes(SizedInBytes):
    """The distinct labels of a store: sorted values (k,), and counts (k,) of their rows."""

    values: np.ndarray
    counts: np.ndarray

    def codes(self, labels: np.ndarray) -> np.ndarray:
        """(m,) int32 the index of each of these labels. Raises CorruptDataError for an unknown label."""
        places = np.searchsorted(self.values, labels)
        places[places == len(self.values)] = 0
        strange = np.flatnonzero(self.values[places] != labels)
        if len(strange):
            problem = f"found label {labels[strange[0]]}, which is not among the {len(self.values)} that were counted"
            raise CorruptDataError(f"{problem}; ingest the rows again")
        return places.astype(np.int32)


def count_labels(pieces: Iterable[np.ndarray]) -> Classes | None:
    """The distinct labels in pieces, all numbers or all text. None if there are more than MOST_SEEN, or with NaN."""
    labels, counts = np.empty(0), np.empty(0, np.int64)
    for piece in pieces:
        places = _places(labels, piece)
        if (places < 0).any():
            new = np.unique(piece[places < 0])
            labels = np.concatenate([labels, new]) if len(labels) else new
            places = _places(labels, piece)
        if len(labels) > MOST_SEEN or (places < 0).any():
            return None
        counts = np.bincount(places, minlength=len(labels)) + np.pad(counts, (0, len(labels) - len(counts)))
    order = np.argsort(labels)
    return Classes(labels[order], counts[order])


def id_like_labels(classes: Classes) -> str | None:
    """Labels in words, if they are many and most belong to a single row, as ids do."""
    k, n = len(classes.values), int(classes.counts.sum())
    if k <= FEW or k <= IDS * n:
        return None
    kind = {"U": "texts", "f": "numbers"}.get(classes.values.dtype.kind, "whole numbers")
    return f"{k:,} different {kind} in {n:,} rows, as {str(classes.values[0])[:40]!r}, which look like ids"


def value_like_labels(classes: Classes) -> str | None:
    """Labels in words, if they are many numbers and most belong to a few rows each, as values of a regression do."""
    k, n = len(classes.values), int(classes.counts.sum())
    if k <= FEW or classes.values.dtype.kind not in "iuf" or np.median(classes.counts) >= FEW_ROWS:
        return None
    return f"{k:,} distinct numeric labels among {n:,} rows"


def uniform_pieces(pieces: Callable[[], Iterable[np.ndarray]], classes: Classes | None) -> Iterator[np.ndarray]:
    """Labels in pieces, as they would be in one array: text of one width, and one sign of zero.

    classes: from `count_labels`. pieces: gives the labels, as often as called.
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


def _places(labels: np.ndarray, piece: np.ndarray) -> np.ndarray:
    """The index of each label in `seen`, or -1 if it is not in it."""
    if not len(labels):
        return np.full(len(piece), -1)
    order = np.argsort(labels)
    places = order[np.minimum(np.searchsorted(labels, piece, sorter=order), len(labels) - 1)]
    return np.where(labels[places] == piece, places, -1)


def encode(y: np.ndarray, classes: np.ndarray, positive: tuple[str, ...] = ()) -> np.ndarray:
    """(n,) int32 codes of labels in `classes`, -1 if unknown. With `positive`, 1 for those labels and 0 for others.
    Booleans are the same in any spelling.

    For many rows, pass only the distinct labels (`Store.classes`), because each may be converted to text.
    """
    if positive:
        is_positive = encode(label_texts(y), np.array(positive, str)) >= 0
        if y.dtype.kind != "U":  # numbers and booleans also by their values
            numbers = [float(text) for text in positive if is_finite(text) and abs(float(text)) < EXACT]
            is_positive |= np.isin(y.astype(np.float64), numbers)
        return is_positive.astype(np.int32)
    if y.dtype.kind != classes.dtype.kind and "U" in (y.dtype.kind, classes.dtype.kind):
        y, classes = label_texts(y), label_texts(classes)
    codes = _places(classes, y)
    if y.dtype.kind == "U" and (codes < 0).any():
        codes = np.where(codes < 0, _places(with_one_spelling(classes), with_one_spelling(y)), codes)
    return codes.astype(np.int32)


def with_one_spelling(texts: np.ndarray) -> np.ndarray:
    """`one_spelling` of each text."""
    return np.array([one_spelling(text) for text in texts.tolist()], str)


def label_texts(labels: np.ndarray) -> np.ndarray:
    """Labels as text. Whole floats are written like integers, booleans like those of JSON."""
    if labels.dtype.kind == "b":
        return np.where(labels, TRUE, FALSE)
    if labels.dtype.kind == "f" and np.all(labels == np.round(labels)):
        labels = labels.astype(np.int64)
    return labels.astype(str)


def is_unicode(text: object) -> bool:
    """Whether a text has no half of a surrogate pair, which no file can hold."""
    if isinstance(text, str) and not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            return False
    return True


def is_cut(text: str) -> bool:
    """Whether arrays and files would not have this label as it is."""
    return text.endswith("\0") or not is_unicode(text)


def is_finite(text: str) -> bool:
    """Whether a text is a finite number."""
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


def plain_labels(values: np.ndarray) -> np.ndarray:
    """Labels in one of the types of a store: int64, float64 or text. Booleans and integers beyond int64 become text."""
    if values.dtype.kind == "b" or (values.dtype.kind == "u" and values.max(initial=0) >= 2**63):
        return label_texts(values)
    return values.astype(np.int64 if values.dtype.kind in "iu" else np.float64)


def one_spelling(text: str) -> str:
    """A text, or the one spelling of a boolean: pandas writes True, JSON true, spreadsheets TRUE."""
    return text.lower() if text.lower() in (TRUE, FALSE) else text


def matching_label(name: str, texts: Sequence[str]) -> str | None:
    """The label of this name among `label_texts`, booleans in any spelling. None if there is none."""
    if name in texts:
        return name
    return next((text for text in texts if one_spelling(text) == one_spelling(name)), None)


def parse_labels(texts: Sequence[str]) -> np.ndarray:
    """(m,) labels that are written as these texts: int64 if all are whole numbers as programs write them, float64 if
    all are numbers, else the texts. 001 is not a number: it and 1 are different labels."""
    if all(map(_WHOLE.fullmatch, texts)):
        whole = [int(text) for text in texts]
        if not whole or -(2**63) <= min(whole) <= max(whole) < 2**63:
            return np.array(whole, np.int64)
        return np.array(texts, str)
    try:
        numbers = [float(text) for text in texts]
    except ValueError:
        return np.array(texts, str)
    return np.array(texts, str) if any(map(_CODE.match, texts)) else np.array(numbers)


def label_sets(texts: np.ndarray, first: np.ndarray = NONE) -> tuple[np.ndarray, np.ndarray]:
    """(k,) the `first` labels, then all others in the sets (l,), in order, and (l, k) bool the labels in each set.

    Order, repeats and spaces do not matter. "" is the empty set. Raises DataError for a label without a name.
    """
    if unnamed := next(filter(lacks_name, texts.tolist()), None):
        raise DataError(f"found labels {unnamed!r}, {NAMED}")
    sets = [{label.strip() for label in text.split(",")} if text.strip() else set() for text in texts.tolist()]
    labels = np.concatenate([first, sort_labels(set().union(*sets).difference(first.tolist()))])
    place = {label: column for column, label in enumerate(labels.tolist())}
    table = np.zeros((len(sets), len(labels)), bool)
    for row, names in zip(table, sets, strict=True):
        row[[place[label] for label in names]] = True
    return labels, table


def sort_labels(labels: Iterable[str]) -> np.ndarray:
    """Sorted labels, as numbers if all are whole numbers."""
    ordered = sorted(labels)
    if all(label.removeprefix("-").isdecimal() for label in ordered):
        ordered.sort(key=int)
    return np.array(ordered, str)


def set_texts(table: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """(m,) the sets that (m, k) bool selects from the labels (k,), in their order."""
    kinds, which = np.unique(table, axis=0, return_inverse=True)
    return np.array([",".join(labels[is_member].tolist()) for is_member in kinds], str)[which.ravel()]


def lacks_name(text: str) -> bool:
    """Whether a label has no name, for example the second of "1,,3"."""
    return bool(text.strip()) and not all(label.strip() for label in text.split(","))
