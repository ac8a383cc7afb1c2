"""Which class a row is of: one dual for each pair of classes, or one column for each class against the rest."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from streamsvm.data.labels import encode, label_texts
from streamsvm.data.store import Store
from streamsvm.errors import DataError
from streamsvm.tasks.base import Coder, Subproblem, Targets, Task
from streamsvm.tasks.pairs import n_columns, n_pairs, pairs
from streamsvm.tasks.scores import Judge, LabelScores

MOST_NUMBERS = 100  # different ones with a fraction that may be the names of classes


class Classify(Task):
    name = "classify"
    scoring = "accuracy"
    has_metric = True
    has_probabilities = True
    is_stratified = True
    in_pairs = True

    def targets(self, store: Store, config: Any) -> Targets:
        coder = self.coder(store, config)
        return Targets(coder.classes, coder.of_label[store.coded[1]])

    def coder(self, store: Store, config: Any) -> Coder:
        found = coder_of(store, config.positive)
        classes = found.classes
        fractions = classes.dtype.kind == "f" and np.any(classes != np.round(classes))
        if fractions and len(classes) > MOST_NUMBERS:
            raise DataError("Unknown label type: continuous; expected class labels")
        return found

    def columns(self, k: int) -> int:
        return n_columns(k)

    def n_subproblems(self, k: int) -> int:
        return n_pairs(k)

    def coefficients(self, k: int) -> int:
        return k - 1

    def subproblems(self, targets: Targets, *, single: bool = False) -> Iterator[Subproblem]:
        return pairs(targets.codes, len(targets.classes), single=single)

    def scores(self, judge: Judge, store: Store) -> LabelScores:
        return LabelScores(judge, store, orders_rows=store.has_qid and len(judge.classes) == 2)


def coded(store: Store, positive: tuple[str, ...]) -> Targets:
    """Labels of all rows as codes. Raises as `coder_of`."""
    coder = coder_of(store, positive)
    return Targets(coder.classes, coder.of_label[store.coded[1]])


def coder_of(store: Store, positive: tuple[str, ...]) -> Coder:
    """Labels as codes; with `positive` 1 for these and 0 for the rest. Raises DataError unless there are two."""
    labels = store.classes.values
    classes, codes = labels, np.arange(len(labels), dtype=np.int32)
    if positive:
        known = np.unique(label_texts(labels))
        missing = [label for label in positive if label not in known]
        if missing:
            raise DataError(f"--positive {missing[0]}: no such label; the store has {', '.join(known[:30])}")
        classes, codes = np.array([0, 1]), encode(labels, labels, positive)
    if np.all(codes == codes[0]):
        raise DataError(
            f"{store.url or 'y'} has one class only ({label_texts(labels)[0]}); expected at least two"
        )
    return Coder(classes, store.classes, codes)
