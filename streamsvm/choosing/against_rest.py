"""Many classes in a search: whether each is tried against the rest, and linear trials of that.

A linear trial solves what the fit of a linear kernel then solves: a hinge loss and a penalised constant for each class,
by dual coordinate descent. Pairs of a hundred classes are thousands of problems, each of them of few rows; one against
the rest then decides sparse text better, and takes less time."""

from __future__ import annotations

import math

import numpy as np

from streamsvm.choosing.metric_search import REST
from streamsvm.data.rows import Rows
from streamsvm.errors import ConfigError
from streamsvm.fits.prepare import TrainingData
from streamsvm.kernels.base import Kernel
from streamsvm.parallel.engine import Engine
from streamsvm.problems.linear_dual import RowsDual
from streamsvm.problems.row_risk import OneVsRestTerms
from streamsvm.problems.subproblems import DualData
from streamsvm.solvers.dual_descent import FALL, SWEEPS
from streamsvm.tasks.pairs import MANY, n_pairs

TOL = 0.1  # relative gap of a column
MOST_STEPS = 10  # of SWEEPS sweeps; a column that takes more is no candidate
CONSTANT = 1.0  # the feature of the intercept, as linear fits have it by default
PAIR_S = 1e-3  # seconds of a pair of classes in a fit, however few its rows are
MOST_S = 30.0  # seconds that pairs may take in a fit without a time budget
SHARE = 0.5  # of the time left, with one


def ways(prepared: TrainingData, left_s: float) -> tuple[str, ...]:
    """The values of `Trial.multiclass` to try: pairs as usual (""), one against the rest (REST), or both if there is a
    choice. Of so many classes that a fit by pairs would take too long, no pairs. left_s: seconds of a time budget."""
    k = len(prepared.classes)
    if "multiclass" not in prepared.config.search.chosen or not prepared.task.in_pairs or k < MANY:
        return ("",)
    most_s = MOST_S if math.isinf(left_s) else min(MOST_S, SHARE * left_s)
    return (REST,) if PAIR_S * n_pairs(k) > most_s else ("", REST)


def is_linear(kernel: Kernel, dual_data: DualData, *, squared: bool) -> bool:
    """Whether `solved` takes a trial."""
    task, targets = dual_data.task, dual_data.targets
    is_rest = task.by(REST) is task and targets.sets is None and len(targets.classes) > 2
    return is_rest and task.has_classes and kernel.is_linear and not squared


def solved(rows: Rows, dual_data: DualData, alpha: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Coefficients (m, k) of each class against the rest, from alpha (m, k), and intercepts (k,). Raises ConfigError if
    a class does not converge."""
    terms = OneVsRestTerms(alpha.shape[1])
    upper, bias = dual_data.upper, np.zeros(alpha.shape[1])
    problem = RowsDual(rows, terms, terms.row_columns(dual_data.targets), upper, CONSTANT, Engine(1))
    for column in range(problem.columns):
        variables = np.clip(alpha[None, :, column], 0.0, upper)
        w, objective, bound = problem.evaluated(column, variables)
        for step in range(MOST_STEPS):
            problem.descend(column, variables, w, SWEEPS * problem.n, FALL, [step, column])
            w, objective, bound = problem.evaluated(column, variables)
            if objective - bound <= TOL * objective:
                break
        else:
            raise ConfigError(f"a trial ended at a gap of {(objective - bound) / objective:.2g}")
        alpha[:, column], bias[column] = variables[0], CONSTANT * w[-1]
    return alpha, bias
