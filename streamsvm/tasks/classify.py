"""Classification: one dual for each pair of classes, or one column for each class against the rest."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from streamsvm.data.labels import encode, label_texts
from streamsvm.data.store import Store
from streamsvm.errors import DataError
from streamsvm.tasks.base import LabelCoder, Subproblem, Targets, Task, TaskOptions
from streamsvm.tasks.pairs import against_rest, classes_of_pairs, n_columns, n_pairs, pairs, signs
from streamsvm.tasks.scores import DecisionRule, LabelScores

MOST_NUMBERS = 100  # different numbers with a fraction that may still be names of classes


class Classify(Task):
    name = "classify"
    scoring = "accuracy"
    has_metric = has_choice_of_nu = True
    has_probabilities = True
    is_stratified = True
    in_pairs = speaks_for_classes = True

    def by(self, multiclass: str) -> Classify:
        return {"pairs": self, "rest": AGAINST_REST}[multiclass]

    def nu(self, config: TaskOptions) -> float | None:
        return config.nu

    def most_nu(self, weights: np.ndarray) -> float:
        """In a pair, each class takes half of nu."""
        sizes = np.sort(weights[weights > 0])
        return float(2 * sizes[0] / (sizes[0] + sizes[-1])) if len(sizes) > 1 else 1.0

    def targets(self, store: Store, config: TaskOptions) -> Targets:
        coder = self.coder(store, config)
        return Targets(coder.classes, coder.of_label[store.coded[1]], nu=coder.nu)

    def coder(self, store: Store, config: TaskOptions) -> LabelCoder:
        coder = replace(coder_of(store, config.positive), nu=self.nu(config))
        classes = coder.classes
        fractions = classes.dtype.kind == "f" and np.any(classes != np.round(classes))
        if fractions and len(classes) > MOST_NUMBERS:
            raise DataError("Unknown label type: continuous; expected class labels")
        return coder

    def columns(self, k: int) -> int:
        return n_columns(k)

    def n_subproblems(self, k: int) -> int:
        return n_pairs(k)

    def coefficients(self, k: int) -> int:
        return k - 1

    def subproblems(self, targets: Targets, *, single: bool = False) -> Iterator[Subproblem]:
        return pairs(targets.codes, len(targets.classes), single=single, nu=targets.nu)

    def one_sided(self, present: np.ndarray) -> np.ndarray:
        if not self.in_pairs:
            return super().one_sided(present)
        first, second = classes_of_pairs(present.shape[1])
        return present[:, second].astype(np.float64) - present[:, first]

    def learnable(self, targets: Targets) -> np.ndarray:
        return signs(targets.codes, len(targets.classes))

    def scores(self, judge: DecisionRule, store: Store, *, with_curves: bool = False) -> LabelScores:
        return LabelScores(judge, store, with_curves, orders_rows=store.has_qid and len(judge.classes) == 2)


class AgainstRest(Classify):
    """Each class against the rest; the class with the largest decision value wins."""

    in_pairs = False

    def most_nu(self, weights: np.ndarray) -> float:
        """In each problem, the smaller side takes half of nu."""
        sizes = weights[weights > 0]
        return float(2 * np.minimum(sizes, sizes.sum() - sizes).min() / sizes.sum()) if len(sizes) > 1 else 1.0

    def n_subproblems(self, k: int) -> int:
        return n_columns(k)

    coefficients = n_subproblems

    def subproblems(self, targets: Targets, *, single: bool = False) -> Iterator[Subproblem]:
        return against_rest(targets.codes, len(targets.classes), single=single, nu=targets.nu)


AGAINST_REST = AgainstRest()


def coded(store: Store, positive: tuple[str, ...]) -> Targets:
    """The labels of all rows as codes. Raises as `coder_of`."""
    coder = coder_of(store, positive)
    return Targets(coder.classes, coder.of_label[store.coded[1]])


def coder_of(store: Store, positive: tuple[str, ...]) -> LabelCoder:
    """The coder of a store's labels; with `positive`, code 1 for these labels and 0 for the rest. Raises DataError
    unless there are two classes."""
    labels = store.classes.values
    classes, codes = labels, np.arange(len(labels), dtype=np.int32)
    if positive:
        texts = label_texts(labels).tolist()
        missing = [label for label in positive if not encode(labels, labels, (label,)).any()]
        if missing:
            raise DataError(f"--positive {missing[0]}: no such label; the store has {', '.join(texts[:30])}")
        classes, codes = np.array([0, 1]), encode(labels, labels, positive)
    if np.all(codes == codes[0]):
        raise DataError(f"{store.url or 'y'} has one class only ({label_texts(labels)[0]}); expected at least two")
    return LabelCoder(classes, store.classes, codes)
