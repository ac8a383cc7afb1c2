"""Budgeted SGD with river's interface."""

from streamsvm.online.estimators import BSGDClassifier, BSGDMultiLabelClassifier, BSGDOneClass, BSGDRegressor

_ALL = (BSGDClassifier, BSGDMultiLabelClassifier, BSGDOneClass, BSGDRegressor)
LEARNERS = {learner.task: learner for learner in _ALL}

__all__ = ["LEARNERS", "BSGDClassifier", "BSGDMultiLabelClassifier", "BSGDOneClass", "BSGDRegressor"]
