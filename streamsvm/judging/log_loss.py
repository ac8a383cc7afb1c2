"""Log losses of rows that a fit has not learned from, over that of the frequencies of classes: 1 less their mean is D2.

A search has no calibrated probabilities yet. What calibration would make of decision values is fitted to one half of
the rows and scored on the other half."""

from __future__ import annotations

import numpy as np
from scipy.special import logsumexp

from streamsvm.models.calibration import fit_sigmoid, targets
from streamsvm.problems.subproblems import DualData

D2_LOG_LOSS = "d2_log_loss"
SLOPES = (0.5, 1.0, 2.0, 4.0, 8.0)  # of log-odds by decision values, of which 1 is the margin
LEAST = 1e-15  # a smaller probability counts as this one


def likelihoods(decisions: np.ndarray, codes: np.ndarray, k: int, *, pairwise: bool) -> np.ndarray:
    """What `log_losses` needs of rows: of two classes the decision values (m, 1), else the log-probability (m, slopes)
    of each row's class under each of SLOPES a. Those of classes i are proportional to prod_j sigmoid(a f_ij)^(2 / k)
    over the pairs f_ij that i is in, or to sigmoid(a f_i) against the rest. decisions (m, problems), codes (m,)."""
    if k == 2:
        return decisions[:, -1:]
    of_slopes = (_of_pairs(slope * decisions, k) if pairwise else _log_sigmoid(slope * decisions) for slope in SLOPES)
    rows = np.arange(len(codes))
    return np.column_stack([z[rows, codes] - logsumexp(z, axis=1) for z in of_slopes])


def _of_pairs(u: np.ndarray, k: int) -> np.ndarray:
    """(m, k) from the log-odds (m, n_pairs) of j among i and j, for each pair i < j."""
    z, start = np.zeros((len(u), k)), 0
    for i in range(k):
        of_class = u[:, start : (start := start + k - 1 - i)]
        of_later = _log_sigmoid(of_class)
        z[:, i + 1 :] += of_later
        z[:, i] += (of_later - of_class).sum(axis=1)
    return 2 / k * z


def _log_sigmoid(u: np.ndarray) -> np.ndarray:
    return -np.logaddexp(0, -u.astype(np.float64))


def log_losses(likelihoods: np.ndarray, held_out_data: DualData) -> np.ndarray:
    """(h,) losses of held-out rows in random order, from their `likelihoods`; weighted as rows are."""
    task, row_targets = held_out_data.task, held_out_data.targets
    codes, weight = task.truth(row_targets), (held_out_data.upper[:, None] * row_targets.weights).mean(axis=1)
    weight = weight / weight.mean()
    losses, half = np.empty(len(codes)), np.arange(len(codes)) % 2 == 0
    for scored, fitted in ((half, ~half), (~half, half)):
        if likelihoods.shape[1] == 1:
            f, positive = likelihoods[:, 0].astype(np.float64), codes == 1
            [(slope, offset)] = fit_sigmoid(f[fitted], targets(positive[fitted], weight[fitted]), weight[fitted])
            u = slope * f[scored] + offset
            losses[scored] = np.logaddexp(0, np.where(positive[scored], -u, u))
        else:
            best = np.argmax(weight[fitted] @ likelihoods[fitted])
            losses[scored] = -likelihoods[scored, best]
    return weight * losses / constant_log_loss(codes, weight)


def probability_losses(p: np.ndarray, codes: np.ndarray) -> np.ndarray:
    """(h,) losses of probabilities (h, k) of rows of these classes."""
    of_class = p[np.arange(len(codes)), codes]
    return -np.log(np.maximum(of_class, LEAST)) / constant_log_loss(codes, np.ones(len(codes)))


def constant_log_loss(codes: np.ndarray, weight: np.ndarray) -> float:
    """The log loss of the frequencies of classes, the best constant."""
    frequencies = np.bincount(codes, weight) / weight.sum()
    frequencies = frequencies[frequencies > 0]
    return max(float(-frequencies @ np.log(frequencies)), np.finfo(np.float64).tiny)
