"""Passes over rows, from which every risk is computed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Protocol

import numpy as np

from streamsvm.data.cache import CachedSamples, read_group
from streamsvm.data.rows import Rows
from streamsvm.events import Event, Events, Progress, Record, TasksRun, ignore
from streamsvm.parallel.engine import Engine
from streamsvm.problems.products import times, transposed_times


class View(Protocol):
    """What a pass gives for one column: R's value and slope (d,) at q, and how R runs along the line from w to q.
    weight: R over the mean loss, so sum_i C_i of rows. scores: of the rows at q, (n,), if the risk needs them again
    when q is the next w; else (0,)."""

    @property
    def value(self) -> float: ...

    @property
    def slope(self) -> np.ndarray: ...

    @property
    def weight(self) -> float: ...

    @property
    def scores(self) -> np.ndarray: ...

    def lowest(self, slope: float, curvature: float) -> Iterator[tuple[float, float, np.ndarray]]:
        """Steps k >= 0 near the minimum of slope k + curvature k^2 / 2 + R(w + k (q - w)), each nearer than the one
        before; with R at the point, and its scores as above."""


class LinearRisk(Protocol):
    """A convex risk R(w) that is computed by passes over the rows. d: length of w. columns: how many problems share the
    passes. reward: of the last entry of w, which is free then, see `solvers.cutting_plane`; else 0."""

    d: int
    columns: int
    reward: float

    def start(self) -> np.ndarray:
        """The scores of w = 0, (n,); (0,) if no scores are needed again."""

    def at(self, columns: np.ndarray, W: np.ndarray, Q: np.ndarray, scores: list[np.ndarray]) -> Sequence[View]:
        """Views of these columns, each from its w and at its q, the columns of W and Q (d, q). scores: of each w."""

    def support(self, W: np.ndarray, scores: list[np.ndarray]) -> int:
        """How many rows have a loss in any column at W (d, columns)."""


class Passes:
    """Passes over rows with a constant feature `bias` unless it is 0. count: of passes; note: fields of their progress
    events."""

    def __init__(self, samples: CachedSamples, engine: Engine, bias: float = 0.0, events: Events = ignore) -> None:
        self.n, self.d = samples.n, samples.d + (bias != 0)
        self.count, self.note = 0, dict[str, Any]()
        self._engine, self.bias, self._events = engine, bias, events
        self._blocks = samples.blocks()
        if engine.is_local:
            self._rows = engine.hold(samples.read, *zip(*self._blocks, strict=True))
        else:  # workers hold what they read
            groups, shared = list(samples.groups.values()), (samples.source, samples.columns)
            shared = tuple(map(engine.share, shared))
            self._rows = engine.hold(read_group, groups, shared=shared, nbytes=samples.source.nbytes)

    def over(
        self, visit: Callable[..., tuple[Any, Any]], *columns: np.ndarray, shared: tuple[Any, ...] = ()
    ) -> tuple[list[Any], Any]:
        """visit(*shared, (rows, their row columns), ...) of each block, with the block's part of `columns`. visit
        returns two values: of the first the list, block by block, and of the second the sum are returned."""
        self.count += 1
        shared = tuple(self._engine.share(value) for value in shared)
        parts, events = map(self._parts, columns), self._events.heard_by(self._progress)
        return self._engine.map_reduce(visit, _sum, self._rows, *parts, shared=shared, events=events)

    def _parts(self, column: np.ndarray) -> list[np.ndarray]:
        return [column[slice(*block)] for block in self._blocks]

    def _progress(self, record: Record[Event]) -> None:
        """Blocks done, reported as rows."""
        if isinstance(record.event, TasksRun):
            self._events(replace(record.event, phase="rows"))
            return
        assert isinstance(record.event, Progress)  # all else that a map emits
        done = int(record.event.done)
        rows = self._blocks[done - 1][1] if done else 0  # about: blocks end out of their order
        self._events.progress("rows", rows, self.n, **{"pass": self.count}, **self.note)


def _sum(a: tuple[np.ndarray, ...], b: tuple[np.ndarray, ...]) -> tuple[np.ndarray, ...]:
    return tuple(x + y for x, y in zip(a, b, strict=True))


def scores(rows: Rows, W: np.ndarray, bias: float, start: int = 0, stop: int | None = None) -> np.ndarray:
    """(m, q) X W of a block's rows start..stop."""
    return times(rows, W[:-1], start, stop, bias * W[-1]) if bias else times(rows, W, start, stop)


def slopes(rows: Rows, G: np.ndarray, bias: float) -> np.ndarray:
    """(d, q) X'G."""
    A = transposed_times(rows, G)
    return np.vstack([A, bias * G.sum(axis=0)]) if bias else A
