"""scikit-learn estimators over the one recipe in `train`: arrays are wrapped as stores, nothing is solved here."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import numpy as np
from joblib import effective_n_jobs
from scipy import sparse
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, column_or_1d, validate_data

from streamsvm.config import FitConfig, build_config
from streamsvm.data.store import Store
from streamsvm.events import Events
from streamsvm.graph import Engine
from streamsvm.models import KernelModel, label_texts
from streamsvm.persist import save_model
from streamsvm.predict import predict_blocks
from streamsvm.train import train_in_memory

KERNEL_OPTIONS = ("gamma", "degree", "coef0")
DCSVM_OPTIONS = (
    "early",
    "children",
    "levels",
    "early_level",
    "sample",
    "clustering",
    "part_rows",
    "adaptive",
    "refine",
    "combine",
)


class DCSVC(ClassifierMixin, BaseEstimator):
    """Support vector classification by divide and conquer, exact or with early prediction.

    Each pair of classes gives one problem, min 1/2 a'Qa - e'a, 0 <= a_i <= C_i, with Q_ij = y_i y_j K(x_i, x_j):
    the dual of an SVM without a bias term (Hsieh, Si and Dhillon 2014). `SVC` has a bias; with kernels that
    can express a constant, as rbf, the two agree closely.

    Parameters
    ----------
    C : float, default=1.0
        Upper bound of the dual variables, times class and sample weights.
    kernel : {"rbf", "poly", "linear"}, default="rbf"
        rbf exp(-gamma |a-b|^2), poly (gamma a'b + coef0)^degree, linear a'b.
    gamma : float, "scale" or "auto", default="scale"
        Above 0; "scale" is 1 / (n_features * X.var()), "auto" 1 / n_features.
    degree : int, default=3
        At least 1.
    coef0 : float, default=0.0
        At least 0. `SVC` takes negative values, but then the polynomial need not be a kernel, the dual is not convex,
        and "exact" means nothing; fit raises an error.
    tol : float, default=1e-3
        Largest violation of the KKT conditions at the end. Kernel values are float32: far below 1e-5 is out of reach.
    class_weight : dict, "balanced" or None, default=None
        Factors on C by class, above 0; "balanced" is n_samples / (n_classes * count).
    random_state : int, RandomState or None, default=None
        Seeds the clustering. An exact model depends on it within `tol` only.
    early : bool, default=False
        Stop at a level of parts, and let the nearest part's model decide (equation 11 of the paper). With fewer rows
        than about 16,000 and `levels` None there is nothing to divide, and the model is exact all the same.
    children, levels, early_level : int, default=4, None, None
        Parts that a part is divided into; levels of division (None: from n_samples); level of the early model.
    sample, clustering : int, {"input", "kernel"}, default=1000, "input"
        Rows that k-means clusters, and the space in which.
    part_rows : int or None, default=None
        Most rows of a part (None: from the memory limit).
    adaptive, refine : bool, default=True
        Sample k-means among support vectors; solve on the support vectors of level 1 before the whole problem.
    combine : {"nearest", "naive", "committee"}, default="nearest"
        How the parts of an early model predict together.
    cache_size : float, default=200
        MB of kernel rows kept while solving. Only wide rows are kept, of 128 nonzeros and more: others are made again
        as fast as they could be read.
    memory_limit : int, str or None, default=None
        Bytes, or as "2GiB"; bounds the whole process (None: most of what is free). Data beyond it is read from disk.
    n_jobs : int or None, default=None
        Threads; None or -1 is every core (one, inside a parallel joblib worker).

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Labels, sorted.
    n_features_in_ : int
        Number of features seen during fit.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of the features, where X has names that are all strings.
    model_ : KernelModel or LocalModel
        The trained model; `save` writes it, `streamsvm.load_model` reads it.
    objective_, dual_gap_ : float
        Dual objective, and primal minus dual objective, summed over pairs (and parts).
    n_iter_ : int
        Block rounds of the solver on the whole problem, over all pairs; 0 for an early model.
    support_ : ndarray of shape (n_SV,)
        Rows of X that are support vectors, class by class. This and the next three: exact models only.
    support_vectors_ : {ndarray, csr_array} of shape (n_SV, n_features_in_)
        Support vectors, class by class, as float32 (or uint8, as given).
    dual_coef_ : ndarray of shape (n_classes - 1, n_SV)
        Signed dual coefficients, as `SVC` lays them out.
    n_support_ : ndarray of shape (n_classes,)
        Support vectors of each class.
    """

    def __init__(
        self,
        *,
        C: float = 1.0,
        kernel: str = "rbf",
        gamma: float | str = "scale",
        degree: int = 3,
        coef0: float = 0.0,
        tol: float = 1e-3,
        class_weight: Any = None,
        random_state: Any = None,
        early: bool = False,
        children: int = 4,
        levels: int | None = None,
        early_level: int | None = None,
        sample: int = 1000,
        clustering: str = "input",
        part_rows: int | None = None,
        adaptive: bool = True,
        refine: bool = True,
        combine: str = "nearest",
        cache_size: float = 200,
        memory_limit: int | str | None = None,
        n_jobs: int | None = None,
    ) -> None:
        self.C = C
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.tol = tol
        self.class_weight = class_weight
        self.random_state = random_state
        self.early = early
        self.children = children
        self.levels = levels
        self.early_level = early_level
        self.sample = sample
        self.clustering = clustering
        self.part_rows = part_rows
        self.adaptive = adaptive
        self.refine = refine
        self.combine = combine
        self.cache_size = cache_size
        self.memory_limit = memory_limit
        self.n_jobs = n_jobs

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Trains on X (n, d): numpy, scipy CSR, a dask array or a `Store`, which brings its own labels and weights.

        y, sample_weight: (n,). A dask array or Store is never loaded whole where memory is short.
        Raises ValueError for bad data or parameters, MemoryError where memory_limit is too small.
        """
        config = self._config()
        store, classes, y = self._training_store(X, y, sample_weight)
        config = config.model_copy(update={"class_weight": self._class_weight(classes, y, store)})
        rounds = _RoundCounter()
        model, report = train_in_memory(store, config, Events(rounds))
        self.model_, self.classes_ = model, classes
        self.objective_, self.dual_gap_ = report["objective"], report["gap"]
        self.n_iter_ = rounds.n
        return self

    def decision_function(self, X: Any) -> np.ndarray:
        """(n,) for two classes, positive for classes_[1]; else (n, n_classes), one-vs-one votes and confidences."""
        return np.concatenate(list(self._decisions(X)))

    def predict(self, X: Any) -> np.ndarray:
        """(n,) labels; a dask array or Store is read block by block."""
        codes = [self.model_.codes_of(block) for block in self._decisions(X)]
        return self.classes_[np.concatenate(codes)]

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Mean accuracy on X and y; of a Store, on its own labels where y is None."""
        if isinstance(X, Store) and y is None:
            y, sample_weight = X.y, X.sample_weight if sample_weight is None else sample_weight
        return super().score(X, _computed(y), sample_weight)

    def save(self, path: str | Path) -> None:
        """Writes `model_` to a folder that `streamsvm.load_model` and the command line read. Raises OSError."""
        check_is_fitted(self)
        save_model(self.model_, path)

    @property
    def support_(self) -> np.ndarray:
        model, order = self._exact_model()
        return model.ids[order]

    @property
    def support_vectors_(self) -> np.ndarray | sparse.csr_array:
        model, order = self._exact_model()
        X = model.support.take(order).X
        return X + model.header.scaling.offset.astype(X.dtype) if model.header.scaling.kind == "centre" else X

    @property
    def dual_coef_(self) -> np.ndarray:
        model, order = self._exact_model()
        alpha, codes = model.alpha[order], model.codes[order]
        if len(self.classes_) == 2:
            return np.where(codes == 1, 1.0, -1.0) * alpha.T
        # pair (i, j), i < j: positive for i, as in SVC; column c of row's alpha is the pair with class c + (c >= code)
        is_first = np.arange(alpha.shape[1])[:, None] >= codes
        return np.where(is_first, 1.0, -1.0) * alpha.T

    @property
    def n_support_(self) -> np.ndarray:
        model, _ = self._exact_model()
        return np.bincount(model.codes, minlength=len(self.classes_)).astype(np.int32)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def _decisions(self, X: Any) -> Iterator[np.ndarray]:
        """Decision values of each row block."""
        check_is_fitted(self)
        model: Any = self.model_
        store = self._store(X, reset=False)
        for _, _, decision in predict_blocks(model, store, engine=Engine(_threads(self.n_jobs))):
            yield decision

    def _config(self) -> FitConfig:
        """The parameters as a configuration. Raises ConfigError, a ValueError, naming the wrong one."""
        values = {
            "C": self.C,
            "tol": self.tol,
            "kernel": {"name": self.kernel} | {name: getattr(self, name) for name in KERNEL_OPTIONS},
            "dcsvm": {name: getattr(self, name) for name in DCSVM_OPTIONS},
            "seed": int(check_random_state(self.random_state).randint(2**31 - 1)),
            "cache_size": f"{self.cache_size}MiB",
            "memory_limit": self.memory_limit,
            "workers": _threads(self.n_jobs),
        }
        return build_config((type(self).__name__, values))

    def _training_store(self, X: Any, y: Any, sample_weight: Any) -> tuple[Store, np.ndarray, np.ndarray]:
        """(store with labels, classes as the caller names them, y)."""
        if isinstance(X, Store):
            if y is not None or sample_weight is not None:
                raise ValueError(
                    "X is a Store, which brings its own y and sample_weight; found them given as well"
                )
            store, y = self._store(X, reset=True), X.y
            sample_weight = store.sample_weight
        else:
            X, y = self._checked(X, y, reset=True)
            if sample_weight is not None:
                sample_weight = _check_sample_weight(_computed(sample_weight), y)
            store = Store.from_arrays(X, y, sample_weight=sample_weight)
        check_classification_targets(y)
        classes = np.unique(y)
        _require_two_classes(classes, y, sample_weight)
        return store, classes, y

    def _store(self, X: Any, *, reset: bool) -> Store:
        """X as a store, its width checked."""
        if isinstance(X, Store):
            self._check_width(X.d, reset=reset)
            return X
        return Store.from_arrays(self._checked(X, "no_validation", reset=reset)[0])

    def _checked(self, X: Any, y: Any, *, reset: bool) -> tuple[Any, Any]:
        """X and y by scikit-learn's rules; a dask array only by its width: its rows are checked as they are read."""
        if _is_dask(X):
            self._check_width(X.shape[1], y, reset=reset)
            return X, y if isinstance(y, str) else column_or_1d(_computed(y), warn=True)
        dtypes = [np.float64, np.float32, np.uint8]
        checked = validate_data(self, X, _computed(y), reset=reset, accept_sparse="csr", dtype=dtypes)
        return checked if isinstance(checked, tuple) else (checked, y)

    def _check_width(self, d: int, y: Any = "no_validation", *, reset: bool) -> None:
        """Notes or compares the number of features by scikit-learn's rules, without the data."""
        validate_data(self, np.broadcast_to(0.0, (1, d)), y, reset=reset, skip_check_array=True)

    def _class_weight(self, classes: np.ndarray, y: np.ndarray, store: Store) -> Any:
        """class_weight by label text, as the configuration keeps it, checked by scikit-learn's rules."""
        if self.class_weight is None or isinstance(self.class_weight, str):
            return self._config_weight(self.class_weight)
        weights = compute_class_weight(self.class_weight, classes=classes, y=y)
        texts = label_texts(np.unique(store.y)).tolist()
        return self._config_weight(dict(zip(texts, weights, strict=True)))

    def _config_weight(self, weight: Any) -> Any:
        return build_config((type(self).__name__, {"class_weight": weight})).class_weight

    def _exact_model(self) -> tuple[KernelModel, np.ndarray]:
        """The model, and its support vectors' order class by class. Raises AttributeError for an early model."""
        check_is_fitted(self)
        if not isinstance(self.model_, KernelModel):
            raise AttributeError(
                "an early model has support vectors by part, in model_.part(p); fit with early=False"
            )
        return self.model_, np.argsort(self.model_.codes, kind="stable")


class _RoundCounter:
    """Counts the solver's rounds on the whole problem."""

    def __init__(self) -> None:
        self.n = 0

    def __call__(self, record: dict[str, Any]) -> None:
        self.n += record["event"] == "round"


def _threads(n_jobs: int | None) -> int:
    """joblib's meaning of n_jobs, with None as -1: one thread inside a parallel worker, else every core."""
    return effective_n_jobs(-1 if n_jobs is None else n_jobs)


def _is_dask(X: Any) -> bool:
    return type(X).__module__.startswith("dask.array")


def _computed(values: Any) -> Any:
    """Labels or weights of a dask array as numpy; anything else as it is."""
    return values.compute() if _is_dask(values) else values


def _require_two_classes(classes: np.ndarray, y: np.ndarray, weight: np.ndarray | None) -> None:
    """Raises ValueError, in the words of SVC, unless two classes are left."""
    if len(classes) < 2:
        raise ValueError(f"The number of classes has to be greater than one; got {len(classes)} class")
    if weight is None:
        return
    left = np.unique(y[weight > 0])
    if len(left) == 0:
        raise ValueError("Invalid input - all samples have zero or negative weights.")
    if len(left) == 1:
        raise ValueError("Invalid input - all samples with positive weights belong to the same class.")
