"""Events that wait for their labels, which come later by an id; and requests that may come again."""

from __future__ import annotations

import json
import zlib
from dataclasses import dataclass, field
from typing import Any

from streamsvm.errors import DataError
from streamsvm.online.kinds import Event, Features, State

MOST_CHARACTERS = 200  # of an id
MOST_REQUESTS = 1000


@dataclass
class WaitingEvents:
    """At most `most` events, each with the prediction made when it came; of more, the oldest expires.

    id: the field that holds an event's id, an integer or a text; 7 and "7" are the same. expired, unknown: events that
    expired, and labels whose id no event has.
    """

    most: int
    id: str = "id"
    expired: int = 0
    unknown: int = 0
    # as JSON: a tenth of the memory, and snapshots copy texts
    _events: dict[str, str] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self._events)

    def id_of(self, event: Features, x: Event) -> str | None:
        """The event's id, which is then none of its features x. Raises DataError."""
        event_id = event.get(self.id)
        if x is not event.get("x"):
            x.pop(self.id, None)
        if event_id is None:
            return None
        if isinstance(event_id, bool) or not isinstance(event_id, int | str) or len(str(event_id)) > MOST_CHARACTERS:
            raise DataError(
                f"id {self.id!r}: found {repr(event_id)[:40]}, expected an integer or a text of at most "
                f"{MOST_CHARACTERS} characters"
            )
        return str(event_id)

    def keep(self, name: str, x: Features, prediction: object) -> None:
        """Keeps an event without its label, and drops an earlier one with the same id."""
        self._events.pop(name, None)
        self._events[name] = json.dumps([x, prediction])
        self.allow(self.most)

    def find(self, name: str) -> tuple[Event, Any]:
        """(features, prediction) of an event. Raises DataError."""
        if name not in self._events:
            self.unknown += 1
            raise DataError(
                f"id {self.id!r}: found a label for {name!r}, expected the id of one of the {len(self)} events that "
                f"wait for theirs; the event never came, had its label already, or was followed by {self.most:,} others"
            )
        x, prediction = json.loads(self._events[name])
        return x, prediction

    def drop(self, name: str) -> None:
        self._events.pop(name, None)

    def allow(self, most: int) -> None:
        """Changes the bound from here on."""
        self.most = most
        while len(self._events) > most:
            del self._events[next(iter(self._events))]
            self.expired += 1

    def counts(self) -> dict[str, int]:
        return {"waiting": len(self), "expired": self.expired, "unknown": self.unknown}

    @property
    def gone(self) -> str:
        """A message about events and labels that were not learned; empty if there are none."""
        counts = {f"{self.expired:,} events expired before their labels came": self.expired}
        counts[f"{self.unknown:,} labels had ids that no waiting event has"] = self.unknown
        message = ", and ".join(text for text, n in counts.items() if n)
        return message and f"{message}; --wait-for-labels is {self.most:,}"

    def to_state(self) -> dict[str, object]:
        counts = {"most": self.most, "id": self.id, "expired": self.expired, "unknown": self.unknown}
        return counts | {"ids": list(self._events), "events": list(self._events.values())}

    @classmethod
    def from_state(cls, state: State | None) -> WaitingEvents | None:
        if state is None:
            return None
        fields = {name: state[name] for name in ("most", "id", "expired", "unknown")}
        return cls(**fields, _events=dict(zip(state["ids"], state["events"], strict=True)))


@dataclass
class RecentRequests:
    """The last requests with names: a sender that got no answer sends one again, and it is learned once."""

    _requests: dict[str, tuple[int, int]] = field(default_factory=dict)  # number of the first event, checksum

    def find(self, name: str, body: bytes, n: int) -> int | None:
        """The number of the first of its n events; None for a new one. Raises DataError for another body."""
        first, checksum = self._requests.get(name, (None, 0))
        if first is not None and checksum != zlib.crc32(body):
            raise DataError(
                f"id: found {name!r} with {n:,} events, expected those of the first request with this id; "
                "give each request an id that no other has"
            )
        return first

    def add(self, name: str, body: bytes, first: int) -> None:
        self._requests.pop(name, None)
        self._requests[name] = first, zlib.crc32(body)
        while len(self._requests) > MOST_REQUESTS:
            del self._requests[next(iter(self._requests))]

    def to_state(self) -> list[list[Any]]:
        return [[name, *request] for name, request in self._requests.items()]

    @classmethod
    def from_state(cls, state: list[list[Any]]) -> RecentRequests:
        return cls({name: (first, checksum) for name, first, checksum in state})
