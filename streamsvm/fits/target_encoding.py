"""The values of target-encoded columns: the mean of the target for each text, shrunk towards that of all rows.

As in scikit-learn's TargetEncoder, training rows get values of the other folds, so that no row's own target is in its
features; new and held-out rows get the values of all folds.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from streamsvm.config import FitConfig
from streamsvm.data.labels import label_texts
from streamsvm.data.sketch import Sketch
from streamsvm.data.store import Store
from streamsvm.errors import ConfigError
from streamsvm.events import Events
from streamsvm.fits.targets import TargetSource, target_source_of
from streamsvm.judging.held_out import held_out_ids
from streamsvm.parallel.engine import Engine
from streamsvm.tables.schema import Feature, column
from streamsvm.tables.target_encoding import FOLDS, FoldAssignment, codes_without_values, with_values
from streamsvm.tasks.base import Task

BLOCK, READ_BYTES = 1 << 16, 16 << 20  # rows summed together, whatever the chunks; bytes of rows read together
MOST_VALUES = 1 << 21  # texts times classes of a column: each statistic of their folds takes 84 MB
TASKS = ("classify", "regress")


@dataclass(frozen=True)
class TargetMoments:
    """The number of rows, and the mean and the sum of squared deviations of each output. The last axis is outputs."""

    n: np.ndarray
    mean: np.ndarray
    m2: np.ndarray

    def __getitem__(self, places: Any) -> TargetMoments:
        return TargetMoments(self.n[places], self.mean[places], self.m2[places])

    def pooled(self, axis: int) -> TargetMoments:
        """The moments of all rows along an axis (Chan, Golub and LeVeque 1979)."""
        n = self.n.sum(axis=axis, keepdims=True)
        mean = np.sum(self.n * self.mean, axis=axis, keepdims=True) / np.maximum(n, 1)
        m2 = np.sum(self.m2 + self.n * (self.mean - mean) ** 2, axis=axis, keepdims=True)
        return TargetMoments(n, mean, m2)


def merge(a: TargetMoments, b: TargetMoments) -> TargetMoments:
    both = (np.stack([getattr(a, name), getattr(b, name)]) for name in ("n", "mean", "m2"))
    return TargetMoments(*both).pooled(0)[0]


def encoded(store: Store, config: FitConfig, task: Task, engine: Engine, events: Events) -> Store:
    """The store of a fit: with values of other folds instead of codes. Unchanged without such columns. Rows that the
    configuration holds out count in no value. Raises ConfigError, DataError."""
    texts = codes_without_values(store)
    if not texts:
        return store
    if task.name not in TASKS:
        raise ConfigError(
            f"task {task.name} has no target-encoded columns, found {next(iter(texts.values())).name!r}: they are of "
            f"tasks {' and '.join(TASKS)}; encode it in another way"
        )
    target_source = target_source_of(store, config, task)[0] if task.has_classes else None
    labels = () if target_source is None else tuple(label_texts(target_source.classes).tolist())
    classes = labels if len(labels) > 2 else ()
    _require_few(texts, len(classes))
    fold_assignment = FoldAssignment.of_store(store, config.seed, held_out_ids(store, config))
    starts = range(0, BLOCK if isinstance(store, Sketch) else store.n, BLOCK)  # a plan reads some rows
    blocks = [(start, min(start + BLOCK, store.n)) for start in starts]
    sizes = {at: len(feature.categories) + 1 for at, feature in texts.items()}
    shared = engine.share(store), target_source, fold_assignment, sizes, max(1, len(classes))
    _, sums = engine.map_reduce(_sums, merge, blocks, shared=shared, phase="scale", events=events)
    ends = np.cumsum([0, *sizes.values()])
    tables = {
        at: _values(sums[start:stop], feature.smooth)
        for (at, feature), start, stop in zip(texts.items(), ends, ends[1:], strict=False)
    }
    encoded_store = with_values(store, tables, classes, fold_assignment)
    return store.of(encoded_store) if isinstance(store, Sketch) else encoded_store


def _require_few(texts: dict[int, Feature], classes: int) -> None:
    """Raises ConfigError for a model that would consist mostly of such values."""
    widest = max(texts.values(), key=lambda feature: len(feature.categories))
    n_values = len(widest.categories) * classes
    if n_values > MOST_VALUES:
        raise ConfigError(
            f"column {widest.name!r} has {len(widest.categories):,} texts, of which {classes:,} classes would make "
            f"{n_values:,} values; expected at most {MOST_VALUES:,}: use ingest's --hash {widest.name}=1024 instead"
        )


def _sums(
    store: Store,
    target_source: TargetSource | None,
    fold_assignment: FoldAssignment,
    sizes: dict[int, int],
    outputs: int,
    block: tuple[int, int],
) -> tuple[None, TargetMoments]:
    """(texts of all columns, folds) moments of the training rows of a block."""
    fold = fold_assignment.of(np.arange(*block))
    is_train = fold < FOLDS
    y = _targets(store, target_source, outputs, block)[is_train]
    first, total = np.cumsum([0, *sizes.values()])[:-1], sum(sizes.values())
    codes = np.concatenate([*_codes(store, [*sizes], block)])[is_train]
    by_column = [_counted((codes[:, j] + start) * FOLDS + fold[is_train], y, total) for j, start in enumerate(first)]
    moments = zip(*((s.n, s.mean, s.m2) for s in by_column), strict=True)
    return None, TargetMoments(*(np.sum(moment, axis=0) for moment in moments))  # each text is in one column


def _codes(store: Store, columns: list[int], block: tuple[int, int]) -> Iterator[np.ndarray]:
    """(m, columns) codes of a block, from 0, in pieces that are read one by one."""
    step = max(1, int(READ_BYTES / (store.nbytes / store.n)))
    for start in range(*block, step):
        X = store.read(start, min(start + step, block[1])).X
        yield np.stack([column(X, at) - 1 for at in columns], axis=1)


def _targets(store: Store, target_source: TargetSource | None, outputs: int, block: tuple[int, int]) -> np.ndarray:
    """(m, outputs) labels, or whether a row is of the second class, or of each class."""
    if target_source is None:
        return store.labels(*block).astype(np.float64)[:, None]
    codes = target_source.read(*block).targets.codes[:, None]
    return (codes == (np.arange(outputs) if outputs > 1 else 1)).astype(np.float64)


def _counted(cells: np.ndarray, y: np.ndarray, texts: int) -> TargetMoments:
    size = texts * FOLDS
    n = np.bincount(cells, minlength=size)[:, None]

    def summed(values: np.ndarray) -> np.ndarray:
        return np.stack([np.bincount(cells, column, size) for column in values.T], axis=1)

    mean = summed(y) / np.maximum(n, 1)
    m2 = summed((y - mean[cells]) ** 2)
    return TargetMoments(*(part.reshape(texts, FOLDS, -1) for part in (n, mean, m2)))


def _values(sums: TargetMoments, smooth: float | str | None) -> np.ndarray:
    """(texts, folds + 1, outputs) values of one column: without each fold, and of all of them."""
    other_folds = [np.delete(np.arange(FOLDS), fold) for fold in range(FOLDS)]
    return np.concatenate([_shrunk(sums[:, folds], smooth) for folds in [*other_folds, np.arange(FOLDS)]], axis=1)


def _shrunk(sums: TargetMoments, smooth: float | str | None) -> np.ndarray:
    """(texts, 1, outputs) means of texts, shrunk to that of all rows by n / (n + smooth), or by empirical Bayes."""
    by_text = sums.pooled(1)
    whole = by_text.pooled(0)
    if smooth == "auto":
        spread = whole.m2 / np.maximum(whole.n, 1) * by_text.n
        within = by_text.m2 / np.maximum(by_text.n, 1)
        total = spread + within
        weight = np.divide(spread, total, out=np.zeros_like(total), where=total > 0)
    else:
        weight = by_text.n / np.maximum(by_text.n + float(smooth or 0), np.finfo(float).tiny)
    return weight * by_text.mean + (1 - weight) * whole.mean
