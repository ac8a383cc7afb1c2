"""Sets of labels of multilabel rows: as text, "1,3,7", and as tables of the labels in each set."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from streamsvm.errors import DataError

NONE = np.empty(0, str)
NAMED = "expected a name before and after each comma"


def members(texts: np.ndarray, known: np.ndarray = NONE) -> tuple[np.ndarray, np.ndarray]:
    """(k,) the known labels, then all others in the sets (l,), in order, and (l, k) bool the labels in each set.

    Order, repeats and spaces do not matter. "" is the empty set. Raises DataError for a label without a name.
    """
    sets = [_labels_in(text) for text in texts.tolist()]
    labels = np.concatenate([known, in_order(set().union(*sets).difference(known.tolist()))])
    place = {label: column for column, label in enumerate(labels.tolist())}
    table = np.zeros((len(sets), len(labels)), bool)
    for own, found in zip(table, sets, strict=True):
        own[[place[label] for label in found]] = True
    return labels, table


def in_order(labels: Iterable[str]) -> np.ndarray:
    """Sorted labels, as numbers if all are whole numbers."""
    found = sorted(labels)
    if all(label.removeprefix("-").isdecimal() for label in found):
        found.sort(key=int)
    return np.array(found, str)


def set_texts(table: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """(m,) the sets that (m, k) bool selects from the labels (k,), in their order."""
    kinds, which = np.unique(table, axis=0, return_inverse=True)
    return np.array([",".join(labels[own].tolist()) for own in kinds], str)[which.ravel()]


def lacks_name(text: str) -> bool:
    """Whether a label has no name, for example the second of "1,,3"."""
    return bool(text.strip()) and not all(label.strip() for label in text.split(","))


def _labels_in(text: str) -> set[str]:
    if lacks_name(text):
        raise DataError(f"found labels {text!r}, {NAMED}")
    return {label.strip() for label in text.split(",")} if text.strip() else set()
