"""What classifiers share whose rows may have several labels: y (n, k) of 0 and 1 as sets of the numbers of columns."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.utils.multiclass import is_multilabel
from sklearn.utils.validation import check_is_fitted

from streamsvm.data.label_sets import set_texts
from streamsvm.data.rows import Rows
from streamsvm.data.sources import computed, is_dask
from streamsvm.estimators.base import StoreClassifier, classes_of
from streamsvm.events import Sink
from streamsvm.tasks import task_of


class SetClassifier(StoreClassifier):
    """A classifier of one label a row, or, where y is an indicator (n, k), of any number of k labels."""

    _like: np.ndarray | None = None  # no rows of the indicator of `fit`

    def _train(self, X: Any, y: Any, sample_weight: Any, *sinks: Sink, groups: Any = None) -> dict[str, Any]:
        y = computed(y) if is_dask(y) else y
        if sparse.issparse(y) or not is_multilabel(y):
            report = super()._train(X, y, sample_weight, *sinks, groups=groups)
            self._like = None
            return report
        y, config = np.asarray(y), self._config(task="multilabel")
        task_of(str(config.task)).require(config.solver, names_classes=self.class_weight is not None)
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
        return super().predict(X) if self._like is None else self._answers(X, partial(_above, self._like))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        of_classes = ("threshold", "costs", "class_weight", "nu")
        is_asked = any(getattr(self, name, None) is not None for name in of_classes)
        tags.classifier_tags.multi_label = not (is_asked or self._is_probable)
        return tags


def _of_columns(k: int, model: Any, rows: Rows) -> np.ndarray:
    """(m, k) decision values, -1 of columns that were 0 in all rows: labels that the model does not know."""
    found = np.full((len(rows), k), -1.0)
    found[:, model.classes.astype(np.intp)] = model.decision_function(rows).reshape(len(rows), -1)
    return found


def _above(like: np.ndarray, model: Any, rows: Rows) -> np.ndarray:
    return (_of_columns(like.shape[1], model, rows) > 0).astype(like.dtype)
