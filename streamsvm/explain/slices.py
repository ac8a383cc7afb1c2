"""How good a model is on the rows of each value of a text column."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from streamsvm.data.names import listed
from streamsvm.data.store import Store
from streamsvm.errors import ConfigError, DataError
from streamsvm.events import Events, heard
from streamsvm.parallel.engine import Engine
from streamsvm.predict import Predictor, answers_of, assess, predict_blocks
from streamsvm.tasks import task_of

MOST_VALUES = 100
OTHER = "(other or missing)"
Answers = Iterable[tuple[int, int, tuple[np.ndarray, np.ndarray | None]]]


def evaluate_sliced(
    model: Predictor,
    store: Store,
    column: str,
    *,
    engine: Engine,
    with_curves: bool = False,
    events: Events = heard,
) -> dict[str, Any]:
    """What `predict.evaluate` says, and `slices`: the scores of the rows of each value of a text column, those first
    that have most rows. Raises as it does, and ConfigError where the store has no such column."""
    slices = Slices(model, store, column, engine, events)
    blocks = predict_blocks(model, store, engine=engine, ask=answers_of, phase="evaluate", events=events)
    found = assess(model, store, slices.watched(blocks), with_curves=with_curves)
    return found | {"slice": column, "slices": slices.result()}


class Slices:
    """Rows by the value of a text column, scored as their blocks pass; one pass before tells which rows these are."""

    def __init__(self, model: Predictor, store: Store, column: str, engine: Engine, events: Events) -> None:
        values, columns = _values_of(store, column)
        shared = (engine.share(store), columns)
        found = engine.map(_places, store.blocks(), shared=shared, phase="slices", events=events)
        self._places = np.concatenate([*found])  # (n,) of each row's value
        self._column, self._values = column, [*values, OTHER]
        rows = np.bincount(self._places, minlength=len(self._values))
        self._order = [int(i) for i in np.argsort(-rows, kind="stable") if rows[i]]
        self._scores = {
            i: task_of(model.task).scores(model, store.subset(np.flatnonzero(self._places == i)))
            for i in self._order
        }
        self._done = np.zeros(len(rows), np.int64)

    def watched(self, blocks: Answers) -> Answers:
        """The blocks as they come, which are scored here, too."""
        for start, stop, (values, proba) in blocks:
            places = self._places[start:stop]
            for i in np.unique(places).tolist():
                own = places == i
                lo, hi = self._done[i], self._done[i] + np.count_nonzero(own)
                self._scores[i].add(int(lo), int(hi), values[own], None if proba is None else proba[own])
                self._done[i] = hi
            yield start, stop, (values, proba)

    def result(self) -> list[dict[str, Any]]:
        """A row for each value, with the scores that are numbers."""
        scored = [_numbers(self._scores[i]) | {"n": int(self._done[i])} for i in self._order]
        names = dict.fromkeys(["n", *(name for row in scored for name in row if row[name] is not None)])
        return [
            {self._column: self._values[i], **{name: row.get(name) for name in names}}
            for i, row in zip(self._order, scored, strict=True)
        ]


def _numbers(scores: Any) -> dict[str, Any]:
    """Those of `result`; none where the model knows no label of the rows."""
    try:
        return {name: v for name, v in scores.result().items() if isinstance(v, int | float | None)}
    except DataError:
        return {}


def _values_of(store: Store, column: str) -> tuple[list[str], np.ndarray]:
    """The values of a text column, and the columns of the store that they have become. Raises ConfigError."""
    names = store.feature_names or ()
    columns = [i for i, name in enumerate(names) if name.startswith(f"{column}=")]
    if not columns:
        texts = [*dict.fromkeys(name.partition("=")[0] for name in names if "=" in name)]
        there = f"those of text are {listed(texts)}" if texts else "there are none of text"
        raise ConfigError(f"--slice {column}: {store.url or 'the data'} has no such column of text; {there}")
    if len(columns) > MOST_VALUES:
        raise ConfigError(
            f"--slice {column}: has {len(columns):,} values, expected at most {MOST_VALUES}: a column of categories"
        )
    return [names[i].partition("=")[2] for i in columns], np.array(columns)


def _places(store: Store, columns: np.ndarray, block: tuple[int, int]) -> np.ndarray:
    """(m,) the place of each row's value, the last where it has none of them."""
    is_there = store.read(*block).X[:, columns] != 0
    dense = is_there if isinstance(is_there, np.ndarray) else is_there.toarray()
    return np.where(dense.any(axis=1), dense.argmax(axis=1), len(columns))
