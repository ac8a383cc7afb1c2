"""What classifiers share whose rows may have several labels: y (n, k) of 0 and 1 as sets of the numbers of columns."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.utils.multiclass import is_multilabel
from sklearn.utils.validation import check_is_fitted

from streamsvm.data.labels import set_texts
from streamsvm.data.rows import Rows
from streamsvm.data.sources import computed, is_dask
from streamsvm.estimators.base import StoreClassifier, classes_of
from streamsvm.estimators.searched import SEARCH
from streamsvm.events import Sink


class SetClassifier(StoreClassifier):
    """A classifier of one label a row, or, where y is an indicator (n, k), of any number of k labels."""

    _like: np.ndarray | None = None  # no rows of the indicator of `fit`

    def _train(self, X: Any, y: Any, sample_weight: Any, *sinks: Sink, groups: Any = None) -> dict[str, Any]:
        y = computed(y) if is_dask(y) else y
        if sparse.issparse(y) or not is_multilabel(y):
            report = super()._train(X, y, sample_weight, *sinks, groups=groups)
            self._like = None
            return report
        weight = None if self.class_weight == SEARCH else self.class_weight
        y, config = np.asarray(y), self._config(task="multilabel", class_weight=weight)
        if not np.isin(y, (0, 1)).all():
            raise ValueError(f"y has shape {y.shape}, a column for each label; expected 0 and 1 alone")
        labels = np.arange(y.shape[1])
        sets = set_texts(y.astype(bool), labels.astype(str))
        store, texts = self._training_store(X, sets, sample_weight, groups=groups)
        classes_of(texts, store.sample_weight)
        report = self._learn(store, config, *sinks)
        self.classes_, self._like = labels, y[:0]
        return report

    def decision_function(self, X: Any) -> np.ndarray:
        """(n,) for two classes, positive for classes_[1], else (n, n_classes). (n, k) for k labels a row."""
        if self._like is None:
            return super().decision_function(X)
        return self._answers(X, partial(_of_columns, self._like.shape[1]))

    def predict(self, X: Any) -> np.ndarray:
        """(n,) labels, or (n, k) of 0 and 1 if `fit` had such.

        With `threshold` those of decision values above it, with `probability` the most probable, with `costs` those
        with the smallest expected cost, else those of the largest decision value or vote.
        """
        check_is_fitted(self)
        return super().predict(X) if self._like is None else self._answers(X, partial(_told, self._like))

    def _probable(self) -> Callable[[Any, Rows], np.ndarray]:
        """(n, k) of k labels, each by itself."""
        return super()._probable() if self._like is None else partial(_chances, self._like.shape[1])

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = getattr(self, "nu", None) is None
        return tags


def _of_columns(k: int, model: Any, rows: Rows) -> np.ndarray:
    """(m, k) decision values, -1 of columns that were 0 in all rows: labels that the model does not know."""
    return _spread(k, model, model.decision_function(rows).reshape(len(rows), -1), -1.0)


def _told(like: np.ndarray, model: Any, rows: Rows) -> np.ndarray:
    return _spread(like.shape[1], model, model.codes_of(*model.answers(rows)), False).astype(like.dtype)


def _chances(k: int, model: Any, rows: Rows) -> np.ndarray:
    return _spread(k, model, model.answers(rows)[1], 0.0)


def _spread(k: int, model: Any, known: np.ndarray, unknown: float) -> np.ndarray:
    """(m, k) of all columns, from those of the labels that the model knows."""
    found = np.full((len(known), k), unknown)
    found[:, model.classes.astype(np.intp)] = known
    return found
