"""Budgeted SGD with river's interface."""

from streamsvm.online.classifier import BSGDClassifier
from streamsvm.online.oneclass import BSGDOneClass
from streamsvm.online.regressor import BSGDRegressor

LEARNERS = {learner.task: learner for learner in (BSGDClassifier, BSGDOneClass, BSGDRegressor)}

__all__ = ["LEARNERS", "BSGDClassifier", "BSGDOneClass", "BSGDRegressor"]
