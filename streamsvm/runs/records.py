"""Events as lines of JSON, which any version can read."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from functools import cache
from itertools import islice
from typing import Any, ClassVar, get_args, get_type_hints

from streamsvm import events
from streamsvm.events import Event, Phase, Record
from streamsvm.runs.lines import lines_of
from streamsvm.storage.jsonable import JsonObject, jsonable
from streamsvm.storage.paths import Place

Read = Callable[[Any], Any]  # returns a value of a line, or None if it has another type
FACTS, SCOPE = "facts", "scope"
FIRST_LINES = 10  # one of which is a record, if a file is a run's


@dataclass(frozen=True)
class Unknown(Event):
    """A line of another version: its kind is unknown here, or lacks required fields."""

    kind: ClassVar[str] = ""
    name: str


def flat(record: Record[Event]) -> JsonObject:
    """A record as it is written in a line: its fields, and its facts next to them. Optional fields only if they are
    set."""
    line: JsonObject = {"event": record.event.kind, "t": record.t}
    optional = _layouts()[record.event.kind].optional
    for name, value in vars(record.event).items():
        if name == FACTS:
            line |= value
        elif value is not None or name not in optional:
            line[name] = value
    phase = line.get("phase")
    if isinstance(phase, Phase) and phase.scope != Phase.named(phase).scope:  # of an unknown solver
        line[SCOPE] = phase.scope
    flattened: dict[str, Any] = jsonable(line)
    return flattened


def parse(line: bytes) -> Record[Event] | None:
    """The record of a line, or None if it is not a record."""
    try:
        values = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(values, dict) or not isinstance(values.get("event"), str):
        return None
    t = number(values.get("t"))
    return None if t is None else Record(t, _event(values))


def is_log(path: Place) -> bool:
    """Whether a file may be the log of a run: it is missing or empty, or has a record in its first lines."""
    first = list(islice(lines_of(path), FIRST_LINES))
    return not first or any(map(parse, first))


def number(value: object) -> float | None:
    """A finite number, or None."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < 1e300:
        return None
    return float(value)


def _event(line: JsonObject) -> Event:
    """The event of a line. Fields that are missing or have another type become None, if they may be None."""
    form = _layouts().get(line["event"])
    if form is None:
        return Unknown(line["event"])
    values = {name: read(line.get(name)) for name, read in form.readers.items()}
    if any(values[name] is None for name in form.needed):
        return Unknown(line["event"])
    if isinstance(values.get("phase"), Phase) and line.get(SCOPE) in get_args(events.Scope):
        values["phase"] = Phase(values["phase"], line[SCOPE])
    if form.has_facts:
        values[FACTS] = {name: value for name, value in line.items() if name not in {"event", "t", *values}}
    return form.make(**values)


@dataclass(frozen=True)
class _EventLayout:
    """How a kind of event is written and read. readers: by field; they return None for a value of another type. needed:
    fields that are never None. optional: fields that a line may leave out."""

    make: Callable[..., Event]
    readers: dict[str, Read]
    needed: frozenset[str]
    optional: frozenset[str]
    has_facts: bool


@cache
def _layouts() -> dict[str, _EventLayout]:
    """The layouts of all kinds of events, by kind."""
    kinds = [kind for kind in vars(events).values() if isinstance(kind, type) and issubclass(kind, Event)]
    return {kind.kind: _layout(kind) for kind in kinds if hasattr(kind, "kind")}


def _layout(kind: Any) -> _EventLayout:
    types = {name: hint for name, hint in get_type_hints(kind).items() if name not in ("kind", FACTS)}
    return _EventLayout(
        kind,
        {name: READERS[_plain(hint)] for name, hint in types.items()},
        frozenset(name for name, hint in types.items() if type(None) not in get_args(hint)),
        frozenset(field.name for field in fields(kind) if field.default is None),
        any(field.name == FACTS for field in fields(kind)),
    )


def _plain(annotation: object) -> object:
    """A type without None."""
    return next((arg for arg in get_args(annotation) if type(None) in get_args(annotation)), annotation)


def _instance(*types: type) -> Read:
    return lambda value: value if isinstance(value, types) else None


def _number(*types: type) -> Read:
    """A number as it is: counts stay int, shares float."""
    return lambda value: value if isinstance(value, types) and number(value) is not None else None


READERS: dict[Any, Read] = {
    int: _number(int),
    float: _number(int, float),
    bool: _instance(bool),
    str: _instance(str),
    Phase: lambda value: Phase.named(value) if isinstance(value, str) else None,
    events.Facts: _instance(dict),
    Sequence[Any]: _instance(list),
}
