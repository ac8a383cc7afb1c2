"""Scores of predictions, gathered block by block: of labels by counts, of numbers from all of them. ROC and
precision-recall curves of more than two classes are of each class against the rest. Scores of an order are of the rows
within each query: NDCG, average precision, swapped pairs, with intervals."""

from __future__ import annotations

from collections.abc import Sequence
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
    quotient,
    ratio,
    scored,
)
from streamsvm.storage.text import JsonObject
from streamsvm.tasks.uncertainty import LabelErrors, MeanErrors, ResamplingUnits, merged, shift


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

    @property
    def quantile(self) -> float | None: ...

    def codes_of(self, decision: np.ndarray, proba: np.ndarray | None = None) -> np.ndarray: ...

    def encode_labels(self, y: np.ndarray) -> np.ndarray: ...


class Scores(Protocol):
    """The scores of a model on a store with labels."""

    def add(self, start: int, stop: int, values: np.ndarray, proba: np.ndarray | None) -> None:
        """Decision values of rows start to stop, and probabilities (m, k) of a calibrated model."""

    def result(self) -> JsonObject:
        """The scores by name, `accuracy` and `n` first. Raises DataError."""


class OrderScores:
    """Scores of the order that predicted numbers give the rows."""

    def __init__(self, store: Store) -> None:
        self._store, self._values = store, np.empty(store.n)

    def add(self, start: int, stop: int, values: np.ndarray, proba: np.ndarray | None) -> None:
        self._values[start:stop] = values

    def result(self) -> JsonObject:
        return {"accuracy": None, "n": self._store.n, **ranked(self._store, self._values)}


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
        is_known = self._codes >= 0
        rows = np.bincount(self._codes[is_known], store.classes.counts[is_known], k)
        self._by_class = CurvesByClass(store.n, rows) if with_curves else None

    def add(self, start: int, stop: int, values: np.ndarray, proba: np.ndarray | None) -> None:
        if self.orders_rows:
            self.values[start:stop] = values
        truth, k = self._codes[self.store.classes.codes(self.store.labels(start, stop))], len(self.counts)
        is_known = truth >= 0
        predicted = self.judge.codes_of(values, proba)
        self._errors.add(start, truth, predicted, values)
        self.counts += confusion(truth[is_known], predicted[is_known], k)
        if self._scores is not None:
            self._scores.add(truth[is_known] == 1, values[is_known])
            low, high = self._between
            low, high = values[predicted == 0].max(initial=low), values[predicted == 1].min(initial=high)
            self._between = float(low), float(high)
        if self._by_class is not None and values.ndim == 2:
            self._by_class.add(start, truth, values)
        if proba is not None:
            losses = self._probabilities.add(truth[is_known], proba[is_known])
            self._losses.add(start, is_known, losses)
            if k == 2:
                p = 0.5 * (1.0 + np.tanh(0.5 * values[is_known].astype(np.float64)))  # the logistic function
                self._before.add(truth[is_known], np.stack([1.0 - p, p], axis=1))
            if self.judge.costs is not None:
                self._likeliest += confusion(truth[is_known], np.argmax(proba[is_known], axis=1), k)

    def result(self) -> JsonObject:
        result = merged(
            self.summary(),
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

    def summary(self) -> JsonObject:
        """Scores that follow from the counts."""
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


def ranked(store: Store, values: np.ndarray) -> JsonObject:
    """The scores of the order that values (n,) give the rows of each query, with intervals; of all rows without
    queries."""
    if store.qid is None:
        return ranking(store.y, values, np.zeros(store.n, np.int64))
    queries = np.unique(store.qid, return_inverse=True)[1]
    sums, units = query_sums(store.y, values, queries), ResamplingUnits(store, by_query=True)
    scores, rows = _scores(sums), np.bincount(queries)
    by_row = {name: (shift(*columns) / rows)[queries] for name, columns in sums.items()}
    influences = ((name, scores[name], units.summed(columns), 1.0) for name, columns in by_row.items())
    return scores | units.facts(influences)


def _scores(sums: dict[str, tuple[np.ndarray, np.ndarray]]) -> JsonObject:
    return {"queries": len(sums["map"][0]), **{name: quotient(*columns) for name, columns in sums.items()}}


def ranking(y: np.ndarray, scores: np.ndarray, groups: np.ndarray) -> JsonObject:
    """How well scores (n,) order labels y (n,) inside groups, codes (n,) of queries: means over the queries.

    ndcg: over all rows of a query and at 1, 3, 5, 10; gains 2^grade - 1, discounts 1 / log2(1 + place). map: mean
    average precision, every grade above the lowest relevant. Both count a query without a relevant row as 0, as LETOR
    does. Rows with equal scores keep their order. swapped_pairs: share of the pairs that are in the wrong order, ties
    half, over all queries; kendall_tau: tau-b; both None without pairs. Grades are y if it holds whole numbers
    >= 0, else ranks."""
    return _scores(query_sums(y, scores, groups))


def query_sums(y: np.ndarray, scores: np.ndarray, groups: np.ndarray) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """The scores of `ranking`, each as two columns (queries,), of whose sums it is the quotient."""
    whole = y.dtype.kind in "biuf" and np.all((y >= 0) & (y == np.floor(y)) & (y < 64))
    grades = y.astype(np.float64) if whole else np.unique(y, return_inverse=True)[1].astype(np.float64)
    order = np.lexsort((-scores, groups))
    starts = np.flatnonzero(np.diff(groups[order], prepend=-1))
    place = np.arange(len(y)) - np.repeat(starts, np.diff(np.append(starts, len(y)))) + 1
    best = grades[np.lexsort((-grades, groups))]
    cuts = {"ndcg": len(y)} | {f"ndcg@{cut}": cut for cut in (1, 3, 5, 10)}
    means = {}
    for name, cut in cuts.items():
        discount = (place <= cut) / np.log2(1 + place)
        means[name] = ratio(*(np.add.reduceat((2.0**g - 1) * discount, starts) for g in (grades[order], best)))
    relevant = grades[order] > grades.min()
    total = np.cumsum(relevant)
    before = np.repeat(total[starts] - relevant[starts], np.diff(np.append(starts, len(place))))
    precision = relevant * (total - before) / place
    means["map"] = ratio(np.add.reduceat(precision, starts), np.add.reduceat(relevant * 1.0, starts))
    every = np.ones(len(starts))
    return {name: (values, every) for name, values in means.items()} | _pair_order(
        grades, scores, np.split(order, starts[1:])
    )


def _pair_order(
    grades: np.ndarray, scores: np.ndarray, queries: list[np.ndarray]
) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Swapped pairs and Kendall's tau of each query; tau gives the swapped pairs, by concordant minus discordant
    ones."""
    from scipy.stats import kendalltau  # it takes longer to load than all else that a fit needs

    tau, swapped, pairs = np.zeros((3, len(queries)))
    for i, rows in enumerate(queries):
        pairs[i], of_scores = _n_pairs(grades[rows]), _n_pairs(scores[rows])
        if pairs[i] and of_scores:
            tau[i] = kendalltau(grades[rows], scores[rows]).statistic
        swapped[i] = (pairs[i] - tau[i] * np.sqrt(pairs[i] * of_scores)) / 2
    return {"swapped_pairs": (swapped, pairs), "kendall_tau": (tau, (pairs > 0) * 1.0)}


def _n_pairs(values: np.ndarray) -> float:
    """The number of pairs of different values."""
    n, counts = len(values), np.unique(values, return_counts=True)[1].astype(np.float64)
    return (n**2 - float(counts @ counts)) / 2
