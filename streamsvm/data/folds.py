"""Which rows are held out when: index sets over a store, never copies. scikit-learn's splitters assign them."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np

from streamsvm.data.labels import label_texts
from streamsvm.data.store import Store
from streamsvm.errors import ConfigError, DataError

DEALT_BY = "scikit-learn"  # what is kept of folds that were dealt in another way is of other rows


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


def make_folds(
    store: Store,
    count: int,
    stratified: bool,
    seed: int,
    *,
    positive: tuple[str, ...] = (),
    option: str = "tune.folds",
) -> Folds:
    """Rows dealt out at random; whole queries where the store has a qid. stratified: labels, and rows without weight,
    are spread evenly, and each label that counts (positive: these, where there are any) is both learnt and tested.

    Raises ConfigError where there are too few rows or queries (option: names what asked for so many folds), DataError
    for a label that one fold has alone.
    """
    units, what = np.arange(store.n), "rows"
    if store.qid is not None:
        units, what = np.unique(store.qid, return_inverse=True)[1], "queries"
    n_units = int(units.max()) + 1
    if n_units < count:
        raise ConfigError(f"{option} is {count}, more than the store's {n_units} {what}")
    rng = np.random.default_rng([seed, 6])
    strata = _strata(store) if stratified else np.zeros(store.n, np.intp)
    of = _assigned(strata, None if what == "rows" else rng.permutation(n_units)[units], count, rng)
    if not np.bincount(of, minlength=count).all():
        raise ConfigError(f"{option} is {count}, and the store's {what} fill fewer: take fewer folds")
    if stratified:
        _require_spread(store, of, count, positive)
    if what == "rows":
        return Folds(of, _joins(strata, of, count, rng), count)
    of_unit = np.empty(n_units, of.dtype)
    of_unit[units] = of
    return Folds(of, _joins(np.zeros(n_units, np.intp), of_unit, count, rng)[units], count)


def _strata(store: Store) -> np.ndarray:
    """(n,) the label of each row, rows without weight apart."""
    weight, codes = store.sample_weight, store.coded[1]
    return codes if weight is None else 2 * codes.astype(np.intp) + (weight > 0)


def _assigned(
    strata: np.ndarray, groups: np.ndarray | None, count: int, rng: np.random.Generator
) -> np.ndarray:
    """(n,) the fold of each row, whose groups stay whole.

    The splitters refuse strata that are all smaller than the number of folds: one of that size, behind all others and
    of rows that are no one's, lets them be.
    """
    from sklearn.model_selection import GroupKFold, KFold, StratifiedGroupKFold, StratifiedKFold

    n, is_stratified = len(strata), len(strata) > 0 and strata.max() > 0
    drawn = int(rng.integers(2**31))
    if is_stratified:
        strata = np.append(strata, np.full(count, strata.max() + 1))
        groups = None if groups is None else np.append(groups, groups.max() + 1 + np.arange(count))
        splitter = StratifiedKFold if groups is None else StratifiedGroupKFold
        chosen = splitter(count, shuffle=True, random_state=drawn)
    else:
        chosen = KFold(count, shuffle=True, random_state=drawn) if groups is None else GroupKFold(count)
    of = np.empty(len(strata), np.int32)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of labels that some folds have no row of
        for fold, (_, held) in enumerate(chosen.split(strata, strata, groups)):
            of[held] = fold
    return of[:n]


def _require_spread(store: Store, of: np.ndarray, count: int, positive: tuple[str, ...]) -> None:
    """Raises DataError for a label whose rows of weight are all of one fold: no model of it could be tested."""
    labels, codes = store.coded
    counted = slice(None) if store.sample_weight is None else store.sample_weight > 0
    there = np.zeros((len(labels), count), bool)
    there[codes[counted], of[counted]] = True
    needed = np.isin(label_texts(labels), positive) if positive else np.ones(len(labels), bool)
    alone = np.flatnonzero(needed & (there.sum(axis=1) < 2))
    if len(alone):
        found = "less than two rows" if store.qid is None else "queries of one fold alone with rows"
        raise DataError(
            f"{store.url or 'the data'} has {found} of label {labels[alone[0]]}, expected at least two of each: "
            "cross-validation needs one that its model was not trained on"
        )


def _joins(strata: np.ndarray, of: np.ndarray, count: int, rng: np.random.Generator) -> np.ndarray:
    """(n,) from which share of all on each is there: folds of a stratum grow by turns, and none is ever empty."""
    n = len(strata)
    block = strata.astype(np.int64) * count + of
    order = np.lexsort((rng.random(n), block))
    turn = np.empty(n, np.int64)
    turn[order] = _places(block[order])
    order = np.lexsort((of, turn, strata))
    place, sizes = _places(strata[order]), np.bincount(strata)
    joins = np.empty(n)
    joins[order] = np.where(place < count, 0.0, place / sizes[strata[order]])
    return joins


def _places(sorted_values: np.ndarray) -> np.ndarray:
    """(n,) the number of each entry among those equal to it."""
    starts = np.flatnonzero(np.diff(sorted_values, prepend=sorted_values[:1] - 1))
    return np.arange(len(sorted_values)) - np.repeat(starts, np.diff(starts, append=len(sorted_values)))
