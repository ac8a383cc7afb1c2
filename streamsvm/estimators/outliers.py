"""What estimators of outliers share."""

from __future__ import annotations

from typing import Self

import numpy as np
from sklearn.base import OutlierMixin
from sklearn.utils.validation import check_is_fitted

from streamsvm.data.rows import Rows
from streamsvm.data.sources import is_dask_frame
from streamsvm.data.store import Store
from streamsvm.estimators.base import StoreEstimator, labels_of
from streamsvm.estimators.inputs import in_memory
from streamsvm.estimators.types import Data
from streamsvm.models import LocalModel
from streamsvm.models.base import Model
from streamsvm.predict import decisions_of
from streamsvm.private.sklearn import check_sample_weight


class OutlierDetector(OutlierMixin, StoreEstimator):
    """Learns from rows alone. Decision values are scores minus `offset_`; below 0 a row is an outlier."""

    offset_: float

    def fit(self, X: Data, y: Data = None, sample_weight: Data = None) -> Self:
        """Trains on all rows. y, and labels of a Store, are ignored.

        Raises ValueError for bad data or parameters, MemoryError if `memory_limit` is too small.
        """
        config = self._config()
        self._learn(self._unlabelled_store(X, sample_weight), config)
        model = self.model_
        self.offset_ = 0.0 if isinstance(model, LocalModel) else -float(model.intercept[0])
        return self

    def decision_function(self, X: Data) -> np.ndarray:
        """(n,) decision values, below 0 for outliers."""
        return self._by_blocks(X, decisions_of)

    def score_samples(self, X: Data) -> np.ndarray:
        """(n,) decision values plus `offset_`. Larger: more like the training rows."""
        return self.decision_function(X) + self.offset_

    def predict(self, X: Data) -> np.ndarray:
        """(n,) 1 for inliers, -1 for outliers."""
        check_is_fitted(self)
        return self._by_blocks(X, _labels)

    def _unlabelled_store(self, X: Data, sample_weight: Data) -> Store:
        if isinstance(X, Store):
            if sample_weight is not None:
                raise ValueError("X is a Store, which brings its own sample_weight; found it given as well")
            if self.category:
                raise ValueError("X is a Store, which says what is encoded: give category to ingest")
            return self._store(X, reset=True)
        X = self._checked(X, "no_validation", reset=True)[0]
        if sample_weight is not None:
            sample_weight = in_memory(sample_weight)
            sample_weight = check_sample_weight(sample_weight, sample_weight if is_dask_frame(X) else X)
        names, category = self._names(), self._categories()
        return self._new_store(X, sample_weight=sample_weight, feature_names=names, category=category)


def _labels(model: Model, rows: Rows) -> np.ndarray:
    return labels_of(model.classes, model, rows)
