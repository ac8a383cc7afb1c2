"""From the variables of a task's subproblems to a model."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from streamsvm.data.rows import Rows
from streamsvm.models import ExpansionModel, KernelModel
from streamsvm.training.base import Fit


def model_of_duals(
    fit: Fit,
    alpha: np.ndarray,
    intercept: np.ndarray,
    take: Callable[[np.ndarray], Rows],
    *,
    break_ties: bool = True,
) -> KernelModel | ExpansionModel:
    """The model, without a certificate, of the variables alpha (n, columns) of all subproblems of a fit's task.

    intercept: of each subproblem. take: rows by number. break_ties: of pairs of classes, see KernelModel.
    """
    header = fit.prepared.header()
    if fit.task.in_pairs:
        support = np.flatnonzero(alpha.any(axis=1))
        own = alpha[support], fit.codes[support], support, intercept
        return KernelModel(header, take(support), *own, break_ties)
    coef = np.zeros((len(alpha), len(intercept)))
    for column, part in enumerate(fit.task.subproblems(fit.targets)):
        coef[part.ids, column] = part.coefficients(alpha[part.places])
    support = np.flatnonzero(coef.any(axis=1))
    return ExpansionModel(header, take(support), coef[support], intercept, support, fit.task.name)
