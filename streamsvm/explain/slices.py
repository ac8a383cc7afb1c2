"""How good a model is on the rows of each of its partitions, or of each value of a column."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from streamsvm.data.layout import listed
from streamsvm.data.rows import Rows
from streamsvm.data.store import Store
from streamsvm.errors import ConfigError, DataError
from streamsvm.events import Events, heard
from streamsvm.models.base import Model
from streamsvm.parallel.engine import Engine
from streamsvm.predict import Answer, answers_of, assess, predict_blocks
from streamsvm.tables.schema import Schema
from streamsvm.tables.target_encoding import encoded_features
from streamsvm.tasks import task_of

if TYPE_CHECKING:
    from streamsvm.ingest.options import IngestOptions
    from streamsvm.ingest.tables import ReadColumn

MOST_VALUES, MOST_NUMBERS = 100, 12  # of text, and of numbers that are not cut at quartiles
MISSING, OTHER = "(missing)", "(other or missing)"  # the latter of a store, which has no texts but those of a fit
Answers = Iterable[tuple[int, int, Answer]]


def has_parts(model: Model) -> bool:
    """Whether the model has several partitions and predicts labels, which are right or wrong."""
    return getattr(model, "n_parts", 1) > 1 and task_of(model.task).has_classes


def evaluate_by_part(
    model: Model, store: Store, *, engine: Engine, with_curves: bool = False, events: Events = heard
) -> dict[str, Any]:
    """The result of `predict.evaluate`, and `parts`: {rows, right}, the number of rows in each partition, and of those
    with the right answer. The model must have partitions (`has_parts`). Raises as `evaluate`."""
    rows, right = np.zeros((2, model.n_parts), np.int64)

    def scored_blocks() -> Iterator[tuple[int, int, Answer]]:
        blocks = predict_blocks(model, store, engine=engine, decide=_answers_and_parts, phase="evaluate", events=events)
        for start, stop, (answer, parts) in blocks:
            is_right = model.labels(*answer) == store.labels(start, stop)
            rows[:] += np.bincount(parts, minlength=len(rows))
            right[:] += np.bincount(parts[is_right], minlength=len(rows))
            yield start, stop, answer

    result = assess(model, store, scored_blocks(), with_curves=with_curves)
    return result | {"parts": {"rows": rows.tolist(), "right": right.tolist()}}


def _answers_and_parts(model: Model, rows: Rows) -> tuple[Answer, np.ndarray]:
    return answers_of(model, rows), model.parts_of(rows)


def evaluate_sliced(
    model: Model,
    store: Store,
    columns: Sequence[str],
    files: tuple[Sequence[str], IngestOptions] | None = None,
    *,
    engine: Engine,
    with_curves: bool = False,
    events: Events = heard,
) -> dict[str, Any]:
    """The result of `predict.evaluate`, with `slices`: by column, the scores of the rows of each value.

    Values of text come in the order of their rows, the most first; numbers and times rise, more than MOST_NUMBERS of
    them in quarters. files: the tables that became the store, and how they were read: columns that are not in the store
    are read there. Raises as `evaluate`, and ConfigError if there is no such column.
    """
    slices = [Slices(model, store, cut(store, column, files, engine, events)) for column in columns]
    blocks: Answers = predict_blocks(model, store, engine=engine, decide=answers_of, phase="evaluate", events=events)
    for slice_ in slices:
        blocks = slice_.score_passing(blocks)
    result = assess(model, store, blocks, with_curves=with_curves)
    return result | {"slices": {slice_.column: slice_.result() for slice_ in slices}}


@dataclass(frozen=True)
class Grouping:
    """Rows by the value of a column: values in the order in which they are shown, places (n,) in them."""

    column: str
    values: Sequence[str]
    places: np.ndarray


class Slices:
    """The scores of the rows of each value, as their blocks pass."""

    def __init__(self, model: Model, store: Store, cut: Grouping) -> None:
        self.column, self._values, self._places = cut.column, cut.values, cut.places
        self._scores = {
            i: task_of(model.task).scores(model, store.subset(np.flatnonzero(cut.places == i)))
            for i in np.unique(cut.places).tolist()
        }
        self._done = np.zeros(len(cut.values), np.int64)

    def score_passing(self, blocks: Answers) -> Answers:
        """The blocks as they come, which are scored here, too."""
        for start, stop, (values, proba) in blocks:
            places = self._places[start:stop]
            for i in np.unique(places).tolist():
                is_value = places == i
                lo, hi = self._done[i], self._done[i] + np.count_nonzero(is_value)
                self._scores[i].add(int(lo), int(hi), values[is_value], None if proba is None else proba[is_value])
                self._done[i] = hi
            yield start, stop, (values, proba)

    def result(self) -> list[dict[str, Any]]:
        """A row for each value, with the scores that are numbers."""
        scored = {i: _numbers(scores) | {"n": int(self._done[i])} for i, scores in self._scores.items()}
        names = dict.fromkeys(["n", *(name for row in scored.values() for name in row if row[name] is not None)])
        return [{"value": self._values[i], **{name: row.get(name) for name in names}} for i, row in scored.items()]


def _numbers(scores: Any) -> dict[str, Any]:
    """Those of `result`; empty if the model knows no label of the rows."""
    try:
        return {name: v for name, v in scores.result().items() if isinstance(v, int | float | None)}
    except DataError:
        return {}


def cut(
    store: Store, column: str, files: tuple[Sequence[str], IngestOptions] | None, engine: Engine, events: Events
) -> Grouping:
    """The rows by the value of a column, of the store or else of the files. Raises ConfigError, DataError."""
    from streamsvm.ingest.tables import values_of

    values, missing = _of_store(store, column, engine, events), OTHER
    if values is None:
        if files is None:
            names = store.feature_names or ()
            expected = listed([*dict.fromkeys(name.partition("=")[0].partition("#")[0] for name in names)])
            expected = expected or f"numbers from 0 to {store.d - 1}"
            raise ConfigError(f"--slice {column}: {store.url or 'the data'} has no such column; it has {expected}")
        values, missing = values_of(files[0], column, files[1]), MISSING
    return _by_text(column, values, missing) if values.kind == "text" else _by_number(column, values)


def _of_store(store: Store, column: str, engine: Engine, events: Events) -> ReadColumn | None:
    """A feature, from one pass; None if there is none of the name, or its texts were hashed."""
    from streamsvm.ingest.tables import ReadColumn

    def read(places: Sequence[int], *, is_text: bool) -> np.ndarray:
        shared = engine.share(store), np.array(places), is_text
        return np.concatenate([*engine.map(_read, store.blocks(), shared=shared, phase="slices", events=events)])

    encoded = next((item for item in encoded_features(store.table).items() if item[1].name == column), None)
    if encoded is not None:  # by the target: codes, the first of missing text
        at, feature = encoded
        if feature.values is not None:
            return None
        codes, texts = read([at], is_text=False).astype(np.int64) - 2, tuple(feature.categories)[1:]
        return ReadColumn("text", np.where(codes < len(texts), codes, -1), texts)
    names = store.feature_names
    if names is None:
        is_column = column.isdecimal() and int(column) < store.d
        return ReadColumn("number", read([int(column)], is_text=False)) if is_column else None
    if column in names:
        schema = Schema.from_attrs(store.attrs) if "columns" in store.attrs else Schema([])
        kind = next((feature.kind for feature in schema.features if feature.name == column), "number")
        return ReadColumn(kind, read([i for i, name in enumerate(names) if name == column], is_text=False))
    if of_texts := [i for i, name in enumerate(names) if name.startswith(f"{column}=")]:
        return ReadColumn("text", read(of_texts, is_text=True), tuple(names[i].partition("=")[2] for i in of_texts))
    return None


def _read(store: Store, columns: np.ndarray, is_text: bool, block: tuple[int, int]) -> np.ndarray:
    """(m,) a column; of text the place among columns of the one that is not 0, -1 where there is none."""
    X = store.read(*block).X[:, columns]
    dense: np.ndarray = X if isinstance(X, np.ndarray) else X.toarray()
    if not is_text:
        return dense[:, 0]
    return np.where((dense != 0).any(axis=1), (dense != 0).argmax(axis=1), -1)


def _by_text(column: str, values: ReadColumn, missing: str) -> Grouping:
    if len(values.texts) > MOST_VALUES:
        n = len(values.texts)
        raise ConfigError(f"--slice {column}: has {n:,} values, expected at most {MOST_VALUES}: a column of categories")
    texts = [*values.texts, missing]
    places = np.where(values.values < 0, len(values.texts), values.values)
    order = np.argsort(-np.bincount(places, minlength=len(texts)), kind="stable")
    return Grouping(column, [texts[i] for i in order], np.argsort(order)[places])


def _by_number(column: str, cells: ReadColumn) -> Grouping:
    """By value where there are few, else in quarters, which end at the quartiles; what is missing last."""
    is_known = ~np.isnan(cells.values)
    numbers = cells.values[is_known]
    values = np.unique(numbers)
    ends = values
    if len(values) > MOST_NUMBERS:
        ends = np.unique(np.quantile(numbers, [0.25, 0.5, 0.75, 1.0], method="inverted_cdf"))
    places = np.full(len(cells.values), len(ends))
    places[is_known] = np.searchsorted(ends, numbers)
    starts = values[np.append(0, np.searchsorted(values, ends, side="right"))[: len(ends)]]
    texts = []
    for low, high in zip(starts.tolist(), ends.tolist(), strict=True):
        low_text, high_text = number_text(cells.kind, low), number_text(cells.kind, high)
        texts.append(low_text if low == high else f"{low_text} to {high_text}")
    return Grouping(column, [*texts, MISSING], places)


def number_text(kind: str, value: float) -> str:
    """A number. One or zero as true and false, days since 1970 as a date, with the minute if it has one."""
    if kind == "bool":
        return "true" if value else "false"
    if kind == "time":
        minute = np.datetime64(round(value * 24 * 60), "m")
        return str(minute.astype("M8[D]") if value == round(value) else minute)
    return f"{value:.0f}" if value == round(value) and abs(value) < 1e16 else f"{value:.6g}"
