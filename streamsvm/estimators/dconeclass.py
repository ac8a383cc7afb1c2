"""DCOneClassSVM: outliers by divide and conquer as a scikit-learn estimator."""

from __future__ import annotations

from streamsvm.estimators.base import set_parameters
from streamsvm.estimators.dcsvm import DCSVMEstimator
from streamsvm.estimators.outliers import OutlierDetector
from streamsvm.estimators.support_vectors import RegressionVectors
from streamsvm.estimators.types import Client, Columns, Gamma, Options, RandomState
from streamsvm.kernels.table import DefiniteKernel
from streamsvm.options.base import Fill, Scale
from streamsvm.options.solvers import Clustering


class DCOneClassSVM(DCSVMEstimator, RegressionVectors, OutlierDetector):
    r"""Outlier detection by divide and conquer: the support of a distribution, exact or with early prediction.

    The decision function is below 0 for outliers, which are at most a share `nu` of the training rows, up to `tol`.
    Partitions are those of `DCSVC`.

    Parameters
    ----------
    nu : float
        Largest share of outliers among the training rows, and smallest share of support vectors. Above 0, at most 1.
        Larger: more outliers.
    kernel : {"rbf", "laplacian", "matern", "cauchy", "poly", "linear"}
    gamma : float, "scale" or "auto"
    tol : float
        Stopping tolerance, above 0: LIBSVM's m - M divided by rho. Larger: a shorter, less exact fit.
    early : bool
    scale : {"none", "minmax", "standard", "maxabs", "robust", "quantile"}

    Attributes
    ----------
    n_features_in_, feature_names_in_, feature_importances_
    model_ : ExpansionModel or LocalModel
    objective_, dual_gap_
    offset_ : float
        rho: `decision_function` is `score_samples` minus this. 0 for an early model, whose partitions have their own.
    support_, support_vectors_, dual_coef_
    intercept_ : ndarray of shape (1,)
        Minus rho.
    n_support_

    See Also
    --------
    CuttingPlaneOneClassSVM : linear, or with Nystroem features.
    online.BSGDOneClass : learns event by event.
    sklearn.svm.OneClassSVM : the same problem.

    Notes
    -----
    For :math:`f(x) = \sum_i \alpha_i K(x_i, x) - \rho` and sample weights :math:`w_i` it solves

    .. math::

        \min_\alpha\: \tfrac12\, \alpha^\top K \alpha \quad
        \text{where} \quad 0 \le \alpha_i \le w_i, \: \sum_i \alpha_i = \nu \sum_i w_i

    References
    ----------
    * B. Schoelkopf et al. Estimating the support of a high-dimensional distribution. Neural Computation 13, 2001.
    * C.-J. Hsieh, S. Si and I. S. Dhillon. A divide-and-conquer solver for kernel support vector machines. ICML 2014.

    Examples
    --------
    >>> import numpy as np
    >>> from streamsvm import DCOneClassSVM
    >>> X = np.random.default_rng(0).normal(size=(1000, 2))
    >>> svm = DCOneClassSVM(nu=0.1).fit(X)
    >>> svm.predict([[0, 0], [5, 5]])
    array([ 1, -1])
    >>> round(float(np.mean(svm.predict(X) == -1)), 2)
    0.1
    """

    _fixed = {"task": "oneclass"}
    _fields = ("nu", "tol")

    def __init__(
        self,
        *,
        nu: float = 0.5,
        kernel: DefiniteKernel = "rbf",
        gamma: Gamma = "scale",
        degree: int = 3,
        coef0: float = 0.0,
        kernel_params: Options = None,
        tol: float = 1e-3,
        random_state: RandomState = None,
        early: bool = False,
        children: int = 4,
        levels: int | None = None,
        early_level: int | None = None,
        sample: int = 1000,
        clustering: Clustering = "input",
        part_rows: int | None = None,
        adaptive: bool = True,
        refine: bool = True,
        neighbours: int = 1,
        cache_size: float = 200,
        scale: Scale = "none",
        gaps: Fill | None = None,
        mark_gaps: bool = False,
        category: Columns = None,
        memory_limit: int | str | None = None,
        n_jobs: int | None = None,
        client: Client = None,
        verbose: int = 0,
    ) -> None:
        set_parameters(self, locals())
