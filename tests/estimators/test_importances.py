"""`feature_importances_`: there where a metric was learned."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError
from sklearn.feature_selection import SelectFromModel

from streamsvm import DCSVC
from streamsvm.data.scaling import Scaling

X = np.random.default_rng(0).normal(size=(60, 3))
Y = (X[:, 0] > 0).astype(int)


class Learned(Scaling):
    class metric:
        importances = np.array([0.7, 0.2, 0.1])


def learned(estimator: DCSVC) -> DCSVC:
    header = estimator.model_.header
    own = header.scaling
    header = replace(header, scaling=Learned(own.kind, own.offset, own.scale))
    estimator.model_ = replace(estimator.model_, header=header)
    return estimator


def test_they_are_those_of_the_metric_and_select_features():
    svm = learned(DCSVC().fit(X, Y))
    np.testing.assert_array_equal(svm.feature_importances_, [0.7, 0.2, 0.1])
    assert SelectFromModel(svm, prefit=True, threshold=0.15).transform(X).shape == (60, 2)


def test_without_a_metric_there_are_none_and_that_is_said():
    svm = DCSVC().fit(X, Y)
    assert not hasattr(svm, "feature_importances_")
    with pytest.raises(
        AttributeError, match="after a fit that learned a metric; without one, streamsvm.explain"
    ):
        _ = svm.feature_importances_
    with pytest.raises(NotFittedError):
        _ = DCSVC().feature_importances_
