"""What all batch estimators share: scikit-learn's rules for input, arrays wrapped as stores, nothing solved here.

Answers for the rows of a dask array, as a dask array: made where its blocks are, when somebody asks for them.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from copy import copy
from functools import partial
from pathlib import Path
from typing import Any, Self, TypeVar

import numpy as np
from joblib import effective_n_jobs
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.utils import check_random_state
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted

from streamsvm.config import FitConfig, build_config
from streamsvm.data.finite import require_finite
from streamsvm.data.labels import label_texts
from streamsvm.data.rows import Rows
from streamsvm.data.sources import is_dask
from streamsvm.data.store import Store
from streamsvm.errors import ConfigError, ModelError
from streamsvm.estimators.callbacks import CallbackSupport, watched
from streamsvm.estimators.clients import joined
from streamsvm.estimators.inputs import StoreInputs, has_no_rows, in_memory
from streamsvm.estimators.recording import end_with, noted
from streamsvm.estimators.searched import SEARCH, chosen, with_search
from streamsvm.events import Events, Sink, warn
from streamsvm.kernels.options import ESTIMATOR_PARAMETERS
from streamsvm.models.calibration import are_odds
from streamsvm.models.files import save_model
from streamsvm.parallel.engine import Engine
from streamsvm.predict import decisions_of, predict_blocks
from streamsvm.progress.shown import shown
from streamsvm.tables.streams import read_once
from streamsvm.texts.documented import fill
from streamsvm.texts.parameters import BATCH_METHODS
from streamsvm.train import train_in_memory

T = TypeVar("T")
CHOICES = ("metric_", "chosen_", "expected_", "threshold_")  # attributes of a fit that chooses


class StoreEstimator(CallbackSupport, StoreInputs):
    """An estimator over `train`: `_values` are its parameters as a configuration, `model_` is what it learned."""

    kernel: str
    kernel_params: dict[str, Any] | None
    random_state: Any
    scale: str
    memory_limit: int | str | None
    n_jobs: int | None
    client: Any = None
    verbose: int
    probability: bool | str = False
    threshold: str | None = None
    costs: Any = None
    metric: str = "none"
    metric_params: dict[str, Any] | None = None
    search_params: dict[str, Any] | None = None

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        fill(cls, BATCH_METHODS)

    @abstractmethod
    def _values(self) -> dict[str, Any]:
        """The configuration's values that are this estimator's own."""

    def _learn(self, store: Store, config: FitConfig, *sinks: Sink) -> dict[str, Any]:
        """Trains `model_`; the report."""
        self.model_, report = self._heard(partial(train_in_memory, store, config), store, config, *sinks)
        self.objective_, self.dual_gap_ = report["objective"], report["gap"]
        self._tell_choices(report)
        return report

    def _tell_choices(self, report: dict[str, Any]) -> None:
        """What was chosen for `model_`, and what to expect of it; of a fit that chooses. The report is recorded, too,
        where that is asked for."""
        end_with(report)
        for name in CHOICES:
            self.__dict__.pop(name, None)  # of a fit before
        if "metric" in report:
            self.metric_, self.chosen_ = report["metric"], chosen(self.model_)
        if "expected" in report:
            self.expected_ = report["expected"]
        if "threshold" in report:
            self.threshold_ = report["threshold"]

    def _heard(self, fit: Callable[[Events], T], store: Store, config: FitConfig, *sinks: Sink) -> T:
        """What a fit of the store returns. Its warnings are Python's, its progress is shown as `verbose` says."""

        def there(events: Events) -> T:
            with noted(events, store, config) as events, joined(self.client, store, events):
                return fit(events)

        with shown(self.verbose, type(self).__name__) as lines:
            return watched(self, lambda callbacks: there(Events(warn, *sinks, *lines, *callbacks)))

    def __getstate__(self) -> dict[str, Any]:
        """Without the client, which is of this process."""
        state = super().__getstate__()
        return state | ({"client": False if self.client is False else None} if "client" in state else {})

    def __sklearn_clone__(self) -> Self:
        """With the same client: there is no copy of one."""
        clone: Self = super(StoreEstimator, copy(self)).__sklearn_clone__()
        if "client" in vars(self):
            clone.client = self.client
        return clone

    @property
    def feature_importances_(self) -> np.ndarray:
        """(d,) what each column counts for, see `explain.importances`; their sum is 1.

        By the metric where one was learned, else at the support vectors.
        Raises AttributeError where rows are kernel values, or several partitions decide a row together.
        """
        check_is_fitted(self)
        from streamsvm.explain.importances import importances  # fits do not need it

        try:
            return importances(self.model_).values
        except ModelError as error:
            raise AttributeError(f"feature_importances_: {error}") from None

    @property
    def coef_(self) -> np.ndarray:
        """(n_problems, d) weights of the features as they were given, whatever the scaling, of a linear kernel.

        Decision values are X @ coef_.T + intercept_; of pairs of more than two classes positive for the first, as in
        `SVC`. Raises AttributeError for other kernels, and where several partitions decide.
        """
        return self._linear()[0]

    def _linear(self) -> tuple[np.ndarray, np.ndarray]:
        """`coef_` and `intercept_` of a linear kernel. Raises AttributeError."""
        check_is_fitted(self)
        try:
            expansion = self.model_.as_expansion()
        except ModelError as error:
            raise AttributeError(f"coef_: {error}") from None
        if not expansion.kernel.is_linear:
            raise AttributeError(
                f"coef_ is there for a linear kernel alone; the kernel is {expansion.kernel.name}"
            )
        coef, intercept = expansion.weights()
        is_of_pairs = self.model_.is_pairwise and len(self.model_.classes) > 2
        return (-coef, -intercept) if is_of_pairs else (coef, intercept)

    def _intercept(self, learned: np.ndarray) -> np.ndarray:
        """That of rows as they were given for a linear kernel, else the learned one, of scaled rows."""
        return self._linear()[1] if self.model_.as_expansion().kernel.is_linear else learned

    def save(self, path: str | Path) -> None:
        """Writes `model_` to a folder that `streamsvm.load_model` and the command line read. Raises OSError."""
        check_is_fitted(self)
        save_model(self.model_, path)

    def _answers(self, X: Any, ask: Callable[[Any, Rows], np.ndarray]) -> Any:
        """(n, ...) what ask(model, rows) gives for all rows; of a dask array lazily, as a dask array."""
        check_is_fitted(self)
        if is_dask(X):
            return lazy_answers(self.model_, self._lazy_rows(X), ask)
        X = read_once(X)
        if has_no_rows(X):
            return self._no_answers(X, ask)
        store, engine = self._store(X, reset=False), Engine(threads(self.n_jobs))
        blocks = predict_blocks(self.model_, store, engine=engine, ask=ask)
        return np.concatenate([answer for _, _, answer in blocks])

    def _no_answers(self, X: Any, ask: Callable[[Any, Rows], np.ndarray]) -> np.ndarray:
        """(0, ...) answers for no rows, whose columns are checked."""
        self._checked(X, "no_validation", reset=False)
        return ask(self.model_, Rows(np.zeros((1, self.model_.d), np.float32)))[:0]

    def _config(self, **own: Any) -> FitConfig:
        """The parameters, and what is not one, as a configuration. Raises ConfigError, a ValueError, naming the wrong
        one."""
        values = (
            self._common() | {"scale": self.scale, "kernel": self._kernel_values()} | self._values() | own
        )
        return build_config((type(self).__name__, with_search(self, values)))

    def _common(self) -> dict[str, Any]:
        """The configuration's values of every estimator: how it computes, and whether there are probabilities."""
        given = self.probability
        if self.mark_gaps and self.gaps == "refuse":
            name = type(self).__name__
            raise ConfigError(f"{name}: mark_gaps needs missing values to be filled, found gaps 'refuse'")
        return {
            "gaps": self.gaps,
            "mark_gaps": self.mark_gaps,
            "seed": int(check_random_state(self.random_state).randint(2**31 - 1)),
            "memory_limit": self.memory_limit,
            "threads": threads(self.n_jobs),
            "probability": {
                "method": given if isinstance(given, str) else "sigmoid" if given else None,
                "threshold": self.threshold,
                "costs": _costs(self.costs),
            },
        }

    def _kernel_values(self) -> dict[str, Any]:
        own = {name: getattr(self, name) for name in ESTIMATOR_PARAMETERS}
        return {"name": self.kernel} | own | (self.kernel_params or {})


for shared in (CallbackSupport, StoreEstimator):
    fill(shared, BATCH_METHODS)  # subclasses do so when they are created


def _costs(given: Any) -> Any:
    """Costs by pairs of labels as tables of their texts; the configuration judges what else is given."""
    if not isinstance(given, dict) or not all(isinstance(pair, tuple) and len(pair) == 2 for pair in given):
        return given
    tables: dict[str, dict[str, Any]] = {}
    for pair, cost in given.items():
        true, predicted = (_label_text(label) for label in pair)
        tables.setdefault(true, {})[predicted] = cost
    return tables


def _label_text(label: Any) -> str:
    return str(label_texts(np.asarray([label]))[0])


def labels_of(classes: np.ndarray, model: Any, rows: Rows) -> np.ndarray:
    return classes[model.codes_of(*model.answers(rows))]


def _probabilities(model: Any, rows: Rows) -> np.ndarray:
    return model.answers(rows)[1]


def _wants_probabilities(estimator: StoreClassifier) -> bool:
    if not estimator._is_probable:
        raise AttributeError(f"predict_proba is there with {estimator._probable_with} only")
    return True


class StoreClassifier(ClassifierMixin, StoreEstimator):
    """A classifier over `train`."""

    class_weight: Any
    loss = "hinge"
    _probable_with = "probability=True"

    @property
    def _is_probable(self) -> bool:
        """Whether it has, or will have, probabilities."""
        return bool(self.probability) or are_odds(self.loss)

    def _train(self, X: Any, y: Any, sample_weight: Any, *sinks: Sink, groups: Any = None) -> dict[str, Any]:
        """Checks, trains, and returns the report."""
        config = self._config()
        store, y = self._training_store(X, y, sample_weight, groups=groups)
        classes = classes_of(y, store.sample_weight)
        check_classification_targets(y)
        config = config.model_copy(update={"class_weight": self._class_weight(classes, y, store)})
        report = self._learn(store, config, *sinks)
        self.classes_ = classes
        return report

    def decision_function(self, X: Any) -> np.ndarray:
        """(n,) decision values for two classes, positive for classes_[1], else (n, n_classes)."""
        return self._answers(X, decisions_of)

    def predict(self, X: Any) -> np.ndarray:
        """(n,) labels.

        With `threshold` those of decision values above it, with `probability` the most probable, with `costs` those
        with the smallest expected cost, else those of the largest decision value or vote.
        """
        check_is_fitted(self)
        return self._answers(X, partial(labels_of, self.classes_))

    @available_if(_wants_probabilities)
    def predict_proba(self, X: Any) -> np.ndarray:
        """(n, n_classes) probabilities; with `probability` only. If rows have several labels, (n, k) of each by itself.

        Without `threshold`, `costs` and `class_weight` the largest is that of the label from `predict`.
        """
        return self._answers(X, self._probable())

    def _probable(self) -> Callable[[Any, Rows], np.ndarray]:
        return _probabilities

    @available_if(_wants_probabilities)
    def predict_log_proba(self, X: Any) -> np.ndarray:
        """(n, n_classes) logarithms of `predict_proba`."""
        with np.errstate(divide="ignore"):
            return np.log(self.predict_proba(X))

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Mean accuracy."""
        if isinstance(X, Store) and y is None:
            y, sample_weight = X.y, X.sample_weight if sample_weight is None else sample_weight
        from sklearn.metrics import accuracy_score  # loads much

        return float(accuracy_score(in_memory(y), in_memory(self.predict(X)), sample_weight=sample_weight))

    def _class_weight(self, classes: np.ndarray, y: np.ndarray, store: Store) -> Any:
        """class_weight by label text, as the configuration keeps it, checked by scikit-learn's rules."""
        if isinstance(self.class_weight, str) and self.class_weight == SEARCH:
            return None
        if self.class_weight is None or isinstance(self.class_weight, str):
            return self._config_weight(self.class_weight)
        weights = compute_class_weight(self.class_weight, classes=classes, y=y)
        texts = label_texts(store.classes.values).tolist()
        return self._config_weight(dict(zip(texts, weights, strict=True)))

    def _config_weight(self, weight: Any) -> Any:
        return build_config((type(self).__name__, {"class_weight": weight})).class_weight


def _ends(level: float | None, model: Any, rows: Rows) -> np.ndarray:
    return model.intervals.around(model.decision_function(rows), level)


def _wants_intervals(estimator: StoreRegressor) -> bool:
    if estimator.interval is None:
        raise AttributeError("predict_interval is there with interval=0.9, or another level, only")
    return True


class StoreRegressor(RegressorMixin, StoreEstimator):
    """A regressor over `train`."""

    interval: float | None

    def predict(self, X: Any) -> np.ndarray:
        """(n,) values."""
        return self._answers(X, decisions_of)

    @available_if(_wants_intervals)
    def predict_interval(self, X: Any, level: float | None = None) -> np.ndarray:
        """(n, 2) lower and upper ends of intervals that contain y with probability `level`; with `interval` only.

        Raises ModelError, a ValueError, for a level too high for the number of held-out rows.
        """
        check_is_fitted(self)
        self.model_.intervals.half_width(level)
        return self._answers(X, partial(_ends, level))


def threads(n_jobs: int | None) -> int:
    """joblib's meaning of n_jobs, with None as -1: one thread inside a parallel worker, else every core."""
    return effective_n_jobs(-1 if n_jobs is None else n_jobs)


def classes_of(y: np.ndarray, weight: np.ndarray | None) -> np.ndarray:
    """The classes. Raises ValueError, in the words of SVC, unless two are left."""
    classes = np.unique(y)
    if len(classes) < 2:
        raise ValueError(f"The number of classes has to be greater than one; got {len(classes)} class")
    if weight is None:
        return classes
    left = np.unique(y[weight > 0])
    if len(left) == 0:
        raise ValueError("Invalid input - all samples have zero or negative weights.")
    if len(left) == 1:
        raise ValueError("Invalid input - all samples with positive weights belong to the same class.")
    return classes


Ask = Callable[[Any, Rows], np.ndarray]


def lazy_answers(model: Any, X: Any, ask: Ask) -> Any:
    """What ask(model, rows) gives for each block of a dask array (n, d). The model is one task of the graph."""
    from dask import delayed

    like = ask(model, Rows(np.zeros((1, X.shape[1]), np.float32)))[:0]
    X = X.rechunk({1: -1})
    shape: dict[str, Any] = {"drop_axis": 1} if like.ndim == 1 else {"chunks": (X.chunks[0], like.shape[1:])}
    once = delayed(model, traverse=False)
    return X.map_blocks(_answered, ask=ask, like=like, model=once, dtype=like.dtype, meta=like, **shape)


def _answered(block: Any, ask: Ask, like: np.ndarray, model: Any) -> np.ndarray:
    if not block.shape[0]:
        return like
    store = Store.from_arrays(block)
    return np.concatenate([_of_rows(store, start, stop, ask, model) for start, stop in store.blocks()])


def _of_rows(store: Store, start: int, stop: int, ask: Ask, model: Any) -> np.ndarray:
    rows = store.read(start, stop)
    require_finite(store, rows, start, gaps=model.takes_gaps)
    return ask(model, rows)
