"""`feature_importances_`: those of the support vectors, for scikit-learn's selectors."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError
from sklearn.feature_selection import SelectFromModel

from streamsvm import ALFPGMSVC, DCSVC
from streamsvm.explain.importances import importances

X = np.random.default_rng(0).normal(size=(200, 3))
Y = (X[:, 0] > 0).astype(int)


def test_the_column_that_decides_is_found_and_selected():
    svm = DCSVC().fit(X, Y)
    np.testing.assert_array_equal(svm.feature_importances_, importances(svm.model_).values)
    assert svm.feature_importances_[0] > 0.8
    assert SelectFromModel(svm, prefit=True, threshold=0.5).transform(X).shape == (200, 1)


def test_kernel_values_have_no_features_to_count():
    svm = ALFPGMSVC(kernel="precomputed").fit(X @ X.T, Y)
    assert not hasattr(svm, "feature_importances_")
    with pytest.raises(AttributeError, match="feature_importances_: the kernel is precomputed"):
        _ = svm.feature_importances_


def test_before_a_fit_there_are_none():
    with pytest.raises(NotFittedError):
        _ = DCSVC().feature_importances_
