"""ROC and precision-recall curves of more than two classes: each class against the rest."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from streamsvm.metrics import ScoreCounts, Spread, scored

MOST_CLASSES = 10  # with curves: the most frequent ones
MOST_ROWS = 1 << 16  # that curves are drawn from
MOST_POINTS = 200  # of a curve


class CurvesByClass:
    """Gathers evenly spread rows of n, with the decision value of each class.

    rows: of each class (k,), which decides which classes are shown.
    """

    def __init__(self, n: int, rows: np.ndarray) -> None:
        self._shown, self._spread, self.has_rows = most_frequent(rows), Spread(n, MOST_ROWS), False

    def add(self, start: int, truth: np.ndarray, values: np.ndarray) -> None:
        """Codes (m,) of the rows from `start` on, below 0 for unknown labels, and decision values (m, k)."""
        self._spread.add(start, truth, *values[:, self._shown].T)
        self.has_rows = True

    def result(self, labels: Sequence[Any]) -> list[dict[str, Any]]:
        """The curves of each shown class by its label, see `curves_of`; rows with unknown labels are left out."""
        truth, *columns = self._spread.rows().T
        known = truth >= 0
        return [
            curves_of(labels[code], scored(truth[known] == code, values[known]))
            for code, values in zip(self._shown, columns, strict=True)
        ]


def most_frequent(rows: np.ndarray) -> list[int]:
    """The codes of the MOST_CLASSES largest of rows (k,), in rising order."""
    return sorted(np.argsort(-rows, kind="stable")[:MOST_CLASSES].tolist())


def curves_of(label: Any, scores: ScoreCounts) -> dict[str, Any]:
    """label, roc_auc, and the curves `roc` and `precision_recall`, which a class without rows lacks."""
    return {"label": label, "roc_auc": scores.roc_auc(), **scores.curves(MOST_POINTS)}
