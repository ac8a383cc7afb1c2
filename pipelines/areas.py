"""The area under the ROC curve of two classes or more, as every recipe reports it."""

from __future__ import annotations

import numpy as np

from streamsvm.metrics import scored


def roc_area(codes: np.ndarray, answers: np.ndarray) -> float | None:
    """Of two classes that of the second; of more the mean of each against the rest, of those that some rows have, and
    some have not. None where there is no such class.

    codes (n,): classes from 0. answers (n, k): a score for each class, or (n,) for the second of two.
    """
    if answers.ndim == 1 or answers.shape[1] == 2:
        columns = {1: answers if answers.ndim == 1 else answers[:, 1]}
    else:
        columns = dict(enumerate(answers.T))
    found = [scored(codes == code, column).roc_auc() for code, column in columns.items()]
    known = [area for area in found if area is not None]
    return float(np.mean(known)) if known else None
