"""A model that does not learn: events become rows, and a few threads answer them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from streamsvm.data.rows import Rows
from streamsvm.errors import DataError, ModelError
from streamsvm.models.base import Model
from streamsvm.online.kinds import Event
from streamsvm.online.tables import TYPES, as_number, as_text, category_code, is_missing, unlike
from streamsvm.parallel.machine import cores
from streamsvm.predict import PredictionOptions
from streamsvm.serving.requests import Predictions, RequestError, as_json, events_in
from streamsvm.tables.frames import dtype_of, schema_like


class FixedModel:
    """Predicts, and refuses to learn for the reason that `refusal` gives."""

    trouble = None  # nothing that would go by a new start
    closing_message = ""

    def __init__(self, model: Model, refusal: str, most_events: int) -> None:
        self.model, self.refusal, self._most, self.kind = model, refusal, most_events, str(model.kind)
        self._columns = InputColumns(model)
        self._pool = ThreadPoolExecutor(cores(), thread_name_prefix="predict")
        self.predicted = 0

    async def predict(self, body: bytes, options: PredictionOptions) -> bytes:
        """Raises RequestError."""
        answer, n = await asyncio.get_running_loop().run_in_executor(self._pool, self._predict, body, options)
        self.predicted += n
        return answer

    async def learn(self, body: bytes, first: int | None, name: str | None = None) -> bytes:
        raise RequestError(409, self.refusal)

    async def close(self) -> None:
        self._pool.shutdown()

    async def facts(self) -> dict[str, object]:
        """The answer to `GET /model`."""
        task = self.model.learned
        return {
            "kind": self.kind,
            "task": self.model.task,
            "learns": False,
            "features": self._columns.names,
            "classes": self.model.classes.tolist() if task.has_labels else [],
            "events": 0,
            "snapshot": 0,
        }

    def totals(self) -> dict[str, float]:
        return {"events_predicted_total": self.predicted}

    def gauges(self) -> dict[str, float]:
        return {}

    def _predict(self, body: bytes, options: PredictionOptions) -> tuple[bytes, int]:
        events = events_in(body, self._most)
        try:
            rows = self._columns.rows(events)
            decisions, proba = self.model.answers(rows)
        except (DataError, ModelError) as error:
            raise RequestError(400, str(error)) from None
        labels, classes = self.model.labels(decisions, proba).tolist(), self.model.classes.tolist()
        answers = Predictions(labels, decisions, proba, classes, self.model.intervals)
        return as_json(answers.as_answers(options)), len(events)


class InputColumns:
    """The features that a model's rows are made of: its columns' names, or 0, 1 and so on where they have none; of a
    table with texts or times the columns of the table."""

    def __init__(self, model: Model) -> None:
        self._model, layout = model, model.layout
        schema = schema_like(layout)
        kinds = {} if schema is None else {feature.name: feature.kind for feature in schema.features}
        self._kinds = kinds if {*kinds.values()} - {"number"} else {}
        features = () if schema is None else schema.features
        self._read: dict[str, Callable[[Any], Any]] = {f.name: category_code for f in features if f.is_code}
        self._read |= {f.name: as_number for f in features if f.from_text}
        self.names = list(self._kinds or model.feature_names or map(str, range(model.d)))
        self._places = {name: i for i, name in enumerate(self.names)}
        self._absent = np.nan if model.takes_gaps else None
        self._dtype = dtype_of(layout)
        self._is_sparse = not self._kinds and layout is not None and layout.is_sparse

    def rows(self, events: Sequence[Event]) -> Rows:
        """Raw rows (m, d). Raises DataError, which names event and feature, ModelError."""
        features = [self._features(i, event) for i, event in enumerate(events)]
        if self._kinds:
            return self._encoded(features)
        if self._is_sparse:
            rows = self._sparse(features)
        else:
            values = [self._values(i, x) for i, x in enumerate(features)]
            rows = Rows(np.array(values, np.float64).astype(self._dtype))
        if infinite := rows.first_nonfinite(gaps=True):
            raise DataError(f"event {infinite[0]}: found a number beyond {self._dtype}, expected finite ones")
        return rows

    def _features(self, i: int, event: Event) -> Event:
        """The features of event i, checked, without missing ones. Raises DataError."""
        x = event["x"] if isinstance(event.get("x"), dict) and "x" not in self._places else event
        if not self._read.keys().isdisjoint(x):
            x = {name: self._read[name](value) if name in self._read else value for name, value in x.items()}
        takes_gap, has_gaps = self._absent is not None or bool(self._kinds), False
        for name, value in x.items():
            if name not in self._places:
                raise DataError(f"event {i}: feature {name[:80]!r} is none of the model's; leave it out")
            kind = self._kinds.get(name, "number")
            types, expected = TYPES[kind]
            if takes_gap and is_missing(value, kind):
                has_gaps = True
            elif type(value) not in types:
                raise _unlike(i, name, value, expected)
        if not has_gaps:
            return x
        return {name: value for name, value in x.items() if not is_missing(value, self._kinds.get(name, "number"))}

    def _require(self, i: int, x: Event, names: Iterable[str]) -> None:
        """Raises DataError if one of these features is missing, and the model takes no gaps."""
        if self._absent is None:
            for name in names:
                if x.get(name) is None:
                    raise DataError(f"event {i}: feature {name[:80]!r} is missing, and the model takes no gaps")

    def _values(self, i: int, x: Event) -> list[float | None]:
        """The values of an event in the order of the model's columns."""
        self._require(i, x, self.names)
        return [self._absent if x.get(name) is None else x[name] for name in self.names]

    def _sparse(self, events: Sequence[Event]) -> Rows:
        """CSR rows, in which absent features are 0."""
        places = [sorted((self._places[name], value) for name, value in x.items()) for x in events]
        starts = np.cumsum([0, *map(len, places)])
        entries = np.array([entry for row in places for entry in row], np.float64).reshape(-1, 2)
        parts = entries[:, 1].astype(self._dtype), entries[:, 0].astype(np.int64), starts
        return Rows(csr_array(parts, shape=(len(events), self._model.d)))

    def _encoded(self, events: Sequence[Event]) -> Rows:
        """Rows as `ingest` encodes them from a table."""
        import pyarrow as pa

        needed = [name for name, kind in self._kinds.items() if kind != "text"]
        for i, x in enumerate(events):
            self._require(i, x, needed)
        columns = {name: self._column(name, [x.get(name) for x in events]) for name in self.names}
        return self._model._rows(pa.table(columns))

    def _column(self, name: str, values: list[Any]) -> Any:
        """An Arrow column of what one feature is in all events. Raises DataError."""

        from streamsvm.tables.arrow import of_numbers, of_texts, times

        kind = self._kinds[name]
        if kind == "text":
            return of_texts([as_text(value) for value in values])
        if kind != "time":
            return of_numbers(np.array(values, np.float64))  # None becomes NaN
        try:
            return times(of_texts(values))
        except ValueError:
            for i, value in enumerate(values):
                try:
                    times(of_texts([value]))
                except ValueError:
                    raise _unlike(i, name, value, TYPES["time"][1]) from None
            raise


def _unlike(i: int, name: str, value: object, expected: str) -> DataError:
    return DataError(f"event {i}: feature {name[:80]!r}: {unlike(value, expected)}")
