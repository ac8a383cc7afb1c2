"""HSSSVC and HSSSVR: many values of C by one factorisation of the kernel matrix, as scikit-learn estimators."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from streamsvm.config import FitConfig, build_config
from streamsvm.data.store import Store
from streamsvm.errors import ConfigError
from streamsvm.estimators.base import StoreClassifier, StoreEstimator, StoreRegressor
from streamsvm.estimators.inputs import (
    ClassWeight,
    Client,
    Columns,
    Costs,
    Options,
    Probability,
    RandomState,
    Searched,
    SearchedGamma,
    SearchedKernel,
    SearchedMetric,
    SearchedScale,
    TargetEncode,
)
from streamsvm.estimators.searched import SEARCH, searched_parameters
from streamsvm.estimators.support_vectors import RegressionVectors
from streamsvm.events import Sink
from streamsvm.options.base import Fill
from streamsvm.options.solvers import Number, Shift
from streamsvm.texts.documented import set_parameters
from streamsvm.train import train_path


class HSSPath(StoreEstimator):
    """A model for each C, of which one predicts.

    Parameters
    ----------
    C : float, sequence of float or "search"
        Inverse strength of the regularisation: upper bound of the dual variables, times class and sample weights. Above
        0. Larger: fewer training errors, a less smooth function. Several values make a path: `path_` holds a model for
        each, and `choose` selects the one that predicts, at first that of the largest C. "search": chosen from the
        data.
    tol : float
        Largest violation of the KKT conditions at which polishing stops, above 0. Larger: shorter, less exact.
    random_state : int, RandomState or None
        Seed of the samples of columns, the landmarks and the trees.
    rtol : float
        Relative error of the compressed matrix, in the Frobenius norm, above 0 and at most 1. Larger: a coarser,
        smaller matrix. An error above it, as `max_rank` may cause, is a warning.
    atol : float or None
        Size of the entries, relative to the diagonal, at which a basis ends, at least 0. `rtol` is then the relative
        pivot at which it ends, and the error of the matrix is what follows from that. None: what `rtol` allows.
    max_rank : int
        Maximum number of columns of a basis, at least 1. Larger: more exact, more time and memory.
    definite : bool or None
        True: bases that keep the matrix positive semidefinite at any tolerance. False: least squares, whose error falls
        with `rtol`, and which needs a `beta` above that error. None: least squares for narrow kernels, which landmarks
        hardly explain, and definite bases otherwise.
    leaf : int
        Maximum number of rows of a leaf of the cluster tree, at least 2. Larger: fewer, larger dense blocks.
    neighbours : int
        Number of near rows of each row whose columns are compressed, at least 1. Larger: more exact, slower to
        compress.
    landmarks : int
        Number of rows that explain the smooth component of the kernel beforehand, at least 0. Larger: a better start,
        more memory. They are used if they explain at least half of it. 0: never.
    storage : {"float64", "float32"}
        Type of the numbers of the compressed matrix and its factor. "float32" takes half the memory.
    beta : float, "paper" or "balance"
        Shift of ADMM, above 0. Larger: smaller steps, and less sensitive to the error of the compression. "paper": 10
        below 1e4 rows, 1e2 up to 1e5, 1e3 up to 1e6, 1e4 above. "balance": adapted to the residuals, with a
        factorisation each time.
    iterations : int
        Maximum number of steps of ADMM, at least 1. Larger: more exact, a longer fit.
    residual : float
        Relative primal and dual residual at which ADMM stops early, at least 0. Larger: fewer steps. 0: never.
    polish : int
        Maximum number of rounds of the exact solver afterwards, at least 0. Larger: closer to the exact solution, a
        longer fit. 0: none.

    Attributes
    ----------
    path_ : dict of float to ExpansionModel
        The model of each C.
    reports_ : dict of float to dict
        For each C what `streamsvm fit --json` prints: ranks, bytes, estimated errors, residuals, seconds by phase.
    C_ : float
        The C of the model that predicts.
    objective_ : float
        Dual objective, summed over classes: with the compressed kernel, or exact after polishing.
    dual_gap_ : float
        Primal minus dual objective, likewise.
    n_iter_ : int
        Number of steps of ADMM.
    """

    _solver = "admm-hss"

    def choose(self, C: float) -> Self:
        """Selects the model that predicts. Raises ValueError if there is none for this C.

        Parameters
        ----------
        C : float
            A value of the path.
        """
        check_is_fitted(self, "path_")
        if C not in self.path_:
            raise ValueError(f"C={C} is not on the path; expected one of {', '.join(map(str, self.path_))}")
        self.C_, self.model_, report = C, self.path_[C], self.reports_[C]
        self.objective_, self.dual_gap_, self.n_iter_ = report["objective"], report["gap"], report["steps"]
        return self

    def _learn(self, store: Store, config: FitConfig, *sinks: Sink) -> dict[str, Any]:
        Cs = () if "C" in config.search.chosen else self._Cs()
        path = self._run(partial(train_path, store, config, Cs), store, config, *sinks)
        self.path_ = {report["C"]: model for model, report in path}
        self.reports_ = {report["C"]: report for _, report in path}
        report = self.choose(max(self.path_)).reports_[self.C_]
        self._set_choices(report)
        return report

    def _Cs(self) -> list[float]:
        """The values of C, each checked by the configuration. Raises ConfigError."""
        values = list(np.ravel(np.asarray(self.C, dtype=object)))
        if not values or len(set(values)) < len(values):
            raise ConfigError(f"C: found {self.C!r}, expected one number above 0, or several different ones")
        return [build_config((type(self).__name__, {"C": C})).C for C in values]

    def _values(self) -> dict[str, Any]:
        C = SEARCH if "C" in searched_parameters(self) else self._Cs()[0]
        return super()._values() | {"C": C}


class HSSSVC(HSSPath, StoreClassifier):
    r"""Support vector classification with an intercept, for one C or many at about the same cost; approximate.

    Compresses and factorises the kernel matrix once (hierarchically semi-separable, HSS). Each step of ADMM is then a
    solve of linear cost, and every class and every C is one more right-hand side. With more than two classes, and with
    a y (n, k) of 0 and 1, each class or label is decided against the rest. `polish` continues with the exact solver.

    Parameters
    ----------

    Attributes
    ----------
    classes_, n_features_in_, feature_names_in_, feature_importances_
    model_ : ExpansionModel
    chosen_, expected_, metric_, threshold_, path_, reports_, C_, objective_, dual_gap_, n_iter_

    See Also
    --------
    ALFPGMSVC : the exact solution.
    HSSSVR : regression.
    sklearn.svm.SVC : the same problem.

    Notes
    -----
    For each class it solves, with :math:`Y = \operatorname{diag}(y)`,

    .. math::

        \min_\alpha\: \tfrac12\, \alpha^\top Y K Y \alpha - e^\top \alpha \quad
        \text{where} \quad 0 \le \alpha_i \le C_i, \: y^\top \alpha = 0

    and factorises :math:`K + \beta I`.

    References
    ----------
    * S. Cipolla and J. Gondzio. Training very large scale nonlinear SVMs using ADMM coupled with HSS approximations.
      2021.
    * A. Radhakrishnan et al. Mechanism for feature learning in neural networks and backpropagation-free machine
      learning models. Science 383, 2024.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from streamsvm import HSSSVC
    >>> X, y = load_digits(return_X_y=True)
    >>> svm = HSSSVC(C=[0.1, 0.3, 1], random_state=0).fit(X[:1500], y[:1500])
    >>> {C: round(svm.choose(C).score(X[1500:], y[1500:]), 2) for C in svm.path_}
    {0.1: 0.9, 0.3: 0.92, 1.0: 0.93}
    """

    def __init__(
        self, *, C: Searched | Sequence[float] = 1.0,
        kernel: SearchedKernel = "rbf", gamma: SearchedGamma = "scale", degree: int = 3, coef0: float = 0.0,
        kernel_params: Options = None,
        tol: float = 1e-3, class_weight: ClassWeight = None,
        probability: Probability = False, threshold: str | None = None, costs: Costs = None,
        metric: SearchedMetric = "none", metric_params: Options = None, search_params: Options = None,
        random_state: RandomState = None, rtol: float = 0.02, atol: float | None = None, max_rank: int = 300,
        definite: bool | None = None, leaf: int = 128, neighbours: int = 32, landmarks: int = 256,
        storage: Number = "float64", beta: float | Shift = "paper", iterations: int = 50, residual: float = 0.0,
        polish: int = 0,
        scale: SearchedScale = "none", gaps: Fill | None = None, mark_gaps: bool = False, category: Columns = None,
        target_encode: TargetEncode = None,
        memory_limit: int | str | None = None, n_jobs: int | None = None, device: str = "cpu", client: Client = None,
        verbose: int = 0,
    ) -> None:  # fmt: skip
        set_parameters(self, locals())


class HSSSVR(RegressionVectors, StoreRegressor, HSSPath):
    r"""Epsilon support vector regression, for one C or many at about the same cost; approximate.

    Runs ADMM on a compressed kernel matrix, as `HSSSVC`. `polish` continues with the exact solver. By default it learns
    the standardised target t, and answers in units of y.

    Parameters
    ----------

    Attributes
    ----------
    n_features_in_, feature_names_in_, feature_importances_
    model_ : ExpansionModel
    chosen_, expected_, metric_, path_, reports_, C_, objective_, dual_gap_, n_iter_
    support_
    support_vectors_
    dual_coef_ : ndarray of shape (1, n_SV)
        Coefficients of the support vectors of the model that predicts.
    intercept_ : ndarray of shape (1,)
        Intercept, b, of this model.
    n_support_ : ndarray of shape (1,)
        Number of support vectors of this model.

    See Also
    --------
    ALFPGMSVR : the exact solution.
    HSSSVC : classification.
    sklearn.svm.SVR : the same problem, without `scale_targets`.

    Notes
    -----
    For :math:`f(x) = \sum_i v_i K(x_i, x) + b` it solves

    .. math::

        \min_v\: \tfrac12\, v^\top K v + \epsilon \lVert v \rVert_1 - t^\top v \quad
        \text{where} \quad -C_i \le v_i \le C_i, \: e^\top v = 0

    References
    ----------
    * S. Cipolla and J. Gondzio. Training very large scale nonlinear SVMs using ADMM coupled with HSS approximations.
      2021.
    * J. Lei et al. Distribution-free predictive inference for regression. JASA 113, 2018.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from streamsvm import HSSSVR
    >>> X, y = load_diabetes(return_X_y=True)
    >>> svm = HSSSVR(C=[0.1, 1], random_state=0).fit(X[:350], y[:350])
    >>> {C: round(svm.choose(C).score(X[350:], y[350:]), 1) for C in svm.path_}
    {0.1: 0.5, 1.0: 0.5}
    """

    def __init__(
        self, *, C: Searched | Sequence[float] = 1.0, epsilon: float = 0.1, scale_targets: bool = True,
        quantile: float | None = None, interval: float | None = None,
        kernel: SearchedKernel = "rbf", gamma: SearchedGamma = "scale", degree: int = 3, coef0: float = 0.0,
        kernel_params: Options = None,
        tol: float = 1e-3,
        metric: SearchedMetric = "none", metric_params: Options = None, search_params: Options = None,
        random_state: RandomState = None, rtol: float = 0.02, atol: float | None = None, max_rank: int = 300,
        definite: bool | None = None, leaf: int = 128, neighbours: int = 32, landmarks: int = 256,
        storage: Number = "float64", beta: float | Shift = "paper", iterations: int = 50, residual: float = 0.0,
        polish: int = 0,
        scale: SearchedScale = "none", gaps: Fill | None = None, mark_gaps: bool = False, category: Columns = None,
        target_encode: TargetEncode = None,
        memory_limit: int | str | None = None, n_jobs: int | None = None, device: str = "cpu", client: Client = None,
        verbose: int = 0,
    ) -> None:  # fmt: skip
        set_parameters(self, locals())
