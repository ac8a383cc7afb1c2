"""Budgeted SGD over a store: epochs of shuffled windows of rows, the next one read while this one is learnt.

Windows do not follow the store's chunks, so the model does not depend on them: they are several chunks long, and
rows are shuffled inside. Rows in an order of classes over more than a window want `ingest --shuffle`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import numpy as np

from streamsvm.ahead import ahead
from streamsvm.checkpoints import Checkpoints
from streamsvm.config import FitConfig
from streamsvm.data.check import require_finite
from streamsvm.data.rows import Rows
from streamsvm.data.store import Store
from streamsvm.events import Events
from streamsvm.fits.base import Fit
from streamsvm.memory import MiB, require_memory
from streamsvm.models import BudgetModel
from streamsvm.solvers.bsgd import BudgetLearner, BudgetOptions
from streamsvm.solvers.pairs import n_columns, signs

SHUFFLE = 2  # of the seed's streams: which windows come when, and in which order their rows
SAVE_SECONDS = 30.0
WINDOW_BYTES = 32 * MiB


class BSGDFit(Fit):
    """One learner over all epochs."""

    def __init__(self, store: Store, config: FitConfig, events: Events, checkpoints: Checkpoints) -> None:
        super().__init__(store, config, events, checkpoints)
        o = config.bsgd
        options = BudgetOptions.of(o, o.lam if o.lam is not None else 1.0 / (store.n * config.C))
        self.weight = self.upper / config.C
        row = store.nbytes / store.n * (1 if store.is_sparse else 4 / store.dtype.itemsize)  # as float32
        rows = int(max(1024, WINDOW_BYTES // row))
        self.windows = [(start, min(start + rows, store.n)) for start in range(0, store.n, rows)]
        self.bytes = self._bytes(rows * row)
        require_memory(config.memory_limit, sum(self.bytes.values()), f"a budget of {o.budget}")
        self.learner = BudgetLearner(self.kernel, store.d, n_columns(len(self.classes)), options)
        self.loss = 0.0  # mean hinge loss of the last epoch's rows, each before its step

    def plan(self) -> dict[str, Any]:
        """Memory, and the rows and kernel values that are to come."""
        rows = self.store.n * self.config.bsgd.epochs
        facts = {"n": self.store.n, "d": self.store.d, "classes": self.classes.tolist()}
        return self.bytes | facts | {"steps": rows, "kernel_values": rows * self.config.bsgd.budget}

    def model(self) -> tuple[BudgetModel, dict[str, Any]]:
        with self.engine.serial_blas(), self.phase("learn"):
            accuracy = self._learn()
        certificate = {"objective": self._objective(), "gap": None, "exact": False}
        model = BudgetModel.of(self.header(certificate), self.learner)
        facts = asdict(self.learner.stats()) | {
            "epochs": self.config.bsgd.epochs,
            "online_accuracy": accuracy,
        }
        return model, self.report(certificate, model.n_support, **facts)

    def _learn(self) -> float:
        """All epochs, or those that a saved state has left; accuracy in the last one, of each row before its step."""
        first_epoch, first_block, counted = self._resumed()
        for epoch in range(first_epoch, self.config.bsgd.epochs):
            order = np.random.default_rng([self.config.seed, SHUFFLE, epoch]).permutation(len(self.windows))
            counted = counted if epoch == first_epoch else np.zeros(3)
            start = first_block if epoch == first_epoch else 0
            self._learn_epoch(epoch, order, start, counted)
        right, loss, rows = counted
        self.loss = loss / max(rows, 1)
        return right / max(rows, 1)

    def _learn_epoch(self, epoch: int, order: np.ndarray, start: int, counted: np.ndarray) -> None:
        """counted: rows predicted right, their hinge losses, and rows of this epoch so far; goes on counting."""
        saved = began = time.perf_counter()
        before = int(counted[2])
        for number, (rows, ids) in enumerate(self._blocks(epoch, order[start:]), start + 1):
            Y = signs(self.codes[ids], len(self.classes))
            decisions = self.learner.learn(rows, Y, self.weight[ids], self.engine.threads)
            counted += _score(decisions, Y, self.weight[ids])
            seconds = time.perf_counter() - began
            self.events.progress(
                f"epoch {epoch + 1}",
                int(counted[2]),
                self.store.n,
                accuracy=counted[0] / counted[2],
                supports=self.learner.n_support,
                rows_s=(counted[2] - before) / seconds,
            )
            if time.perf_counter() - saved > SAVE_SECONDS or number == len(order):
                saved = time.perf_counter()
                state = {f"learner_{name}": array for name, array in self.learner.to_state().items()}
                self.checkpoints.save(epoch=epoch, block=number, counted=counted, **state)
        stats = asdict(self.learner.stats())
        self.events(
            "epoch", epoch=epoch + 1, accuracy=counted[0] / counted[2], loss=counted[1] / counted[2], **stats
        )

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

    def _blocks(self, epoch: int, order: np.ndarray) -> Iterator[tuple[Rows, np.ndarray]]:
        """Scaled rows and their ids, window by window, the next one read ahead."""

        def read(number: int) -> tuple[Rows, np.ndarray]:
            start, stop = self.windows[number]
            rows = self.store.read(start, stop)
            require_finite(self.store, rows, start)
            rng = np.random.default_rng([self.config.seed, SHUFFLE, epoch, int(number)])
            shuffled = rng.permutation(stop - start)
            return self.scaling.apply(rows).take(shuffled), start + shuffled

        return ahead(read, order)

    def _objective(self) -> float:
        """lambda/2 |w|^2 + mean loss, summed over columns; the loss is that of rows before their steps."""
        supports, (A, _) = self.learner.supports(), self.learner.coefficients()
        squared = float(np.sum(A * self.kernel.apply(supports, supports, A))) if len(A) else 0.0
        return 0.5 * self.learner.options.lam * squared + self.loss

    def _bytes(self, window_bytes: float) -> dict[str, int]:
        """What the fit holds: supports and their values, labels and weights, blocks of rows."""
        slots, store = self.config.bsgd.budget + 1, self.store
        columns = len(self.classes)
        return {
            "supports_bytes": 4 * slots * (store.d + slots + 5 * columns),
            "vector_bytes": store.n * 28,
            "window_bytes": int(4 * window_bytes) + 32 * MiB,
        }


def _score(decisions: np.ndarray, Y: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """(3,): rows predicted right, sum of their hinge losses over all columns, rows."""
    if Y.shape[1] == 1:
        right = (decisions > 0) == (Y > 0)
    else:
        right = np.argmax(decisions, axis=1) == np.argmax(Y, axis=1)
    loss = weight @ np.maximum(1 - Y * decisions, 0).sum(axis=1)
    return np.array([np.count_nonzero(right), loss, len(Y)], np.float64)
