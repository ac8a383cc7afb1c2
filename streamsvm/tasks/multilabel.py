"""Multilabel classification, any number of labels a row: each label against the rest, all in one fit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from streamsvm.data.labels import Classes, label_sets, label_texts, set_texts
from streamsvm.data.store import Store
from streamsvm.errors import ConfigError, DataError
from streamsvm.metrics import (
    MOST_SCORES,
    ProbabilityScores,
    ScoreCounts,
    balanced_of_sets,
    by_label,
    of_sets,
    ratio,
)
from streamsvm.parallel.sizes import SizedInBytes
from streamsvm.tasks.base import LABELS, Subproblem, Targets, Task
from streamsvm.tasks.costs import Costs, cheaper, label_costs
from streamsvm.tasks.pairs import of_columns
from streamsvm.tasks.scores import DecisionRule, curves_of, most_frequent, unknown_labels
from streamsvm.tasks.uncertainty import SetErrors
from streamsvm.tasks.weights import label_factors

QUALITY = ("brier", "log_loss", "ece")  # of probabilities
EVEN = 0.5  # probability beyond which a label is told
LEAST_SCORES = 1 << 14  # that a label has, of those that are distinguished


class Multilabel(Task):
    """Labels of a store are sets, see `data.label_sets`; classes are the single labels, and codes the sets."""

    name = "multilabel"
    scoring = "accuracy"
    searched_by = LABELS
    in_sets = has_probabilities = has_metric = True

    def require(self, solver: str, named_in: Sequence[str] = ()) -> None:
        super().require(solver)
        if "positive" in named_in:
            raise ConfigError(
                f"task is {self.name!r}, which separates each label from the rest; found positive: leave it out"
            )

    def require_alone(self, config: Any) -> None:
        raise ConfigError(f"nu is {config.nu:g}, which task {self.name} does not support; leave it out")

    def classes_of(self, labels: np.ndarray) -> np.ndarray:
        return label_sets(label_texts(labels))[0]

    def targets(self, store: Store, config: Any) -> Targets:
        coder = self.coder(store, config)
        return Targets(coder.classes, store.coded[1], sets=coder.sets, factors=coder.factors)

    def coder(self, store: Store, config: Any) -> _SetCoder:
        found = store.classes
        where = store.url or "y"
        if found.values.dtype.kind == "f" and np.any(found.values != np.round(found.values)):
            raise DataError(f"{where} holds numbers with a fraction, expected labels such as '1,3,7'")
        classes, sets = label_sets(label_texts(found.values))
        if np.all(sets == sets[0]):
            own = found.values[0] if len(classes) else "none"
            raise DataError(f"{where} has the same labels in every row ({own}); expected different ones")
        factors = label_factors(found.counts, sets, classes, config.class_weight)
        return _SetCoder(classes, found, sets, factors)

    def columns(self, k: int) -> int:
        return k

    n_subproblems = coefficients = columns

    def subproblems(self, targets: Targets, *, single: bool = False) -> Iterator[Subproblem]:
        codes, sets = targets.codes, _sets(targets)
        columns = (np.where(own[codes], 1.0, -1.0) for own in sets.T)
        return of_columns(columns, single=single, factors=targets.factors)

    def present(self, targets: Targets) -> np.ndarray:
        """(2 k,) the labels that some row has, then those that some row lacks."""
        sets = _sets(targets)[np.unique(targets.codes)]
        return np.concatenate([sets.any(axis=0), ~sets.all(axis=0)])

    def one_sided(self, present: np.ndarray) -> np.ndarray:
        has, lacks = np.hsplit(present.astype(np.float64), 2)
        return has - lacks

    def codes(self, decision: np.ndarray, thresholds: np.ndarray) -> np.ndarray:
        return self.above(decision, 0.0)

    def above(self, values: np.ndarray, threshold: float | np.ndarray) -> np.ndarray:
        return (values > threshold).reshape(len(values), -1)

    def likeliest(self, proba: np.ndarray) -> np.ndarray:
        return proba > EVEN

    def costs(self, costs: Costs, classes: np.ndarray) -> np.ndarray:
        """(2, k), see `label_costs`."""
        return label_costs(costs, classes)

    def cheapest(self, proba: np.ndarray, costs: np.ndarray) -> np.ndarray:
        return cheaper(proba, costs)

    def encoded(self, labels: np.ndarray, classes: np.ndarray, positive: tuple[str, ...] = ()) -> np.ndarray:
        """(m, k) bool; without labels that are none of the classes."""
        return label_sets(label_texts(labels), classes)[1][:, : len(classes)]

    def truth(self, targets: Targets) -> np.ndarray:
        return _sets(targets)[targets.codes]

    def labels(self, classes: np.ndarray, codes: np.ndarray) -> np.ndarray:
        return set_texts(codes, classes)

    def learnable(self, targets: Targets) -> np.ndarray:
        """-1 or +1 times the label's factor."""
        return np.where(self.truth(targets), 1.0, -1.0) * targets.weights

    def scores(self, judge: DecisionRule, store: Store, *, with_curves: bool = False) -> _SetScores:
        return _SetScores(judge, store, with_curves)


def _sets(targets: Targets) -> np.ndarray:
    assert targets.sets is not None  # those of this task
    return targets.sets


@dataclass(frozen=True)
class _SetCoder(SizedInBytes):
    """classes (k,): single labels. labels: the different sets of a store; sets (l, k): which labels are in which;
    factors: see `Targets`."""

    classes: np.ndarray
    labels: Classes
    sets: np.ndarray
    factors: np.ndarray | None = None

    @property
    def counts(self) -> np.ndarray:
        """(l,) rows of each set."""
        return self.labels.counts

    def targets(self, labels: np.ndarray) -> Targets:
        return Targets(self.classes, self.labels.codes(labels), sets=self.sets, factors=self.factors)


class _SetScores:
    """Scores of scikit-learn for indicators of labels, 0 where nothing is divided by nothing. Of probabilities those of
    each known label, and their means.

    Labels of the store that the model does not know are columns, too, which it never predicts.
    """

    def __init__(self, judge: DecisionRule, store: Store, with_curves: bool) -> None:
        self._judge, self._store, self._known = judge, store, len(judge.classes)
        self._with_curves = with_curves
        self._labels, self._sets = label_sets(label_texts(store.classes.values), judge.classes)
        if self._sets.any() and not self._sets[:, : self._known].any():
            raise unknown_labels(judge.classes, store)
        self._counts = np.zeros((3, len(self._labels)), np.int64)  # hits, rows that have it, answers that do
        self._errors = SetErrors(store, len(self._labels))
        self._costs = np.zeros(2)  # costs of labels by costs, and of the probable ones
        self._sums = np.zeros(3)  # rows that are right, their F1, and rows with unknown labels
        most = max(LEAST_SCORES, MOST_SCORES // self._known)
        self._orders = [ScoreCounts(most) for _ in judge.classes]
        self._probabilities = [ProbabilityScores(2) for _ in judge.classes]

    def add(self, start: int, stop: int, values: np.ndarray, proba: np.ndarray | None) -> None:
        values = values.reshape(len(values), self._known)
        truth = self._sets[self._store.classes.codes(self._store.labels(start, stop))]
        told = np.zeros_like(truth)
        told[:, : self._known] = self._judge.codes_of(values, proba)
        hits = truth & told
        self._counts += np.stack([own.sum(axis=0) for own in (hits, truth, told)])
        f1 = ratio(2 * hits.sum(axis=1), truth.sum(axis=1) + told.sum(axis=1))
        is_right, is_strange = (truth == told).all(axis=1), truth[:, self._known :].any(axis=1)
        self._sums += [is_right.sum(), f1.sum(), is_strange.sum()]
        self._errors.add(start, is_right, f1, hits, truth.astype(np.int8) + told)
        for order, has, own in zip(self._orders, truth.T, values.T, strict=False):
            order.add(has, own)
        if proba is not None:
            if self._judge.costs is not None:
                known = truth[:, : self._known]
                self._costs += [
                    _cost(own, known, self._judge.costs) for own in (told[:, : self._known], proba > EVEN)
                ]
            for scores, has, p in zip(self._probabilities, truth.T, proba.T, strict=False):
                scores.add(has.astype(np.intp), np.stack([1.0 - p, p], axis=1))

    def result(self) -> dict[str, Any]:
        n, labels = self._store.n, self._labels.tolist()
        hits, n_true, n_told = self._counts
        right, f1, strange = self._sums
        more = [{"roc_auc": order.roc_auc()} for order in self._orders]
        more += [{"roc_auc": None}] * (len(labels) - self._known)
        quality = [own.result() for own in self._probabilities if own.n]
        for own, found in zip(more, quality, strict=False):
            own |= {name: found[name] for name in QUALITY}
        table = [row | own for row, own in zip(by_label(hits, n_true, n_told, labels), more, strict=True)]
        scores = {
            "accuracy": float(right / n),
            "balanced_accuracy": balanced_of_sets(hits, n_true, n_told, n),
            "n": n,
            **of_sets(hits, n_true, n_told, n * len(labels)),
            "f1_samples": float(f1 / n),
            "n_unknown_labels": int(strange),
            "unknown_labels": labels[self._known :],
            "classes": labels[: self._known],
            "per_class": table,
        }
        scores |= {name: float(np.mean([own[name] for own in quality])) for name in QUALITY if quality}
        if self._judge.costs is not None:
            scores |= dict(zip(("cost", "cost_of_likeliest"), (self._costs / n).tolist(), strict=True))
        if self._with_curves:
            shown = most_frequent(n_true[: self._known])
            scores["curves_by_class"] = [curves_of(labels[i], self._orders[i]) for i in shown]
        return scores | self._errors.facts(scores)


def _cost(found: np.ndarray, truth: np.ndarray, C: np.ndarray) -> float:
    """The sum of the costs C (2, k) of labels (m, k) that are predicted and not true, or true and not predicted."""
    return float((found & ~truth).sum(axis=0) @ C[0] + (truth & ~found).sum(axis=0) @ C[1])
