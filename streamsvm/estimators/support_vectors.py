"""Support vectors of kernel models under the names and in the layout of scikit-learn's `SVC`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.utils.validation import check_is_fitted

from streamsvm.models import ExpansionModel, KernelModel

BY_PART = "an early model has support vectors by part, in model_.part(p); fit with early=False"


class SupportVectors:
    """Attributes of an estimator whose `model_` is a KernelModel, or an ExpansionModel of classes against the rest.
    Raises AttributeError for any other."""

    model_: Any
    classes_: np.ndarray
    _intercept: Callable[[np.ndarray], np.ndarray]

    @property
    def support_(self) -> np.ndarray:
        model, order = self._exact_model()
        return model.ids[order]

    @property
    def support_vectors_(self) -> np.ndarray | sparse.csr_array:
        model, order = self._exact_model()
        if model.header.kernel.row.whole:  # given kernel values, which have no rows
            return np.empty((0, 0))
        rows, scaling = model.support.take(order), model.header.scaling
        # without the shift to the origin that a fit makes of itself
        return rows.X + scaling.offset.astype(rows.X.dtype) if scaling.kind == "centre" else rows.X

    @property
    def dual_coef_(self) -> np.ndarray:
        model, order = self._exact_model()
        if isinstance(model, ExpansionModel):
            return model.coef.T
        alpha, codes = model.alpha[order], model.codes[order]
        if len(self.classes_) == 2:
            return np.where(codes == 1, 1.0, -1.0) * alpha.T
        # pair (i, j), i < j: positive for i, as in SVC; column c of row's alpha is the pair with class c + (c >= code)
        is_first = np.arange(alpha.shape[1])[:, None] >= codes
        return np.where(is_first, 1.0, -1.0) * alpha.T

    @property
    def intercept_(self) -> np.ndarray:
        model, _ = self._exact_model()
        is_of_pairs = model.is_pairwise and len(self.classes_) > 2
        return self._intercept(-model.intercept if is_of_pairs else model.intercept)

    @property
    def n_support_(self) -> np.ndarray:
        model, _ = self._exact_model()
        if isinstance(model, ExpansionModel):
            return np.count_nonzero(model.coef, axis=0).astype(np.int32)
        return np.bincount(model.codes, minlength=len(self.classes_)).astype(np.int32)

    def _exact_model(self) -> tuple[KernelModel | ExpansionModel, Any]:
        """The model, and its support vectors' order, class by class if each has a class."""
        check_is_fitted(self)
        if isinstance(self.model_, ExpansionModel):
            return self.model_, slice(None)
        if not isinstance(self.model_, KernelModel):
            raise AttributeError(BY_PART)
        return self.model_, np.argsort(self.model_.codes, kind="stable")


class RegressionVectors(SupportVectors):
    """Attributes of an estimator whose `model_` is an ExpansionModel of one column, as `SVR` has them.

    Attributes
    ----------
    dual_coef_ : ndarray of shape (1, n_SV)
        Coefficients of the support vectors.
    intercept_ : ndarray of shape (1,)
        Intercept, b.
    n_support_ : ndarray of shape (1,)
        Number of support vectors.
    """

    @property
    def n_support_(self) -> np.ndarray:
        return np.array([len(self._exact_model()[0].ids)], np.int32)
