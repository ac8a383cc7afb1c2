"""Private names of scikit-learn that tests compare with: LIBSVM itself, its votes, and the tests of SVC."""

from __future__ import annotations

from sklearn.svm import _libsvm as libsvm
from sklearn.svm.tests import test_svm as svc_tests
from sklearn.utils.multiclass import _ovr_decision_function as ovr_decision_function

__all__ = ["libsvm", "ovr_decision_function", "svc_tests"]
