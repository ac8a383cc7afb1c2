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
from streamsvm.predict import ENDS, PredictionOptions
from streamsvm.storage.jsonable import jsonable

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
    """To rows: labels (m,), what decides them (m,) or (m, k), probabilities (m, classes) and intervals where the model
    has any."""

    labels: list[Any]
    decisions: np.ndarray
    probabilities: np.ndarray | None = None
    classes: Sequence[Any] = field(default=())
    intervals: Intervals | None = None
    learns: bool = False  # a stream, which another command cannot give what it lacks

    def part(self, start: int, stop: int) -> Predictions:
        """Those to some of the rows."""
        here, p = slice(start, stop), self.probabilities
        p = None if p is None else p[here]
        return replace(self, labels=self.labels[here], decisions=self.decisions[here], probabilities=p)

    def said(self, also: PredictionOptions) -> list[Any]:
        """A label for each row; an object with the label as `prediction` where more is wanted. Raises Refused."""
        if not also.flags:
            return self.labels
        columns = {"prediction": self.labels}
        if also.decision:
            columns["decision"] = self.decisions.tolist()
        if also.proba:
            columns["probabilities"] = self._by_label()
        if also.interval is not None:
            columns |= dict(zip(ENDS, self._around(also.interval).T.tolist(), strict=True))
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


def events_in(body: bytes, most: int) -> list[dict[str, Any]]:
    """The events of a body, one object or a list of them. Raises Refused."""
    try:
        found = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise RequestError(400, f"broken JSON: {error}") from None
    found = [found] if isinstance(found, dict) else found
    if not isinstance(found, list) or not found:
        raise RequestError(
            400, f"found {body[:40].decode(errors='replace')!r}, expected an event or a list of events"
        )
    if len(found) > most:
        raise RequestError(
            413, f"found {len(found):,} events, expected at most {most:,} in a request; send fewer"
        )
    for i, event in enumerate(found):
        if not isinstance(event, dict):
            raise RequestError(
                400, f"event {i}: found {str(event)[:40]!r}, expected a JSON object of features"
            )
    return found


def wanted(query: dict[str, str]) -> PredictionOptions:
    """What a query asks for in addition to labels. Raises Refused."""
    return PredictionOptions(_is_set(query, "decision"), _is_set(query, "proba"), _level(query))


def first_event(query: dict[str, str]) -> int | None:
    """The number that the sender gives the first event. Raises Refused."""
    text = query.get("from")
    if text is None:
        return None
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise RequestError(
            400, f"from: found {text[:40]!r}, expected the number of the first event, 1 or more"
        )
    return int(text)


def request_name(query: dict[str, str]) -> str | None:
    """The id that the sender gives the request. Raises Refused."""
    name = query.get("id")
    if name is not None and not NAME.fullmatch(name):
        raise RequestError(
            400, f"id: found {name[:40]!r}, expected 1 to 200 letters, digits or signs of ASCII, no spaces"
        )
    return name


def require_known(query: dict[str, str], *names: str) -> None:
    """Raises Refused for a parameter that nothing reads."""
    for name in query:
        if name not in names:
            raise RequestError(
                400, f"{name[:40]}: no such parameter, expected {' or '.join(names) or 'none'}"
            )


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


def as_json(value: Any) -> bytes:
    try:
        return orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY) + b"\n"
    except (
        TypeError
    ):  # text that is not Unicode, integers of more bits: models of earlier versions have learned them
        return json.dumps(jsonable(value)).encode() + b"\n"
