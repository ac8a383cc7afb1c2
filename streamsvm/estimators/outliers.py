"""What estimators of outliers share."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import OutlierMixin
from sklearn.utils.validation import check_is_fitted

from streamsvm.data.sources import is_dask_frame
from streamsvm.data.store import Store
from streamsvm.estimators.base import StoreEstimator, labels_of
from streamsvm.estimators.inputs import in_memory
from streamsvm.predict import decisions_of
from streamsvm.private.sklearn import check_sample_weight


class OutlierDetector(OutlierMixin, StoreEstimator):
    """Learns from rows alone; `offset_` is what its values are above the scores of rows."""

    offset_: float

    def decision_function(self, X: Any) -> np.ndarray:
        """(n,) decision values, below 0 for outliers."""
        return self._answers(X, decisions_of)

    def score_samples(self, X: Any) -> np.ndarray:
        """(n,) decision values plus `offset_`. Larger: more like the training rows."""
        return self.decision_function(X) + self.offset_

    def predict(self, X: Any) -> np.ndarray:
        """(n,) 1 for inliers, -1 for outliers."""
        check_is_fitted(self)
        return self._answers(X, _labels)

    def _rows(self, X: Any, sample_weight: Any) -> Store:
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
        own: dict[str, Any] = {"feature_names": self._names(), "category": self._categories()}
        return self._new_store(X, sample_weight=sample_weight, **own)


def _labels(model: Any, rows: Any) -> np.ndarray:
    return labels_of(model.classes, model, rows)
