"""The targets and bounds of the rows of a fit: of a few, a block or all, in memory or read from the store."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np

from streamsvm.config import FitConfig
from streamsvm.data.sketch import Sketch
from streamsvm.data.store import Store
from streamsvm.parallel.sizes import SizedInBytes, size_of
from streamsvm.problems.subproblems import DualData
from streamsvm.tasks.base import Coder, Targets, Task
from streamsvm.tasks.weights import class_factors, label_factors


class TargetSource(Protocol):
    """The targets and bounds of n rows. classes (k,). nbytes: its size in memory."""

    @property
    def classes(self) -> np.ndarray: ...

    @property
    def nbytes(self) -> int: ...

    def read(self, start: int, stop: int) -> DualData:
        """Of rows start..stop."""

    def take(self, ids: np.ndarray) -> DualData:
        """Of the rows with these ids, in their order."""

    def all(self) -> DualData:
        """Of all rows, in memory."""

    def times(self, factors: np.ndarray) -> TargetSource:
        """With bounds times these factors, see `DualData.times`."""

    def without(self, ids: np.ndarray) -> TargetSource:
        """With bounds of 0 of the rows with these ids, which rise."""


@dataclass(frozen=True)
class TargetsInMemory(SizedInBytes):
    """Of rows in memory."""

    asked: DualData

    @property
    def classes(self) -> np.ndarray:
        return self.asked.targets.classes

    @property
    def nbytes(self) -> int:
        return size_of(vars(self.asked.targets)) + self.asked.upper.nbytes + self.asked.parts.nbytes

    def read(self, start: int, stop: int) -> DualData:
        return self.asked.take(slice(start, stop))

    def take(self, ids: np.ndarray) -> DualData:
        return self.asked.take(ids)

    def all(self) -> DualData:
        return self.asked

    def times(self, factors: np.ndarray) -> TargetsInMemory:
        return TargetsInMemory(self.asked.times(factors))

    def without(self, ids: np.ndarray) -> TargetsInMemory:
        upper = self.asked.upper.copy()
        upper[ids] = 0.0
        return TargetsInMemory(replace(self.asked, upper=upper))


@dataclass(frozen=True)
class TargetsInStore(SizedInBytes):
    """Of rows in a store, whose labels and weights are read when they are needed: it holds nothing per row.

    factors: by class, (k,) each. The bound of a row is the product of its class's, in their order, with its weight
    behind the first one: the same to the last bit in whatever block it is read. kept_out (h,): rising ids of rows with
    bounds of 0. by_label (2, k): those of labels, instead of the coder's.
    """

    store: Store
    task: Task
    coder: Coder
    factors: tuple[np.ndarray, ...]
    kept_out: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))
    by_label: np.ndarray | None = None

    @property
    def classes(self) -> np.ndarray:
        return self.coder.classes

    @property
    def nbytes(self) -> int:
        return self.kept_out.nbytes

    def read(self, start: int, stop: int) -> DualData:
        first, last = np.searchsorted(self.kept_out, (start, stop))
        out = self.kept_out[first:last] - start
        labels = self.store.labels(start, stop) if self.task.reads_labels else np.zeros(stop - start)
        return self._asked(labels, self.store.weights(start, stop), out)

    def take(self, ids: np.ndarray) -> DualData:
        out = np.flatnonzero(np.isin(ids, self.kept_out))
        labels = self.store.labels_at(ids) if self.task.reads_labels else np.zeros(len(ids))
        return self._asked(labels, self.store.weights_at(ids), out)

    def all(self) -> DualData:
        n = self.store.n
        codes, upper = np.empty(n, np.int32), np.empty(n)
        common = self.take(np.empty(0, np.int64)).targets
        linear = None if common.linear is None else np.empty((n, common.linear.shape[1]))
        for start, stop in self.store.label_blocks() if self.task.reads_labels else self.store.blocks():
            found = self.read(start, stop)
            codes[start:stop], upper[start:stop] = found.targets.codes, found.upper
            if linear is not None:
                linear[start:stop] = found.targets.linear
        return asked_of(self.task, replace(common, codes=codes, linear=linear), upper)

    def times(self, factors: np.ndarray) -> TargetsInStore:
        if factors.ndim == 2:
            return replace(self, by_label=factors)
        return replace(self, factors=(*self.factors, factors))

    def without(self, ids: np.ndarray) -> TargetsInStore:
        return replace(self, kept_out=np.union1d(self.kept_out, ids))

    def _asked(self, labels: np.ndarray, weight: np.ndarray | None, out: np.ndarray) -> DualData:
        """out: places of the held-out rows."""
        targets = self.coder.targets(labels)
        if self.by_label is not None:
            targets = replace(targets, factors=self.by_label)
        codes, (first, *more) = targets.codes, self.factors
        upper = first[codes]
        if weight is not None:
            upper *= weight
        for factor in more:
            upper *= factor[codes]
        upper[out] = 0.0
        return asked_of(self.task, targets, upper)


def asked_of(task: Task, targets: Targets, upper: np.ndarray) -> DualData:
    """The targets and bounds of rows none of which is known to be close to another."""
    return DualData(task, targets, upper, np.zeros(len(upper), np.int8))


def answers_of(
    store: Store, config: FitConfig, task: Task, targets: Targets | None = None
) -> tuple[TargetSource, np.ndarray]:
    """The targets of all rows of a store, and how many rows each class has, (k,) or (1,) without classes.

    If balanced weights follow from the latter, a row counts as many as its weight says. targets: as `prepare` has
    them. Raises ConfigError, DataError.
    """
    in_parts = store.reads_labels or not task.reads_labels
    coder = task.coder(store, config) if targets is None and in_parts else None
    if coder is None:
        targets = targets or task.targets(store, config)
        counts: np.ndarray = np.bincount(targets.codes, minlength=len(targets.classes))
        if _weighs_classes(store, config):
            counts = np.bincount(targets.codes, store.sample_weight, minlength=len(counts))
            if targets.factors is not None:
                targets = replace(targets, factors=_of_sets(targets, counts, config))
        weights = _by_code(task, counts, targets.classes, config)[targets.codes]
        if store.sample_weight is not None:
            weights *= store.sample_weight
        return TargetsInMemory(asked_of(task, targets, config.C * weights)), counts
    store.require_weights()  # now, rather than in the middle of a fit
    counts = coder.counts
    if is_weighed := _weighs_classes(store, config):
        counts = np.zeros(len(counts))
        for start, stop in store.label_blocks():
            codes = coder.targets(store.labels(start, stop)).codes
            counts += np.bincount(codes, store.weights(start, stop), minlength=len(counts))
    factors = _by_code(task, counts, coder.classes, config)
    factor = np.full(len(factors), config.C if task.reads_labels else 1.0)
    found = TargetsInStore(store, task, coder, (factors, factor))
    if is_weighed and (common := found.take(np.empty(0, np.int64)).targets).factors is not None:
        found = replace(found, by_label=_of_sets(common, counts, config))
    return found, counts


def _weighs_classes(store: Store, config: FitConfig) -> bool:
    """Whether balanced weights of classes depend on weights of rows. A sketch does not read these."""
    is_balanced = config.class_weight == "balanced" or "class_weight" in config.search.chosen
    return (
        is_balanced and not isinstance(store, Sketch) and store.weights_at(np.empty(0, np.int64)) is not None
    )


def _of_sets(targets: Targets, counts: np.ndarray, config: FitConfig) -> np.ndarray | None:
    """Factors of labels, of sets whose rows have so much weight (l,)."""
    assert targets.sets is not None
    return label_factors(counts, targets.sets, targets.classes, config.class_weight)


def _by_code(task: Task, counts: np.ndarray, classes: np.ndarray, config: FitConfig) -> np.ndarray:
    """Factors on the bounds of rows by their codes: 1 of sets, whose targets have factors of each label."""
    return class_factors(counts, classes, None if task.in_sets else config.class_weight)
