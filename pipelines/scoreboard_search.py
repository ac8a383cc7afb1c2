"""A search within a time: random configurations on few rows, the best third of them on four times as many, and so on.

Then again with others, as long as there is time. Nothing is begun that is not expected to end in time, the last fit
included. What is expected of a configuration is what its own last fit took, or else the last fit of another, times what
its cost and its rows are more.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scoreboard_peers import Config, Peer
from sklearn.model_selection import KFold, StratifiedKFold, train_test_split

MOST_CONFIGS = 100
FOLDS, FEW_ROWS = 5, 5_000  # fewer rows are all held out once
HELD_SHARE, MOST_HELD = 0.2, 10_000
LEAST_ROWS, GROWTH, KEPT = 2_000, 4, 3  # of the first rung; rows from rung to rung; one in so many stays
CAUTION = 0.7  # of the time left, for a last fit on fewer rows than all: larger than any that was tried
Part = tuple[np.ndarray, np.ndarray]  # rows that are fitted, rows that are held out


@dataclass(frozen=True)
class Trial:
    """One configuration on some of the rows."""

    config: Config
    rows: int
    score: float  # larger is better
    seconds: float  # of one fit
    asking: float = 0.0  # seconds of its answers
    answers: Any = None  # on all held rows


@dataclass(frozen=True)
class Found:
    best: Trial
    n_trials: int
    rows: int  # that the last fit may take


def parts(y: np.ndarray, *, is_regression: bool, seed: int) -> list[Part]:
    """One held part of many rows, five folds of few; rows to fit are in random order: any first ones will do."""
    n, rng = len(y), np.random.default_rng(seed)
    if n >= FEW_ROWS:
        held = min(MOST_HELD, round(HELD_SHARE * n))
        strata = None if is_regression or np.bincount(y).min(initial=n) < 2 else y
        fitted, out = train_test_split(np.arange(n), test_size=held, random_state=seed, stratify=strata)
        return [(rng.permutation(fitted), out)]
    counts = np.bincount(y) if not is_regression else np.array([n])
    fold = StratifiedKFold if not is_regression and counts[counts > 0].min() >= FOLDS else KFold
    split = fold(FOLDS, shuffle=True, random_state=seed).split(np.zeros(n), y)
    return [(rng.permutation(fitted), out) for fitted, out in split]


def rungs(n: int, power: float) -> list[int]:
    """Rows of the rungs, all n last; those whose seconds grow faster than the rows begin with fewer."""
    first = LEAST_ROWS if power > 1 else max(LEAST_ROWS, n // GROWTH**2)
    rows = [n]
    while rows[0] >= GROWTH * first:
        rows.insert(0, rows[0] // GROWTH)
    return rows


class Search:
    """`evaluate` fits a configuration on so many rows of each of `folds` folds; `seconds` hold the last fit, too."""

    def __init__(
        self,
        peer: Peer,
        evaluate: Callable[[Config, int], Trial],
        *,
        folds: int,
        seconds: float,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._peer, self._evaluate, self._folds, self._clock = peer, evaluate, folds, clock
        self._end = clock() + seconds
        self._trials: list[Trial] = []

    def run(self, rows: Sequence[int], n: int, seed: int = 0) -> Found:
        """The best on the most rows that there was time for; n: the rows of the last fit."""
        untried = self._peer.configs(MOST_CONFIGS, seed)
        while tried := self._bracket(untried, rows, n):
            untried = [config for config in untried if config not in tried]
        best = self._best()
        return Found(best, len(self._trials), self._affordable(best, n))

    def _bracket(self, pool: list[Config], rows: Sequence[int], n: int) -> list[Config]:
        """From the first rung to the last; the configurations that it tried."""
        every: list[Config] = []
        for i, size in enumerate(rows):
            tried = self._rung(pool, size, n, len(rows) - i)
            ranked = sorted(tried, key=lambda trial: -trial.score)
            pool = [trial.config for trial in ranked[: -(-len(ranked) // KEPT)]]
            every += [trial.config for trial in tried]
        return every

    def _rung(self, pool: list[Config], size: int, n: int, rungs_left: int) -> list[Trial]:
        """Those of the pool that fit into this rung's share of the time that is left."""
        began, tried = self._clock(), list[Trial]()
        for config in pool:
            if self._trials:
                refit = max(self._expected(c, n) for c in (config, self._best().config))
                until = began + (self._end - refit - began) / rungs_left
                if self._clock() + self._folds * self._expected(config, size, asked=True) > until:
                    continue
            tried.append(self._evaluate(config, size))
            self._trials.append(tried[-1])
        return tried

    def _best(self) -> Trial:
        """Of those on the most rows."""
        return max(self._trials, key=lambda trial: (trial.rows, trial.score))

    def _expected(self, config: Config, rows: int, *, asked: bool = False) -> float:
        """Seconds of one fit; asked: and of the answers on its held part."""
        known = [t for t in self._trials if t.config == config]
        last = (known or self._trials)[-1]
        cost = self._peer.cost
        more = (rows + self._peer.fixed_rows) / (last.rows + self._peer.fixed_rows)
        asking = last.asking * max(more, 1) if asked else 0.0
        return cost(config) / cost(last.config) * (last.seconds * more**self._peer.power + asking)

    def _affordable(self, best: Trial, n: int) -> int:
        expected, left = self._expected(best.config, n), self._end - self._clock()
        if expected <= left:
            return n
        return int(np.clip(n * (CAUTION * max(left, 0) / expected) ** (1 / self._peer.power), min(best.rows, n), n))
