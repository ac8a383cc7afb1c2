"""Rows that a fit does not learn from: they measure how well its model decides, and how far off it may be."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np

from streamsvm.config import FitConfig
from streamsvm.data.folds import draw_groups
from streamsvm.data.rows import Rows
from streamsvm.data.store import Store
from streamsvm.errors import ConfigError
from streamsvm.models.intervals import rank, rows_needed
from streamsvm.parallel.sizes import SizedInBytes

SHARE, MOST = 5, 10_000  # a fifth of the rows is held out for intervals, and 10,000 rows at most
MORE = 5  # up to a fifth more, if that brings the coverage nearer to the requested level


@dataclass(frozen=True)
class HeldOutRows(SizedInBytes):
    """Rows as stored, (h, d), that a fit does not learn from. ids: rising, of the rows that are in the store of the
    fit. codes, y (h,): numbers of their classes, see `Task.truth`, and labels."""

    ids: np.ndarray
    rows: Rows
    codes: np.ndarray
    y: np.ndarray


def held_out_ids(store: Store, config: FitConfig) -> np.ndarray:
    """Rising ids of the rows that a configuration holds out, for intervals or a score. Raises ConfigError."""
    rows = config.holdout if config.interval is None else interval_rows(store, config)
    return by_chance(store, rows, config.seed) if rows else np.empty(0, np.int64)


def by_chance(store: Store, rows: int, seed: int) -> np.ndarray:
    """Rising ids of rows to hold out: of whole groups and queries if there are any, until there are enough. Skips
    groups that could make it more than half of the rows. Raises ConfigError if rows are too many."""
    require_holdout(store, rows)
    groups, rng = store.connected_groups, np.random.default_rng([seed, 26])
    if groups is None:
        return np.sort(rng.choice(store.n, rows, replace=False))
    ids, most = _small_groups(groups, rows)
    if len(ids) < rows:
        raise ConfigError(
            f"holdout is {rows}, and {len(ids)} rows are in groups of at most {most}, which leave half of the rows to "
            "learn from; expected as many at least: give fewer"
        )
    return ids[draw_groups(groups[ids], rows, rng, at_least=True)]


def can_hold_out(store: Store, rows: int) -> bool:
    """Whether so many rows, in whole groups, leave half of all to learn from."""
    groups = store.connected_groups
    return rows <= (store.n // 2 if groups is None else len(_small_groups(groups, rows)[0]))


def _small_groups(groups: np.ndarray, rows: int) -> tuple[np.ndarray, int]:
    """Rising ids of the rows of groups (n,) that are small enough to hold out `rows`, but half at most; that size."""
    most = len(groups) // 2 - rows + 1
    return np.flatnonzero(np.bincount(groups)[groups] <= most), most


def held_out_rows(store: Store, ids: np.ndarray, codes: np.ndarray) -> HeldOutRows:
    """The rows (h,) with these ids and codes. Raises DataError for entries that are not finite."""
    rows = store.take(ids)
    store.require_finite(rows, ids, gaps=True)  # gaps are allowed: filled as those of the training rows
    return HeldOutRows(ids, rows, codes, store.labels_at(ids))


def require_holdout(store: Store, rows: int) -> None:
    """Raises ConfigError if so many rows cannot be held out."""
    if rows > store.n // 2:
        raise ConfigError(f"holdout is {rows}, expected at most half of the {store.n} rows")


def interval_rows(store: Store, config: FitConfig) -> int:
    """The number of rows to compute intervals from: the holdout of the configuration, else a share of the rows. Raises
    ConfigError if they are too few."""
    assert config.interval is not None
    needed, setting = rows_needed(config.interval), f"interval is {config.interval:g}"
    rows = config.holdout
    if rows and rows < needed:
        raise ConfigError(f"{setting}, which needs {needed:,} held-out rows; found holdout {rows:,}")
    if needed > store.n // 2:
        raise ConfigError(
            f"{setting}, which needs {needed:,} held-out rows, at most half of all; found {store.n:,} rows: give "
            "a lower level"
        )
    about = max(min(store.n // SHARE, MOST), needed)
    most = max(about, min(about + about // MORE, MOST, store.n // 2))
    return rows or min(range(about, most + 1), key=partial(_excess, config.interval))


def _excess(level: float, rows: int) -> float:
    """How far the mean coverage by so many rows is above the level, rounded."""
    return round(rank(level, rows) / (rows + 1) - level, 9)
