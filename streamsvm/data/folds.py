"""Cross-validation folds as index sets over a store, without copies. scikit-learn's splitters assign the rows."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Literal

import numpy as np

from streamsvm.data.labels import label_sets, label_texts
from streamsvm.data.store import Store
from streamsvm.errors import ConfigError, DataError

# streams of the seed: for the folds, for the order in which rows join, and for the subset of rows that a search uses
FOLDS_STREAM, JOINS_STREAM, SUBSET_STREAM = 6, 7, 31
FOLDS_BY = "scikit-learn"  # which assigns folds; other checkpoints have other rows in their folds


@dataclass(frozen=True)
class Folds:
    """of (n,): the fold that holds out each row. joins (n,) in [0, 1): each larger share of the rows includes it."""

    of: np.ndarray
    joins: np.ndarray
    count: int

    def members(self, fold: int, share: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
        """Ids of training and held-out rows of a fold, of this share of all rows."""
        is_included, is_held_out = self.joins < share, self.of == fold
        return np.flatnonzero(is_included & ~is_held_out), np.flatnonzero(is_included & is_held_out)


def draw_ids(n: int, count: int, rng: np.random.Generator) -> np.ndarray:
    """(count,) distinct random numbers below n, sorted. Memory depends on count, not on n."""
    if 2 * count > n:
        return np.sort(rng.permutation(n)[:count])
    chosen = np.empty(0, np.int64)
    while len(chosen) < count:
        chosen = np.unique(np.append(chosen, rng.integers(n, size=count)))
    return np.sort(rng.permutation(chosen)[:count])


def default_folds(store: Store, count: int) -> int:
    """The default number of folds: `count`, or fewer if the store has fewer groups or queries."""
    groups = store.connected_groups
    return count if groups is None else min(count, max(2, int(groups.max()) + 1))


def _units(store: Store) -> str:
    """The units that stay whole in a fold, as errors name them."""
    return "groups" if store.group is not None else "rows" if store.qid is None else "queries"


def draw_groups(groups: np.ndarray, count: int, rng: np.random.Generator, *, at_least: bool = False) -> np.ndarray:
    """Sorted ids of rows of random whole groups (n,): at most `count` unless one has more, or `at_least` so many."""
    place = rng.permutation(int(groups.max()) + 1)[groups]
    side: Literal["left", "right"] = "left" if at_least else "right"
    n_groups = int(np.searchsorted(np.cumsum(np.bincount(place)), count, side)) + at_least
    return np.flatnonzero(place < max(n_groups, 1))


def shuffle_rows(n: int, groups: np.ndarray | None, rng: np.random.Generator) -> np.ndarray:
    """(n,) rows in random order, with the rows of each group (n,) next to each other."""
    if groups is None:
        return rng.permutation(n)
    return np.lexsort((rng.random(n), rng.permutation(int(groups.max()) + 1)[groups]))


def without_shared_groups(
    order: np.ndarray, n_held_out: int, groups: np.ndarray | None, rng: np.random.Generator
) -> np.ndarray:
    """Rows in an order of `shuffle_rows`, with the first ones to hold out: removes other rows of their groups (n,)."""
    if groups is None:
        return order
    first, rest = np.split(order, [n_held_out])
    return np.concatenate([first, rng.permutation(rest[~np.isin(groups[rest], groups[first])])])


def make_folds(store: Store, count: int, stratified: bool, seed: int, *, positive: tuple[str, ...] = ()) -> Folds:
    """Folds as `assign_folds` assigns rows. With a growing share of the rows, they grow in turn. Raises like it."""
    of = assign_folds(store, count, stratified, seed, positive=positive)
    rng = np.random.default_rng([seed, JOINS_STREAM])
    groups = store.connected_groups
    if groups is None:
        return Folds(of, _joins(_strata(store, stratified), of, count, rng), count)
    first = np.unique(groups, return_index=True)[1]
    return Folds(of, _joins(np.zeros(len(first), np.intp), of[first], count, rng)[groups], count)


def assign_folds(
    store: Store,
    count: int,
    stratified: bool,
    seed: int,
    *,
    positive: tuple[str, ...] = (),
    in_sets: bool = False,
    option: str = "tune.folds",
) -> np.ndarray:
    """(n,) the random fold of each row. Rows of a connected group share one. stratified: labels, and rows without
    weight, are spread evenly, and each label (positive: each of these, if given) is both trained on and tested.
    in_sets: labels are sets; their members are spread, by the rarest one of each row (the first step of Sechidis,
    Tsoumakas and Vlahavas 2011).

    Raises ConfigError if there are too few rows, queries or groups (option: the one that sets the number of folds),
    DataError for a label that only one fold has.
    """
    groups, unit_names = store.connected_groups, _units(store)
    units = store.n if groups is None else int(groups.max()) + 1
    if units < count:
        raise ConfigError(f"{option} is {count}, more than the store's {units} {unit_names}")
    rng = np.random.default_rng([seed, FOLDS_STREAM])
    if groups is not None:
        groups = rng.permutation(units)[groups]  # GroupKFold itself is not random
    of = _assigned(_strata(store, stratified, in_sets), groups, count, int(rng.integers(2**31)))
    if not np.bincount(of, minlength=count).all():
        raise ConfigError(f"{option} is {count}, but the store's {unit_names} fill fewer folds; use fewer")
    if stratified:
        _require_spread(store, of, count, positive, in_sets)
    return of


def _strata(store: Store, stratified: bool, in_sets: bool = False) -> np.ndarray:
    """(n,) strata that folds share evenly: the label of each row, with rows without weight apart, or one for all."""
    if not stratified:
        return np.zeros(store.n, np.int8)
    weight, codes = store.sample_weight, store.coded[1]
    if in_sets:
        _, sets = label_sets(label_texts(store.classes.values))
        counts = np.where(sets, store.classes.counts @ sets, store.n)
        rarest = np.argmin(counts, axis=1) + 1 if sets.any() else np.zeros(len(sets), np.intp)
        codes = np.where(sets.any(axis=1), rarest, 0)[codes]
    return codes if weight is None else 2 * codes.astype(np.intp) + (weight > 0)


def _assigned(strata: np.ndarray, groups: np.ndarray | None, count: int, seed: int) -> np.ndarray:
    """(n,) the fold of each row. Groups stay whole."""
    from sklearn.model_selection import GroupKFold, KFold, StratifiedGroupKFold, StratifiedKFold

    n = len(strata)
    if strata.any():
        # splitters refuse strata that all are smaller than the number of folds: a dummy one of that size avoids this
        strata = np.append(strata, np.full(count, strata.max() + 1))
        groups = None if groups is None else np.append(groups, groups.max() + 1 + np.arange(count))
        splitter = StratifiedKFold if groups is None else StratifiedGroupKFold
        splits = splitter(count, shuffle=True, random_state=seed)
    else:
        splits = KFold(count, shuffle=True, random_state=seed) if groups is None else GroupKFold(count)
    of = np.empty(len(strata), np.int32)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # about labels that are missing in some folds
        for fold, (_, held_out) in enumerate(splits.split(strata, strata, groups)):
            of[held_out] = fold
    return of[:n]


def _require_spread(store: Store, of: np.ndarray, count: int, positive: tuple[str, ...], in_sets: bool) -> None:
    """Raises DataError for a label whose weighted rows are all in one fold: no model of it could be tested."""
    labels, codes = store.coded
    weighted = slice(None) if store.sample_weight is None else store.sample_weight > 0
    is_in_fold = np.zeros((len(labels), count), bool)
    is_in_fold[codes[weighted], of[weighted]] = True
    if in_sets:
        labels, sets = label_sets(label_texts(labels))
        is_in_fold = sets.T @ is_in_fold
    needed = np.isin(label_texts(labels), positive) if positive else np.ones(len(labels), bool)
    alone = np.flatnonzero(needed & (is_in_fold.sum(axis=1) < 2))
    if len(alone):
        units = _units(store)
        shortage = "less than two rows" if units == "rows" else f"{units} in one fold only with rows"
        problem = f"{store.url or 'the data'} has {shortage} of label {labels[alone[0]]}, expected at least two of each"
        raise DataError(f"{problem}: cross-validation tests each label on rows that its model was not trained on")


def _joins(strata: np.ndarray, of: np.ndarray, count: int, rng: np.random.Generator) -> np.ndarray:
    """(n,) the share of the rows from which on each is included. Folds of a stratum grow in turn: none is empty."""
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
    """(n,) the rank of each entry among those equal to it."""
    starts = np.flatnonzero(np.diff(sorted_values, prepend=sorted_values[:1] - 1))
    return np.arange(len(sorted_values)) - np.repeat(starts, np.diff(starts, append=len(sorted_values)))
