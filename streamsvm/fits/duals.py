"""From the variables of a task's subproblems to a model."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from streamsvm.data.rows import Rows
from streamsvm.fits.base import Fit
from streamsvm.models import ExpansionModel, KernelModel
from streamsvm.problems.subproblems import coefficients_of


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
    header, original = fit.prepared.header(), fit.prepared.original_ids
    if fit.task.in_pairs:
        support = np.flatnonzero(alpha.any(axis=1))
        own = alpha[support], fit.codes[support], original(support), intercept
        return KernelModel(header, take(support), *own, break_ties)
    coef = coefficients_of(fit.task, fit.targets, alpha)
    support = np.flatnonzero(coef.any(axis=1))
    intercept = fit.prepared.no_targets.units.labels(intercept)
    return ExpansionModel(header, take(support), coef[support], intercept, original(support), fit.task.name)
