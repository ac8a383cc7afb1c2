"""Scores of predictions, gathered block by block: of labels by counts, of numbers from all of them. ROC and
precision-recall curves of more than two classes are of each class against the rest."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from streamsvm.data.labels import label_texts
from streamsvm.data.store import Store
from streamsvm.errors import DataError
from streamsvm.metrics import (
    ProbabilityScores,
    ScoreCounts,
    Spread,
    Widths,
    balanced_accuracy,
    confusion,
    per_class,
    scored,
)
from streamsvm.storage.text import JsonObject
from streamsvm.tasks.queries import ranked
from streamsvm.tasks.uncertainty import LabelErrors, MeanErrors, merged


class DecisionRule(Protocol):
    """A model's labels and probabilities, as far as scores need them."""

    @property
    def task(self) -> str: ...

    @property
    def classes(self) -> np.ndarray: ...

    @property
    def intervals(self) -> Widths | None: ...

    @property
    def costs(self) -> np.ndarray | None: ...

    def labels(self, decision: np.ndarray, proba: np.ndarray | None = None) -> np.ndarray: ...

    def codes_of(self, decision: np.ndarray, proba: np.ndarray | None = None) -> np.ndarray: ...

    def encode_labels(self, y: np.ndarray) -> np.ndarray: ...


class Scores(Protocol):
    """The scores of a model on a store with labels."""

    def add(self, start: int, stop: int, values: np.ndarray, proba: np.ndarray | None) -> None:
        """Decision values of rows start to stop, and probabilities (m, k) of a calibrated model."""

    def result(self) -> JsonObject:
        """The scores by name, `accuracy` and `n` first. Raises DataError."""


class ValueScores:
    """Scores of a task that predicts numbers. measure: scores by name, from a store and the predictions (n,) for its
    rows."""

    def __init__(self, store: Store, measure: Callable[[Store, np.ndarray], JsonObject]) -> None:
        self._store, self._measure, self._values = store, measure, np.empty(store.n)

    def add(self, start: int, stop: int, values: np.ndarray, proba: np.ndarray | None) -> None:
        self._values[start:stop] = values

    def result(self) -> JsonObject:
        return {"accuracy": None, "n": self._store.n, **self._measure(self._store, self._values)}


class LabelScores:
    """Scores of a task that predicts labels. Rows with a label that the model does not know count as wrong."""

    def __init__(self, judge: DecisionRule, store: Store, with_curves: bool, *, orders_rows: bool) -> None:
        """orders_rows: the order of the decision values, a single column, is scored, too."""
        k = len(judge.classes)
        self.judge, self.store, self.orders_rows = judge, store, orders_rows
        self.counts = np.zeros((k, k), np.int64)
        self._likeliest = np.zeros((k, k), np.int64)  # where errors have costs, without them
        self.values = np.empty(store.n if orders_rows else 0)
        self._codes = judge.encode_labels(store.classes.values)  # of the store's labels
        self._scores = ScoreCounts() if k == 2 else None
        self._errors = LabelErrors(store, k, by_query=orders_rows)
        self._probabilities = ProbabilityScores(k)
        self._losses = MeanErrors(store, ("brier", "log_loss"), by_query=orders_rows)
        self._between = -np.inf, np.inf  # the largest value of the first answer, the smallest of the second
        self._before = ProbabilityScores(k)  # of decision values alone, where they are calibrated
        self._with_curves = with_curves
        self._by_class = CurvesByClass(store.n, self._rows_of_classes(k)) if with_curves else None

    def add(self, start: int, stop: int, values: np.ndarray, proba: np.ndarray | None) -> None:
        if self.orders_rows:
            self.values[start:stop] = values
        truth, k = self._codes[self.store.classes.codes(self.store.labels(start, stop))], len(self.counts)
        is_known = truth >= 0
        predicted = _positions(self.judge.classes, self.judge.labels(values, proba))
        self._errors.add(start, truth, predicted, values)
        self.counts += confusion(truth[is_known], predicted[is_known], k)
        if self._scores is not None:
            self._scores.add(truth[is_known] == 1, values[is_known])
            low, high = self._between
            self._between = (
                float(values[predicted == 0].max(initial=low)),
                float(values[predicted == 1].min(initial=high)),
            )
        if self._by_class is not None and values.ndim == 2:
            self._by_class.add(start, truth, values)
        if proba is not None:
            losses = self._probabilities.add(truth[is_known], proba[is_known])
            self._losses.add(start, is_known, losses)
            if k == 2:
                self._before.add(truth[is_known], _plain_odds(values[is_known]))
            if self.judge.costs is not None:
                self._likeliest += confusion(truth[is_known], np.argmax(proba[is_known], axis=1), k)

    def result(self) -> JsonObject:
        result = merged(
            self._summary() | self.more(),
            self._of_probabilities(),
            ranked(self.store, self.values) if self.orders_rows else {},
        )
        if self._with_curves and self._scores is not None:
            result |= self._scores.curves() | {"histogram": self._histogram()}
        if self._with_curves and self._before.n:
            result["reliability_before"] = self._before.result()["reliability"]
        if self._by_class is not None and self._by_class.has_rows:
            result["curves_by_class"] = self._by_class.result(self.judge.classes.tolist())
        return result

    def _rows_of_classes(self, k: int) -> np.ndarray:
        """(k,) rows of the store, by class."""
        is_known = self._codes >= 0
        return np.bincount(self._codes[is_known], self.store.classes.counts[is_known], k)

    def _of_probabilities(self) -> JsonObject:
        if not self._probabilities.n:
            return {}
        scores = self._probabilities.result()
        return scores | self._losses.facts(scores)

    def _histogram(self) -> JsonObject:
        """Rows by decision value and class, and the value between those of the two answers, whatever decides."""
        assert self._scores is not None
        low, high = self._between
        if not np.isfinite(high - low) or low > high:
            return self._scores.histogram()
        return self._scores.histogram() | {"threshold": 0.0 if low <= 0 <= high else (low + high) / 2}

    def more(self) -> JsonObject:
        """What else follows from the counts."""
        return {}

    def _summary(self) -> JsonObject:
        n, n_known, labels = self.store.n, int(self.counts.sum()), self.judge.classes.tolist()
        if n_known == 0:
            raise unknown_labels(label_texts(self.judge.classes), self.store)
        summary = {
            "accuracy": float(np.trace(self.counts) / n),
            "balanced_accuracy": balanced_accuracy(self.counts),
            "n": n,
            "n_unknown_labels": n - n_known,
            "classes": labels,
            "per_class": per_class(self.counts, labels),
            "confusion": self.counts.tolist(),
        }
        if self._scores is not None:
            summary["roc_auc"] = self._scores.roc_auc()
            summary["break_even"] = self._scores.break_even()
        if (C := self.judge.costs) is not None:
            summary["cost"] = float(np.sum(self.counts * C) / n_known)
            summary["cost_of_likeliest"] = float(np.sum(self._likeliest * C) / n_known)
        return summary | self._errors.facts(summary, self.counts, self.judge.costs, self._scores)


def unknown_labels(known_labels: np.ndarray, store: Store) -> DataError:
    """The error for a store without any of the labels (k,) that a model knows."""
    labels = ", ".join(label_texts(store.classes.values)[:30].tolist())
    return DataError(
        f"no row has a label that the model knows; it knows {', '.join(known_labels.tolist())}, the rows have {labels}"
    )


def codes_of_labels(judge: DecisionRule, store: Store) -> np.ndarray:
    """A model's codes of a store's labels, see `Task.encoded`."""
    labels, codes = store.coded
    return judge.encode_labels(labels)[codes]


def _plain_odds(values: np.ndarray) -> np.ndarray:
    """(m, 2) the logistic function of decision values (m,), as probabilities without a calibration."""
    p = 0.5 * (1.0 + np.tanh(0.5 * values.astype(np.float64)))
    return np.stack([1.0 - p, p], axis=1)


def _positions(classes: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """The place of each label in `classes`, which holds them all, in any order."""
    order = np.argsort(classes)
    return order[np.searchsorted(classes[order], labels)]


MOST_CLASSES = 10  # with curves: the most frequent ones
MOST_ROWS = 1 << 16  # that curves are drawn from
MOST_POINTS = 200  # of a curve


class CurvesByClass:
    """Gathers evenly spread rows of n, with the decision value of each class. rows: of each class (k,), of which the
    most frequent are shown."""

    def __init__(self, n: int, rows: np.ndarray) -> None:
        self._shown, self._spread, self.has_rows = most_frequent(rows), Spread(n, MOST_ROWS), False

    def add(self, start: int, truth: np.ndarray, values: np.ndarray) -> None:
        """Codes (m,) of the rows from `start` on, below 0 for unknown labels, and decision values (m, k)."""
        self._spread.add(start, truth, *values[:, self._shown].T)
        self.has_rows = True

    def result(self, labels: Sequence[Any]) -> list[JsonObject]:
        """The curves of each shown class by its label, see `curves_of`; rows with unknown labels are left out."""
        truth, *columns = self._spread.rows().T
        is_known = truth >= 0
        return [
            curves_of(labels[code], scored(truth[is_known] == code, values[is_known]))
            for code, values in zip(self._shown, columns, strict=True)
        ]


def most_frequent(rows: np.ndarray) -> list[int]:
    """The codes of the MOST_CLASSES largest of rows (k,), in rising order."""
    return sorted(np.argsort(-rows, kind="stable")[:MOST_CLASSES].tolist())


def curves_of(label: Any, scores: ScoreCounts) -> JsonObject:
    """label, roc_auc, and the curves `roc` and `precision_recall`, which a class without rows lacks."""
    return {"label": label, "roc_auc": scores.roc_auc(), **scores.curves(MOST_POINTS)}
