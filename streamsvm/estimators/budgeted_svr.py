"""BudgetedSVR: regression by budgeted stochastic gradient descent as a scikit-learn estimator."""

from __future__ import annotations

from streamsvm.estimators.base import REGRESSION_FIELDS, StoreRegressor, set_parameters
from streamsvm.estimators.budgeted import BudgetedEstimator
from streamsvm.estimators.types import (
    Client,
    Columns,
    Options,
    RandomState,
    SearchedGamma,
    SearchedMetric,
    SearchedScale,
    TargetEncode,
)
from streamsvm.kernels.table import DefiniteKernel
from streamsvm.options.base import Fill
from streamsvm.options.solvers import Strategy


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

    _fixed = BudgetedEstimator._fixed | {"task": "regress"}
    _fields = (*REGRESSION_FIELDS, "C")

    def __init__(
        self,
        *,
        C: float = 1.0,
        epsilon: float = 0.1,
        scale_targets: bool = True,
        interval: float | None = None,
        kernel: DefiniteKernel = "rbf",
        gamma: SearchedGamma = "scale",
        degree: int = 3,
        coef0: float = 0.0,
        kernel_params: Options = None,
        budget: int = 500,
        merge: int = 3,
        strategy: Strategy = "sequence",
        epochs: int = 1,
        lam: float | None = None,
        fit_intercept: bool = False,
        average: bool = False,
        metric: SearchedMetric = "none",
        metric_params: Options = None,
        search_params: Options = None,
        random_state: RandomState = None,
        scale: SearchedScale = "none",
        gaps: Fill | None = None,
        mark_gaps: bool = False,
        category: Columns = None,
        target_encode: TargetEncode = None,
        memory_limit: int | str | None = None,
        n_jobs: int | None = None,
        client: Client = None,
        verbose: int = 0,
    ) -> None:
        set_parameters(self, locals())
