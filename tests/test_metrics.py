"""Metrics against scikit-learn's."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn import metrics as twin

from streamsvm.metrics import confusion, per_class, roc_auc

codes = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=60)


@given(codes)
def test_confusion_and_table_are_sklearns(pairs):
    truth, predicted = np.array(pairs).T
    labels = [0, 1, 2, 3]
    counts = confusion(truth, predicted, 4)
    assert np.array_equal(counts, twin.confusion_matrix(truth, predicted, labels=labels))
    expected = twin.precision_recall_fscore_support(truth, predicted, labels=labels, zero_division=0)
    table = per_class(counts, labels)
    for name, values in zip(("precision", "recall", "f1", "support"), expected, strict=True):
        assert [row[name] for row in table] == pytest.approx(values.tolist())
    assert [row["label"] for row in table] == labels


@given(st.lists(st.tuples(st.booleans(), st.integers(-5, 5)), min_size=2, max_size=60))
def test_auc_is_sklearns_ties_included(pairs):
    positive, scores = np.array([p for p, _ in pairs]), np.array([s for _, s in pairs], float)
    if positive.all() or not positive.any():
        assert roc_auc(positive, scores) is None
    else:
        assert roc_auc(positive, scores) == pytest.approx(twin.roc_auc_score(positive, scores))
