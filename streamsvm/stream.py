"""A learner in a pipe: each event is predicted, then learnt, and answered with one JSON line.

An event is a line: a JSON object of features and a label, or a CSV row under a header. Its number counts the lines of
the stream from its very beginning, bad ones too, over all restarts; the model carries it, so that a stream taken up
again knows which event comes next.
"""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from river.preprocessing import StandardScaler

from streamsvm.data.scaling import Scaling
from streamsvm.errors import ConfigError, DataError
from streamsvm.models import BudgetModel
from streamsvm.online import BSGDClassifier
from streamsvm.persist import load_model, save_model

BUFFER_BYTES = 1 << 16
Parse = Callable[[str], dict[str, Any]]


@dataclass
class Stream:
    """A learner, its scaler, and how many events it has seen; `answer` takes the next one.

    label: the field that holds the label; without it an event is predicted only.
    """

    path: Path
    learner: BSGDClassifier
    scaler: StandardScaler | None = None
    label: str = "y"
    events: int = 0
    learnt: int = 0
    bad: int = 0
    right: int = 0
    saved: int = 0  # events in the last snapshot

    @classmethod
    def open(cls, path: Path, make: Callable[[], BSGDClassifier], *, scale: bool, label: str) -> Stream:
        """The stream whose snapshot is at `path`, or a new one. Raises ModelError, ConfigError."""
        if not path.exists():
            return cls(path, make(), StandardScaler() if scale else None, label)
        model = load_model(path)
        if not isinstance(model, BudgetModel):
            raise ConfigError(
                f"{path}: found a model of kind {model.kind!r}, expected one of fit --solver bsgd or stream"
            )
        if model.stream is None and model.header.scaling.kind != "none":
            raise ConfigError(
                f"{path}: was fitted with scaling, which a stream cannot go on with; fit with --scale none"
            )
        counts = (model.stream or {}).get("counts", {})
        scaler = _scaler_from((model.stream or {}).get("scaler"))
        stream = cls(path, BSGDClassifier.from_model(model), scaler, label, **counts)
        stream.saved = stream.events
        return stream

    def answer(self, line: str, parse: Parse) -> dict[str, Any]:
        """Predicts and learns one line; what to say of it. A bad line is told and changes nothing."""
        self.events += 1
        try:
            event = parse(line)
            x, y = _features(event, self.label)
            return {"event": self.events} | self._learn(x, y) | {"snapshot": self.saved}
        except DataError as error:
            self.bad += 1
            return {"event": self.events, "error": str(error), "snapshot": self.saved}

    def _learn(self, x: dict[str, Any], y: Any) -> dict[str, Any]:
        if y is not None and not isinstance(y, bool | int | str):
            raise DataError(f"label {self.label!r}: found {y!r}, expected a boolean, an integer or a text")
        if self.scaler is not None:
            self.learner.check(x)
            self.scaler.learn_one(x)
            x = self.scaler.transform_one(x)
        prediction = self.learner.predict_one(x)
        said = {"prediction": prediction, "probabilities": _by_text(self.learner.predict_proba_one(x))}
        if y is not None:
            self.learner.learn_one(x, y)
            self.learnt += 1
            self.right += prediction == y
            said["label"] = y
        return said

    def save(self) -> None:
        """A snapshot at `path`, in place of the one before. Raises StorageError."""
        if self.learner.n_labels == 0:
            return  # nothing to keep: no label was seen
        counts = {"events": self.events, "learnt": self.learnt, "bad": self.bad, "right": self.right}
        model = self.learner.to_model(self._scaling(), counts=counts, scaler=_scaler_state(self.scaler))
        save_model(model, self.path)
        self.saved = self.events

    def summary(self) -> dict[str, Any]:
        stats = self.learner.stats
        return {
            "events": self.events,
            "learnt": self.learnt,
            "bad": self.bad,
            "accuracy": self.right / self.learnt if self.learnt else None,
            "n_support": self.learner.n_support,
            "maintenances": stats.maintenances,
            "snapshot": self.saved,
        }

    def _scaling(self) -> Scaling | None:
        """The running standardisation as a model's own, so that the snapshot predicts raw rows."""
        if self.scaler is None:
            return None
        scaling = Scaling.none(self.learner.n_columns)
        for column, name in enumerate(self.learner.features):
            spread = self.scaler.vars[name] ** 0.5
            scaling.offset[column] = self.scaler.means[name]
            scaling.scale[column] = 1 / spread if spread > 0 else 0.0
        return Scaling("standard", scaling.offset, scaling.scale)


@dataclass
class Lines:
    """Lines of a file descriptor, as they come; before it waits for more, `before_waiting` is called.

    Held back are at most one buffer and one line, so a slow reader of the answers slows the writer of the events.
    """

    source: int
    before_waiting: Callable[[], None]
    waiting: bool = field(default=False, init=False)

    def __iter__(self) -> Iterator[str]:
        rest = b""
        while True:
            self.before_waiting()
            self.waiting = True
            block = os.read(self.source, BUFFER_BYTES)
            self.waiting = False
            if not block:
                break
            *lines, rest = (rest + block).split(b"\n")
            yield from (line.decode("utf-8", errors="replace") for line in lines)
        if rest:
            yield rest.decode("utf-8", errors="replace")


def json_event(line: str) -> dict[str, Any]:
    """The event of a JSON line. Raises DataError."""
    try:
        event = json.loads(line)
    except ValueError as error:
        raise DataError(f"broken JSON: {error}") from None
    if not isinstance(event, dict):
        raise DataError(f"found {line.strip()[:40]!r}, expected a JSON object")
    return event


def csv_event(header: list[str]) -> Parse:
    """What turns a CSV row under this header into an event; empty fields are absent. Raises DataError."""

    def parse(line: str) -> dict[str, Any]:
        values = next(csv.reader([line]))
        if len(values) != len(header):
            raise DataError(f"found {len(values)} fields, expected {len(header)}")
        return {name: _value(text) for name, text in zip(header, values, strict=True) if text != ""}

    return parse


def events(lines: Iterable[str], kind: str) -> Iterator[tuple[int, str, Parse]]:
    """(line number, line, its parser) of each event; empty lines and a CSV header are none."""
    parse: Parse | None = None if kind == "csv" else json_event
    for number, line in enumerate(lines, 1):
        if line.strip():
            if parse is None:
                parse = csv_event(next(csv.reader([line])))
            else:
                yield number, line, parse


def _value(text: str) -> Any:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _features(event: dict[str, Any], label: str) -> tuple[dict[str, Any], Any]:
    """(features, label or None): `{"x": {...}, "y": ...}`, or features and the label side by side."""
    if isinstance(event.get("x"), dict):
        return event["x"], event.get(label)
    return {name: value for name, value in event.items() if name != label}, event.get(label)


def _by_text(probabilities: dict[Any, float]) -> dict[str, float]:
    return {str(label): round(p, 6) for label, p in probabilities.items()}


def _scaler_state(scaler: StandardScaler | None) -> dict[str, list[float]] | None:
    if scaler is None:
        return None
    return {name: [scaler.counts[name], scaler.means[name], scaler.vars[name]] for name in scaler.counts}


def _scaler_from(state: dict[str, list[float]] | None) -> StandardScaler | None:
    if state is None:
        return None
    scaler = StandardScaler()
    for name, (count, mean, variance) in state.items():
        scaler.counts[name], scaler.means[name], scaler.vars[name] = int(count), mean, variance
    return scaler
