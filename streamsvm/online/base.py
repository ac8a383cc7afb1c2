"""Common base of the river estimators: dicts become rows, gamma is measured during the stream, models are saved;
labels are numbered as they come."""

from __future__ import annotations

import math
import warnings
from abc import abstractmethod
from collections.abc import Hashable, Iterable, Mapping
from inspect import signature
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from streamsvm.config import FitConfig, build_config
from streamsvm.data.labels import is_unicode
from streamsvm.data.scaling import Scaling
from streamsvm.errors import ConfigError, DataError
from streamsvm.kernels.base import Kernel, as_arguments, kernel_of
from streamsvm.kernels.table import kernel_row, mergers
from streamsvm.models import BudgetModel, ExpertsModel, Header, StreamModel
from streamsvm.models.calibration import Calibration
from streamsvm.models.experts import ExpertsLearner
from streamsvm.models.learner import BudgetLearner, BudgetOptions, BudgetStats
from streamsvm.online.columns import LANES, FeatureColumns, TotalVariance
from streamsvm.online.kinds import FeatureKinds, Features, shown
from streamsvm.tasks import task_of
from streamsvm.tasks.pairs import signs
from streamsvm.texts.documented import fill
from streamsvm.texts.parameters import ONLINE_METHODS

if TYPE_CHECKING:
    from streamsvm.tables.frames import Frame

VANISHED = 50.0  # gamma |a - b|^2 from which a kernel value counts as 0: e^-50
SOONEST = 128  # events before the check whether kernel values vanish
MOST_FEATURES = 65_536
DESCENT = ("lam", "budget", "merge", "merge_all", "strategy", "loss", "bias", "average")  # of the section of bsgd
ROOT_OPTIONS = ("epsilon", "nu")  # of the configuration itself


class BudgetLearnerBase:
    """A learner on a budget that takes dicts. Its parameters have the names of BudgetOptions and of kernels.

    Parameters
    ----------
    gamma : float, "scale" or "auto"
        Inverse width of the kernel, above 0. Larger: a more local, less smooth function. "scale": 1 / (sum of the
        features' variances). "auto": 1 / (number of features). Both are measured again whenever the number of events
        has doubled.
    kernel : {"rbf", "laplacian", "matern", "cauchy", "poly", "linear"}
    strategy : {"sequence", "gradient", "project", "remove", "forget", "lru"} or None
        How support vectors are reduced when the budget is full: merge them one by one or at once, project the weakest
        on the others, or remove it; "forget" removes the oldest, "lru" the one that has not been the nearest to an
        event for the longest. None: "sequence" for rbf, the one kernel that merges, "project" for others.
    bias : bool
        Learn an intercept, regularised like the rest.
    average : bool
        Predict by the mean of all steps, step t weighted by t, not by the last. Better on noise if the budget is rarely
        full, much worse if the stream changes.
    """

    task: ClassVar[str]
    gamma: float | str | None
    kernel: str
    kernel_params: dict[str, Any] | None
    max_features: int
    _weights: Mapping[str, float] = {}  # of labels, by their texts

    def __init_subclass__(cls, **options: object) -> None:
        super().__init_subclass__(**options)
        fill(cls, ONLINE_METHODS)

    @property
    def tunes_itself(self) -> bool:
        """Whether it tunes lambda or gamma. If so, it standardises the columns, too."""
        return False

    @property
    def drifts(self) -> dict[str, int]:
        """alarms: how often errors rose, so that a second learner began. switches: how often it took over. Empty unless
        it tunes itself."""
        return {}

    @property
    def _has_gamma(self) -> bool:
        return "gamma" in kernel_row(self.kernel).parameters

    def _start(self, minimums: Mapping[str, int], columns: int) -> None:
        """Checks the parameters, and starts from scratch. minimums: of whole numbers, by parameter."""
        config = self._config = self._checked(minimums)
        self._columns = self._no_columns((), 0)
        measures = isinstance(self.gamma, str) and self._has_gamma and not self.tunes_itself
        self._spread = TotalVariance() if measures else None
        options = BudgetOptions.of(config, task_of(self.task), 1)  # which name lambda, where there is one
        kernel = kernel_of(config.kernel, 1, 1.0)  # until gamma is measured
        self._learner: Any = self._new_learner(kernel, options, columns)
        # the last row, its decisions, and the state that learning it needs
        self._last_decision: tuple[Any, ...] | None = None
        self._has_warned = False

    def _new_learner(self, kernel: Kernel, options: BudgetOptions, columns: int) -> BudgetLearner | ExpertsLearner:
        return BudgetLearner(kernel, 0, columns, options)

    def _no_columns(
        self, names: Iterable[Hashable], width: int, kinds: Iterable[tuple[Hashable, str]] | None = ()
    ) -> FeatureColumns:
        absent, lanes = (math.nan, LANES) if self.tunes_itself else (0.0, 1)
        return FeatureColumns(names, width, self.max_features, absent, lanes=lanes, kinds=kinds)

    def _checked(self, minimums: Mapping[str, int]) -> FitConfig:
        """The configuration. Raises ConfigError, by the names of the parameters."""
        for name, smallest in minimums.items():
            value = getattr(self, name)
            if not isinstance(value, int) or value < smallest:
                raise ConfigError(f"{name}: found {value!r}, expected a whole number at least {smallest}")
        kernel = {name: getattr(self, name) for name in ("gamma", "degree", "coef0")}
        kernel["gamma"] = "scale" if self.gamma is None else self.gamma
        descent = {name: getattr(self, name) for name in DESCENT if hasattr(self, name)}
        if "loss" in descent and descent["loss"] is None:
            descent["loss"] = "logistic" if self.tunes_itself else "hinge"
        if descent["strategy"] is None:
            descent["strategy"] = "sequence" if self.kernel in mergers() else "project"
        values = {
            "solver": "bsgd",
            "task": self.task,
            "kernel": {"name": self.kernel} | kernel | (self.kernel_params or {}),
            "bsgd": descent,
            "class_weight": dict(self._weights) or getattr(self, "class_weight", None) or None,
        } | {name: getattr(self, name) for name in ROOT_OPTIONS if hasattr(self, name)}
        try:
            return build_config((type(self).__name__, values))
        except ConfigError as error:
            text = str(error).replace("kernel.name", "kernel")
            raise ConfigError(text.replace("bsgd.", "").replace("kernel.", "")) from None

    @property
    def n_support(self) -> int:
        return self._learner.n_support

    @property
    def n_seen(self) -> int:
        """Number of events learned."""
        return self._learner.t

    @property
    def stats(self) -> BudgetStats:
        """Steps and their time, budget maintenances and their weight degradation."""
        return self._learner.stats()

    @property
    def features(self) -> list[Hashable]:
        """The features in the order of their columns. There may be more columns, for features to come."""
        return list(self._columns.names)

    @property
    def kinds(self) -> FeatureKinds:
        """The kind of each feature."""
        return self._columns.kinds

    @property
    def n_columns(self) -> int:
        return self._learner.d

    @property
    def config(self) -> FitConfig:
        return self._config

    def allow(self, max_features: int | None = None) -> None:
        """Changes the largest number of features from now on; None leaves it as it is."""
        self.max_features = self._columns.most = max_features or self.max_features

    def check(self, x: Features, y: object = None) -> None:
        """Raises DataError for an event that cannot be learned: by its features, or by y, its label or target."""
        self._columns.check(x)
        if y is not None:
            self._require(y)

    def _require(self, y: object) -> None:
        """Raises DataError for a label or target that cannot be learned."""

    def decision_one(self, x: Features) -> np.ndarray:
        """(columns,) decision values."""
        return self._decide(self._row(x, grow=False))[0].copy()

    def row_of(self, x: Features) -> np.ndarray:
        """(n_columns,) float32 of an event to predict; unknown features are left out. Raises DataError."""
        return self._row(x, grow=False)

    def decide_rows(self, rows: np.ndarray) -> np.ndarray:
        """(m, columns) decision values of rows that `row_of` made, those of `decision_one`: columns may be far from 0,
        where products of blocks cancel."""
        return np.array([self._learner.decide_one(row)[0] for row in rows])

    @property
    def _limits(self) -> dict[str, int]:
        return {"max_features": self.max_features}

    def to_model(self, scaling: Scaling | None = None, **more: object) -> StreamModel:
        """The model as `fit` writes it, with all that further learning needs, and `more` that the caller wants kept."""
        classes, state, calibration = self._saved()
        stream = {
            "features": self.features,
            "kinds": self._columns.kinds.to_state(),
            "gamma": self.gamma,
            "spread": self._spread and self._spread.to_state(),
            "limits": self._limits,
        }
        stream |= state | more
        pools = isinstance(self._learner, ExpertsLearner)
        scaling = self._learner.scaling.scaling() if pools else scaling or Scaling.none(self.n_columns)
        config = self._config.model_dump(mode="json")
        header = Header(self._learner.kernel, scaling, classes, config=config, calibration=calibration)
        if pools:
            return ExpertsModel.of(header, self._learner, stream)
        return BudgetModel.of(header, self._learner, stream, task=self.task)

    @abstractmethod
    def _saved(self) -> tuple[np.ndarray, dict[str, object], Calibration | None]:
        """The classes of its model, the state of its stream, as far as this class alone has it, and the calibration."""

    @classmethod
    def _resumed(cls, model: StreamModel) -> tuple[Self, dict[str, Any]]:
        """A learner that continues from where a model stopped, and the state of its stream. The features of a fit on
        rows without names are "0", "1" and so on. Raises ConfigError for another task."""
        if model.task != cls.task:
            raise ConfigError(f"found a model of task {model.task}, expected {cls.task} for {cls.__name__}")
        stream = model.stream or {"features": model.feature_names or [str(i) for i in range(model.d)], "kinds": []}
        parameters = signature(cls).parameters
        arguments = as_arguments(model.header.kernel)
        arguments |= {name: value for name, value in vars(model.options).items() if name in parameters}
        arguments |= {name: stream[name] for name in ("gamma", "lam") if name in stream}
        if "class_weight" in parameters:
            arguments["class_weight"] = (model.header.config or {}).get("class_weight")
        learner = cls(**arguments, **stream.get("limits", {}))
        learner._columns = learner._no_columns(stream["features"], model.d, stream.get("kinds"))
        learner._learner = model.learner()
        if learner._spread is not None:
            learner._spread = TotalVariance.from_state(stream["spread"])
        return learner, stream

    def _decide(self, row: np.ndarray) -> tuple[np.ndarray, Any]:
        """Decisions of a row, and the state that learning it needs; `learn_one` reuses those of `predict_one`."""
        entries = row.tobytes()
        if self._last_decision is None or self._last_decision[0] != entries:
            self._last_decision = (entries, *self._learner.decide_one(row))
        return self._last_decision[1], self._last_decision[2]

    def _row(self, x: Features, *, grow: bool) -> np.ndarray:
        row = self._columns.row(x, grow=grow)
        if len(row) > self._learner.d:
            self._make_room()
        return row

    def _make_room(self) -> None:
        """Called after new features were added."""
        if self._columns.width > self._learner.d:
            self._learner.widen(self._columns.width)
            self._last_decision = None

    def _after_steps(self, rows: np.ndarray) -> None:
        """Called after the steps of a row (d,), or of rows (m, d): measures gamma again if due, and warns."""
        self._last_decision = None
        if self.tunes_itself:
            return
        if self._spread is not None:
            self._spread.see(np.atleast_2d(rows))
        if is_doubled(self.n_seen):
            if self._spread is not None:
                d = max(len(self._columns.names), 1)
                kernel: Any = kernel_of(self._config.kernel, d, self._spread.variance() or d)  # constant: standardised
                self._learner.set_gamma(kernel.gamma)
            if self.n_seen >= SOONEST and not self._has_warned:
                self._warn_of_vanished()

    def _warn_of_vanished(self) -> None:
        """Warns once if support vectors are so far apart that each is isolated: then any prediction is the bias."""
        distances = self._learner.nearest()
        if len(distances) and np.median(distances) > VANISHED:
            self._has_warned = True
            warnings.warn(
                f"nearly all kernel values vanish: gamma is {self._learner.gamma:.3g}, and half of the support "
                f"vectors are more than {np.median(distances) ** 0.5:.3g} / sqrt(gamma) from any other; standardise "
                'the columns, or take gamma="scale"',
                stacklevel=2,
            )

    def _decisions(self, X: Frame) -> np.ndarray:
        """(m, columns) of the rows of a data frame."""
        return self._learner.decide(self._columns.matrix(X, grow=False))


fill(BudgetLearnerBase, ONLINE_METHODS)


class LabelLearnerBase(BudgetLearnerBase):
    """A learner whose events have labels, of which new ones may come."""

    lam: float | None
    average: bool
    loss: str | None
    max_classes: int
    _labels: Labels

    @property
    def labels(self) -> list[Hashable]:
        """The labels so far, in the order of their arrival."""
        return list(self._labels)

    @property
    def n_labels(self) -> int:
        return len(self._labels)

    def allow(self, max_features: int | None = None, max_classes: int | None = None) -> None:
        """Changes the largest numbers of features and labels from now on; None leaves one as it is."""
        self.max_features = self._columns.most = max_features or self.max_features
        self.max_classes = self._labels.most = max_classes or self.max_classes

    @property
    def _limits(self) -> dict[str, int]:
        return {"max_features": self.max_features, "max_classes": self.max_classes}


def is_doubled(n: int) -> bool:
    """Whether n is 1, 2, 4, 8 ..."""
    return n > 0 and n & (n - 1) == 0


class Labels(list[Any]):
    """The labels of a stream in order of arrival; a label's code is its place. New ones are added until there are
    `most`, or never if all classes were given. All are of the first one's kind: booleans, numbers, or texts. types: of
    the labels so far. targets (labels, columns): the target of each label in the columns, -1 or +1. codes: by label."""

    def __init__(self, labels: Iterable[Hashable], most: int) -> None:
        super().__init__(labels)
        self.types = set(map(type, self))
        self.most, self._is_fixed = most, False
        self.targets = _targets(len(self))
        self.codes: dict[Any, int] = {}
        for code, y in enumerate(self):
            self.codes.setdefault(y, code)

    @classmethod
    def of(cls, classes: Iterable[Hashable] | None, most: int) -> Labels:
        """The labels of these classes, to which none is added; None: no labels so far. Raises DataError for a class
        that cannot be a label."""
        if classes is None:
            return cls((), most)
        named = list(classes)
        cls((), max(most, len(named))).require(named)
        labels = cls(named, most)
        labels._is_fixed = True
        return labels

    def has(self, y: object) -> bool:
        """Whether a label has come before: 1 is not true."""
        return type(y) in self.types and y in self.codes

    def require(self, labels: list[object]) -> None:
        """Raises DataError for labels that cannot be added."""
        if self.types.issuperset(map(type, labels)) and self.codes.keys() >= set(labels):
            return
        new: list[object] = []
        for y in labels:
            if not self.has(y):
                self._require_new(y, new)

    def _require_new(self, y: Any, new: list[object]) -> None:
        """Adds a label to the new ones, unless it is known. Raises DataError for one that cannot be added."""
        kind = _kind_of(y)
        if y is None or (kind is float and y != y):  # each NaN would be a separate class
            raise DataError(f"found label {y!r}, which is missing; leave out events without a label")
        example = self[0] if self else new[0] if new else y
        if kind is None or kind is not _kind_of(example):
            expected = {bool: "true or false", float: "a number", str: "a text"}
            kind_before = expected[_kind_of(example) or float]
            expectation = f"expected {kind_before}, as before: a model holds labels of one kind"
            raise DataError(f"found label {shown(y)}, {expectation if kind else EXPECTED}")
        if y in self or y in new:
            return
        if self._is_fixed:
            raise DataError(f"found label {y!r}, expected one of {', '.join(map(str, self))}")
        if len(self) + len(new) >= self.most:
            raise DataError(
                f"found label {y!r} in addition to {self.most} others, expected at most max_classes; check that this "
                "is the label"
            )
        if not _is_storable([*self, *new, y]):
            raise DataError(f"found label {shown(y)}, which a model cannot hold; {EXPECTED}")
        new.append(y)

    def code(self, y: object) -> int:
        """The label's number; a new one is added."""
        self.types.add(type(y))
        code = self.codes.setdefault(y, len(self))
        if code == len(self):
            self.append(y.item() if isinstance(y, np.generic) else y)
            self.targets = _targets(len(self))
        return code


EXPECTED = "expected a boolean, a finite number of 64 bits, or a text that is Unicode, without a zero at its end"


def _kind_of(y: object) -> type | None:
    """bool, float or str; None for what is not a label."""
    if isinstance(y, bool | np.bool_):
        return bool
    if isinstance(y, int | float | np.integer | np.floating):
        return float
    return str if isinstance(y, str) else None


def _is_storable(labels: list[object]) -> bool:
    """Whether labels of one kind are the same after they were written to a model and read again."""
    array = np.array(labels)
    is_kept = array.dtype.kind in "bifU" and array.tolist() == labels
    return is_kept and all(is_unicode(y) if isinstance(y, str) else math.isfinite(y) for y in array.tolist())


def _targets(k: int) -> np.ndarray:
    k = max(2, k)
    return signs(np.arange(k), k)
