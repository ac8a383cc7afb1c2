"""river's door to budgeted SGD: dicts in, labels and probabilities out, one event at a time."""

from __future__ import annotations

import warnings
from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import asdict
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from river import base

from streamsvm.config import FitConfig, build_config
from streamsvm.data.rows import Rows
from streamsvm.data.scaling import Scaling
from streamsvm.errors import ConfigError, DataError
from streamsvm.kernels.options import as_arguments, kernel_of
from streamsvm.kernels.table import kernel_row, mergers
from streamsvm.models import BudgetModel, Header
from streamsvm.models.learner import BudgetLearner, BudgetOptions, BudgetStats
from streamsvm.online.calibration import OnlineCalibration
from streamsvm.online.columns import Columns, Spread, numbers
from streamsvm.online.labels import Labels
from streamsvm.tasks.pairs import n_columns

if TYPE_CHECKING:
    import pandas as pd

VANISHED = 50.0  # gamma |a - b|^2 from which a kernel value is nothing, e^-50
SOONEST = 128  # events before one looks whether kernel values vanish
MOST_FEATURES, MOST_CLASSES = 65_536, 256


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
        Of the kernel: a number; "scale", 1 / (sum of the columns' variances), which is 1 / d for standardised columns
        and about 1 for rows of length 1, as TFIDF makes them; or "auto", 1 / (columns seen). Both are measured anew
        whenever the number of events has doubled, and support vectors go on under the new value.
        river's `model_selection.SuccessiveHalvingClassifier` chooses among several.
    kernel
        "rbf", "laplacian", "matern", "cauchy", "poly" or "linear"; merging needs rbf.
    degree, coef0
        Of the polynomial (gamma a'b + coef0)^degree.
    budget
        Most support vectors.
    merge
        Support vectors that become one: 2 is the classic method, 3 to 5 a good range.
    strategy
        "sequence", "gradient", "project" or "remove". None: "sequence" for rbf, "project" for other kernels.
    bias
        Learn a constant too, regularised like the rest.
    classes
        All labels there will be: others are an error. None: labels are taken up as they come.
    average
        Decide by the mean of all steps weighted by t, not the last: better on noise where the budget is rarely full,
        much worse where the stream changes.
    max_features
        Most columns: features beyond are left out, with a warning. The budget takes 4 bytes for each of them.
    max_classes
        Most labels that are taken up: one beyond is a DataError.
    kernel_params
        Further options of the kernel: {"nu": 2.5} of matern, 0.5, 1.5 (None) or 2.5.

    Examples
    --------
    >>> from river import datasets, evaluate, metrics, preprocessing
    >>> from streamsvm.online import BSGDClassifier
    >>> model = preprocessing.StandardScaler() | BSGDClassifier(lam=1e-3, budget=100)
    >>> evaluate.progressive_val_score(datasets.Phishing(), model, metrics.Accuracy())
    Accuracy: 88.55%
    """

    def __init__(
        self,
        lam: float = 1e-4,
        gamma: float | str = "scale",
        kernel: str = "rbf",
        degree: int = 3,
        coef0: float = 0.0,
        budget: int = 500,
        merge: int = 3,
        strategy: str | None = None,
        bias: bool = False,
        classes: Iterable[Hashable] | None = None,
        average: bool = False,
        max_features: int = MOST_FEATURES,
        max_classes: int = MOST_CLASSES,
        kernel_params: dict[str, Any] | None = None,
    ) -> None:
        self.lam, self.gamma, self.kernel, self.degree, self.coef0 = lam, gamma, kernel, degree, coef0
        self.budget, self.merge, self.strategy, self.bias = budget, merge, strategy, bias
        self.classes, self.average = classes, average
        self.max_features, self.max_classes = max_features, max_classes
        self.kernel_params = kernel_params
        self._config = self._checked()
        self._labels = Labels(classes or (), max_classes, closed=classes is not None)
        self._columns = Columns((), 0, max_features)
        self._spread = (
            Spread() if isinstance(gamma, str) and "gamma" in kernel_row(kernel).parameters else None
        )
        self._learner = BudgetLearner(
            kernel_of(self._config.kernel, 1, 1.0),  # until gamma is measured
            0,
            n_columns(len(self._labels)),
            BudgetOptions.of(self._config.bsgd, self._config.C, 1),  # which name lambda
        )
        self._calibration = OnlineCalibration()
        self._met: tuple[Any, ...] | None = None  # entries of the row predicted last, its decisions, W and F
        self._vanished = False

    def _checked(self) -> FitConfig:
        """The configuration. Raises ConfigError, by the names of the parameters."""
        strategy = self.strategy or ("sequence" if self.kernel in mergers() else "project")
        values: dict[str, Any] = {
            "solver": "bsgd",
            "kernel": {
                "name": self.kernel,
                "gamma": self.gamma,
                "degree": self.degree,
                "coef0": self.coef0,
            }
            | (self.kernel_params or {}),
            "bsgd": {
                "lam": self.lam,
                "budget": self.budget,
                "merge": self.merge,
                "strategy": strategy,
                "bias": self.bias,
                "average": self.average,
            },
        }
        for name, least in (("max_features", 1), ("max_classes", 2)):
            value = getattr(self, name)
            if not isinstance(value, int) or value < least:
                raise ConfigError(f"{name}: found {value!r}, expected a whole number at least {least}")
        try:
            return build_config((type(self).__name__, values))
        except ConfigError as error:
            text = str(error).replace("kernel.name", "kernel")
            raise ConfigError(text.replace("bsgd.", "").replace("kernel.", "")) from None

    @property
    def _multiclass(self) -> bool:
        return True

    @classmethod
    def _unit_test_params(cls) -> Iterator[dict[str, Any]]:
        yield {"lam": 1e-3, "budget": 20}

    def learn_one(self, x: Mapping[Any, Any], y: Any) -> None:
        """One step for the event x with label y. Raises DataError, a ValueError, and learns nothing, for a bad one."""
        self._labels.require([y])
        row = self._row(x, grow=True)
        code = self._code(y)
        decisions, W, F = self._meet(row)
        self._calibration.learn(decisions[None], np.array([code]))
        self._learner.learn_one(row, W, F, self._labels.targets[code])
        self._learnt(row[None])

    def predict_one(self, x: Mapping[Any, Any], **kwargs: Any) -> Any:
        """The label, or None before the first event is learnt."""
        if not self._labels:
            return None
        return self._labels[self._winner(self._meet(self._row(x, grow=False))[0])]

    def predict_proba_one(self, x: Mapping[Any, Any], **kwargs: Any) -> dict[Any, float]:
        """Probabilities by label, the largest that of `predict_one`."""
        if not self._labels:
            return {}
        decisions = self._meet(self._row(x, grow=False))[0]
        return dict(zip(self._labels, self._probabilities(decisions[None])[0].tolist(), strict=True))

    def decision_one(self, x: Mapping[Any, Any]) -> np.ndarray:
        """(1,) positive for the second label, or (k,) one for each label."""
        return self._meet(self._row(x, grow=False))[0].copy()

    def learn_many(self, X: pd.DataFrame, y: pd.Series) -> None:
        """One step for each row, in order: the same model as `learn_one` row by row, to rounding."""
        labels = y.tolist()
        if len(labels) != len(X):
            raise DataError(f"found {len(labels)} labels, expected one for each of {len(X)} rows")
        self._labels.require(labels)
        rows = self._columns.matrix(X, grow=True)
        self._make_room()
        new = [i for i, label in enumerate(labels) if label not in labels[:i] and label not in self._labels]
        # a label's column begins with its first row; gamma changes between rows; a mean decides row by row
        cuts = {0, len(labels), *new, *(i for i in range(len(labels)) if _is_doubled(self.n_seen + i))}
        for start, stop in pairwise(range(len(labels) + 1) if self.average else sorted(cuts)):
            codes = np.array([self._code(label) for label in labels[start:stop]])
            self._learn_rows(rows.take(slice(start, stop)), codes)

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
        """Steps and their time, budget maintenances and their weight degradation."""
        return self._learner.stats()

    @property
    def features(self) -> list[Any]:
        """Names in the order of their columns; there may be more columns than features, for those to come."""
        return list(self._columns.names)

    @property
    def n_columns(self) -> int:
        return self._learner.X.shape[1]

    @property
    def labels(self) -> list[Any]:
        """In the order in which they came."""
        return list(self._labels)

    @property
    def n_labels(self) -> int:
        return len(self._labels)

    @property
    def config(self) -> FitConfig:
        return self._config

    def allow(self, max_features: int | None = None, max_classes: int | None = None) -> None:
        """Other bounds from here on; None leaves one as it is."""
        self.max_features = self._columns.most = max_features or self.max_features
        self.max_classes = self._labels.most = max_classes or self.max_classes

    def check(self, x: Mapping[Any, Any], y: Any = None) -> None:
        """Raises DataError for an event that would not be learnt: a feature is no number, or a label one too many."""
        numbers(x)
        if y is not None:
            self._labels.require([y])

    def to_model(self, scaling: Scaling | None = None, **more: Any) -> BudgetModel:
        """The model as `fit` writes it, with all that learning needs to go on; and what a caller wants kept beside."""
        config = self._config.model_dump(mode="json")
        header = Header(
            self._learner.kernel,
            scaling or Scaling.none(self.n_columns),
            np.array(self._labels),
            config=config,
            calibration=self._calibration.calibration(len(self._labels.targets[0]))
            if self.n_labels > 1
            else None,
        )
        own = {
            "features": self.features,
            "labels": self.labels,
            "gamma": self.gamma,
            "spread": self._spread and self._spread.to_state(),
            "calibration": self._calibration.to_state(),
            "limits": {"max_features": self.max_features, "max_classes": self.max_classes},
        }
        return BudgetModel.of(header, self._learner, own | more)

    @classmethod
    def from_model(cls, model: BudgetModel) -> BSGDClassifier:
        """A learner that goes on where `to_model` left off, bit by bit; or where a fit ended.

        The features of a fit on rows without names are "0", "1" and so on.
        """
        stream = model.stream or {
            "features": model.feature_names or [str(i) for i in range(model.d)],
            "labels": model.classes.tolist(),
        }
        learner = cls(
            **as_arguments(model.header.kernel)
            | {name: stream[name] for name in ("gamma",) if name in stream},
            **asdict(model.options),
            **stream.get("limits", {}),
        )
        learner._columns = Columns(stream["features"], model.d, learner.max_features)
        learner._labels = Labels(stream["labels"], learner.max_classes, closed=False)
        learner._learner = model.learner()
        learner._calibration = OnlineCalibration.from_state(stream.get("calibration"))
        if learner._spread is not None:
            learner._spread = Spread(**stream["spread"])
        return learner

    def _meet(self, row: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Decisions, W and F of a row; those of `predict_one` serve the `learn_one` after it."""
        entries = row.tobytes()
        if self._met is None or self._met[0] != entries:
            self._met = (entries, *self._learner.decide_one(row))
        return self._met[1:]

    def _row(self, x: Mapping[Any, Any], *, grow: bool) -> np.ndarray:
        row = self._columns.row(x, grow=grow)
        self._make_room()
        return row

    def _make_room(self) -> None:
        """For features that were taken up."""
        if self._columns.width > self.n_columns:
            self._learner.widen(self._columns.width)
            self._met = None

    def _learn_rows(self, rows: Rows, codes: np.ndarray) -> None:
        """Rows between which nothing but the descent changes."""
        Y = self._labels.targets[codes]
        if self.average:
            decisions, W, F = self._learner.decide_one(rows.dense()[0])
            self._calibration.learn(decisions[None], codes)
            self._learner.learn_one(rows.dense()[0], W, F, Y[0])
        else:
            self._calibration.learn(self._learner.learn(rows, Y), codes)
        self._learnt(rows.dense())

    def _learnt(self, rows: np.ndarray) -> None:
        """What follows the steps of rows (m, d): gamma, and what is to be said."""
        self._met = None
        if self._spread is not None:
            self._spread.see(rows)
        if _is_doubled(self.n_seen):
            if self._spread is not None:
                self._learner.set_gamma(self._measured(self._spread))
            if self.n_seen >= SOONEST and not self._vanished:
                self._look_for_vanished()

    def _measured(self, spread: Spread) -> float:
        """gamma "scale" or "auto"; constant columns count as standardised ones."""
        d = max(len(self._columns.names), 1)
        kernel: Any = kernel_of(self._config.kernel, d, spread.variance() or d)
        return kernel.gamma

    def _look_for_vanished(self) -> None:
        """Warns once where support vectors are so far apart that each stands alone: any answer is then the bias."""
        apart = self._learner.nearest()
        if len(apart) and np.median(apart) > VANISHED:
            self._vanished = True
            warnings.warn(
                f"nearly all kernel values vanish: gamma is {self._learner.gamma:.3g}, and half of the support "
                f"vectors are more than {np.median(apart) ** 0.5:.3g} / sqrt(gamma) from any other; standardise the "
                'columns, or take gamma="scale"',
                stacklevel=2,
            )

    def _code(self, y: Any) -> int:
        """The label's number; a new one gets a column."""
        known = len(self._labels)
        code = self._labels.code(y)
        if code == known and code > 1:
            self._learner.add_column()
            self._met = None
        return code

    def _decisions(self, X: pd.DataFrame) -> np.ndarray:
        (A, bias), rows = self._learner.coefficients(), self._columns.matrix(X, grow=False)
        return self._learner.kernel.apply(rows, self._learner.supports(), A) + bias

    def _winner(self, decisions: np.ndarray) -> int:
        if self.n_labels == 1:
            return 0
        return int(decisions[0] > 0) if len(decisions) == 1 else int(np.argmax(decisions))

    def _probabilities(self, decisions: np.ndarray) -> np.ndarray:
        """(m, labels) from decisions (m, columns)."""
        if len(self._labels) == 1:
            return np.ones((len(decisions), 1))
        return self._calibration(decisions)


def _is_doubled(n: int) -> bool:
    """Whether n is 1, 2, 4, 8 ..."""
    return n > 0 and n & (n - 1) == 0
