"""Bodies of requests become events, and answers JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import orjson

from streamsvm.errors import ModelError
from streamsvm.models.intervals import Intervals
from streamsvm.online.kinds import Event
from streamsvm.predict import ENDS, PredictionOptions
from streamsvm.storage.text import jsonable

PLACES = 6  # of probabilities
NAME = re.compile("[!-~]{1,200}")  # of a request
TRUE, FALSE = ("1", "true", ""), ("0", "false")


class RequestError(Exception):
    """A request that is not answered: a status of HTTP, and one line that says why."""

    def __init__(self, status: int, message: str, **headers: str) -> None:
        super().__init__(message)
        self.status = status
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}


@dataclass
class Predictions:
    """Predictions of m rows: labels (m,), decision values (m,) or (m, k), and if the model has them, probabilities
    (m, classes) and intervals."""

    labels: list[Any]
    decisions: np.ndarray
    probabilities: np.ndarray | None = None
    classes: Sequence[Any] = field(default=())
    intervals: Intervals | None = None
    learns: bool = False  # a stream, which another command cannot give what it lacks

    def part(self, start: int, stop: int) -> Predictions:
        """The predictions of rows start..stop."""
        rows, p = slice(start, stop), self.probabilities
        p = None if p is None else p[rows]
        return replace(self, labels=self.labels[rows], decisions=self.decisions[rows], probabilities=p)

    def as_answers(self, options: PredictionOptions) -> list[object]:
        """A label for each row, or with options an object that has the label as `prediction`. Raises RequestError."""
        if not options.flags:
            return self.labels
        columns = {"prediction": self.labels}
        if options.decision:
            columns["decision"] = self.decisions.tolist()
        if options.proba:
            columns["probabilities"] = self._by_label()
        if options.interval is not None:
            columns |= dict(zip(ENDS, self._around(options.interval).T.tolist(), strict=True))
        return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]

    def _by_label(self) -> list[dict[str, float]]:
        if self.probabilities is None:
            advice = "" if self.learns or not len(self.classes) else ", or `streamsvm calibrate` it"
            raise RequestError(400, f"proba: the model has no probabilities; leave it out{advice}")
        names = [str(label) for label in self.classes]
        return [dict(zip(names, row, strict=True)) for row in self.probabilities.round(PLACES).tolist()]

    def _around(self, level: float) -> np.ndarray:
        if self.intervals is None:
            advice = "" if self.learns else ", or fit it with `--task regress --interval 0.9`"
            raise RequestError(400, f"interval: the model has no intervals; leave it out{advice}")
        try:
            return self.intervals.around(self.decisions, level)
        except ModelError as error:
            raise RequestError(400, str(error)) from None


def events_in(body: bytes, most: int) -> list[Event]:
    """The events of a body, one object or a list of them. Raises RequestError."""
    try:
        events = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise RequestError(400, f"broken JSON: {error}") from None
    events = [events] if isinstance(events, dict) else events
    if not isinstance(events, list) or not events:
        raise RequestError(400, f"found {body[:40].decode(errors='replace')!r}, expected an event or a list of events")
    if len(events) > most:
        raise RequestError(413, f"found {len(events):,} events, expected at most {most:,} in a request; send fewer")
    for i, event in enumerate(events):
        if not isinstance(event, dict):
            raise RequestError(400, f"event {i}: found {str(event)[:40]!r}, expected a JSON object of features")
    return events


def outputs_of(query: dict[str, str]) -> PredictionOptions:
    """The outputs that a query selects in addition to labels. Raises RequestError."""
    return PredictionOptions(_is_set(query, "decision"), _is_set(query, "proba"), _level(query))


def first_event(query: dict[str, str]) -> int | None:
    """The number that the sender gives the first event. Raises RequestError."""
    text = query.get("from")
    if text is None:
        return None
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise RequestError(400, f"from: found {text[:40]!r}, expected the number of the first event, 1 or more")
    return int(text)


def request_name(query: dict[str, str]) -> str | None:
    """The id that the sender gives the request. Raises RequestError."""
    name = query.get("id")
    if name is not None and not NAME.fullmatch(name):
        raise RequestError(
            400, f"id: found {name[:40]!r}, expected 1 to 200 letters, digits or signs of ASCII, no spaces"
        )
    return name


def require_parameters(query: dict[str, str], *names: str) -> None:
    """Raises RequestError for a parameter that nothing reads."""
    for name in query:
        if name not in names:
            raise RequestError(400, f"{name[:40]}: no such parameter, expected {' or '.join(names) or 'none'}")


def _is_set(query: dict[str, str], name: str) -> bool:
    text = query.get(name, "0").lower()
    if text not in TRUE + FALSE:
        raise RequestError(400, f"{name}: found {text[:40]!r}, expected 1 or 0")
    return text in TRUE


def _level(query: dict[str, str]) -> float | None:
    text = query.get("interval")
    try:
        return None if text is None else float(text)
    except ValueError:
        raise RequestError(400, f"interval: found {text!s:.40}, expected a level such as 0.9") from None


def as_json(value: object) -> bytes:
    """A line of JSON."""
    try:
        return orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY) + b"\n"
    except TypeError:  # models of earlier versions may have text that is not Unicode, and integers of more bits
        return json.dumps(jsonable(value)).encode() + b"\n"
