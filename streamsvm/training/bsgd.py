"""Budgeted SGD over a store: epochs of shuffled windows of rows, the next one read while this one is learnt.

Windows do not follow the store's chunks, so the model does not depend on them: they are several chunks long, and
rows are shuffled inside. Rows in an order of classes over more than a window want `ingest --shuffle`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from functools import partial
from typing import Any

import numpy as np

from streamsvm.config import FitConfig
from streamsvm.data.finite import require_finite
from streamsvm.data.rows import Rows
from streamsvm.data.scaling import Scaling
from streamsvm.data.store import Store
from streamsvm.events import Epoch, Window
from streamsvm.models import BudgetModel
from streamsvm.models.learner import BudgetLearner, BudgetOptions
from streamsvm.parallel.memory import MiB, require_memory
from streamsvm.parallel.prefetch import ahead
from streamsvm.solvers.loop import is_late
from streamsvm.tasks.pairs import n_columns, signs
from streamsvm.training.base import Context, Fit, Solution
from streamsvm.training.drafts import Draft
from streamsvm.training.growth import Growth, Seen
from streamsvm.training.prepare import Prepared

SHUFFLE = 2  # of the seed's streams: which windows come when, and in which order their rows
WINDOW_BYTES = 32 * MiB
BLOCKS = 8  # of a learner, between looks at the clock


class _Growth(Growth):
    """Workers share the partitions, and are sent codes and weights."""

    def is_spread(self, config: FitConfig, problems: int) -> bool:
        return config.bsgd.partitions > 1

    def network_bytes(self, n: int, seen: Seen) -> float:
        return n * 12.0

    def own_fit_s(self, n: int, config: FitConfig, pass_s: float, value_s: float) -> float:
        return config.bsgd.epochs * (pass_s + n * config.bsgd.budget * value_s)


class BSGDFit(Fit):
    """One learner over all epochs."""

    growth = _Growth(1.2, ("learn",))
    has_budget = True

    def __init__(self, prepared: Prepared, context: Context) -> None:
        super().__init__(prepared, context)
        store, config = prepared.store, prepared.config
        o = config.bsgd
        options = BudgetOptions.of(o, config.C, store.n)
        self.weight = self.upper / config.C
        row = (
            store.nbytes / store.n * (1 if store.is_sparse else 4 / store.dtype.itemsize)
        )  # as float32, all columns
        rows = int(max(1024, WINDOW_BYTES // row))
        if o.partitions > 1:
            rows = min(rows, -(-store.n // (o.partitions * o.rounds)))
        self.windows = [(start, min(start + rows, store.n)) for start in range(0, store.n, rows)]
        self.bytes = self._bytes(rows * row)
        require_memory(config.memory_limit, sum(self.bytes.values()), f"a budget of {o.budget}")
        self._learner = partial(
            BudgetLearner, self.kernel, self.scaling.width, n_columns(len(self.classes)), options
        )
        self.learner = self._learner()
        self.epochs, self.late = 0.0, False  # so far; whether time was up before the last row
        self.loss = 0.0  # mean hinge loss of the last epoch's rows, each before its step

    def plan(self) -> dict[str, Any]:
        """Memory, and the rows and kernel values that are to come."""
        rows = self.store.n * self.config.bsgd.epochs
        facts = {"n": self.store.n, "d": self.store.d, "classes": self.classes.tolist()}
        return self.bytes | facts | {"steps": rows, "kernel_values": rows * self.config.bsgd.budget}

    def solve(self, draft: Draft) -> Solution:
        with self.engine.serial_blas(), self.phase("learn"):
            accuracy = self._learn()
        model = BudgetModel.of(self.prepared.header(), self.learner)
        facts = asdict(self.learner.stats()) | {
            "epochs": self.epochs if self.late else self.config.bsgd.epochs,
            "online_accuracy": accuracy,
        }
        numbers = self._objective(), None, model.n_support
        return Solution(model, *numbers, exact=False, converged=None, facts=facts, late=self.late)

    def _learn(self) -> float:
        """All epochs, or those that a saved state has left; accuracy in the last one, of each row before its step."""
        first_epoch, first_block, counted = self._resumed()
        for epoch in range(first_epoch, self.config.bsgd.epochs):
            order = np.random.default_rng([self.config.seed, SHUFFLE, epoch]).permutation(len(self.windows))
            counted = counted if epoch == first_epoch else np.zeros(3)
            start = first_block if epoch == first_epoch else 0
            self._learn_epoch(epoch, order, start, counted)
            if epoch + 1 < self.config.bsgd.epochs and self._is_over():
                break
        right, loss, rows = counted
        self.loss = loss / max(rows, 1)
        return right / max(rows, 1)

    def _learn_epoch(self, epoch: int, order: np.ndarray, start: int, counted: np.ndarray) -> None:
        """counted: rows predicted right, their hinge losses, and rows of this epoch so far; goes on counting."""
        began = time.perf_counter()
        before = int(counted[2])
        number = start
        learnt = self._alone if self.config.bsgd.partitions == 1 else self._together
        for windows, score in learnt(epoch, order[start:]):
            number += windows
            counted += score
            seconds = time.perf_counter() - began
            stats = asdict(self.learner.stats())
            self.events(Window(accuracy=score[0] / score[2], loss=score[1] / score[2], **stats))
            self.events.progress(
                f"epoch {epoch + 1}",
                int(counted[2]),
                self.store.n,
                accuracy=counted[0] / counted[2],
                supports=self.learner.n_support,
                rows_s=(counted[2] - before) / seconds,
            )
            place = {"epoch": epoch, "block": number, "counted": counted}
            self.checkpoints.offer(partial(self._state, place), last=number == len(order))
            if number < len(order) and self._is_over():
                break
        self.epochs = epoch + float(counted[2]) / self.store.n
        facts = {"accuracy": counted[0] / counted[2], "loss": counted[1] / counted[2]}
        self.events(Epoch(epoch=epoch + 1, **facts, **asdict(self.learner.stats())))

    def _alone(self, epoch: int, order: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
        """(1, score) of each window, learnt one after the other."""
        read = partial(_window, self.store, self.scaling)
        windows = ahead(lambda number: (number, read(*self._place(epoch, number))), order)
        for number, (rows, shuffled) in windows:
            ids = self.windows[number][0] + shuffled
            Y, weight = signs(self.codes[ids], len(self.classes)), self.weight[ids]
            yield 1, self._learnt(rows, Y, weight)

    def _learnt(self, rows: Rows, Y: np.ndarray, weight: np.ndarray) -> np.ndarray:
        """The score of a window's rows, of those that there is time for."""
        score, step = np.zeros(3), BLOCKS * self.learner.block_rows
        for start in range(0, len(rows), step):
            if start and self._is_over():
                break
            here = slice(start, start + step)
            decisions = self.learner.learn(rows.take(here), Y[here], weight[here], self.engine.threads)
            score += _score(decisions, Y[here], weight[here])
        return score

    def _is_over(self) -> bool:
        """Whether time is up; asked where rows are left."""
        self.late = self.late or is_late(self.until)
        return self.late

    def _together(self, epoch: int, order: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
        """(windows, score) of each round: a window for each partition, learnt side by side; then their mean goes on.

        An approximation: no row of a round sees what the others change (McDonald, Hall and Mann 2010 for linear ones).
        """
        source, partitions = self.engine.share((self.store, self.scaling)), self.config.bsgd.partitions
        learn = partial(_learn_window, self._learner, len(self.classes))
        for first in range(0, len(order), partitions):
            chosen = order[first : first + partitions]
            places = [self._place(epoch, number) for number in chosen]
            codes, weight = ([of[slice(*place[0])] for place in places] for of in (self.codes, self.weight))
            shared = source, self.engine.share(self.learner.to_state())
            states, scores = zip(*self.engine.map(learn, places, codes, weight, shared=shared), strict=True)
            self.learner, *others = map(self._restored, states)
            self.learner.absorb(others)
            yield len(chosen), sum(scores)

    def _restored(self, state: Mapping[str, np.ndarray]) -> BudgetLearner:
        learner = self._learner()
        learner.restore(state)
        return learner

    def _place(self, epoch: int, number: int) -> tuple[tuple[int, int], list[int]]:
        """A window's rows, and the seed of their order."""
        return self.windows[number], [self.config.seed, SHUFFLE, epoch, int(number)]

    def _state(self, place: dict[str, Any]) -> dict[str, Any]:
        return place | {f"learner_{name}": array for name, array in self.learner.to_state().items()}

    def _resumed(self) -> tuple[int, int, np.ndarray]:
        """Epoch and block to go on with, and what was counted in that epoch."""
        saved = self.checkpoints.load()
        if saved is None:
            return 0, 0, np.zeros(3)
        self.learner.restore({name.removeprefix("learner_"): array for name, array in saved.items()})
        epoch, block = int(saved["epoch"]), int(saved["block"])
        if block == len(self.windows) and epoch + 1 < self.config.bsgd.epochs:
            return epoch + 1, 0, np.zeros(3)
        return epoch, block, saved["counted"]

    def _objective(self) -> float:
        """lambda/2 |w|^2 + mean loss, summed over columns; w with the bias, the loss of rows before their steps."""
        supports, (A, bias) = self.learner.supports(), self.learner.coefficients()
        squared = float(bias @ bias)
        squared += float(np.sum(A * self.kernel.apply(supports, supports, A))) if len(A) else 0.0
        return 0.5 * self.learner.options.lam * squared + self.loss

    def _bytes(self, window_bytes: float) -> dict[str, int]:
        """What the fit holds: supports and their values, labels and weights, blocks of rows."""
        slots, store = self.config.bsgd.budget + 1, self.store
        columns = len(self.classes)
        return {
            "supports_bytes": 4 * slots * (self.scaling.width + slots + 5 * columns),
            "vector_bytes": store.n * 28,
            "window_bytes": int(4 * window_bytes) + 32 * MiB,
        }


def _window(
    store: Store, scaling: Scaling, window: tuple[int, int], seed: list[int]
) -> tuple[Rows, np.ndarray]:
    """Scaled rows in a random order, and this order."""
    rows = store.read(*window)
    require_finite(store, rows, window[0])
    shuffled = np.random.default_rng(seed).permutation(len(rows))
    return scaling.apply(rows).take(shuffled), shuffled


def _learn_window(
    learner: Callable[[], BudgetLearner],
    n_classes: int,
    source: tuple[Store, Scaling],
    state: Mapping[str, np.ndarray],
    place: tuple[tuple[int, int], list[int]],
    codes: np.ndarray,
    weight: np.ndarray,
) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """A learner's state after a window more, and its score there."""
    own = learner()
    own.restore(state)
    rows, shuffled = _window(*source, *place)
    Y, weight = signs(codes[shuffled], n_classes), weight[shuffled]
    decisions = own.learn(rows, Y, weight)
    return own.to_state(), _score(decisions, Y, weight)


def _score(decisions: np.ndarray, Y: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """(3,): rows predicted right, sum of their hinge losses over all columns, rows."""
    if Y.shape[1] == 1:
        right = (decisions > 0) == (Y > 0)
    else:
        right = np.argmax(decisions, axis=1) == np.argmax(Y, axis=1)
    loss = weight @ np.maximum(1 - Y * decisions, 0).sum(axis=1)
    return np.array([np.count_nonzero(right), loss, len(Y)], np.float64)
