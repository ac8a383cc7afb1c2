"""From scores to ranks: thresholds on one line."""

from __future__ import annotations

import numpy as np


def rank_thresholds(f: np.ndarray, ranks: np.ndarray, k: int, weight: np.ndarray) -> np.ndarray:
    """(k - 1,) rising thresholds for which the ranks 0..k-1 predicted from scores f (n,) are least wrong.

    Threshold r splits ranks up to r from those above with the least weight on the wrong side; the sum of these is the
    absolute error of the ranks. Of equally good splits the lowest is taken: so the thresholds rise with r.
    """
    order = np.argsort(f, kind="stable")
    f, ranks, weight = f[order], ranks[order], weight[order]
    borders = np.append(np.append(-np.inf, (f[1:] + f[:-1]) / 2), np.inf)
    splits = np.append(np.append(True, f[1:] > f[:-1]), True)  # equal scores stay on one side
    thresholds = np.empty(k - 1)
    for r in range(k - 1):
        above = ranks > r
        wrong_below = np.append(0.0, np.cumsum(weight * above))
        right_below = np.append(0.0, np.cumsum(weight * ~above))
        wrong = wrong_below + right_below[-1] - right_below
        thresholds[r] = borders[np.argmin(np.where(splits, wrong, np.inf))]
    return thresholds
