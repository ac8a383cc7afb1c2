"""What every model but a routed one is: sums of kernel values over support rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from streamsvm.data.rows import Rows
from streamsvm.data.scaling import Scaling
from streamsvm.errors import ModelError
from streamsvm.kernels.base import Kernel
from streamsvm.kernels.inner import InnerProducts, Linear
from streamsvm.models import BudgetModel, ExpansionModel, KernelModel, LinearModel, LocalModel
from streamsvm.tasks import task_of


@dataclass(frozen=True)
class Expansion:
    """g_c(x) = sum_j coef[j, c] K(x', s_j) + intercept[c], x' = (x - offset) * scale.

    A column is a pair of classes, a class against the rest, or the one score of a task that has no more.
    """

    kernel: Kernel
    scaling: Scaling
    support: Rows  # (s, d) scaled
    coef: np.ndarray  # (s, columns)
    intercept: np.ndarray  # (columns,)

    def folded(self) -> Expansion:
        """The same function with the scaling in the support rows, where K allows that; else itself.

        With z = scale * s the linear kernel is x's' = x'z - offset'z; under a scaling that only multiplies, the
        inner product of poly and sigmoid is x'z.
        """
        offset, scale = self.scaling.offset, self.scaling.scale
        inner = self.kernel.is_linear or (isinstance(self.kernel, InnerProducts) and not offset.any())
        if self.scaling.kind == "none" or not inner:
            return self
        X: Any = self.support.X.astype(np.float64)
        X = sparse.csr_array(X.multiply(scale)) if self.support.is_sparse else X * scale
        intercept = self.intercept - (X @ offset) @ self.coef
        return Expansion(self.kernel, Scaling.none(len(scale)), Rows(X), self.coef, intercept)


def expansion(model: Any) -> Expansion:
    """The sums behind a model's decision values. Raises ModelError for models that have none, with the reason."""
    if task_of(model.task).has_labels and len(model.classes) < 2:
        raise ModelError(
            f"the model knows {len(model.classes)} classes so far, an export needs two: go on learning"
        )
    return Expansion(*_parts(model))


def _parts(model: Any) -> tuple[Kernel, Scaling, Rows, np.ndarray, np.ndarray]:
    kernel, scaling = model.header.kernel, model.header.scaling
    if isinstance(model, LocalModel):
        raise ModelError(
            "the model is an early prediction: each part of the data decides for its own rows, which the format has "
            "no words for; fit without --early (dcsvm.early), or export --format onnx"
        )
    if isinstance(model, KernelModel):
        return kernel, scaling, model.support, model.coefficients, model.intercept
    if isinstance(model, BudgetModel):
        return kernel, scaling, model.support, model.coef, model.bias
    if isinstance(model, ExpansionModel):
        return kernel, scaling, model.support, model.coef, model.intercept
    if isinstance(model, LinearModel) and model.landmarks is not None:
        return kernel, scaling, model.landmarks, model.coef, model.intercept
    if isinstance(model, LinearModel):  # w is its own support row
        columns = model.coef.shape[1]
        return Linear(), scaling, Rows(model.coef.T.copy()), np.eye(columns), model.intercept
    raise ModelError(f"models of kind {model.kind!r} cannot be exported")
