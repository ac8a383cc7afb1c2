"""river's door to budgeted SGD: dicts in, labels and probabilities out, one event at a time."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Iterator, Mapping
from decimal import Decimal
from itertools import pairwise
from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np
from river import base

from streamsvm.calibration import LARGEST, Calibration, against_rest, sigmoid
from streamsvm.config import KernelConfig, build_config
from streamsvm.data.rows import Rows
from streamsvm.data.scaling import Scaling
from streamsvm.errors import DataError
from streamsvm.kernels.base import Kernel, kernel_from
from streamsvm.models import BudgetModel, Header
from streamsvm.solvers.bsgd import BudgetLearner, BudgetOptions, BudgetStats
from streamsvm.solvers.pairs import n_columns, signs

if TYPE_CHECKING:
    import pandas as pd

_NUMBERS = frozenset({int, float, bool, np.float64, np.float32, np.int64, np.int32, np.bool_})
KERNEL_ARGUMENTS = ("gamma", "degree", "coef0")  # others are in kernel_params
_LARGEST = 1e38  # of float32


class BSGDClassifier(base.MiniBatchClassifier):
    """Kernel SVM on a budget of support vectors, learnt online by stochastic gradient descent.

    Minimises lambda/2 |w|^2 + mean hinge loss in steps of 1 / (lambda t); where the budget is full, `merge` support
    vectors become one (Wang, Crammer and Vucetic 2012; Qaadan and Glasmachers 2018). Several classes: each against
    the rest on one support set; labels and features may turn up at any time. Memory and time of an event are constant.

    Parameters
    ----------
    lam
        lambda, above 0; about 1 / (n C) for a stream of n events and SVC's C.
    gamma
        Of the kernel; for standardised features 1 / d is a good start.
    kernel
        "rbf", "laplacian", "matern", "cauchy", "poly" or "linear"; merging needs rbf.
    degree, coef0
        Of the polynomial (gamma a'b + coef0)^degree.
    budget
        Most support vectors.
    merge
        Support vectors that become one: 2 is the classic method, 3 to 5 a good range.
    strategy
        "sequence", "gradient", "project" or "remove".
    bias
        Learn a constant too, regularised like the rest.
    classes
        All labels there will be: others are an error. None: labels are taken up as they come.
    kernel_params
        Further options of the kernel: {"nu": 2.5} of matern, 0.5, 1.5 (None) or 2.5.

    Examples
    --------
    >>> from river import datasets, evaluate, metrics, preprocessing
    >>> from streamsvm.online import BSGDClassifier
    >>> model = preprocessing.StandardScaler() | BSGDClassifier(lam=1e-3, gamma=0.1, budget=100)
    >>> evaluate.progressive_val_score(datasets.Phishing(), model, metrics.Accuracy())
    Accuracy: 88.39%

    """

    def __init__(
        self,
        lam: float = 1e-4,
        gamma: float = 0.1,
        kernel: str = "rbf",
        degree: int = 3,
        coef0: float = 0.0,
        budget: int = 500,
        merge: int = 3,
        strategy: str = "sequence",
        bias: bool = False,
        classes: Iterable[Hashable] | None = None,
        kernel_params: dict[str, Any] | None = None,
    ) -> None:
        self.lam, self.gamma, self.kernel, self.degree, self.coef0 = lam, gamma, kernel, degree, coef0
        self.budget, self.merge, self.strategy, self.bias = budget, merge, strategy, bias
        self.classes, self.kernel_params = classes, kernel_params
        parameters = {"gamma": gamma, "degree": degree, "coef0": coef0} | (kernel_params or {})
        values = {"kernel": {"name": kernel} | parameters, "solver": "bsgd"}
        values["bsgd"] = {"lam": lam, "budget": budget, "merge": merge, "strategy": strategy, "bias": bias}
        self._config = build_config((type(self).__name__, values))
        self._labels: list[Any] = [] if classes is None else list(classes)
        self._targets = _targets(self._labels)  # what each label asks of the columns
        self._columns: dict[Hashable, int] = {}  # of features
        self._names: list[Hashable] = []  # features in the order of their columns
        self._order: list[Hashable] = []  # features of the last event, their columns, its values, and its row
        self._places = np.empty(0, np.intp)
        self._given: list[Any] = []
        self._row = np.empty(0, np.float32)
        self._learner = BudgetLearner(
            _kernel(self._config.kernel),
            0,
            n_columns(len(self._labels)),
            BudgetOptions.of(self._config.bsgd, lam),
        )
        self._sigmoid = _Sigmoid()
        self._met: tuple[Any, ...] | None = None  # the row predicted last, its decisions, W and F

    @property
    def _multiclass(self) -> bool:
        return True

    @classmethod
    def _unit_test_params(cls) -> Iterator[dict[str, Any]]:
        yield {"lam": 1e-3, "budget": 20}

    def learn_one(self, x: Mapping[Any, Any], y: Any) -> None:
        """One step for the event x with label y. Raises DataError, a ValueError, and learns nothing, for a bad one."""
        self._require_labels([y])
        row = self._vector(x, grow=True)
        code = self._code(y)
        decisions, W, F = self._meet(row)
        Y = self._targets[code]
        self._sigmoid.learn(decisions, Y)
        self._learner.learn_one(row, W, F, Y)
        self._met = None

    def predict_one(self, x: Mapping[Any, Any], **kwargs: Any) -> Any:
        """The label, or None before the first event is learnt."""
        if not self._labels:
            return None
        decisions = self._meet(self._vector(x, grow=False))[0]
        return self._labels[self._winner(decisions)]

    def predict_proba_one(self, x: Mapping[Any, Any], **kwargs: Any) -> dict[Any, float]:
        """Probabilities by label, the largest that of `predict_one`."""
        if not self._labels:
            return {}
        decisions = self._meet(self._vector(x, grow=False))[0]
        return dict(zip(self._labels, self._probabilities(decisions[None])[0].tolist(), strict=True))

    def decision_one(self, x: Mapping[Any, Any]) -> np.ndarray:
        """(1,) positive for the second label, or (k,) one for each label."""
        return self._meet(self._vector(x, grow=False))[0].copy()

    def learn_many(self, X: pd.DataFrame, y: pd.Series) -> None:
        """One step for each row, in order: the same model as `learn_one` row by row, to rounding."""
        labels = y.tolist()
        if len(labels) != len(X):
            raise DataError(f"found {len(labels)} labels, expected one for each of {len(X)} rows")
        self._require_labels(labels)
        rows = self._matrix(X, grow=True)
        # a label's column begins with its first row
        starts = [
            i for i, label in enumerate(labels) if label not in labels[:i] and label not in self._labels
        ]
        for start, stop in pairwise(sorted({0, *starts, len(labels)})):
            codes = [self._code(label) for label in labels[start:stop]]
            Y = self._targets[codes]
            for decisions, own in zip(self._learner.learn(rows.take(slice(start, stop)), Y), Y, strict=True):
                self._sigmoid.learn(decisions, own)
        self._met = None

    def predict_many(self, X: pd.DataFrame) -> pd.Series:
        """Labels of the rows."""
        import pandas as pd

        if not self._labels:
            return pd.Series([None] * len(X), index=X.index, dtype=object)
        labels = [self._labels[self._winner(row)] for row in self._decisions(X)]
        return pd.Series(labels, index=X.index)

    def predict_proba_many(self, X: pd.DataFrame) -> pd.DataFrame:
        """Probabilities, a column for each label."""
        import pandas as pd

        if not self._labels:
            return pd.DataFrame(index=X.index)
        return pd.DataFrame(self._probabilities(self._decisions(X)), index=X.index, columns=self._labels)

    @property
    def n_support(self) -> int:
        return self._learner.n_support

    @property
    def n_seen(self) -> int:
        """Events learnt."""
        return self._learner.t

    @property
    def stats(self) -> BudgetStats:
        """Steps, budget maintenances, their time and their weight degradation."""
        return self._learner.stats()

    @property
    def features(self) -> list[Any]:
        """Names in the order of their columns; there may be more columns than features, for those to come."""
        return list(self._names)

    @property
    def n_columns(self) -> int:
        return self._learner.X.shape[1]

    @property
    def n_labels(self) -> int:
        return len(self._labels)

    def check(self, x: Mapping[Any, Any]) -> None:
        """Raises DataError for an event with a feature that is not a finite number."""
        _numbers(x)

    def to_model(self, scaling: Scaling | None = None, **more: Any) -> BudgetModel:
        """The model as `fit` writes it, with all that learning needs to go on; and what a caller wants kept beside."""
        config = self._config.model_dump(mode="json")
        header = Header(
            self._learner.kernel,
            scaling or Scaling.none(self.n_columns),
            np.array(self._labels),
            config=config,
            calibration=self._sigmoid.calibration(len(self._targets[0])) if len(self._labels) > 1 else None,
        )
        own = {"features": self._names, "labels": self._labels, "sigmoid": self._sigmoid.to_state()}
        return BudgetModel.of(header, self._learner, own | more)

    @classmethod
    def from_model(cls, model: BudgetModel) -> BSGDClassifier:
        """A learner that goes on where `to_model` left off, bit by bit; or where a fit ended.

        The features of a fit on rows without names are "0", "1" and so on.
        """
        o = model.options
        own: dict[str, Any] = {
            name: getattr(o, name) for name in ("lam", "budget", "merge", "strategy", "bias")
        }
        learner = cls(**own, **kernel_arguments(model.header.kernel.to_attrs()))
        stream = model.stream or {
            "features": model.feature_names or [str(i) for i in range(model.d)],
            "labels": model.classes.tolist(),
        }
        learner._names = list(stream["features"])
        learner._columns = {name: column for column, name in enumerate(learner._names)}
        learner._labels = list(stream["labels"])
        learner._targets = _targets(learner._labels)
        learner._learner = model.learner()
        learner._sigmoid = _Sigmoid(**stream.get("sigmoid", {}))
        return learner

    def _meet(self, row: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Decisions, W and F of a row; those of `predict_one` serve the `learn_one` after it."""
        if self._met is None or self._met[0] is not row:
            self._met = (row, *self._learner.decide_one(row))
        return self._met[1:]

    def _vector(self, x: Mapping[Any, Any], *, grow: bool) -> np.ndarray:
        """(d,) float32; features not known yet get a column where `grow`, else they are left out."""
        names, given = list(x), list(x.values())
        if names == self._order and given == self._given and len(self._row) == self._learner.X.shape[1]:
            return self._row  # predicted just now
        values = _numbers(x)
        if names != self._order:  # most events have the features of the one before
            if grow:
                self._take_up(names)
            known = [i for i, name in enumerate(names) if name in self._columns]
            columns = np.array([self._columns[names[i]] for i in known], np.intp)
            if len(known) < len(names):
                return self._row_of(columns, values[known])
            self._order, self._places = names, columns
        self._given, self._row = given, self._row_of(self._places, values)
        return self._row

    def _row_of(self, columns: np.ndarray, values: np.ndarray) -> np.ndarray:
        row = np.zeros(self._learner.X.shape[1], np.float32)
        row[columns] = values
        return row

    def _take_up(self, names: Iterable[Hashable]) -> None:
        """Columns for features not seen before, in an order of their own, not the event's.

        Room for them is doubled, so that it is rarely made.
        """
        new = [name for name in names if name not in self._columns]
        for name in sorted(new, key=lambda name: (str(type(name)), str(name))):
            self._columns[name] = len(self._names)
            self._names.append(name)
        room = self._learner.X.shape[1]
        if len(self._names) > room:
            self._learner.widen(max(len(self._names), 2 * room))
            self._met = None

    def _require_labels(self, labels: list[Any]) -> None:
        for y in labels:
            if y != y:  # each NaN would be a class of its own
                raise DataError(f"found label {y!r}, expected one that is equal to itself")
            if self.classes is not None and y not in self._labels:
                raise DataError(f"found label {y!r}, expected one of {', '.join(map(str, self._labels))}")

    def _code(self, y: Any) -> int:
        """The label's number; a new one is taken up."""
        for code, label in enumerate(self._labels):
            if label == y:
                return code
        self._labels.append(y.item() if isinstance(y, np.generic) else y)
        self._targets = _targets(self._labels)
        if len(self._labels) > 2:
            self._learner.add_column()
            self._met = None
        return len(self._labels) - 1

    def _matrix(self, X: pd.DataFrame, *, grow: bool) -> Rows:
        for name, dtype in zip(X.columns, X.dtypes, strict=True):
            if dtype.kind not in "biuf":
                raise DataError(f"feature {str(name)!r}: found {dtype}, expected numbers")
        values = X.to_numpy(np.float64, na_value=np.nan)
        if not np.isfinite(values).all():
            row, column = np.argwhere(~np.isfinite(values))[0]
            raise DataError(
                f"row {row}, feature {X.columns[column]!r}: found {values[row, column]}, expected a number"
            )
        if grow:
            self._take_up(X.columns)
        out = np.zeros((len(X), self._learner.X.shape[1]), np.float32)
        for position, name in enumerate(X.columns):
            if name in self._columns:
                out[:, self._columns[name]] = values[:, position]
        return Rows(out)

    def _decisions(self, X: pd.DataFrame) -> np.ndarray:
        (A, bias), rows = self._learner.coefficients(), self._matrix(X, grow=False)
        return self._learner.kernel.apply(rows, self._learner.supports(), A) + bias

    def _winner(self, decisions: np.ndarray) -> int:
        if len(self._labels) == 1:
            return 0
        return int(decisions[0] > 0) if len(decisions) == 1 else int(np.argmax(decisions))

    def _probabilities(self, decisions: np.ndarray) -> np.ndarray:
        """(m, labels) from decisions (m, columns)."""
        if len(self._labels) == 1:
            return np.ones((len(decisions), 1))
        return against_rest(self._sigmoid(decisions))


class _Sigmoid:
    """p(y | f) = 1 / (1 + exp(-slope f)), the slope by Newton steps on the log loss of decisions before their steps.

    It has no constant: probabilities cross 1/2 where decisions cross 0, so both name the same label.
    """

    def __init__(self, slope: float = 1.0, curvature: float = 1.0) -> None:
        self.slope, self.curvature = slope, curvature

    def to_state(self) -> dict[str, float]:
        return {"slope": self.slope, "curvature": self.curvature}

    def __call__(self, decisions: np.ndarray) -> np.ndarray:
        return sigmoid(self.slope * decisions)

    def calibration(self, columns: int) -> Calibration:
        """What models keep of it."""
        return Calibration.of("sigmoid", columns * [np.array([[self.slope, 0.0]])])

    def learn(self, decisions: np.ndarray, Y: np.ndarray) -> None:
        for f, y in zip(decisions.tolist(), Y.tolist(), strict=True):
            p = 1.0 / (1.0 + math.exp(-max(min(self.slope * f, LARGEST), -LARGEST)))
            self.curvature += p * (1 - p) * f * f
            self.slope = max(self.slope - (p - (y > 0)) * f / self.curvature, 1e-3)


def _targets(labels: list[Any]) -> np.ndarray:
    k = max(2, len(labels))
    return signs(np.arange(k), k)


def kernel_arguments(attrs: Mapping[str, Any]) -> dict[str, Any]:
    """A learner's arguments for a kernel's name and parameters."""
    rest = {name: value for name, value in attrs.items() if name not in ("name", *KERNEL_ARGUMENTS)}
    own = {name: attrs[name] for name in KERNEL_ARGUMENTS if name in attrs}
    return {"kernel": attrs["name"], "kernel_params": rest or None} | own


def _kernel(config: KernelConfig) -> Kernel:
    return kernel_from(config.model_dump() | {"gamma": float(config.gamma)})


def _numbers(x: Mapping[Any, Any]) -> np.ndarray:
    """The values of an event, finite float64. Raises DataError naming the feature that is none."""
    if not _NUMBERS.issuperset(map(type, x.values())):
        for name, value in x.items():
            if not isinstance(value, Real | Decimal | np.number | np.bool_):
                raise DataError(f"feature {name!r}: found {value!r}, expected a number")
    try:
        values = np.fromiter(x.values(), np.float64, len(x))
    except OverflowError:  # an integer beyond float64
        values = np.array([math.inf])
    if not values @ values < _LARGEST**2:  # so is NaN
        for name, value in x.items():
            if not abs(value) < _LARGEST:
                raise DataError(f"feature {name!r}: found {str(value)[:40]}, expected a finite number")
    return values
