"""What all batch estimators share: parameters become a configuration, `train` fits it, `predict` decides by it.

Rows are wrapped as stores by scikit-learn's rules (`estimators.inputs`); nothing is solved here. An estimator is an
`__init__`, a solver and a task, see `StoreEstimator`; classifiers, regressors and detectors of outliers share their
`fit`. Decisions on a dask array are a dask array, computed where its blocks are.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from copy import copy
from functools import partial
from importlib.util import find_spec
from itertools import combinations
from pathlib import Path
from typing import Any, Literal, Self, TypeVar, get_args

import numpy as np
from joblib import effective_n_jobs
from scipy import sparse
from sklearn.base import ClassifierMixin, OutlierMixin, RegressorMixin
from sklearn.utils import check_random_state
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets, is_multilabel
from sklearn.utils.validation import check_is_fitted

from streamsvm.config import FitConfig, build_config
from streamsvm.data.labels import label_texts, set_texts
from streamsvm.data.rows import Rows
from streamsvm.data.sources import computed, is_dask, is_dask_frame
from streamsvm.data.store import Store
from streamsvm.errors import ConfigError, ModelError
from streamsvm.estimators.clients import on_cluster
from streamsvm.estimators.inputs import Client, Costs, Data, Options, RandomState, StoreInputs, has_no_rows, in_memory
from streamsvm.estimators.recording import record_events, record_report
from streamsvm.estimators.searched import MULTI_CLASS, SEARCH, chosen_parameters, with_search
from streamsvm.events import STEPS, Event, Events, Record, Sink, warn
from streamsvm.kernels.base import ESTIMATOR_PARAMETERS
from streamsvm.models import LocalModel
from streamsvm.models.base import Model
from streamsvm.models.files import save_model
from streamsvm.options.probability import are_odds
from streamsvm.options.search import LOG_LOSS
from streamsvm.parallel.devices import computing_on, inheriting, open_device
from streamsvm.parallel.engine import Engine
from streamsvm.predict import decisions_of, predict_blocks
from streamsvm.private.sklearn import check_sample_weight
from streamsvm.progress.lines import shown
from streamsvm.solvers.catalogue import DEFAULT_SOLVER, options_class, section_of, solver_row
from streamsvm.tables.answers import as_frame, as_series, index_of
from streamsvm.tables.frames import read_once
from streamsvm.tasks import task_of
from streamsvm.texts.documented import fill
from streamsvm.texts.parameters import BATCH_METHODS
from streamsvm.train import train_in_memory

T = TypeVar("T")
Decide = Callable[[Any, Rows], np.ndarray]  # of a model and m rows, what is decided: (m, ...)
Container = Literal["default", "pandas", "polars"]
PREDICTION, DECISION, PAIR, PROBABILITY, INTERVAL = "prediction", "decision", "pair", "probability", "interval"

CHOICES = ("metric", "expected", "threshold")  # of the report of a fit that chooses, which are attributes
# options of a fit, for parameters of these names
PROBLEM = ("C", "nu", "tol", "epsilon", "quantile", "scale_targets", "interval")


def _has_callbacks(_: object) -> bool:
    if find_spec("sklearn.callback") is None:
        raise AttributeError("callbacks need scikit-learn 1.9 or newer")
    return True


def _callback_mixin() -> Any:
    """scikit-learn's class for callbacks (its 1.9 and later), imported when one of its methods is called: it brings
    rich."""
    from sklearn.callback import CallbackSupportMixin

    return CallbackSupportMixin


class StoreEstimator(StoreInputs):
    """An estimator over `train`; `model_` is what it learned.

    Parameters with the names of options, of the problem or of the solver, are these options. A subclass overrides
    `_options` and `_values` where they have other names or values.

    Attributes
    ----------
    _solver : str
    _task : str or None
        None: the default.
    """

    _solver = DEFAULT_SOLVER
    _task: str | None = None

    C: float | Sequence[float] | str
    tol: float
    kernel: str
    gamma: float | str
    degree: int
    coef0: float
    kernel_params: Options
    random_state: RandomState
    scale: str
    memory_limit: int | str | None
    n_jobs: int | None
    device: str = "cpu"
    client: Client = None
    verbose: int
    probability: bool | str = False
    threshold: str | None = None
    costs: Costs = None
    metric: str = "none"
    metric_params: Options = None
    search_params: Options = None

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        fill(cls, BATCH_METHODS)

    def _config(self, **overrides: Any) -> FitConfig:
        """The parameters, and options that replace theirs, as a configuration. Raises ConfigError, a ValueError, that
        names the wrong one."""
        values = self._common() | {"scale": self.scale, "kernel": self._kernel_values()} | self._values()
        return build_config((type(self).__name__, with_search(self, values | overrides)))

    def _common(self) -> dict[str, Any]:
        """The configuration's values of every estimator: how it computes, and whether there are probabilities."""
        method = self.probability
        if self.mark_gaps and self.gaps == "refuse":
            name = type(self).__name__
            raise ConfigError(f"{name}: mark_gaps needs missing values to be filled, found gaps 'refuse'")
        return {
            "gaps": self.gaps,
            "mark_gaps": self.mark_gaps,
            "seed": int(check_random_state(self.random_state).randint(2**31 - 1)),
            "memory_limit": self.memory_limit,
            "threads": threads(self.n_jobs),
            "device": self.device,
            "probability": {
                **({"method": method if isinstance(method, str) else "sigmoid"} if method else {}),
                "threshold": self.threshold,
                "costs": _costs(self.costs),
            },
        }

    def _kernel_values(self) -> dict[str, Any]:
        parameters = {name: getattr(self, name) for name in ESTIMATOR_PARAMETERS}
        return {"name": self.kernel} | parameters | (self.kernel_params or {})

    def _values(self) -> dict[str, Any]:
        """The configuration's values of this kind of estimator: its problem and its solver."""
        values = {"solver": self._solver, **self._named(PROBLEM), section_of(self._solver): self._options()}
        if self._task is not None:
            values["task"] = self._task
        parameters = self.get_params(deep=False)
        if "cache_size" in parameters:
            values["cache_size"] = f"{parameters['cache_size']}MiB"
        if "multi_class" in parameters:
            values["multiclass"] = one_of("multi_class", parameters["multi_class"], MULTI_CLASS)
        return values

    def _options(self) -> dict[str, Any]:
        """The solver's options."""
        return self._named(options_class(self._solver).model_fields)

    def _named(self, options: Collection[str]) -> dict[str, Any]:
        """The parameters that have names of these options."""
        return {name: value for name, value in self.get_params(deep=False).items() if name in options}

    def _learn(self, store: Store, config: FitConfig, *sinks: Sink) -> dict[str, Any]:
        """Trains `model_`; the report."""
        self.model_, report = self._run(partial(train_in_memory, store, config), store, config, *sinks)
        self.objective_, self.dual_gap_ = report["objective"], report["gap"]
        self._set_choices(report)
        self._set_attributes(store, config, report)
        return report

    def _set_choices(self, report: dict[str, Any]) -> None:
        """Sets what was chosen for `model_` and what to expect of it, if the fit chose; records the report."""
        record_report(report)
        for name in ("chosen", *CHOICES):
            self.__dict__.pop(f"{name}_", None)  # of a fit before
        self.__dict__.update((f"{name}_", report[name]) for name in CHOICES if name in report)
        if "metric" in report:
            self.chosen_ = chosen_parameters(self.model_)

    def _set_attributes(self, store: Store, config: FitConfig, report: dict[str, Any]) -> None:
        """Sets the attributes that only this kind of estimator learns."""

    def _run(self, fit: Callable[[Events], T], store: Store, config: FitConfig, *sinks: Sink) -> T:
        """The result of a fit of the store. Its warnings are Python's, its progress is shown as `verbose` says."""

        def run(events: Events) -> T:
            with record_events(events, store, config) as events, on_cluster(self.client, store, events):
                return fit(events)

        with shown(self.verbose, type(self).__name__) as lines:
            return _with_callbacks(self, lambda callbacks: run(Events(warn, *sinks, *lines, *callbacks)))

    @available_if(_has_callbacks)
    def set_callbacks(self, *callbacks: object) -> Self:
        """Sets callbacks that hear of each step of `fit`: `sklearn.callback.ProgressBar` and others.

        Needs scikit-learn 1.9. In the middle of a fit there is no estimator to score, and a wish to stop is not heard.
        """
        _callback_mixin().set_callbacks(self, *callbacks)
        return self

    @available_if(_has_callbacks)
    def _init_callback_context(self, *args: object, **options: object) -> Any:
        return _callback_mixin()._init_callback_context(self, *args, **options)

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
            raise AttributeError(f"coef_ is there for a linear kernel alone; the kernel is {expansion.kernel.name}")
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

    def set_output(self, *, predict: Container) -> Self:
        """Sets what answers for rows in memory are: arrays, or series and data frames with the index of the rows.

        A column of probabilities or decision values has the name of its class. Answers for a dask array stay a dask
        array.

        Raises ConfigError for another value, ImportError without the library.
        """
        one_of("predict", predict, {container: container for container in get_args(Container)})
        if predict != "default" and find_spec(predict) is None:
            raise ImportError(f"set_output(predict={predict!r}) needs {predict}: pip install {predict}")
        self._sklearn_output_config = {"predict": predict}  # scikit-learn's name: `clone` copies it
        return self

    def _by_blocks(self, X: Data, decide: Decide, name: str) -> Any:
        """(n, ...) decide(model, rows) of all rows, block by block, as `set_output` asks for it; of a dask array
        lazily, as a dask array. name: what is decided."""
        check_is_fitted(self)
        with computing_on(open_device(self.device)):
            if is_dask(X):
                return decide_lazily(self.model_, self._lazy_rows(X), inheriting(decide))
            X, index = read_once(X), index_of(X)
            if has_no_rows(X):
                return self._as_output(self._of_no_rows(X, decide), name, index)
            store, engine = self._store(X, reset=False), Engine(threads(self.n_jobs))
            blocks = predict_blocks(self.model_, store, engine=engine, decide=decide)
            return self._as_output(np.concatenate([decided for _, _, decided in blocks]), name, index)

    def _as_output(self, values: np.ndarray, name: str, index: Any) -> Any:
        container = getattr(self, "_sklearn_output_config", {}).get("predict", "default")
        if container == "default":
            return values
        if values.ndim == 1:
            return as_series(container, values, name=name, index=index)
        return as_frame(container, values, self._output_names(name), index=index)

    def _output_names(self, name: str) -> Sequence[Any]:
        """Of the columns of answers: the ends of intervals, classes, or their pairs."""
        if name == INTERVAL:
            return ("lower", "upper")
        classes = self.classes_.tolist()
        return [f"{a}, {b}" for a, b in combinations(classes, 2)] if name == PAIR else classes

    def _of_no_rows(self, X: Data, decide: Decide) -> np.ndarray:
        """(0, ...) what is decided of no rows, whose columns are checked."""
        self._checked(X, "no_validation", reset=False)
        return decide(self.model_, Rows(np.zeros((1, self.model_.d), np.float32)))[:0]


fill(StoreEstimator, BATCH_METHODS)  # subclasses do so when they are created


def _with_callbacks(estimator: Any, fit: Callable[[list[Sink]], T]) -> T:
    """Runs a fit with the estimator's callbacks, if it has any, as sinks of its events; its result."""
    if not (hasattr(estimator, "_skl_callbacks") or hasattr(estimator, "_parent_callback_ctx")):
        return fit([])
    from sklearn.callback import with_callbacks

    result: T = with_callbacks(_fit_as_tasks)(estimator, fit)
    return result


def _fit_as_tasks(estimator: Any, fit: Callable[[list[Sink]], T]) -> T:
    """Each step of the solver is a task of the fit, which begins and ends when the step was made."""
    context = estimator._init_callback_context(max_subtasks=None)

    def step_as_task(record: Record[Event]) -> None:
        if isinstance(record.event, STEPS):
            task = context.subcontext(task_name=record.event.kind)
            task.call_on_fit_task_begin(estimator=estimator)
            task.call_on_fit_task_end(estimator=estimator)

    context.call_on_fit_task_begin(estimator=estimator)
    result = fit([step_as_task])
    context.call_on_fit_task_end(estimator=estimator)
    return result


def one_of(parameter: str, value: object, options: Mapping[str, str]) -> str:
    """The option that a value of a parameter stands for. Raises ConfigError for an unknown value."""
    if not isinstance(value, str) or value not in options:
        raise ConfigError(f"{parameter}: found {value!r}, expected {' or '.join(map(repr, options))}")
    return options[value]


def _costs(costs: Any) -> Any:
    """Costs by pairs of labels as tables of their texts; the configuration judges any other value."""
    if not isinstance(costs, dict) or not all(isinstance(pair, tuple) and len(pair) == 2 for pair in costs):
        return costs
    tables: dict[str, dict[str, Any]] = {}
    for pair, cost in costs.items():
        true, predicted = (str(label_texts(np.asarray([label]))[0]) for label in pair)
        tables.setdefault(true, {})[predicted] = cost
    return tables


def labels_of(classes: np.ndarray, model: Model, rows: Rows) -> np.ndarray:
    return classes[model.codes_of(*model.answers(rows))]


def _probabilities(model: Any, rows: Rows) -> np.ndarray:
    return model.answers(rows)[1]


def _set_decisions(k: int, model: Model, rows: Rows) -> np.ndarray:
    """(m, k) decision values, -1 of columns that were 0 in all rows: labels that the model does not know."""
    return _spread(k, model, model.decision_function(rows).reshape(len(rows), -1), -1.0)


def _set_indicators(no_indicators: np.ndarray, model: Model, rows: Rows) -> np.ndarray:
    """(m, k) of 0 and 1, in the type of the training labels."""
    k, codes = no_indicators.shape[1], model.codes_of(*model.answers(rows))
    return _spread(k, model, codes, False).astype(no_indicators.dtype)


def _logarithms(decide: Decide, model: Any, rows: Rows) -> np.ndarray:
    with np.errstate(divide="ignore"):
        return np.log(decide(model, rows))


def _set_probabilities(k: int, model: Any, rows: Rows) -> np.ndarray:
    return _spread(k, model, model.answers(rows)[1], 0.0)


def _spread(k: int, model: Model, values: np.ndarray, unknown: float) -> np.ndarray:
    """(m, k) values of all columns, from those of the labels that the model knows."""
    out = np.full((len(values), k), unknown)
    out[:, model.classes.astype(np.intp)] = values
    return out


def _wants_probabilities(estimator: StoreClassifier) -> bool:
    has_ensemble = estimator.ensemble is not None and estimator.ensemble > 1
    implies = estimator.costs is not None or _by_log_loss(estimator)
    if not (estimator.probability or implies or has_ensemble or are_odds(estimator.loss)):
        raise AttributeError(f"predict_proba is there with {estimator._probable_with} only")
    return True


def _by_log_loss(estimator: StoreClassifier) -> bool:
    """Whether a search compares log losses, so that the model has probabilities."""
    search = getattr(estimator, "search_params", None) or {}
    return LOG_LOSS in (getattr(estimator, "scoring", None), search.get("scoring"))


class StoreClassifier(ClassifierMixin, StoreEstimator):
    """A classifier of one label a row, or, if y is an indicator (n, k) of 0 and 1, of any number of k labels, which are
    learned as sets of the numbers of columns."""

    class_weight: Any
    loss = "hinge"
    ensemble: int | None = None
    _probable_with = "probability=True or costs"
    _like: np.ndarray | None = None  # (0, k) of the type of y, where `fit` was given indicators (n, k)

    def fit(self, X: Data, y: Data = None, sample_weight: Data = None, groups: Data = None) -> Self:
        """Trains on all rows.

        Raises ValueError for bad data or parameters, MemoryError if `memory_limit` is too small.
        """
        y = computed(y) if is_dask(y) else y
        if not sparse.issparse(y) and is_multilabel(y):
            self._fit_sets(X, np.asarray(y), sample_weight, groups)
            return self
        config = self._config()
        store, y = self._training_store(X, y, sample_weight, groups=groups)
        classes = classes_of(y, store.sample_weight)
        check_classification_targets(y)
        config = config.model_copy(update={"class_weight": self._class_weight(classes, y, store)})
        self._learn(store, config)
        self.classes_, self._like = classes, None
        return self

    def _fit_sets(self, X: Data, y: np.ndarray, sample_weight: Data, groups: Data) -> None:
        weight = None if self.class_weight == SEARCH else self.class_weight
        config = self._config(task="multilabel", class_weight=weight)
        if not np.isin(y, (0, 1)).all():
            raise ValueError(f"y has shape {y.shape}, a column for each label; expected 0 and 1 alone")
        labels = np.arange(y.shape[1])
        sets = set_texts(y.astype(bool), labels.astype(str))
        store, texts = self._training_store(X, sets, sample_weight, groups=groups)
        classes_of(texts, store.sample_weight)
        self._learn(store, config)
        self.classes_, self._like = labels, y[:0]

    def decision_function(self, X: Data) -> np.ndarray:
        """(n,) for two classes, positive for classes_[1], else (n, n_classes). (n, k) for k labels a row."""
        decide = decisions_of if self._like is None else partial(_set_decisions, self._like.shape[1])
        return self._by_blocks(X, decide, DECISION)

    def predict(self, X: Data) -> np.ndarray:
        """(n,) labels, or (n, k) of 0 and 1 if `fit` had such.

        With `threshold` those of decision values above it, with `probability` the most probable, with `costs` those
        with the smallest expected cost, else those of the largest decision value or vote.
        """
        check_is_fitted(self)
        if self._like is not None:
            return self._by_blocks(X, partial(_set_indicators, self._like), PREDICTION)
        return self._by_blocks(X, partial(labels_of, self.classes_), PREDICTION)

    @available_if(_wants_probabilities)
    def predict_proba(self, X: Data) -> np.ndarray:
        """(n, n_classes) probabilities; with `probability` only. If rows have several labels, (n, k) of each by itself.

        Without `threshold`, `costs` and `class_weight` the largest is that of the label from `predict`.
        """
        return self._by_blocks(X, self._decide_probabilities(), PROBABILITY)

    @available_if(_wants_probabilities)
    def predict_log_proba(self, X: Data) -> np.ndarray:
        """(n, n_classes) logarithms of `predict_proba`."""
        return self._by_blocks(X, partial(_logarithms, self._decide_probabilities()), PROBABILITY)

    def _decide_probabilities(self) -> Decide:
        return _probabilities if self._like is None else partial(_set_probabilities, self._like.shape[1])

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        takes_sets = any(task_of(name).in_sets for name in solver_row(self._solver).tasks)
        tags.classifier_tags.multi_label = takes_sets and getattr(self, "nu", None) is None
        return tags

    def score(self, X: Data, y: Data = None, sample_weight: Data = None) -> float:
        """Mean accuracy."""
        if isinstance(X, Store) and y is None:
            y, sample_weight = X.y, X.sample_weight if sample_weight is None else sample_weight
        from sklearn.metrics import accuracy_score  # loads much

        predicted = np.asarray(in_memory(self.predict(X)))
        return float(accuracy_score(in_memory(y), predicted, sample_weight=sample_weight))

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

    _task = "regress"

    interval: float | None

    def fit(self, X: Data, y: Data = None, sample_weight: Data = None, groups: Data = None) -> Self:
        """Trains on all rows.

        Raises ValueError for bad data or parameters, MemoryError if `memory_limit` is too small.
        """
        config = self._config()
        store, _ = self._training_store(X, y, sample_weight, groups=groups)
        self._learn(store, config)
        return self

    def predict(self, X: Data) -> np.ndarray:
        """(n,) values."""
        return self._by_blocks(X, decisions_of, PREDICTION)

    @available_if(_wants_intervals)
    def predict_interval(self, X: Data, level: float | None = None) -> np.ndarray:
        """(n, 2) lower and upper ends of intervals that contain y with probability `level`; with `interval` only.

        Raises ModelError, a ValueError, for a level too high for the number of held-out rows.
        """
        check_is_fitted(self)
        self.model_.intervals.half_width(level)
        return self._by_blocks(X, partial(_ends, level), INTERVAL)


class OutlierDetector(OutlierMixin, StoreEstimator):
    """Learns from rows alone. Decision values are scores minus `offset_`; below 0 a row is an outlier."""

    _task = "oneclass"

    offset_: float

    def fit(self, X: Data, y: Data = None, sample_weight: Data = None) -> Self:
        """Trains on all rows. y, and labels of a Store, are ignored.

        Raises ValueError for bad data or parameters, MemoryError if `memory_limit` is too small.
        """
        config = self._config()
        self._learn(self._unlabelled_store(X, sample_weight), config)
        model = self.model_
        self.offset_ = 0.0 if isinstance(model, LocalModel) else -float(model.intercept[0])
        return self

    def decision_function(self, X: Data) -> np.ndarray:
        """(n,) decision values, below 0 for outliers."""
        return self._by_blocks(X, decisions_of, DECISION)

    def score_samples(self, X: Data) -> np.ndarray:
        """(n,) decision values plus `offset_`. Larger: more like the training rows."""
        return self.decision_function(X) + self.offset_

    def predict(self, X: Data) -> np.ndarray:
        """(n,) 1 for inliers, -1 for outliers."""
        check_is_fitted(self)
        return self._by_blocks(X, _own_labels, PREDICTION)

    def _unlabelled_store(self, X: Data, sample_weight: Data) -> Store:
        if isinstance(X, Store):
            if sample_weight is not None:
                raise ValueError("X is a Store, which brings its own sample_weight; found it given as well")
            if self.category:
                raise ValueError("X is a Store, which says what is encoded: give category to ingest")
            return self._store(X, reset=True)
        X = self._checked(X, "no_validation", reset=True)[0]
        if sample_weight is not None:
            sample_weight = in_memory(sample_weight)
            sample_weight = check_sample_weight(sample_weight, sample_weight if is_dask_frame(X) else X)
        names, category = self._names(), self._categories()
        return self._new_store(X, sample_weight=sample_weight, feature_names=names, category=category)


def _own_labels(model: Model, rows: Rows) -> np.ndarray:
    return labels_of(model.classes, model, rows)


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


def decide_lazily(model: Model, X: Data, decide: Decide) -> Any:
    """decide(model, rows) of each block of a dask array (n, d). The model is one task of the graph."""
    from dask import delayed

    of_none = decide(model, Rows(np.zeros((1, X.shape[1]), np.float32)))[:0]
    X = X.rechunk({1: -1})
    shape: dict[str, Any] = {"drop_axis": 1} if of_none.ndim == 1 else {"chunks": (X.chunks[0], of_none.shape[1:])}
    shared = {"decide": decide, "of_none": of_none, "model": delayed(model, traverse=False)}
    return X.map_blocks(_of_block, **shared, dtype=of_none.dtype, meta=of_none, **shape)


def _of_block(block: Any, decide: Decide, of_none: np.ndarray, model: Model) -> np.ndarray:
    if not block.shape[0]:
        return of_none
    store = Store.from_arrays(block)
    return np.concatenate([_of_rows(store, start, stop, decide, model) for start, stop in store.blocks()])


def _of_rows(store: Store, start: int, stop: int, decide: Decide, model: Model) -> np.ndarray:
    return decide(model, store.read_finite(start, stop, gaps=model.takes_gaps))
