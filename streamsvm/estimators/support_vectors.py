"""Support vectors of kernel models under the names and in the layout of scikit-learn's `SVC`."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse
from sklearn.utils.validation import check_is_fitted

from streamsvm.data.rows import Rows
from streamsvm.models import Header, KernelModel


def given_rows(rows: Rows, header: Header) -> np.ndarray | sparse.csr_array:
    """Support vectors as they were given: a shift to the origin is the fit's own, no option of the caller's.

    Of a precomputed kernel there are none, (0, 0).
    """
    scaling = header.scaling
    if header.kernel.row.whole:
        return np.empty((0, 0))
    return rows.X + scaling.offset.astype(rows.X.dtype) if scaling.kind == "centre" else rows.X


class SupportVectors:
    """Attributes of an estimator whose `model_` is a KernelModel. Raises AttributeError for any other."""

    model_: Any
    classes_: np.ndarray

    @property
    def support_(self) -> np.ndarray:
        model, order = self._exact_model()
        return model.ids[order]

    @property
    def support_vectors_(self) -> np.ndarray | sparse.csr_array:
        model, order = self._exact_model()
        return given_rows(model.support.take(order), model.header)

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

    def _exact_model(self) -> tuple[KernelModel, np.ndarray]:
        """The model, and its support vectors' order class by class."""
        check_is_fitted(self)
        if not isinstance(self.model_, KernelModel):
            raise AttributeError(
                "an early model has support vectors by part, in model_.part(p); fit with early=False"
            )
        return self.model_, np.argsort(self.model_.codes, kind="stable")
