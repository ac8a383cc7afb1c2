"""BudgetedSVC and BudgetedSVR: budgeted stochastic gradient descent as scikit-learn estimators."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Self

import numpy as np
from sklearn.utils.multiclass import check_classification_targets

from streamsvm.config import FitConfig
from streamsvm.data.labels import encode, label_texts
from streamsvm.data.store import Store
from streamsvm.errors import ConfigError, DataError
from streamsvm.estimators.base import StoreClassifier, StoreEstimator, StoreRegressor, threads
from streamsvm.estimators.inputs import (
    ClassWeight,
    Client,
    Columns,
    Costs,
    Data,
    Options,
    Probability,
    RandomState,
    SearchedGamma,
    SearchedMetric,
    SearchedScale,
    TargetEncode,
)
from streamsvm.estimators.searched import searched_parameters
from streamsvm.events import Events, warn
from streamsvm.fits.bsgd import bounded
from streamsvm.fits.prepare import prepare
from streamsvm.kernels.table import DefiniteKernel
from streamsvm.models import BudgetModel
from streamsvm.models.calibration import Calibration
from streamsvm.models.learner import BudgetLearner, BudgetOptions
from streamsvm.options.base import Fill
from streamsvm.options.probability import are_odds
from streamsvm.options.solvers import Loss, Strategy
from streamsvm.parallel.engine import Engine
from streamsvm.tasks.base import Targets
from streamsvm.tasks.pairs import n_columns, signs
from streamsvm.tasks.weights import class_factors, row_weights
from streamsvm.texts.documented import set_parameters

STREAM_ROWS = 10_000  # rows that a stream of unknown length counts for in lambda = 1 / (n C)


class BudgetedEstimator(StoreEstimator):
    """What classification and regression with a limited number of support vectors share.

    Parameters
    ----------
    C : float
        Inverse strength of the regularisation, as in `sklearn.svm.SVC`, above 0. Larger: fewer training errors, a less
        smooth function. `lam` takes precedence.
    kernel : {"rbf", "laplacian", "matern", "cauchy", "poly", "linear"}
    metric : {"none", "diagonal", "full", "search"}
        Learn feature weights ("diagonal") or a linear map of the features ("full") from a sample, and choose gamma with
        them if it is left at its default. It is kept only if it decides held-out rows better. "search": like
        "diagonal", but chosen with other values of "search" only.
    random_state : int, RandomState or None
        Seed of the order of the rows.

    Attributes
    ----------
    support_vectors_ : ndarray of shape (n_SV, n_features_in_)
        Support vectors. They are merged points, not rows of X.
    """

    _solver = "bsgd"

    fit_intercept: bool

    def _options(self) -> dict[str, Any]:
        return super()._options() | {"bias": self.fit_intercept}

    @property
    def support_vectors_(self) -> np.ndarray:
        return self.model_.support.X

    @property
    def dual_coef_(self) -> np.ndarray:
        return self.model_.coef.T

    @property
    def intercept_(self) -> np.ndarray:
        return self._intercept(self.model_.bias)


class BudgetedSVC(BudgetedEstimator, StoreClassifier):
    r"""Kernel classification by stochastic gradient descent with a limited number of support vectors.

    Learns row by row. When the budget is full, `merge` support vectors become one. With more than two classes, and with
    a y (n, k) of 0 and 1, each class or label is decided against the rest, on one set of support vectors. `partial_fit`
    learns further batches.

    Parameters
    ----------
    gamma : float, "scale", "auto" or "search"
        Inverse width of the kernel, above 0. Larger: a more local, less smooth function. "scale": 1 / (n_features *
        X.var()), from the rows of `fit` or of the first `partial_fit`. "auto": 1 / n_features. matern uses the square
        roots of these, laplacian 1 / (n_features * X.std()) for "scale". linear ignores
        it.
    fit_intercept : bool
        Learn an intercept, regularised like the rest.

    Attributes
    ----------
    classes_, n_features_in_, feature_names_in_, feature_importances_
    model_ : BudgetModel
        The trained model, with all that `partial_fit` needs. `save` writes it, `streamsvm.load_model` reads it.
    chosen_, expected_, metric_, threshold_
    objective_ : float
        Regularised mean loss of the rows of the last epoch, each before its step; after `fit` only.
    support_vectors_
    dual_coef_ : ndarray of shape (1 or n_classes, n_SV)
        Coefficients of the support vectors.
    intercept_ : ndarray of shape (1 or n_classes,)
        Intercepts; 0 without `fit_intercept`.

    See Also
    --------
    DCSVC : exact.
    BudgetedSVR : regression.
    online.BSGDClassifier : learns event by event, and tunes itself.

    Notes
    -----
    With :math:`\lambda = 1 / (n C)` it minimises

    .. math:: \tfrac{\lambda}{2} \lVert w \rVert^2 + \tfrac1n \sum_i \max(0,\, 1 - y_i f(x_i))

    in steps of :math:`1 / (\lambda t)`. Without `lam`, `fit` with the hinge loss takes steps of
    :math:`1 / (K + \lambda t)`, K the mean of K(x, x), which change a decision by no more than the margin, and fall to
    0 over the last fifth of the rows. Logarithms of odds change by at most a half.

    References
    ----------
    * Z. Wang, K. Crammer and S. Vucetic. Breaking the curse of kernelization: budgeted stochastic gradient descent for
      large-scale SVM training. JMLR 13, 2012.
    * S. Qaadan and T. Glasmachers. Multi-merge budget maintenance for stochastic gradient descent SVM training. 2018.
    * A. Radhakrishnan et al. Mechanism for feature learning in neural networks and backpropagation-free machine
      learning models. Science 383, 2024.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from streamsvm import BudgetedSVC
    >>> X, y = load_digits(return_X_y=True)
    >>> svm = BudgetedSVC(C=10, budget=200, random_state=0).fit(X[:1500], y[:1500])
    >>> svm.support_vectors_.shape
    (200, 64)
    >>> round(svm.score(X[1500:], y[1500:]), 1)
    0.9
    """

    _probable_with = "probability=True, costs or loss='logistic'"

    def __init__(
        self, *, C: float = 1.0,
        kernel: DefiniteKernel = "rbf", gamma: SearchedGamma = "scale", degree: int = 3, coef0: float = 0.0,
        kernel_params: Options = None,
        budget: int = 500, merge: int = 3, merge_all: bool = False, strategy: Strategy = "sequence", epochs: int = 1,
        lam: float | None = None,
        loss: Loss = "hinge", fit_intercept: bool = False,
        average: bool = False,
        class_weight: ClassWeight = None,
        probability: Probability = False, threshold: str | None = None, costs: Costs = None,
        metric: SearchedMetric = "none", metric_params: Options = None, search_params: Options = None,
        random_state: RandomState = None,
        scale: SearchedScale = "none", gaps: Fill | None = None, mark_gaps: bool = False, category: Columns = None,
        target_encode: TargetEncode = None,
        memory_limit: int | str | None = None, n_jobs: int | None = None, device: str = "cpu", client: Client = None,
        verbose: int = 0,
    ) -> None:  # fmt: skip
        set_parameters(self, locals())

    def fit(self, X: Data, y: Data = None, sample_weight: Data = None, groups: Data = None) -> Self:
        """Trains from scratch on all rows, in shuffled order.

        Raises ValueError for bad data or parameters, MemoryError if `memory_limit` is too small.
        """
        self.__dict__.pop("_learner", None)
        return super().fit(X, y, sample_weight, groups)

    def partial_fit(self, X: Data, y: Data, classes: Data = None, sample_weight: Data = None) -> Self:
        """Learns the rows in their order, after those of earlier calls of `fit` and `partial_fit`.

        Raises ValueError for unknown labels, with `probability`, `threshold` or `costs`, and, in a first call, with
        `scale`, `gaps`, `mark_gaps`, `target_encode`, `metric` or values of "search".
        """
        first = not hasattr(self, "model_")
        self._require_batches(first)
        if first and classes is None:
            raise ValueError("classes must be passed on the first call to partial_fit.")
        X, y = self._checked(X, y, reset=first)
        check_classification_targets(y)
        labels = np.unique(classes) if first else self.classes_
        if not first and classes is not None and not np.array_equal(np.unique(classes), labels):
            raise ValueError(f"classes is {np.unique(classes)}, in the first call it was {labels}")
        columns = {"category": self._categories()} if first else {"like": self._layout}
        names = self._names()
        store = Store.from_arrays(X, y, sample_weight=sample_weight, feature_names=names, **columns)
        codes, class_weight = self._codes(y, labels), self._batch_weight(labels)
        config = self._config().model_copy(update={"class_weight": class_weight})
        if first:
            self._start(config, store, Targets(labels, codes))
        elif not hasattr(self, "_learner"):
            self._learner = self.model_.learner()
        weight = row_weights(codes, labels, class_weight, store.sample_weight)
        for start, stop in store.blocks():
            rows = store.read(start, stop)
            try:
                store.require_finite(rows, start, gaps=self.model_.takes_gaps)
            except DataError:
                del self._learner  # which may have learned rows before these; the model has not
                raise
            rows = self.model_.header.scaling.apply(rows)
            Y = signs(codes[start:stop], len(labels))
            self._learner.learn(rows, Y, weight[start:stop], threads(self.n_jobs))
        self.model_ = BudgetModel.of(self.model_.header, self._learner)
        return self

    def _require_batches(self, first: bool) -> None:
        """Raises ConfigError for what needs all rows at once; first: none were learned before."""
        if self._like is not None:
            raise ConfigError("partial_fit learns one label a row, and fit was given several: use fit alone")
        if first and self.scale != "none":
            raise ConfigError("scale needs all rows: use fit, or scale the batches")
        if first and self._fills:
            name = "mark_gaps" if self.mark_gaps else "gaps"
            raise ConfigError(f"{name} needs all rows: use fit first, and partial_fit from then on")
        if first and self.target_encode:
            raise ConfigError("target_encode needs all rows: use fit first, and partial_fit from then on")
        if first and (searched := searched_parameters(self) or (["metric"] if self.metric != "none" else [])):
            raise ConfigError(f"{searched[0]} needs all rows: use fit first, and partial_fit from then on")
        if self.probability:
            raise ConfigError("probability needs all rows: use fit, or streamsvm.online.BSGDClassifier")
        if self.threshold is not None or self.costs is not None:
            raise ConfigError("threshold and costs are of what learns no further: use fit, without partial_fit")

    def _start(self, config: FitConfig, store: Store, targets: Targets) -> None:
        """An empty model and its learner, prepared as a fit of the first batch would be."""
        k = len(targets.classes)
        if k < 2:
            raise ValueError(f"The number of classes has to be greater than one; got {k} class")
        prepared = prepare(store, config, Engine(threads(self.n_jobs)), Events(warn), targets=targets)
        options = bounded(BudgetOptions.of(config, prepared.task, STREAM_ROWS), prepared, is_endless=True)
        self._learner = BudgetLearner(prepared.kernel, store.d, n_columns(k), options)
        calibration, weight = None, config.class_weight  # by label: rows are still to be counted
        if are_odds(self.loss):
            factors = None if weight is None else class_factors(np.zeros(k), targets.classes, weight)
            calibration = Calibration.logistic(n_columns(k), factors)
        header = replace(prepared.header(calibration=calibration), fingerprint="")  # other rows are to come
        self.model_, self.classes_ = BudgetModel.of(header, self._learner), targets.classes

    def _codes(self, y: np.ndarray, classes: np.ndarray) -> np.ndarray:
        codes = encode(y, classes)
        if (codes < 0).any():
            raise DataError(f"found label {y[codes < 0].tolist()[0]!r}, expected one of {', '.join(map(str, classes))}")
        return codes

    def _batch_weight(self, classes: np.ndarray) -> dict[str, float] | None:
        """class_weight by label text, of all labels that there will be."""
        if self.class_weight is None:
            return None
        if isinstance(self.class_weight, str):
            raise ConfigError("class_weight 'balanced' needs all rows: use fit, or give the weights")
        weights = [float(self.class_weight.get(label, 1.0)) for label in classes.tolist()]
        return self._config_weight(dict(zip(label_texts(classes).tolist(), weights, strict=True)))


class BudgetedSVR(BudgetedEstimator, StoreRegressor):
    r"""Kernel regression by stochastic gradient descent with a limited number of support vectors.

    Learns row by row, in shuffled order, by implicit steps. When the budget is full, `merge` support vectors become
    one, as in `BudgetedSVC`. By default it learns the standardised target t, and answers in units of y.

    Parameters
    ----------
    C : float
        Inverse strength of the regularisation, as in `sklearn.svm.SVR`, above 0. Larger: fewer training errors, a less
        smooth function. `lam` takes precedence.
    lam : float or None
        lambda, the strength of the regularisation, above 0. Larger: a smoother function. None: 1 / (n C).
    fit_intercept : bool
        Learn an intercept in addition to the mean of y, regularised like the rest.

    Attributes
    ----------
    n_features_in_, feature_names_in_, feature_importances_
    model_ : BudgetModel
    chosen_, expected_, metric_
    objective_ : float
        Regularised mean loss of the rows of the last epoch, each before its step.
    support_vectors_
    dual_coef_ : ndarray of shape (1, n_SV)
        Coefficients of the support vectors.
    intercept_ : ndarray of shape (1,)
        Intercept: the mean of y, plus what `fit_intercept` learns.

    See Also
    --------
    DCSVR : exact.
    BudgetedSVC : classification.
    online.BSGDRegressor : learns event by event.

    Notes
    -----
    With :math:`\lambda = 1 / (n C)` it minimises

    .. math::

        \tfrac{\lambda}{2} \lVert w \rVert^2 + \tfrac1n \sum_i \max(0,\, \lvert t_i - f(x_i) \rvert - \epsilon)

    which is the problem of `sklearn.svm.SVR` divided by n C.

    References
    ----------
    * Z. Wang, K. Crammer and S. Vucetic. Breaking the curse of kernelization: budgeted stochastic gradient descent for
      large-scale SVM training. JMLR 13, 2012.
    * S. Qaadan and T. Glasmachers. Multi-merge budget maintenance for stochastic gradient descent SVM training. 2018.
    * B. Kulis and P. L. Bartlett. Implicit online learning. ICML 2010.

    Examples
    --------
    >>> from sklearn.datasets import make_friedman1
    >>> from streamsvm import BudgetedSVR
    >>> X, y = make_friedman1(2000, noise=1, random_state=0)
    >>> svm = BudgetedSVR(budget=200, epochs=3, random_state=0).fit(X[:1500], y[:1500])
    >>> round(svm.score(X[1500:], y[1500:]), 1)
    0.8
    """

    def __init__(
        self, *, C: float = 1.0, epsilon: float = 0.1, scale_targets: bool = True, interval: float | None = None,
        kernel: DefiniteKernel = "rbf", gamma: SearchedGamma = "scale", degree: int = 3, coef0: float = 0.0,
        kernel_params: Options = None,
        budget: int = 500, merge: int = 3, merge_all: bool = False, strategy: Strategy = "sequence", epochs: int = 1,
        lam: float | None = None,
        fit_intercept: bool = False,
        average: bool = False,
        metric: SearchedMetric = "none", metric_params: Options = None, search_params: Options = None,
        random_state: RandomState = None,
        scale: SearchedScale = "none", gaps: Fill | None = None, mark_gaps: bool = False, category: Columns = None,
        target_encode: TargetEncode = None,
        memory_limit: int | str | None = None, n_jobs: int | None = None, device: str = "cpu", client: Client = None,
        verbose: int = 0,
    ) -> None:  # fmt: skip
        set_parameters(self, locals())
