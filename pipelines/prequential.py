"""A model along a stream: each event is predicted, then learned; what it said, how long that took, and its memory."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
from areas import roc_area
from river import base, compose
from sklearn.metrics import cohen_kappa_score
from streams import Event

LOOKS = 10  # at memory
BLOCKS = 50  # whose accuracies make a curve


class Clock:
    """CPU seconds of this process within its blocks: what others do on the machine does not count."""

    seconds = 0.0

    def __enter__(self) -> Self:
        self._began = time.process_time()
        return self

    def __exit__(self, *exc: object) -> None:
        self.seconds += time.process_time() - self._began


@dataclass
class Told:
    """The label of each event, the one predicted before it was learned, and probabilities, of models that know them."""

    truth: list[Any] = field(default_factory=list)
    labels: list[Any] = field(default_factory=list)
    chances: list[dict[Any, float]] = field(default_factory=list)
    memory: list[tuple[int, int]] = field(default_factory=list)  # (events, bytes)
    seconds: float = 0.0

    @property
    def right(self) -> np.ndarray:
        return np.array([told == y for told, y in zip(self.labels, self.truth, strict=True)], bool)

    def scores(self, classes: Sequence[Any]) -> dict[str, float | None]:
        """accuracy, Cohen's kappa, and `roc_area`. None where it is not defined."""
        codes = {label: code for code, label in enumerate(classes)}
        truth = np.array([codes[y] for y in self.truth])
        told = np.array([codes.get(label, -1) for label in self.labels])
        with np.errstate(invalid="ignore"):
            kappa = cohen_kappa_score(truth, told) if len(np.union1d(truth, told)) > 1 else math.nan
        found = {
            "accuracy": float(np.mean(self.right)),
            "kappa": kappa,
            "roc_auc": self._area(truth, classes),
        }
        return {name: None if value is None or math.isnan(value) else value for name, value in found.items()}

    def _area(self, truth: np.ndarray, classes: Sequence[Any]) -> float | None:
        if not self.chances:
            return None
        told = [[chances.get(label, 0.0) for label in classes] for chances in self.chances]
        return roc_area(truth, np.array(told))

    def curve(self, n: int) -> list[tuple[int, float]]:
        """(events so far, accuracy within the block that ends there), in blocks of equal length of n events."""
        right, block = self.right, math.ceil(n / BLOCKS)
        starts = range(0, len(right), block)
        return [(min(i + block, len(right)), float(np.mean(right[i : i + block]))) for i in starts]


def prequential(
    model: base.Classifier, events: Sequence[Event], limit_s: float = math.inf, *, labels_only: bool = False
) -> Told:
    """`events` in their order, until the model has had more than `limit_s` CPU seconds.

    labels_only: neither probabilities nor memory are asked for.
    """
    told, clock = Told(), Clock()
    looks = {math.ceil(len(events) * part / LOOKS) for part in range(1, LOOKS + 1)}
    says_likeliest = not labels_only and _says_likeliest(model)
    for i, (x, y) in enumerate(events, start=1):
        with clock:
            chances = model.predict_proba_one(x) if says_likeliest else None
            label = model.predict_one(x) if chances is None else max(chances, key=chances.get, default=None)
        if chances is None and not labels_only:
            chances = _chances(model, x)
        with clock:
            model.learn_one(x, y)
        told.truth.append(y)
        told.labels.append(label)
        if chances is not None:
            told.chances.append(dict(chances))
        if i in looks and not labels_only:
            told.memory.append((i, model._raw_memory_usage))
        if clock.seconds > limit_s:
            break
    told.seconds = clock.seconds
    return told


def _says_likeliest(model: base.Classifier) -> bool:
    """Whether its label is that of the largest probability, as river has it: then it is asked once."""
    while isinstance(model, compose.Pipeline):
        model = [*model.steps.values()][-1]
    return type(model).predict_one is base.Classifier.predict_one


def _chances(model: base.Classifier, x: dict[str, float]) -> dict[Any, float] | None:
    try:
        return model.predict_proba_one(x)
    except NotImplementedError:  # it knows labels alone
        return None
