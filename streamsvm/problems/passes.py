"""Passes over rows, which every risk is known by."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from streamsvm.data.pass_cache import HeldSamples
from streamsvm.data.rows import Rows
from streamsvm.data.samples import read_blocks
from streamsvm.events import Event, Events, Progress, Record, ignore
from streamsvm.parallel.engine import Engine, Later
from streamsvm.problems.products import times, transposed_times


class LinearRisk(Protocol):
    """n: rows. d: length of w. columns: how many problems share the passes."""

    n: int
    d: int
    columns: int

    def at(self, W: np.ndarray, columns: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Scores (n, q), risks (q,) and slopes (d, q) of these columns at W (d, q)."""

    def value(self, column: int, f: np.ndarray) -> float:
        """R_c where the scores are f (n,)."""

    def active(self, column: int, f: np.ndarray) -> np.ndarray:
        """(n,) bool: the rows that have a loss there."""

    def step(
        self,
        column: int,
        f: np.ndarray,
        df: np.ndarray,
        slope: float,
        curvature: float,
        *,
        exact: bool,
    ) -> float:
        """The k >= 0 that minimises slope k + curvature k^2 / 2 + R_c(f + k df), or about that."""


class Passes:
    """Passes over rows with a constant feature `bias` unless it is 0. count: how many; note: of the bar beside them."""

    def __init__(
        self, samples: HeldSamples, engine: Engine, bias: float = 0.0, events: Events = ignore
    ) -> None:
        self.n, self.d = samples.n, samples.d + (bias != 0)
        self.count, self.note = 0, dict[str, Any]()
        self._engine, self.bias, self._events = engine, bias, events
        self._blocks = samples.blocks()
        if engine.is_local:
            self._rows = engine.hold(samples.read, *zip(*self._blocks, strict=True))
        else:  # workers hold what they read
            groups, source = list(samples.groups.values()), engine.share(samples.source)
            self._rows = engine.hold(read_blocks, groups, shared=(source,), nbytes=samples.source.nbytes)

    def keep(self, *columns: np.ndarray) -> Sequence[Any]:
        """Columns that no pass changes, for `over`: on a cluster they are sent once, to where the rows are held."""
        places = [None if isinstance(rows, Later) else rows for rows in self._rows]
        return self._engine.hold(_beside, places, *map(self._parts, columns))

    def over(
        self,
        visit: Callable[..., tuple[Any, Any]],
        *columns: np.ndarray,
        kept: Sequence[Any] = (),
        shared: tuple[Any, ...] = (),
    ) -> tuple[list[Any], Any]:
        """visit(*shared, rows, ...) of each block, with what `keep` gave of it and its rows of the columns.

        Returns what is the rows' own, block by block, and the sum of the rest.
        """
        self.count += 1
        parts = [*((kept,) if kept else ()), *map(self._parts, columns)]
        shared = tuple(self._engine.share(value) for value in shared)
        events = Events(self._progress)
        return self._engine.map_reduce(visit, _sum, self._rows, *parts, shared=shared, events=events)

    def _parts(self, column: np.ndarray) -> list[np.ndarray]:
        return [column[slice(*block)] for block in self._blocks]

    def _progress(self, record: Record[Event]) -> None:
        """Blocks done, told as rows."""
        assert isinstance(record.event, Progress)  # all that a map tells
        done = int(record.event.done)
        rows = self._blocks[done - 1][1] if done else 0  # about: blocks end out of their order
        self._events.progress("rows", rows, self.n, **{"pass": self.count}, **self.note)


def _beside(rows: Any, *columns: np.ndarray) -> tuple[np.ndarray, ...]:
    """The columns; that the task needs the rows brings it to them."""
    return columns


def _sum(a: tuple[np.ndarray, ...], b: tuple[np.ndarray, ...]) -> tuple[np.ndarray, ...]:
    return tuple(x + y for x, y in zip(a, b, strict=True))


def scores(rows: Rows, W: np.ndarray, bias: float) -> np.ndarray:
    """(m, q) X W of a block's rows."""
    return times(rows, W[:-1]) + bias * W[-1] if bias else times(rows, W)


def slopes(rows: Rows, G: np.ndarray, bias: float) -> np.ndarray:
    """(d, q) X'G."""
    A = transposed_times(rows, G)
    return np.vstack([A, bias * G.sum(axis=0)]) if bias else A
