"""Budgeted SGD with river's interface: dicts in, labels and probabilities out, one event at a time."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from river import base

from streamsvm.data.labels import one_spelling
from streamsvm.data.rows import Rows
from streamsvm.data.scaling import Scaling
from streamsvm.errors import ConfigError, DataError, ModelError
from streamsvm.kernels.base import Kernel
from streamsvm.kernels.table import DefiniteKernel
from streamsvm.models import StreamModel
from streamsvm.models.budget_options import BudgetOptions
from streamsvm.models.calibration import are_odds
from streamsvm.models.experts import ExpertsLearner
from streamsvm.models.learner import BudgetLearner
from streamsvm.models.pooled import parallel_experts
from streamsvm.online.base import MOST_FEATURES, LabelLearnerBase, is_doubled
from streamsvm.online.batches import frame_like, rows_in, series_like, targets_in
from streamsvm.online.calibration import LogOdds, OnlineCalibration
from streamsvm.online.kinds import Features
from streamsvm.online.labels import Labels
from streamsvm.options.solvers import Loss, Strategy
from streamsvm.tasks.pairs import n_columns
from streamsvm.texts.documented import set_parameters

if TYPE_CHECKING:
    import pandas as pd

MOST_CLASSES = 256
HEAVIEST = 100.0  # weight of balanced classes


class BSGDClassifier(LabelLearnerBase, base.MiniBatchClassifier):
    r"""Online kernel classification on a budget of support vectors; it tunes itself.

    With `lam` and `gamma` it is one learner by stochastic gradient descent: when the budget is full, `merge` support
    vectors become one. Several classes are decided each against the rest, on one set of support vectors. New labels and
    features may appear at any time. Memory and time for an event are constant.

    If `lam` or `gamma` is None, several such learners with kernels from wide to narrow, and additive functions of the
    features, learn in parallel from standardised features. A pool weights their probabilities by past success. After
    2,048 events the two best kernels remain. A feature that an event lacks counts as its mean, or as 0 if most events
    lack it. Without a pool it is 0.

    Parameters
    ----------
    lam : float or None
        lambda, the strength of the regularisation, above 0: about 1 / (n C) for n events. Larger: a smoother function.
        None: 1e-5, 1e-4 and 1e-3 are tried.
    gamma : float, "scale", "auto" or None
        Inverse width of the kernel, above 0. Larger: a more local, less smooth function. "scale": 1 / (sum of the
        features' variances). "auto": 1 / (number of features). Both are measured again whenever the number of events
        has doubled. None: 1, 4 and 16 times "scale" are tried.
    classes : iterable or None
        All labels that may appear: others are an error. None: any label.
    max_classes : int
        Maximum number of labels, at least 2. Larger: more memory. A label beyond is a DataError.
    class_weight : dict, "balanced" or None
        Weight of the loss for each label, above 0; 1 for others. Larger: errors on this label cost more. "balanced":
        events so far / (classes * those of the label), at most 100. Probabilities of the hinge loss count all events
        alike, but the largest is that of the predicted label.
    loss : {"hinge", "logistic"} or None
        Cost of an error. "hinge", with probabilities that are learned separately, is the default with `lam` and
        `gamma`. "logistic" is log(1 + exp(-y f)), whose f are log-odds of a label against the rest; the pool always
        uses it.

    See Also
    --------
    online.BSGDRegressor : regression.
    online.BSGDOneClass : outlier detection.
    BudgetedSVC : the scikit-learn estimator.
    river.linear_model.LogisticRegression : linear.

    Notes
    -----
    One learner minimises, in steps of :math:`1 / (\lambda t)`,

    .. math:: \tfrac{\lambda}{2} \lVert w \rVert^2 + \operatorname{mean}_t \max(0,\, 1 - y_t f(x_t))

    References
    ----------
    * Z. Wang, K. Crammer and S. Vucetic. Breaking the curse of kernelization: budgeted stochastic gradient descent for
      large-scale SVM training. JMLR 13, 2012.
    * S. Qaadan and T. Glasmachers. Multi-merge budget maintenance for stochastic gradient descent SVM training. 2018.

    Examples
    --------
    >>> from river import datasets, evaluate, metrics
    >>> from streamsvm.online import BSGDClassifier
    >>> evaluate.progressive_val_score(datasets.Phishing(), BSGDClassifier(), metrics.Accuracy())  # doctest: +ELLIPSIS
    Accuracy: 91...%
    """

    task = "classify"

    def __init__(
        self, lam: float | None = None, gamma: float | Literal["scale", "auto"] | None = None,
        kernel: DefiniteKernel = "rbf", degree: int = 3, coef0: float = 0.0,
        budget: int = 500, merge: int = 3, strategy: Strategy | None = None, bias: bool = False,
        classes: Iterable[Hashable] | None = None, average: bool = False,
        max_features: int = MOST_FEATURES, max_classes: int = MOST_CLASSES, kernel_params: dict[str, Any] | None = None,
        class_weight: Mapping[Hashable, float] | Literal["balanced"] | None = None, loss: Loss | None = None,
    ) -> None:  # fmt: skip
        set_parameters(self, locals())
        self._labels = Labels.of(classes, max_classes)
        self._weights = _by_text(class_weight, None if classes is None else self._labels)
        self._seen: list[int] | None = [] if class_weight == "balanced" else None  # events of each class
        self._start({"max_features": 1, "max_classes": 2}, n_columns(len(self._labels)))
        odds = are_odds(self._config.bsgd.loss)
        self._calibration: OnlineCalibration | LogOdds = LogOdds() if odds else OnlineCalibration()

    @property
    def _multiclass(self) -> bool:
        return True

    @property
    def tunes_itself(self) -> bool:
        """Whether it tunes lambda or gamma. If so, it standardises the columns, too."""
        return self.lam is None or (self.gamma is None and self._has_gamma)

    @property
    def drifts(self) -> dict[str, int]:
        """alarms: how often errors rose, so that a second learner began. switches: how often it took over. Empty unless
        it tunes itself."""
        return self._learner.drifts if self.tunes_itself else {}

    def _new_learner(self, kernel: Kernel, options: BudgetOptions, columns: int) -> BudgetLearner | ExpertsLearner:
        if not self.tunes_itself:
            return super()._new_learner(kernel, options, columns)
        if options.loss != "logistic" or options.average:
            option = "average" if options.average else f"loss {options.loss!r}"
            raise ConfigError(f"{option} needs a single learner; give lam and gamma with it")
        experts = parallel_experts(kernel, options, self.lam, self.gamma, has_gamma=self._has_gamma)
        return ExpertsLearner(experts, 0, columns)

    @classmethod
    def _unit_test_params(cls) -> Iterator[dict[str, object]]:
        yield {"lam": 1e-3, "budget": 20}

    def learn_one(self, x: Features, y: object) -> None:
        """One step for the event x with label y. For a bad event it raises DataError, a ValueError, and learns
        nothing."""
        if not self._labels.has(y):
            self._labels.require([y])
        row = self._row(x, grow=True)
        code = self._code(y)
        decisions, state = self._decide(row)
        self._calibration.learn_one(decisions, code)
        self._learner.learn_one(row, state, self._labels.targets[code], self._weigh(code))
        self._after_steps(row)

    def predict_one(self, x: Features, **kwargs: object) -> Any:
        """The label, or None before the first event is learned."""
        if not self._labels:
            return None
        return self._labels[self._winner(self._decide(self._row(x, grow=False))[0])]

    def predict_proba_one(self, x: Features, **kwargs: object) -> dict[Any, float]:
        """Probabilities by label, the largest that of `predict_one` unless there is a `class_weight`."""
        if not self._labels:
            return {}
        decisions = self._decide(self._row(x, grow=False))[0]
        return dict(zip(self._labels, self.probabilities_of(decisions[None])[0].tolist(), strict=True))

    def decision_one(self, x: Features) -> np.ndarray:
        """(1,) positive for the second label, or (k,) one for each label."""
        return self._decide(self._row(x, grow=False))[0].copy()

    def learn_many(self, X: pd.DataFrame, y: pd.Series) -> None:
        """One step for each row of a data frame of pandas, polars or Arrow, in order: the same model as `learn_one` row
        by row, up to rounding. NaN and null are missing."""
        labels = targets_in(y)
        if len(labels) != (m := rows_in(X)):
            raise DataError(f"found {len(labels)} labels, expected one for each of {m} rows")
        self._labels.require(labels)
        rows = self._columns.matrix(X, grow=True)
        self._make_room()
        new = [labels.index(label) for label in dict.fromkeys(labels) if label not in self._labels]
        # a label's column begins with its first row, gamma changes between rows, and a mean decides row by row
        measured = () if self.tunes_itself else range(len(labels))
        cuts = {0, len(labels), *new, *(i for i in measured if is_doubled(self.n_seen + i))}
        for start, stop in pairwise(range(len(labels) + 1) if self.average else sorted(cuts)):
            codes = np.array([self._code(label) for label in labels[start:stop]])
            self._learn_rows(rows.take(slice(start, stop)), codes)

    def predict_many(self, X: pd.DataFrame) -> pd.Series:
        """Labels of the rows, as a column of the library that X is of."""
        if not self._labels:
            return series_like(X, [None] * len(X), object)
        return series_like(X, self.labels_of(self._decisions(X)))

    def predict_proba_many(self, X: pd.DataFrame) -> pd.DataFrame:
        """Probabilities, a column for each label, as a data frame of the library that X is of."""
        if not self._labels:
            return frame_like(X, np.empty((len(X), 0)), [])
        return frame_like(X, self.probabilities_of(self._decisions(X)), self._labels)

    def decide_rows(self, rows: np.ndarray) -> np.ndarray:
        """(m, columns) decision values of rows that `row_of` made, as a block."""
        return self._learner.decide(Rows(rows))

    def labels_of(self, decisions: np.ndarray) -> list[Any]:
        """The label of each row of decisions (m, columns); None before the first event is learned."""
        return [self._labels[self._winner(row)] if self._labels else None for row in decisions]

    def check(self, x: Features, y: object = None) -> None:
        """Raises DataError for an event that cannot be learned: a feature that is not a number, or a label too many."""
        super().check(x)
        if y is not None:
            self._labels.require([y])

    def to_model(self, scaling: Scaling | None = None, **more: object) -> StreamModel:
        """The model as `fit` writes it, with all that further learning needs, and `more` that the caller wants kept."""
        calibration = None
        if self.n_labels > 1:
            columns = len(self._labels.targets[0])
            calibration = self._calibration.calibration(columns, self._class_weights())
        state: dict[str, object] = {
            "labels": self.labels,
            "calibration": self._calibration.to_state(),
            "limits": self._limits,
        }
        if self._seen is not None:
            state["seen"] = self._seen
        if self.tunes_itself:
            state["lam"] = self.lam
        return self._model(np.array(self._labels), scaling, state | more, calibration=calibration)

    @classmethod
    def from_model(cls, model: StreamModel) -> BSGDClassifier:
        """A learner that continues exactly from where `to_model`, or a fit, stopped. The features of a fit on rows
        without names are "0", "1" and so on. Raises ModelError for a model with a threshold or costs, and for balanced
        weights."""
        if model.header.threshold is not None:
            raise ModelError(
                "the model decides at a threshold that was chosen for what it had learned, and would not hold for what "
                "it continues to learn; fit without --threshold"
            )
        if model.costs is not None:
            raise ModelError("the model decides by costs, which a learner that continues does not; fit without --costs")
        if model.stream is None and (model.header.config or {}).get("class_weight") == "balanced":
            raise ModelError(
                "the model was fitted with class_weight 'balanced', which needs all rows; fit with a weight by label"
            )
        learner, stream = cls._resumed(model)
        learner._labels = Labels(stream.get("labels", model.classes.tolist()), learner.max_classes)
        if learner._seen is not None:
            learner._seen = list(stream["seen"])
        if isinstance(learner._calibration, OnlineCalibration):
            learner._calibration = OnlineCalibration.from_state(stream.get("calibration"))
        return learner

    def _learn_rows(self, rows: Rows, codes: np.ndarray) -> None:
        """Ends of blocks of rows in which nothing but the descent changes."""
        Y = self._labels.targets[codes]
        if self.average:
            decisions, state = self._learner.decide_one(rows.dense()[0])
            self._calibration.learn_one(decisions, int(codes[0]))
            self._learner.learn_one(rows.dense()[0], state, Y[0], self._weigh(int(codes[0])))
        else:
            weight = np.array([self._weigh(code) for code in codes.tolist()])
            self._calibration.learn(self._learner.learn(rows, Y, weight), codes)
        self._after_steps(rows.dense())

    def _weigh(self, code: int) -> float:
        """The weight of an event of this class that is learned now."""
        if self._seen is not None:
            self._seen += [0] * (len(self._labels) - len(self._seen))
            self._seen[code] += 1
            return min(sum(self._seen) / (len(self._seen) * self._seen[code]), HEAVIEST)
        return float(self._weights.get(_text(self._labels[code]), 1.0)) if self._weights else 1.0

    def _code(self, y: object) -> int:
        """The label's number; a new one gets a column."""
        n_labels = len(self._labels)
        code = self._labels.code(y)
        if code == n_labels and code > 1:
            self._learner.add_column()
            self._last_decision = None
        return code

    def _winner(self, decisions: np.ndarray) -> int:
        if self.n_labels == 1:
            return 0
        return int(decisions.item(0) > 0) if len(decisions) == 1 else int(np.argmax(decisions))

    def probabilities_of(self, decisions: np.ndarray) -> np.ndarray:
        """(m, labels) from decisions (m, columns)."""
        if len(self._labels) < 2:
            return np.ones((len(decisions), len(self._labels)))
        return self._calibration(decisions, self._class_weights())

    def _class_weights(self) -> np.ndarray | None:
        """(labels,) of the events that come next; None if all count alike."""
        if self._seen is not None:
            seen = np.zeros(self.n_labels)
            seen[: len(self._seen)] = self._seen
            return np.minimum(max(seen.sum(), 1.0) / (self.n_labels * np.maximum(seen, 1.0)), HEAVIEST)
        if not self._weights:
            return None
        return np.array([self._weights.get(_text(label), 1.0) for label in self._labels])


def _text(label: object) -> str:
    """A label as configurations write it: whole floats look like integers, booleans have one spelling."""
    return str(int(label)) if isinstance(label, float) and label.is_integer() else one_spelling(str(label))


def _by_text(weights: object, classes: list[Any] | None) -> dict[str, float]:
    """Weights by the text of labels. Raises ConfigError. The configuration checks that they are above 0."""
    if weights is None or weights == "balanced":
        return {}
    if not isinstance(weights, Mapping):
        raise ConfigError(f"class_weight: found {weights!r}, expected a weight for each label, or 'balanced'")
    by_text = {_text(label): weight for label, weight in weights.items()}
    names = None if classes is None else [_text(label) for label in classes]
    unknown = [] if names is None else [text for text in by_text if text not in names]
    if names is not None and unknown:
        raise ConfigError(f"class_weight names {unknown[0]!r}; the classes are {', '.join(names)}")
    return by_text
