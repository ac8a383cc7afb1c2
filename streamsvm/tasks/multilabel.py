"""Multilabel classification, any number of labels a row: each label against the rest, all in one fit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from streamsvm.data.labels import Classes, label_sets, label_texts, set_texts
from streamsvm.data.store import Store
from streamsvm.errors import ConfigError, DataError
from streamsvm.metrics import MOST_SCORES, ProbabilityScores, ScoreCounts, balanced_of_sets, by_label, of_sets, ratio
from streamsvm.parallel.sizes import SizedInBytes
from streamsvm.storage.text import JsonObject
from streamsvm.tasks.base import LABELS, Subproblem, Targets, Task, TaskOptions
from streamsvm.tasks.pairs import of_columns
from streamsvm.tasks.scores import DecisionRule, curves_of, most_frequent, unknown_labels
from streamsvm.tasks.uncertainty import SetErrors
from streamsvm.tasks.weights import Costs, cheaper, label_costs, label_factors

QUALITY = ("brier", "log_loss", "ece")  # of probabilities
EVEN = 0.5  # probability above which a label is predicted
LEAST_SCORES = 1 << 14  # different decision values of a label that are counted, at least


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

    def require_alone(self, config: TaskOptions) -> None:
        raise ConfigError(f"nu is {config.nu:g}, which task {self.name} does not support; leave it out")

    def classes_of(self, labels: np.ndarray) -> np.ndarray:
        return label_sets(label_texts(labels))[0]

    def targets(self, store: Store, config: TaskOptions) -> Targets:
        coder = self.coder(store, config)
        return Targets(coder.classes, store.coded[1], sets=coder.sets, factors=coder.factors)

    def coder(self, store: Store, config: TaskOptions) -> _SetCoder:
        labels = store.classes
        origin = store.url or "y"
        if labels.values.dtype.kind == "f" and np.any(labels.values != np.round(labels.values)):
            raise DataError(f"{origin} holds numbers with a fraction, expected labels such as '1,3,7'")
        classes, sets = label_sets(label_texts(labels.values))
        if np.all(sets == sets[0]):
            shown = labels.values[0] if len(classes) else "none"
            raise DataError(f"{origin} has the same labels in every row ({shown}); expected different ones")
        factors = label_factors(labels.counts, sets, classes, config.class_weight)
        return _SetCoder(classes, labels, sets, factors)

    def columns(self, k: int) -> int:
        return k

    n_subproblems = coefficients = columns

    def subproblems(self, targets: Targets, *, single: bool = False) -> Iterator[Subproblem]:
        codes, sets = targets.codes, _sets(targets)
        columns = (np.where(has[codes], 1.0, -1.0) for has in sets.T)
        return of_columns(columns, single=single, factors=targets.factors)

    def present(self, targets: Targets) -> np.ndarray:
        """(2 k,) the labels that at least one row has, then those that at least one row lacks."""
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
        """(m, k) bool the classes of each label set; other labels are left out."""
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
    """Label sets as codes. classes (k,): single labels. labels: the different sets of a store; sets (l, k): the labels
    in each; factors: see `Targets`."""

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
    """Scores of label sets as in scikit-learn, 0 for a quotient of 0 and 0. Of probabilities: the scores of each known
    label, and their means. Labels of the store that the model does not know are columns, too, which it never
    predicts."""

    def __init__(self, judge: DecisionRule, store: Store, with_curves: bool) -> None:
        self._judge, self._store, self._n_known = judge, store, len(judge.classes)
        self._with_curves = with_curves
        self._labels, self._sets = label_sets(label_texts(store.classes.values), judge.classes)
        if self._sets.any() and not self._sets[:, : self._n_known].any():
            raise unknown_labels(judge.classes, store)
        self._counts = np.zeros((3, len(self._labels)), np.int64)  # by label: hits, rows, predictions
        self._errors = SetErrors(store, len(self._labels))
        self._costs = np.zeros(2)  # of the predicted labels, and of the likeliest ones
        self._sums = np.zeros(3)  # rows without an error, F1 of rows, and rows with unknown labels
        most_scores = max(LEAST_SCORES, MOST_SCORES // self._n_known)
        self._orders = [ScoreCounts(most_scores) for _ in judge.classes]
        self._probabilities = [ProbabilityScores(2) for _ in judge.classes]

    def add(self, start: int, stop: int, values: np.ndarray, proba: np.ndarray | None) -> None:
        values = values.reshape(len(values), self._n_known)
        truth = self._sets[self._store.classes.codes(self._store.labels(start, stop))]
        predicted = np.zeros_like(truth)
        predicted[:, : self._n_known] = self._judge.codes_of(values, proba)
        hits = truth & predicted
        self._counts += np.stack([label_sets.sum(axis=0) for label_sets in (hits, truth, predicted)])
        f1 = ratio(2 * hits.sum(axis=1), truth.sum(axis=1) + predicted.sum(axis=1))
        is_right, is_strange = (truth == predicted).all(axis=1), truth[:, self._n_known :].any(axis=1)
        self._sums += [is_right.sum(), f1.sum(), is_strange.sum()]
        self._errors.add(start, is_right, f1, hits, truth.astype(np.int8) + predicted)
        for order, has, f in zip(self._orders, truth.T, values.T, strict=False):
            order.add(has, f)
        if proba is not None:
            if self._judge.costs is not None:
                known_truth = truth[:, : self._n_known]
                self._costs += [
                    _cost(labels, known_truth, self._judge.costs)
                    for labels in (predicted[:, : self._n_known], proba > EVEN)
                ]
            for scores, has, p in zip(self._probabilities, truth.T, proba.T, strict=False):
                scores.add(has.astype(np.intp), np.stack([1.0 - p, p], axis=1))

    def result(self) -> JsonObject:
        n, labels = self._store.n, self._labels.tolist()
        hits, n_true, n_predicted = self._counts
        right, f1, strange = self._sums
        extras = [{"roc_auc": order.roc_auc()} for order in self._orders]
        extras += [{"roc_auc": None}] * (len(labels) - self._n_known)
        quality = [extra.result() for extra in self._probabilities if extra.n]
        for extra, of_probabilities in zip(extras, quality, strict=False):
            extra |= {name: of_probabilities[name] for name in QUALITY}
        table = [row | extra for row, extra in zip(by_label(hits, n_true, n_predicted, labels), extras, strict=True)]
        scores = {
            "accuracy": float(right / n),
            "balanced_accuracy": balanced_of_sets(hits, n_true, n_predicted, n),
            "n": n,
            **of_sets(hits, n_true, n_predicted, n * len(labels)),
            "f1_samples": float(f1 / n),
            "n_unknown_labels": int(strange),
            "unknown_labels": labels[self._n_known :],
            "classes": labels[: self._n_known],
            "per_class": table,
        }
        scores |= {name: float(np.mean([extra[name] for extra in quality])) for name in QUALITY if quality}
        if self._judge.costs is not None:
            scores |= dict(zip(("cost", "cost_of_likeliest"), (self._costs / n).tolist(), strict=True))
        if self._with_curves:
            shown = most_frequent(n_true[: self._n_known])
            scores["curves_by_class"] = [curves_of(labels[i], self._orders[i]) for i in shown]
        return scores | self._errors.facts(scores)


def _cost(predicted: np.ndarray, truth: np.ndarray, C: np.ndarray) -> float:
    """The sum of the costs C (2, k) of labels (m, k) that are predicted and not true, or true and not predicted."""
    return float((predicted & ~truth).sum(axis=0) @ C[0] + (truth & ~predicted).sum(axis=0) @ C[1])
