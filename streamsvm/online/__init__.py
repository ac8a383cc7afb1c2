"""Budgeted SGD with river's interface."""

from streamsvm.online.classifier import BSGDClassifier
from streamsvm.online.multilabel import BSGDMultiLabelClassifier
from streamsvm.online.oneclass import BSGDOneClass
from streamsvm.online.regressor import BSGDRegressor

_ALL = (BSGDClassifier, BSGDMultiLabelClassifier, BSGDOneClass, BSGDRegressor)
LEARNERS = {learner.task: learner for learner in _ALL}

__all__ = ["LEARNERS", "BSGDClassifier", "BSGDMultiLabelClassifier", "BSGDOneClass", "BSGDRegressor"]
