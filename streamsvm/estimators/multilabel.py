"""What classifiers share whose rows may have several labels: y (n, k) of 0 and 1 as sets of the numbers of columns."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.utils.multiclass import is_multilabel
from sklearn.utils.validation import check_is_fitted

from streamsvm.data.labels import set_texts
from streamsvm.data.rows import Rows
from streamsvm.data.sources import computed, is_dask
from streamsvm.estimators.base import Decide, StoreClassifier, classes_of
from streamsvm.estimators.searched import SEARCH
from streamsvm.estimators.types import Data
from streamsvm.models.base import Model


class SetClassifier(StoreClassifier):
    """A classifier of one label a row, or, where y is an indicator (n, k), of any number of k labels."""

    _like: np.ndarray | None = None  # (0, k) of the type of y, where `fit` was given indicators (n, k)

    def _train(self, X: Data, y: Data, sample_weight: Data, groups: Data = None) -> None:
        y = computed(y) if is_dask(y) else y
        if sparse.issparse(y) or not is_multilabel(y):
            super()._train(X, y, sample_weight, groups)
            self._like = None
            return
        weight = None if self.class_weight == SEARCH else self.class_weight
        y, config = np.asarray(y), self._config(task="multilabel", class_weight=weight)
        if not np.isin(y, (0, 1)).all():
            raise ValueError(f"y has shape {y.shape}, a column for each label; expected 0 and 1 alone")
        labels = np.arange(y.shape[1])
        sets = set_texts(y.astype(bool), labels.astype(str))
        store, texts = self._training_store(X, sets, sample_weight, groups=groups)
        classes_of(texts, store.sample_weight)
        self._learn(store, config)
        self.classes_, self._like = labels, y[:0]

    def decision_function(self, X: Data) -> np.ndarray:
        """(n,) for two classes, positive for classes_[1], else (n, n_classes). (n, k) for k labels a row."""
        if self._like is None:
            return super().decision_function(X)
        return self._by_blocks(X, partial(_decisions, self._like.shape[1]))

    def predict(self, X: Data) -> np.ndarray:
        """(n,) labels, or (n, k) of 0 and 1 if `fit` had such.

        With `threshold` those of decision values above it, with `probability` the most probable, with `costs` those
        with the smallest expected cost, else those of the largest decision value or vote.
        """
        check_is_fitted(self)
        return super().predict(X) if self._like is None else self._by_blocks(X, partial(_indicators, self._like))

    def _probable(self) -> Decide:
        """(n, k) of k labels, each by itself."""
        return super()._probable() if self._like is None else partial(_probabilities, self._like.shape[1])

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = getattr(self, "nu", None) is None
        return tags


def _decisions(k: int, model: Model, rows: Rows) -> np.ndarray:
    """(m, k) decision values, -1 of columns that were 0 in all rows: labels that the model does not know."""
    return _spread(k, model, model.decision_function(rows).reshape(len(rows), -1), -1.0)


def _indicators(no_indicators: np.ndarray, model: Model, rows: Rows) -> np.ndarray:
    """(m, k) of 0 and 1, in the type of the training labels."""
    k, codes = no_indicators.shape[1], model.codes_of(*model.answers(rows))
    return _spread(k, model, codes, False).astype(no_indicators.dtype)


def _probabilities(k: int, model: Any, rows: Rows) -> np.ndarray:
    return _spread(k, model, model.answers(rows)[1], 0.0)


def _spread(k: int, model: Model, values: np.ndarray, unknown: float) -> np.ndarray:
    """(m, k) values of all columns, from those of the labels that the model knows."""
    out = np.full((len(values), k), unknown)
    out[:, model.classes.astype(np.intp)] = values
    return out
