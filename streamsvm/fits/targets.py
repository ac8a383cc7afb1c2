"""The targets and bounds of the rows of a fit: of a few, a block or all, in memory or read from the store."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import reduce

import numpy as np

from streamsvm.config import FitConfig
from streamsvm.data.sketch import Sketch
from streamsvm.data.store import Store
from streamsvm.parallel.sizes import SizedInBytes, size_of
from streamsvm.problems.subproblems import DualData
from streamsvm.tasks.base import Coder, Targets, Task
from streamsvm.tasks.weights import class_factors, label_factors


@dataclass(frozen=True)
class TargetsInMemory(SizedInBytes):
    """The targets and bounds of n rows, all in memory. classes (k,). nbytes: its size."""

    dual_data: DualData

    @property
    def classes(self) -> np.ndarray:
        return self.dual_data.targets.classes

    @property
    def n(self) -> int:
        return len(self.dual_data.upper)

    @property
    def bounds(self) -> np.ndarray | None:
        """The bounds of rows by their codes, where nothing else decides them but whether a row is held out."""
        return None

    @property
    def nbytes(self) -> int:
        return size_of(vars(self.dual_data.targets)) + self.dual_data.upper.nbytes

    def read(self, start: int, stop: int) -> DualData:
        """The targets and bounds of rows start..stop."""
        return self.dual_data.take(slice(start, stop))

    def take(self, ids: np.ndarray) -> DualData:
        """The targets and bounds of the rows with these ids, in their order."""
        return self.dual_data.take(ids)

    def all(self) -> DualData:
        """The targets and bounds of all rows, in memory."""
        return self.dual_data

    def times(self, factors: np.ndarray) -> TargetsInMemory:
        """With bounds times these factors, see `DualData.times`."""
        return TargetsInMemory(self.dual_data.times(factors))

    def by(self, task: Task) -> TargetsInMemory:
        """For a task that has the same targets."""
        return TargetsInMemory(replace(self.dual_data, task=task))

    def without(self, ids: np.ndarray) -> TargetsInMemory:
        """With bounds of 0 for the rows with these rising ids."""
        upper = self.dual_data.upper.copy()
        upper[ids] = 0.0
        return TargetsInMemory(replace(self.dual_data, upper=upper))


@dataclass(frozen=True)
class TargetsInStore(SizedInBytes):
    """As `TargetsInMemory`, of rows in a store: labels and weights are read when needed, and nothing is kept per row.

    factors: by class, (k,) each. The bound of a row is the product of its class's factors, in their order, with its
    weight after the first one: the same to the last bit in every block. held_out_ids (h,): rising ids of rows with
    bounds of 0. by_label (2, k): factors of labels, instead of the coder's.
    """

    store: Store
    task: Task
    coder: Coder
    factors: tuple[np.ndarray, ...]
    held_out_ids: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))
    by_label: np.ndarray | None = None

    @property
    def classes(self) -> np.ndarray:
        return self.coder.classes

    @property
    def n(self) -> int:
        return self.store.n

    @property
    def bounds(self) -> np.ndarray | None:
        if self.store.weights_at(np.empty(0, np.int64)) is not None:
            return None
        return reduce(np.multiply, self.factors)

    @property
    def nbytes(self) -> int:
        return self.held_out_ids.nbytes

    def read(self, start: int, stop: int) -> DualData:
        first, last = np.searchsorted(self.held_out_ids, (start, stop))
        held_out = self.held_out_ids[first:last] - start
        labels = self.store.labels(start, stop) if self.task.reads_labels else np.zeros(stop - start)
        return self._dual_data(labels, self.store.weights(start, stop), held_out)

    def take(self, ids: np.ndarray) -> DualData:
        held_out = np.flatnonzero(np.isin(ids, self.held_out_ids))
        labels = self.store.labels_at(ids) if self.task.reads_labels else np.zeros(len(ids))
        return self._dual_data(labels, self.store.weights_at(ids), held_out)

    def all(self) -> DualData:
        n = self.store.n
        codes, upper = np.empty(n, np.int32), np.empty(n)
        common = self.take(np.empty(0, np.int64)).targets
        linear = None if common.linear is None else np.empty((n, common.linear.shape[1]))
        for start, stop in self.store.label_blocks() if self.task.reads_labels else self.store.blocks():
            block = self.read(start, stop)
            codes[start:stop], upper[start:stop] = block.targets.codes, block.upper
            if linear is not None:
                linear[start:stop] = block.targets.linear
        return dual_data_of(self.task, replace(common, codes=codes, linear=linear), upper)

    def times(self, factors: np.ndarray) -> TargetsInStore:
        if factors.ndim == 2:
            return replace(self, by_label=factors)
        return replace(self, factors=(*self.factors, factors))

    def by(self, task: Task) -> TargetsInStore:
        return replace(self, task=task)

    def without(self, ids: np.ndarray) -> TargetsInStore:
        return replace(self, held_out_ids=np.union1d(self.held_out_ids, ids))

    def _dual_data(self, labels: np.ndarray, weight: np.ndarray | None, held_out: np.ndarray) -> DualData:
        """held_out: positions of the held-out rows."""
        targets = self.coder.targets(labels)
        if self.by_label is not None:
            targets = replace(targets, factors=self.by_label)
        codes, (first, *others) = targets.codes, self.factors
        upper = first[codes]
        if weight is not None:
            upper *= weight
        for factor in others:
            upper *= factor[codes]
        upper[held_out] = 0.0
        return dual_data_of(self.task, targets, upper)


TargetSource = TargetsInMemory | TargetsInStore


def dual_data_of(task: Task, targets: Targets, upper: np.ndarray) -> DualData:
    """The targets and bounds of rows that are in no partition yet."""
    return DualData(task, targets, upper)


def target_source_of(
    store: Store, config: FitConfig, task: Task, targets: Targets | None = None
) -> tuple[TargetSource, np.ndarray]:
    """The targets of all rows of a store, and the rows of each class, (k,), or (1,) without classes. For balanced
    weights, a row counts as often as its weight says. targets: of all rows, if they are known. Raises ConfigError,
    DataError."""
    is_balanced = config.class_weight == "balanced" or "class_weight" in config.search.chosen
    weighs_classes = is_balanced and not isinstance(store, Sketch)  # of which none are read
    weighs_classes = weighs_classes and store.weights_at(np.empty(0, np.int64)) is not None
    by_blocks = store.reads_labels or not task.reads_labels
    coder = task.coder(store, config) if targets is None and by_blocks else None
    if coder is None:
        targets = targets or task.targets(store, config)
        counts: np.ndarray = np.bincount(targets.codes, minlength=len(targets.classes))
        if weighs_classes:
            counts = np.bincount(targets.codes, store.sample_weight, minlength=len(counts))
            if targets.factors is not None:
                targets = replace(targets, factors=_of_sets(targets, counts, config))
        weights = _by_code(task, counts, targets.classes, config)[targets.codes]
        if store.sample_weight is not None:
            weights *= store.sample_weight
        return TargetsInMemory(dual_data_of(task, targets, config.C * weights)), counts
    store.require_weights()  # now, rather than in the middle of a fit
    counts = coder.counts
    if weighs_classes:
        counts = np.zeros(len(counts))
        for start, stop in store.label_blocks():
            codes = coder.targets(store.labels(start, stop)).codes
            counts += np.bincount(codes, store.weights(start, stop), minlength=len(counts))
    factors = _by_code(task, counts, coder.classes, config)
    factor = np.full(len(factors), config.C if task.reads_labels else 1.0)
    source = TargetsInStore(store, task, coder, (factors, factor))
    if weighs_classes and (common := source.take(np.empty(0, np.int64)).targets).factors is not None:
        source = replace(source, by_label=_of_sets(common, counts, config))
    return source, counts


def _of_sets(targets: Targets, counts: np.ndarray, config: FitConfig) -> np.ndarray | None:
    assert targets.sets is not None
    return label_factors(counts, targets.sets, targets.classes, config.class_weight)


def _by_code(task: Task, counts: np.ndarray, classes: np.ndarray, config: FitConfig) -> np.ndarray:
    """Factors on the bounds of rows by their codes: 1 for sets, whose targets have factors of each label."""
    return class_factors(counts, classes, None if task.in_sets else config.class_weight)
