"""ALFPGMSVC and ALFPGMSVR: LIBSVM's problems, exactly, under the names of scikit-learn's SVC and SVR."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import numpy as np
from scipy import sparse
from sklearn.utils.validation import check_is_fitted

from streamsvm.data.rows import Rows
from streamsvm.data.store import Store
from streamsvm.errors import ConfigError
from streamsvm.estimators.base import StoreEstimator, StoreRegressor
from streamsvm.estimators.dcsvm import multiclass_of
from streamsvm.estimators.multilabel import SetClassifier
from streamsvm.estimators.support_vectors import RegressionVectors, SupportVectors
from streamsvm.models import ExpansionModel, KernelModel

ALFPGM_OPTIONS = (
    "pairs",
    "subproblem",
    "mu",
    "min_alpha_check",
    "min_alpha_opt",
    "max_alpha_opt",
    "delta_alpha",
    "shrinking",
)


Values = Callable[[Any, Any], Any]  # of a kernel, (m, q), of m rows with q rows


class _ALFPGM(StoreEstimator):
    """What classification and regression share."""

    kernel: str | Values  # type: ignore[assignment]
    C: float | str
    tol: float
    cache_size: float
    max_iter: int
    shape_fit_: tuple[int, int]

    def _values(self) -> dict[str, Any]:
        options = {name: getattr(self, name) for name in ALFPGM_OPTIONS}
        options["max_iter"] = None if self.max_iter == -1 else self.max_iter
        return {
            "solver": "alfpgm",
            "C": self.C,
            "tol": self.tol,
            "cache_size": f"{self.cache_size}MiB",
            "alfpgm": options,
        } | ({"kernel": {"name": "precomputed"}} if callable(self.kernel) else {})

    def save(self, path: str | Path) -> None:
        if callable(self.kernel):
            raise ConfigError(
                "kernel is a function, which no model keeps; save one of kernel='precomputed', whose rows are values"
            )
        super().save(path)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.pairwise = self.kernel == "precomputed"
        return tags

    def _store(self, X: Any, *, reset: bool) -> Store:
        if callable(self.kernel) and isinstance(X, Store):
            raise ConfigError("kernel is a function, which takes rows in memory; found a Store")
        return super()._store(X, reset=reset)

    def _checked(self, X: Any, y: Any, *, reset: bool) -> tuple[Any, Any]:
        """A function's values with the rows of fit take the place of X, as in `SVC`."""
        if callable(self.kernel):
            if reset:
                self._rows = X
            X = np.asarray(self.kernel(X, self._rows))
        return super()._checked(X, y, reset=reset)

    def _told(self, store: Store, report: dict[str, Any]) -> None:
        self.n_iter_ = np.array(report["rounds"], np.int32)
        self.fit_status_ = int(not report["converged"])
        self.shape_fit_ = (store.n, store.d)

    @property
    def coef_(self) -> np.ndarray | sparse.csr_array:
        """Weights of the features, one row for each problem. Raises AttributeError unless the kernel is linear."""
        if self.kernel != "linear":
            raise AttributeError(f"coef_ is there with kernel='linear' alone; the kernel is {self.kernel!r}")
        check_is_fitted(self)
        X: Any = self.model_.support.X.astype(np.float64)
        return (X.T @ self._coefficients()).T


class ALFPGMSVC(_ALFPGM, SupportVectors, SetClassifier):
    """Support vector classification with a bias, exactly LIBSVM's problem, many pairs at a time; for code with `SVC`.

    Minimises 1/2 a'Qa - e'a over 0 <= a_i <= C_i, y'a = 0 for each pair of classes, or each class and the rest
    (Aregbesola and Griva 2022); or for each of the labels that a y (n, k) of 0 and 1 has. It is fastest on rows that
    fit in memory.

    Parameters
    ----------
    C, kernel, degree, gamma, coef0, shrinking, tol, cache_size, class_weight, max_iter, decision_function_shape, \
break_ties, random_state : as in `SVC`
        kernel is also "laplacian", "matern" or "cauchy", see `DCSVC`; "precomputed" and functions, on data in memory,
        without probability; coef0 of poly is at least 0; tol bounds m - M as
        LIBSVM's does; max_iter counts working sets, -1 for no limit; cache_size is MB, used for rows of 128 nonzeros
        and more. Nothing is random.
    kernel_params : dict or None, default=None
        Further options of the kernel: {"nu": 2.5} of matern, 0.5, 1.5 (default) or 2.5.
    multi_class : {"ovo", "ovr"}, default="ovo"
        Of more than two classes: a problem for each pair, as `SVC`, or for each class against the rest, of which the
        largest decision value wins; see `DCSVC` for the attributes then.
    probability : bool, "sigmoid" or "isotonic", default=False
        Cross-validate to calibrate: five more fits. `predict_proba` is there then, and `predict` gives the class of the
        largest probability. True: sigmoid.
    threshold, costs : as in `DCSVC`
    metric, metric_params, search_params, scale, gaps, memory_limit, n_jobs, client, verbose : as in `DCSVC`
        C, kernel, gamma, scale and metric may be "search".
    pairs : int, default=500
        Pairs p that join a working set; with free support vectors of the last one it has up to 4 p rows.
    subproblem : {"pairs", "fpg"}, default="pairs"
        How working sets are solved: two-variable steps, or the paper's augmented Lagrangian with fast projected
        gradient, which is slower.
    mu : float, default=0.1
        Scaling parameter of the augmented Lagrangian.
    min_alpha_check : int or None, default=2000
        Rows among which partners are sought (None: all).
    min_alpha_opt, max_alpha_opt, delta_alpha : int or None, int or None, float, default=None, None, 1e-6
        Working sets after which a row at a bound, or one that moved by less than delta_alpha, is left out, and after
        which any row is; None: never. They come back before the last check of optimality. The paper takes 5 and 20.

    Attributes
    ----------
    classes_, class_weight_, coef_, dual_coef_, feature_names_in_, fit_status_, intercept_, n_features_in_, n_iter_, \
n_support_, support_, support_vectors_, shape_fit_ : as in `SVC`
        n_iter_ counts working sets.
    chosen_, expected_, metric_ : dict
        Where something is "search", or with a metric: as in `DCSVC`.
    model_ : KernelModel or, with multi_class "ovr", ExpansionModel
        The trained model; `save` writes it, `streamsvm.load_model` reads it.
    objective_, dual_gap_ : float
        Dual objective, and primal minus dual objective, summed over problems.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from streamsvm import ALFPGMSVC
    >>> X, y = load_digits(return_X_y=True)
    >>> svm = ALFPGMSVC(C=10).fit(X[:1500], y[:1500])
    >>> round(svm.score(X[1500:], y[1500:]), 2)
    0.95
    """

    def __init__(
        self,
        *,
        C: float | str = 1.0,
        kernel: str | Values = "rbf",
        degree: int = 3,
        gamma: float | str = "scale",
        coef0: float = 0.0,
        kernel_params: dict[str, Any] | None = None,
        shrinking: bool = True,
        tol: float = 1e-3,
        cache_size: float = 200,
        class_weight: Any = None,
        probability: bool | str = False,
        threshold: str | None = None,
        costs: Any = None,
        metric: str = "none",
        metric_params: dict[str, Any] | None = None,
        search_params: dict[str, Any] | None = None,
        max_iter: int = -1,
        decision_function_shape: str = "ovr",
        break_ties: bool = False,
        multi_class: str = "ovo",
        random_state: Any = None,
        pairs: int = 500,
        subproblem: str = "pairs",
        mu: float = 0.1,
        min_alpha_check: int | None = 2000,
        min_alpha_opt: int | None = None,
        max_alpha_opt: int | None = None,
        delta_alpha: float = 1e-6,
        scale: str = "none",
        gaps: str | None = None,
        memory_limit: int | str | None = None,
        n_jobs: int | None = None,
        client: Any = None,
        verbose: int = 0,
    ) -> None:
        self.C = C
        self.kernel = kernel
        self.degree = degree
        self.gamma = gamma
        self.coef0 = coef0
        self.kernel_params = kernel_params
        self.shrinking = shrinking
        self.tol = tol
        self.cache_size = cache_size
        self.class_weight = class_weight
        self.probability = probability
        self.threshold = threshold
        self.costs = costs
        self.metric = metric
        self.metric_params = metric_params
        self.search_params = search_params
        self.max_iter = max_iter
        self.decision_function_shape = decision_function_shape
        self.break_ties = break_ties
        self.multi_class = multi_class
        self.random_state = random_state
        self.pairs = pairs
        self.subproblem = subproblem
        self.mu = mu
        self.min_alpha_check = min_alpha_check
        self.min_alpha_opt = min_alpha_opt
        self.max_alpha_opt = max_alpha_opt
        self.delta_alpha = delta_alpha
        self.scale = scale
        self.gaps = gaps
        self.memory_limit = memory_limit
        self.n_jobs = n_jobs
        self.client = client
        self.verbose = verbose

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None, groups: Any = None) -> Self:
        """Trains on X (n, d): numpy, scipy CSR, a dask array or a `Store`, which brings its own labels and weights.

        groups: as in `DCSVC.fit`. Warns (ConvergenceWarning) where max_iter ends it. Raises ValueError for bad data or
        parameters, MemoryError where memory_limit is too small.
        """
        if self.decision_function_shape not in ("ovr", "ovo"):
            raise ValueError(
                f"decision_function_shape is {self.decision_function_shape!r}, expected 'ovr' or 'ovo'"
            )
        if self.decision_function_shape == "ovo" and self.multi_class == "ovr":
            raise ValueError(
                "decision_function_shape is 'ovo', and multi_class 'ovr' has no decisions of pairs"
            )
        self._train(X, y, sample_weight, groups=groups)
        return self

    def decision_function(self, X: Any) -> np.ndarray:
        """(n,) for two classes, positive for classes_[1]; else (n, n_classes) of shape "ovr", or for "ovo"
        (n, n_classes * (n_classes - 1) / 2), positive for the first class of each pair."""
        has_pairs = len(self._known_classes()) > 2 and self.model_.is_pairwise
        if self.decision_function_shape == "ovr" or not has_pairs:
            return super().decision_function(X)
        return self._answers(X, _of_pairs)

    def predict(self, X: Any) -> np.ndarray:
        """(n,) labels by LIBSVM's vote; equal votes are the first class's, or decided by confidence (break_ties)."""
        self._known_classes()
        if self.break_ties and self.decision_function_shape == "ovo":
            raise ValueError("break_ties must be False when decision_function_shape is 'ovo'")
        return super().predict(X)

    def _learn(self, store: Any, config: Any, *sinks: Any) -> dict[str, Any]:
        report = super()._learn(store, config, *sinks)
        self.class_weight_ = self._weights(config, store)
        self._told(store, report)
        return report

    def _weights(self, config: Any, store: Store) -> np.ndarray:
        """(n_classes,) the factors on C."""
        labels, counts = store.classes.values, store.classes.counts
        if config.class_weight is None:
            return np.ones(len(self.model_.classes))
        if config.class_weight == "balanced":
            return store.n / (len(labels) * counts)
        return np.array(list(config.class_weight.values()))

    def _known_classes(self) -> np.ndarray:
        check_is_fitted(self)
        return self.classes_

    def _coefficients(self) -> np.ndarray:
        model: KernelModel | ExpansionModel = self.model_
        if isinstance(model, ExpansionModel):
            return model.coef
        return model.coefficients if len(self.classes_) == 2 else -model.coefficients

    def _values(self) -> dict[str, Any]:
        values = super()._values()
        own = {"alfpgm": values["alfpgm"] | {"break_ties": self.break_ties}}
        return values | own | {"multiclass": multiclass_of(self.multi_class)}


def _of_pairs(model: KernelModel, rows: Rows) -> np.ndarray:
    """(m, pairs), positive for the first class of each pair."""
    return -model.binary_decisions(rows)


class ALFPGMSVR(_ALFPGM, RegressionVectors, StoreRegressor):
    """Epsilon support vector regression, exactly LIBSVM's problem, many pairs at a time; for code with `SVR`.

    f(x) = sum_i (a_i - a*_i) K(x_i, x) + b, whose errors beyond epsilon cost C each. Parameters and attributes are
    those of `SVR` and, below them, of `ALFPGMSVC`. With `scale_targets` C, epsilon and tol are in units of y less its
    mean over its deviation, as in `DCSVR`, and answers in those of y. `interval`, as in `DCSVR`, makes
    `predict_interval`.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from streamsvm import ALFPGMSVR
    >>> X, y = load_diabetes(return_X_y=True)
    >>> svm = ALFPGMSVR(C=1000, epsilon=10).fit(X[:350], y[:350])
    >>> round(svm.score(X[350:], y[350:]), 2)
    0.32
    """

    def __init__(
        self,
        *,
        kernel: str | Values = "rbf",
        degree: int = 3,
        gamma: float | str = "scale",
        coef0: float = 0.0,
        kernel_params: dict[str, Any] | None = None,
        tol: float = 1e-3,
        C: float | str = 1.0,
        epsilon: float = 0.1,
        scale_targets: bool = False,
        interval: float | None = None,
        shrinking: bool = True,
        cache_size: float = 200,
        max_iter: int = -1,
        pairs: int = 500,
        subproblem: str = "pairs",
        mu: float = 0.1,
        min_alpha_check: int | None = 2000,
        min_alpha_opt: int | None = None,
        max_alpha_opt: int | None = None,
        delta_alpha: float = 1e-6,
        metric: str = "none",
        metric_params: dict[str, Any] | None = None,
        search_params: dict[str, Any] | None = None,
        scale: str = "none",
        gaps: str | None = None,
        memory_limit: int | str | None = None,
        n_jobs: int | None = None,
        client: Any = None,
        verbose: int = 0,
    ) -> None:
        self.kernel = kernel
        self.degree = degree
        self.gamma = gamma
        self.coef0 = coef0
        self.kernel_params = kernel_params
        self.tol = tol
        self.C = C
        self.epsilon = epsilon
        self.scale_targets = scale_targets
        self.interval = interval
        self.shrinking = shrinking
        self.cache_size = cache_size
        self.max_iter = max_iter
        self.pairs = pairs
        self.subproblem = subproblem
        self.mu = mu
        self.min_alpha_check = min_alpha_check
        self.min_alpha_opt = min_alpha_opt
        self.max_alpha_opt = max_alpha_opt
        self.delta_alpha = delta_alpha
        self.metric = metric
        self.metric_params = metric_params
        self.search_params = search_params
        self.scale = scale
        self.gaps = gaps
        self.memory_limit = memory_limit
        self.n_jobs = n_jobs
        self.client = client
        self.verbose = verbose

    random_state = None

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None, groups: Any = None) -> Self:
        """Trains on X (n, d) and targets y (n,); inputs, warnings and errors as `ALFPGMSVC.fit`."""
        config = self._config()
        store, _ = self._training_store(X, y, sample_weight, groups=groups)
        self._told(store, self._learn(store, config))
        return self

    def _coefficients(self) -> np.ndarray:
        return self._fitted().coef

    def _values(self) -> dict[str, Any]:
        values = super()._values()
        own = {name: getattr(self, name) for name in ("epsilon", "scale_targets", "interval")}
        return values | {"task": "regress"} | own
