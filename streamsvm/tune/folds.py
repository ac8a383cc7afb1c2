"""Which rows are held out when: index sets over a store, never copies."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from streamsvm.data.store import Store
from streamsvm.errors import ConfigError, DataError


@dataclass(frozen=True)
class Folds:
    """of (n,): where each row is held out. joins (n,) in [0, 1): a row is among every larger share of the rows."""

    of: np.ndarray
    joins: np.ndarray
    count: int

    def members(self, fold: int, share: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
        """Ids of training and held-out rows of a fold, of this share of all rows."""
        there, held = self.joins < share, self.of == fold
        return np.flatnonzero(there & ~held), np.flatnonzero(there & held)


def make_folds(store: Store, count: int, stratified: bool, seed: int) -> Folds:
    """Rows dealt out at random: whole queries where the store has a qid, else class by class where `stratified`.

    Raises ConfigError, DataError where there are too few of them.
    """
    rng = np.random.default_rng([seed, 6])
    if store.qid is not None:
        return _dealt(np.unique(store.qid, return_inverse=True)[1], count, rng)
    if store.n < count:
        raise ConfigError(f"tune.folds is {count}, more than the store's {store.n} rows")
    strata = store.coded[1] if stratified else np.zeros(store.n, np.intp)
    sizes = np.bincount(strata)
    if stratified and sizes.min() < 2:
        label = store.coded[0][int(sizes.argmin())]
        raise DataError(
            f"class {label} has one row only; cross-validation needs two of each class, to learn and to test"
        )
    shuffled = rng.permutation(store.n)
    order = shuffled[np.argsort(strata[shuffled], kind="stable")]  # class after class, each in random order
    of, joins = np.empty(store.n, np.int32), np.empty(store.n)
    of[order] = np.arange(store.n) % count
    place = np.arange(store.n) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    joins[order] = np.where(place < count, 0.0, place / np.repeat(sizes, sizes))  # no fold is ever empty
    return Folds(of, joins, count)


def _dealt(groups: np.ndarray, count: int, rng: np.random.Generator) -> Folds:
    """Whole groups, the largest first, each to the fold with the fewest rows so far."""
    sizes = np.bincount(groups)
    if len(sizes) < count:
        raise ConfigError(f"tune.folds is {count}, more than the store's {len(sizes)} queries")
    of_group, rows = np.empty(len(sizes), np.int32), np.zeros(count, np.int64)
    shuffled = rng.permutation(len(sizes))
    for group in shuffled[np.argsort(-sizes[shuffled], kind="stable")]:
        of_group[group] = fold = int(rows.argmin())
        rows[fold] += sizes[group]
    joins = np.empty(len(sizes))
    for fold in range(count):
        members = rng.permutation(np.flatnonzero(of_group == fold))
        joins[members] = np.arange(len(members)) / len(members)
    return Folds(of_group[groups], joins[groups], count)
