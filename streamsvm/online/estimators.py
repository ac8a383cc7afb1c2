"""Budgeted SGD with river's interface, one event at a time: dicts in, and out labels and probabilities, sets of labels,
scores of outliers, or numbers."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from river import base

from streamsvm.data.labels import one_spelling
from streamsvm.data.rows import Rows
from streamsvm.errors import ConfigError, DataError, ModelError
from streamsvm.kernels.base import Kernel
from streamsvm.kernels.table import DefiniteKernel
from streamsvm.models import StreamModel
from streamsvm.models.calibration import Calibration, sigmoid
from streamsvm.models.experts import ExpertsLearner
from streamsvm.models.learner import BudgetLearner, BudgetOptions
from streamsvm.models.pooled import parallel_experts
from streamsvm.online.base import MOST_FEATURES, BudgetLearnerBase, LabelLearnerBase, Labels, is_doubled
from streamsvm.online.calibration import LogOdds, OnlineCalibration
from streamsvm.online.columns import LARGEST, rows_in, targets_in
from streamsvm.online.kinds import Features, as_float, kind_of, shown
from streamsvm.options.probability import are_odds
from streamsvm.options.solvers import Loss, Strategy
from streamsvm.tables.answers import as_frame, as_series, index_of, library_of
from streamsvm.tasks.oneclass import NU, OneClass
from streamsvm.tasks.pairs import n_columns
from streamsvm.texts.documented import set_parameters

if TYPE_CHECKING:
    import pandas as pd

try:
    from river.base import AnomalyDetector
except ImportError:  # river before 0.23
    from river.anomaly.base import AnomalyDetector  # type: ignore[no-redef]

MOST_CLASSES = 256
HEAVIEST = 100.0  # weight of balanced classes
_INLIER = np.ones(1)


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
    The first event on a machine compiles the learner, which takes some seconds; ``streamsvm warm-up --solver bsgd``
    does so before.

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
        merge_all: bool = False,
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
        is_known = self._labels.has(y)
        if not is_known:
            self._labels.require([y])
        row = self._row(x, grow=True)
        code = self._labels.codes[y] if is_known else self._code(y)
        decisions, state = self._decide(row)
        self._calibration.learn_one(decisions, code)
        self._learner.learn_one(row, state, self._labels.targets[code], self._weigh(code))
        self._after_steps(row)

    def predict_one(self, x: Features, **kwargs: object) -> Any:
        """The label, or None before the first event is learned."""
        labels = self._labels
        return labels[self._winner(self._decide(self._row(x, grow=False))[0])] if labels else None

    def predict_proba_one(self, x: Features, **kwargs: object) -> dict[Any, float]:
        """Probabilities by label, the largest that of `predict_one` unless there is a `class_weight`."""
        if not self._labels:
            return {}
        decisions = self._decide(self._row(x, grow=False))[0]
        return dict(zip(self._labels, self.probabilities_of(decisions[None])[0].tolist(), strict=True))

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
            some = labels[start:stop]
            code_of = {label: self._code(label) for label in dict.fromkeys(some)}
            codes = np.array([code_of[label] for label in some])
            self._learn_rows(rows.take(slice(start, stop)), codes)

    def predict_many(self, X: pd.DataFrame) -> pd.Series:
        """Labels of the rows, as a column of the library that X is of."""
        if not self._labels:
            return as_series(library_of(X), [None] * len(X), index=index_of(X), dtype=object)
        return as_series(library_of(X), self.labels_of(self._decisions(X)), index=index_of(X))

    def predict_proba_many(self, X: pd.DataFrame) -> pd.DataFrame:
        """Probabilities, a column for each label, as a data frame of the library that X is of."""
        if not self._labels:
            return as_frame(library_of(X), np.empty((len(X), 0)), [], index=index_of(X))
        probabilities = self.probabilities_of(self._decisions(X))
        return as_frame(library_of(X), probabilities, self._labels, index=index_of(X))

    def decide_rows(self, rows: np.ndarray) -> np.ndarray:
        """(m, columns) decision values of rows that `row_of` made, as a block."""
        return self._learner.decide(Rows(rows))

    def labels_of(self, decisions: np.ndarray) -> list[Any]:
        """The label of each row of decisions (m, columns); None before the first event is learned."""
        return [self._labels[self._winner(row)] if self._labels else None for row in decisions]

    def _require(self, y: object) -> None:
        self._labels.require([y])

    def _saved(self) -> tuple[np.ndarray, dict[str, object], Calibration | None]:
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
        return np.array(self._labels), state, calibration

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
            self._calibration.learn(self._learner.learn(rows, Y, self._weigh_all(codes)), codes)
        self._after_steps(rows.dense())

    def _weigh(self, code: int) -> float:
        """The weight of an event of this class that is learned now."""
        if self._seen is None:
            return float(self._weights.get(_text(self._labels[code]), 1.0)) if self._weights else 1.0
        self._seen += [0] * (len(self._labels) - len(self._seen))
        self._seen[code] += 1
        return min(sum(self._seen) / (len(self._seen) * self._seen[code]), HEAVIEST)

    def _weigh_all(self, codes: np.ndarray) -> np.ndarray:
        """The weights of events of these classes that are learned now, in order."""
        if self._seen is None and not self._weights:
            return np.ones(len(codes))
        return np.array([self._weigh(code) for code in codes.tolist()])

    def _code(self, y: object) -> int:
        """The label's number; a new one gets a column."""
        n_labels = len(self._labels)
        code = self._labels.code(y)
        if code == n_labels and code > 1:
            self._learner.add_column()
            self._last_decision = None
        return code

    def _winner(self, decisions: np.ndarray) -> int:
        if len(decisions) > 1:
            return int(np.argmax(decisions))
        return int(decisions.item(0) > 0 and len(self._labels) > 1)

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
        loss: Loss = "logistic", merge_all: bool = False,
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

    def _saved(self) -> tuple[np.ndarray, dict[str, object], Calibration | None]:
        calibration = Calibration.logistic(self.n_labels) if are_odds(self.loss) else None
        return np.array(list(map(str, self._labels))), {"labels": self.labels}, calibration

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


class BSGDOneClass(BudgetLearnerBase, AnomalyDetector):
    r"""Online outlier detection on a budget of support vectors.

    An event outside becomes a support vector and lowers the threshold rho, any other event raises it. So a share `nu`
    of the events is outside in the long run.

    Parameters
    ----------
    nu : float
        Share of the events that are outside. Above 0, at most 1. Larger: more outliers.

    See Also
    --------
    online.BSGDClassifier : classification.
    DCOneClassSVM : exact, on stored rows.
    river.anomaly.OneClassSVM : linear.

    Notes
    -----
    The first event on a machine compiles the learner, which takes some seconds; ``streamsvm warm-up --solver bsgd``
    does so before.

    It minimises, in steps of :math:`1 / t`,

    .. math:: \tfrac12 \lVert w \rVert^2 - \nu \rho + \operatorname{mean}_t \max(0,\, \rho - w^\top \varphi(x_t))

    There is no lambda: it would scale w and rho alike.

    References
    ----------
    * B. Schoelkopf et al. Estimating the support of a high-dimensional distribution. Neural Computation 13, 2001.
    * J. Kivinen, A. J. Smola and R. C. Williamson. Online learning with kernels. IEEE TSP 52, 2004.

    Examples
    --------
    >>> import random
    >>> from streamsvm.online import BSGDOneClass
    >>> rng, model = random.Random(0), BSGDOneClass(nu=0.1, budget=50)
    >>> for _ in range(1000):
    ...     model.learn_one({"a": rng.gauss(0, 1), "b": rng.gauss(0, 1)})
    >>> model.score_one({"a": 5.0, "b": 5.0}) > 0 > model.score_one({"a": 0.0, "b": 0.1})
    True
    """

    task = "oneclass"

    def __init__(
        self, nu: float = NU, gamma: float | Literal["scale", "auto"] = "scale", kernel: DefiniteKernel = "rbf",
        degree: int = 3, coef0: float = 0.0,
        budget: int = 500, merge: int = 3, strategy: Strategy | None = None,
        max_features: int = MOST_FEATURES, kernel_params: dict[str, Any] | None = None, merge_all: bool = False,
    ) -> None:  # fmt: skip
        set_parameters(self, locals())
        self._start({"max_features": 1}, 1)

    @classmethod
    def _unit_test_params(cls) -> Iterator[dict[str, object]]:
        yield {"nu": 0.1, "budget": 20}

    def learn_one(self, x: Features) -> None:
        """One step for the event x. For a bad event it raises DataError, a ValueError, and learns nothing."""
        row = self._row(x, grow=True)
        self._learner.learn_one(row, self._decide(row)[1], _INLIER)
        self._after_steps(row)

    def score_one(self, x: Features) -> float:
        """1 - w'phi(x) / rho: above 0 of events outside, 1 far from all support vectors; 0 before rho is known."""
        return float(self.scores_of(self._decide(self._row(x, grow=False))[0])[0])

    def scores_of(self, decisions: np.ndarray) -> np.ndarray:
        """(m,) scores from decision values (m,)."""
        rho = self.rho
        return -decisions / rho if rho > 0 else np.zeros(len(decisions))

    @property
    def rho(self) -> float:
        return -float(self._learner.coefficients()[1][0])

    def _saved(self) -> tuple[np.ndarray, dict[str, object], Calibration | None]:
        return np.array(OneClass.own_classes), {}, None

    @classmethod
    def from_model(cls, model: StreamModel) -> BSGDOneClass:
        """A learner that continues exactly from where `to_model` stopped."""
        return cls._resumed(model)[0]


class BSGDRegressor(BudgetLearnerBase, base.MiniBatchRegressor):
    r"""Online kernel regression on a budget of support vectors.

    Learns in implicit steps, each of which ends where the loss of the event is 0. Targets may have any scale: f is
    their running mean plus what is learned in units of their running standard deviation. Both are measured again
    whenever the number of events has doubled.

    Parameters
    ----------
    lam : float
        lambda, the strength of the regularisation, above 0, for targets in units of their standard deviation. Larger: a
        smoother function.
    epsilon : float
        Largest error without a loss, at least 0, in units of the targets' standard deviation. Larger: fewer support
        vectors, coarser answers.
    bias : bool
        Learn an intercept in addition to the mean of the targets, regularised like the rest. At the start of a stream
        it takes half of every step, and answers are worse for a long time.

    See Also
    --------
    online.BSGDClassifier : classification.
    BudgetedSVR : the scikit-learn estimator.
    river.linear_model.LinearRegression : linear.

    Notes
    -----
    The first event on a machine compiles the learner, which takes some seconds; ``streamsvm warm-up --solver bsgd``
    does so before.

    It minimises, in steps of at most :math:`1 / (\lambda t + 2)`,

    .. math::

        \tfrac{\lambda}{2} \lVert w \rVert^2 + \operatorname{mean}_t \max(0,\, \lvert y_t - f(x_t) \rvert - \epsilon)

    Support vectors merge only with those whose coefficients have the same sign.

    References
    ----------
    * B. Kulis and P. L. Bartlett. Implicit online learning. ICML 2010.
    * Z. Wang, K. Crammer and S. Vucetic. Breaking the curse of kernelization: budgeted stochastic gradient descent for
      large-scale SVM training. JMLR 13, 2012.

    Examples
    --------
    >>> from river import datasets, evaluate, metrics, preprocessing
    >>> from streamsvm.online import BSGDRegressor
    >>> model = preprocessing.StandardScaler() | BSGDRegressor(budget=100)
    >>> evaluate.progressive_val_score(datasets.TrumpApproval(), model, metrics.MAE())  # doctest: +ELLIPSIS
    MAE: 0.379...
    """

    task = "regress"

    def __init__(
        self, lam: float = 1e-3, epsilon: float = 0.1, gamma: float | Literal["scale", "auto"] = "scale",
        kernel: DefiniteKernel = "rbf", degree: int = 3, coef0: float = 0.0,
        budget: int = 500, merge: int = 3, strategy: Strategy | None = None, bias: bool = False, average: bool = False,
        max_features: int = MOST_FEATURES, kernel_params: dict[str, Any] | None = None, merge_all: bool = False,
    ) -> None:  # fmt: skip
        set_parameters(self, locals())
        self._start({"max_features": 1}, 1)
        self._targets = RunningMoments()

    @classmethod
    def _unit_test_params(cls) -> Iterator[dict[str, object]]:
        yield {"budget": 20}

    def learn_one(self, x: Features, y: object) -> None:
        """One step for the event x with target y. For a bad event it raises DataError, a ValueError, and learns
        nothing."""
        target = np.array([number(y)])
        row = self._row(x, grow=True)
        self._see(target)
        self._learner.learn_one(row, self._decide(row)[1], target)
        self._after_steps(row)

    def predict_one(self, x: Features) -> float:
        """The value, 0 before the first event is learned."""
        return float(self._decide(self._row(x, grow=False))[0][0])

    def learn_many(self, X: pd.DataFrame, y: pd.Series) -> None:
        """One step for each row of a data frame of pandas, polars or Arrow, in order: the same model as `learn_one` row
        by row, up to rounding. NaN and null are missing."""
        targets = np.array([number(value) for value in targets_in(y)])
        if len(targets) != (m := rows_in(X)):
            raise DataError(f"found {len(targets)} targets, expected one for each of {m} rows")
        rows = self._columns.matrix(X, grow=True)
        self._make_room()
        cuts = {0, len(targets)}  # where units or gamma change
        for i in range(len(targets)):
            cuts |= {i} if is_doubled(self.n_seen + i) or is_doubled(self.n_seen + i + 1) else set()
        if not self._targets.squares:
            cuts |= set(np.flatnonzero(np.diff(targets, prepend=self._targets.mean))[:2].tolist())
        for start, stop in pairwise(sorted(cuts)):
            rows_between = slice(start, stop)
            self._see(targets[rows_between])
            self._learner.learn(rows.take(rows_between), targets[rows_between, None])
            self._after_steps(rows.take(rows_between).dense())

    def predict_many(self, X: pd.DataFrame) -> pd.Series:
        """Values of the rows, by `predict_one`: in columns far from 0, products of blocks would cancel."""
        rows = self._columns.matrix(X, grow=False).dense()
        values = [float(self._learner.decide_one(row)[0][0]) for row in rows]
        return as_series(library_of(X), values, index=index_of(X), dtype=np.float64)

    def _require(self, y: object) -> None:
        number(y)

    def _saved(self) -> tuple[np.ndarray, dict[str, object], Calibration | None]:
        return np.empty(0), {"targets": vars(self._targets)}, None

    @classmethod
    def from_model(cls, model: StreamModel) -> BSGDRegressor:
        """A learner that continues exactly from where `to_model`, or a fit, stopped."""
        learner, stream = cls._resumed(model)
        origin, unit = learner._learner.units.tolist()
        fitted = {"n": learner.n_seen, "mean": origin, "squares": learner.n_seen * unit**2}
        learner._targets = RunningMoments(**stream.get("targets", fitted))
        return learner

    def _see(self, targets: np.ndarray) -> None:
        """Targets that are about to be learned: units are measured by the first of them, too."""
        first, *more = targets.tolist()
        had_none = not self._targets.squares
        self._targets.see(first)
        if is_doubled(self.n_seen + 1) or (had_none and self._targets.squares):
            self._learner.set_units(self._targets.mean, self._targets.spread or 1.0)
            self._last_decision = None
        for y in more:
            self._targets.see(y)


class RunningMoments:
    """Mean and spread of numbers seen one by one (Welford 1962)."""

    def __init__(self, n: int = 0, mean: float = 0.0, squares: float = 0.0) -> None:
        self.n, self.mean, self.squares = n, mean, squares

    def see(self, y: float) -> None:
        self.n += 1
        deviation = y - self.mean
        self.mean += deviation / self.n
        self.squares += deviation * (y - self.mean)

    @property
    def spread(self) -> float:
        """Their standard deviation; 0 of none."""
        return float(np.sqrt(self.squares / self.n)) if self.n else 0.0


def number(y: object) -> float:
    """A target. Raises DataError."""
    if kind_of(y) == "number" and abs(target := as_float(y)) < LARGEST:  # so NaN is none
        return target
    raise DataError(f"found target {shown(y)}, expected a finite number below {LARGEST:.0e}")
