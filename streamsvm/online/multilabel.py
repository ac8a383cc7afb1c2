"""Budgeted SGD for events with several labels, with river's interface: dicts of features and of labels."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from typing import Any, Literal

import numpy as np
from river import base

from streamsvm.data.rows import Rows
from streamsvm.data.scaling import Scaling
from streamsvm.errors import DataError, ModelError
from streamsvm.kernels.table import DefiniteKernel
from streamsvm.models import StreamModel
from streamsvm.models.calibration import Calibration, are_odds, sigmoid
from streamsvm.online.base import MOST_FEATURES, LabelLearnerBase
from streamsvm.online.classifier import MOST_CLASSES
from streamsvm.online.kinds import Features
from streamsvm.online.labels import Labels
from streamsvm.options.solvers import Loss, Strategy
from streamsvm.texts.documented import set_parameters


class BSGDMultiLabelClassifier(LabelLearnerBase, base.MultiLabelClassifier):
    r"""Online kernel classification of events with any number of labels, on a budget of support vectors.

    Each label is separated from the rest. All labels share one set of support vectors, and so their kernel values. New
    labels and features may appear at any time. A label that an event says nothing of learns nothing from it.

    Parameters
    ----------
    lam : float
        lambda, the strength of the regularisation, above 0: about 1 / (n C) for n events. Larger: a smoother function.
    classes : iterable or None
        All labels that may appear: others are an error. None: any label.
    max_classes : int
        Maximum number of labels, at least 1. Larger: more memory. A label beyond is a DataError.
    loss : {"logistic", "hinge"}
        Cost of an error. "logistic" is log(1 + exp(-y f)), whose f are log-odds. "hinge" has no probabilities.

    See Also
    --------
    online.BSGDClassifier : one label for each event.
    BudgetedSVC : the scikit-learn estimator.
    river.multioutput.ClassifierChain : chains of river's classifiers.

    Notes
    -----
    It minimises, in steps of :math:`1 / (\lambda t)`, for each label

    .. math:: \tfrac{\lambda}{2} \lVert w \rVert^2 + \operatorname{mean}_t \log(1 + \exp(-y_t f(x_t)))

    References
    ----------
    * Z. Wang, K. Crammer and S. Vucetic. Breaking the curse of kernelization: budgeted stochastic gradient descent for
      large-scale SVM training. JMLR 13, 2012.

    Examples
    --------
    >>> from streamsvm.online import BSGDMultiLabelClassifier
    >>> model = BSGDMultiLabelClassifier(gamma=1.0)
    >>> for i in range(200):
    ...     x = {"a": i % 7 - 3, "b": i % 5 - 2}
    ...     model.learn_one(x, {"sea": x["a"] > 0, "sky": x["b"] > 0})
    >>> model.predict_one({"a": 2, "b": -1})
    {'sea': True, 'sky': False}
    """

    task = "multilabel"

    def __init__(
        self, lam: float = 1e-3, gamma: float | Literal["scale", "auto"] = "scale", kernel: DefiniteKernel = "rbf",
        degree: int = 3, coef0: float = 0.0,
        budget: int = 500, merge: int = 3, strategy: Strategy | None = None, bias: bool = False,
        classes: Iterable[Hashable] | None = None, average: bool = False,
        max_features: int = MOST_FEATURES, max_classes: int = MOST_CLASSES, kernel_params: dict[str, Any] | None = None,
        loss: Loss = "logistic",
    ) -> None:  # fmt: skip
        set_parameters(self, locals())
        self._labels = Labels.of(classes, max_classes)
        self._start({"max_features": 1, "max_classes": 1}, max(1, len(self._labels)))

    @classmethod
    def _unit_test_params(cls) -> Iterator[dict[str, object]]:
        yield {"budget": 20}

    def learn_one(self, x: Features, y: Mapping[Hashable, bool]) -> None:
        """One step for the event x with labels y, each True or False. For a bad event it raises DataError, a
        ValueError, and learns nothing; nor does it before any label is known."""
        self._require(y)
        row = self._row(x, grow=True)
        targets = self._targets(y)
        if len(targets):
            self._learner.learn_one(row, self._decide(row)[1], targets)
            self._after_steps(row)

    def predict_one(self, x: Features, **kwargs: object) -> dict[Hashable, bool]:
        """For each label so far, whether the event has it."""
        return dict(zip(self._labels, (self.decision_one(x) > 0).tolist(), strict=True))

    def predict_proba_one(self, x: Features, **kwargs: object) -> dict[Hashable, dict[bool, float]]:
        """Of each label, the probabilities that the event has and lacks it. With loss "logistic" only."""
        p = self.probabilities_of(self.decision_one(x)[None])
        if p is None:
            raise NotImplementedError('probabilities are there with loss="logistic" only')
        by_label = zip(self._labels, p[0].tolist(), strict=True)
        return {label: {True: has, False: 1 - has} for label, has in by_label}

    def decision_one(self, x: Features) -> np.ndarray:
        """(labels,) decision values, positive for a label that the event has."""
        return super().decision_one(x)[: self.n_labels]

    def decide_rows(self, rows: np.ndarray) -> np.ndarray:
        """(m, labels) decision values of rows that `row_of` made, as a block."""
        return self._learner.decide(Rows(rows))[:, : self.n_labels]

    def probabilities_of(self, decisions: np.ndarray) -> np.ndarray | None:
        """(m, labels) from decisions (m, labels); None without log-odds."""
        return sigmoid(decisions) if are_odds(self.loss) else None

    def check(self, x: Features, y: object = None) -> None:
        """Raises DataError for an event that cannot be learned: a feature that is not a number, or a label too many."""
        super().check(x)
        if y is not None:
            self._require(y)

    def to_model(self, scaling: Scaling | None = None, **more: object) -> StreamModel:
        """The model as `fit` writes it, with all that further learning needs, and `more` that the caller wants kept."""
        calibration = Calibration.logistic(self.n_labels) if are_odds(self.loss) else None
        state = {"labels": self.labels} | more
        return self._model(np.array(list(map(str, self._labels))), scaling, state, calibration=calibration)

    @classmethod
    def from_model(cls, model: StreamModel) -> BSGDMultiLabelClassifier:
        """A learner that continues exactly from where `to_model`, or a fit, stopped. Raises ModelError for a model with
        thresholds or costs, and for one whose labels have weights."""
        header = model.header
        has_costs = header.threshold is not None or header.costs is not None
        if has_costs or (header.config or {}).get("class_weight"):
            raise ModelError(
                "the model has thresholds, costs or weights of labels, which a stream cannot continue with; "
                "fit without --threshold, --costs and --class-weight"
            )
        learner, stream = cls._resumed(model)
        labels = stream.get("labels", model.classes.tolist())
        learner._labels = Labels(labels, learner.max_classes)
        return learner

    def _require(self, y: object) -> None:
        """Raises DataError for labels that cannot be learned."""
        if not isinstance(y, Mapping) or not all(has in (False, True) for has in y.values()):
            raise DataError(f"found labels {y!r}, expected a dict of labels, each True or False")
        for label in y:
            if "," in str(label) or not str(label).strip():
                raise DataError(f"found label {label!r}, expected a name without commas")
        self._labels.require(list(y))

    def _targets(self, y: Mapping[Hashable, bool]) -> np.ndarray:
        """(labels,) -1 or +1, and 0 where y says nothing. New labels get columns, except the first, which has one."""
        for label in y:
            n_labels = self.n_labels
            if self._labels.code(label) == n_labels > 0:
                self._learner.add_alone()
                self._last_decision = None
        signs = {label: 1.0 if has else -1.0 for label, has in y.items()}
        return np.array([signs.get(label, 0.0) for label in self._labels])
