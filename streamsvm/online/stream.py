"""A learner in a pipe: each event is predicted, then learned, and answered with one JSON line.

An event is a line: a JSON object of features and a label, or a CSV row under a header. Its number counts the lines of
the stream from its very beginning, bad ones too, over all restarts. The model holds it, so that a resumed stream knows
which event comes next.

`Stream` holds the learner, its scores, and a `RunningScaler` that standardises features by their mean and deviation so
far; `WaitingEvents` get their labels later, by an id. `StreamReporter` reports progress and, from the stream's
`RecentCounts`, a record every so many events."""

from __future__ import annotations

import json
import time
import zlib
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from copy import deepcopy
from dataclasses import asdict, dataclass, field, replace
from itertools import islice
from typing import Any

import numpy as np

from streamsvm.data.layout import listed
from streamsvm.data.scaling import Scaling
from streamsvm.errors import ConfigError, DataError
from streamsvm.events import Events, Stretch, Warned
from streamsvm.models import StreamModel
from streamsvm.models.files import load_model, save_model
from streamsvm.online import LEARNERS
from streamsvm.online.kinds import Event, FeatureKinds, Features, State, shown
from streamsvm.online.lines import Field, Parse, finite_numbers
from streamsvm.online.scores import JUDGES, Answer, StreamScores
from streamsvm.online.tables import TableEvents, category_code
from streamsvm.storage.paths import Place, kind_at
from streamsvm.tables.target_encoding import encoded_features as target_encoded
from streamsvm.tasks import task_of

BLOCK_ENTRIES = 1 << 22  # of the rows that are decided at once
LEAST_STRETCH = 100  # events learned from record to record
STRETCH = 0.005  # and at least this share of all so far
PROGRESS_S = 0.2
UNLABELLED, SPREAD = 100, 1000  # events, after which labels and text features are looked at
MOST_CHARACTERS = 200  # of an id
MOST_REQUESTS = 1000


@dataclass
class WaitingEvents:
    """At most `most` events, each with the prediction made when it came; of more, the oldest expires. id: the field
    that holds an event's id, an integer or a text; 7 and "7" are the same. expired, unknown: events that expired, and
    labels whose id no event has."""

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


@dataclass
class RecentCounts:
    """Counts of the events since the last record of a stream: labels, and seconds of answering and learning."""

    labels: Counter[str] = field(default_factory=Counter)
    events: int = 0
    seconds: float = 0.0
    slowest_s: float = 0.0

    def add(self, seconds: float, label: object) -> None:
        self.events += 1
        self.seconds += seconds
        self.slowest_s = max(self.slowest_s, seconds)
        if label is not None:
            self.labels[str(label)] += 1

    def facts(self) -> dict[str, Any]:
        mean = self.seconds / max(self.events, 1)
        return {"labels": dict(self.labels), "answer_s": round(mean, 7), "slowest_s": round(self.slowest_s, 7)}


@dataclass
class RunningScaler:
    """Count, mean and variance of each feature so far (Welford, 1962). Nothing is forgotten; the scaling of pools, in
    `data/running.py`, adapts. The numbers are those of river's StandardScaler, which loads pandas, scikit-learn and
    trees: half of the seconds that a stream takes to start."""

    moments: dict[str, tuple[int, float, float]] = field(default_factory=dict)  # (count, mean, variance)

    @classmethod
    def from_state(cls, state: Mapping[str, list[float]]) -> RunningScaler:
        return cls({name: (int(count), mean, variance) for name, (count, mean, variance) in state.items()})

    def to_state(self) -> dict[str, list[float]]:
        return {name: [*moments] for name, moments in self.moments.items()}

    def of(self, name: str) -> tuple[int, float, float]:
        return self.moments.get(name, (0, 0.0, 0.0))

    def learn_one(self, x: Mapping[str, float]) -> None:
        for name, value in x.items():
            count, mean, variance = self.of(name)
            count += 1
            moved = mean + (value - mean) / count
            variance += ((value - mean) * (value - moved) - variance) / count
            self.moments[name] = count, moved, variance

    def transform_one(self, x: Mapping[str, float]) -> dict[str, float]:
        """(value - mean) / deviation; 0 where nothing deviates."""
        return {name: self._scaled(name, value) for name, value in x.items()}

    def _scaled(self, name: str, value: float) -> float:
        _, mean, variance = self.of(name)
        return (value - mean) / variance**0.5 if variance else 0.0


@dataclass
class Stream:
    """A learner, its judge, its scaler, and the number of events it has seen; `answer` takes the next one.

    label: the field that holds the label; without it an event is only predicted, unless the task needs no labels.
    waiting: events whose labels come later, if they may. topics: places of the next messages, by topic. kinds: of
    features before they are scaled; a learner that scales them has their kinds itself. requests: a server's last ones.
    categories: features whose numbers are codes, each a category. numeric: names in the last CSV row, if all were
    features of numbers."""

    path: Place
    judge: StreamScores
    scaler: RunningScaler | None = None
    label: str = "y"
    events: int = 0
    bad: int = 0
    saved: int = 0  # events in the last snapshot
    needs_label: bool = False  # events without one are bad
    recent: RecentCounts = field(default_factory=RecentCounts)
    waiting: WaitingEvents | None = None
    topics: dict[str, dict[str, int]] = field(default_factory=dict)
    table: TableEvents = field(default_factory=lambda: TableEvents([]))  # of a fit, if it began with one
    kinds: FeatureKinds = field(default_factory=FeatureKinds)
    requests: RecentRequests = field(default_factory=RecentRequests)
    categories: frozenset[str] = frozenset()
    numeric: frozenset[str] = frozenset()

    @property
    def learner(self) -> Any:
        return self.judge.learner

    @classmethod
    def open(
        cls,
        path: Place,
        make: Callable[[], Any],
        *,
        scale: bool,
        label: str,
        anew: bool = False,
        categories: Collection[str] = (),
    ) -> Stream:
        """The stream whose snapshot is at `path`; a new one, of these categories, if there is none, or if `anew`.
        Raises what loading does."""
        if anew or kind_at(path) is None:
            new = make()
            scaler = RunningScaler() if scale and not new.tunes_itself else None
            return cls(path, JUDGES[new.task](new), scaler, label, categories=frozenset(categories))
        model = load_model(path)
        if not isinstance(model, StreamModel):
            raise ConfigError(
                f"{path}: found a model of kind {model.kind!r}, expected one of `stream`, or of fit --solver bsgd with "
                "bsgd.partitions=1"
            )
        if model.task not in LEARNERS:
            raise ConfigError(f"{path}: found a model of task {model.task}, expected {' or '.join(LEARNERS)}")
        if model.stream is None and not model.header.scaling.is_none:
            raise ConfigError(
                f"{path}: was fitted with scaling, which a stream cannot continue with; fit with --scale none "
                "--metric none"
            )
        layout = model.header.layout
        encoded = [] if layout is None else [*target_encoded(layout.attrs).values()]
        if encoded:
            raise ConfigError(
                f"{path}: was fitted with target-encoded column {encoded[0].name!r}, which a stream cannot "
                "continue with; fit with --hash instead"
            )
        state = model.stream or {}
        counts = {"events": 0, "learnt": 0, "bad": 0} | state.get("counts", {})
        # earlier versions counted right predictions among the counts
        judge_state = state.get("judge") or {f"n_{name}": counts[name] for name in counts if name == "right"}
        judge = JUDGES[model.task](LEARNERS[model.task].from_model(model), judge_state)
        judge.learnt = counts["learnt"]
        scaler_state = state.get("scaler")
        scaler = None if scaler_state is None else RunningScaler.from_state(scaler_state)
        stream = cls(path, judge, scaler, label, counts["events"], counts["bad"])
        stream.saved = stream.events
        stream.waiting = WaitingEvents.from_state(state.get("waiting"))
        stream.requests = RecentRequests.from_state(state.get("requests", []))
        stream.topics = state.get("topics", {})
        stream.categories = frozenset(state.get("categories", ()))
        stream.kinds = FeatureKinds(judge.learner.features, state.get("kinds_unscaled", ()))
        stream.table = TableEvents(state["table"]) if "table" in state else TableEvents.of(model)
        return stream

    def wait(self, most: int | None, field: str | None) -> None:
        """Labels may come later, by the id in this field, for at most so many events; None: as before. Raises
        ConfigError."""
        if most is None and self.waiting is None:
            if field is not None:
                raise ConfigError(f"--id {field}: ids are of labels that come later; give --wait-for-labels, too")
            return
        if not task_of(self.learner.task).reads_labels:
            raise ConfigError(f"--wait-for-labels {most}: a stream of task {self.learner.task} needs no labels")
        if self.waiting is None:
            self.waiting = WaitingEvents(most or 0)
        if len(self.waiting) and field not in (None, self.waiting.id):
            raise ConfigError(
                f"--id {field}: the events that wait in {self.path} have their ids in {self.waiting.id!r}; leave the "
                "option out"
            )
        self.waiting.id = field or self.waiting.id
        self.waiting.allow(self.waiting.most if most is None else most)

    @property
    def fields(self) -> str:
        """The fields of labels and ids, as the value of --label and the options after it."""
        waits = self.waiting
        return self.label if waits is None else f"{self.label} --id {waits.id} --wait-for-labels {waits.most}"

    def answer(self, line: str, parse: Parse) -> Answer:
        """Predicts and learns one line; returns the answer. A bad line is reported and changes nothing."""
        try:
            return self.take(parse(line))
        except DataError as error:
            self.events += 1
            return self._bad(error)

    def take(self, event: Features) -> Answer:
        """Predicts and learns one event; returns the answer."""
        self.events += 1
        start = time.perf_counter()
        try:
            answer = self._learn(event)
            label = answer.get("label") if self.right is not None else None
            self.recent.add(time.perf_counter() - start, label)
            return {"event": self.events} | answer | {"snapshot": self.saved}
        except DataError as error:
            return self._bad(error)

    def _bad(self, error: DataError) -> Answer:
        self.bad += 1
        return {"event": self.events, "error": str(error), "snapshot": self.saved}

    def _learn(self, event: Features) -> Answer:
        x, y = self._features_of(event)
        if self.waiting is not None and (name := self.waiting.id_of(event, x)) is not None:
            event_id = event[self.waiting.id]
            event_id = event_id.as_kind(None) if isinstance(event_id, Field) else event_id
            return {"id": event_id} | self._learn_named(self.waiting, name, x, y)
        if y is None and self.needs_label:
            raise DataError(f"label {self.label!r}: found none, expected one next to the features")
        return self._answer(x, y)

    def _features_of(self, event: Features) -> tuple[Event, Any]:
        """(features, label or None) of an event, its values as their columns hold them. Raises DataError."""
        x, y = features_of(event, self.label)
        if Field in map(type, x.values()):
            x = self._read(x)
        if not self.categories.isdisjoint(x):
            x = {name: _code(name, value) if name in self.categories else value for name, value in x.items()}
        if isinstance(y, Field):
            y = self.judge.label_in(y)
        return self.table(x), y

    def _read(self, x: Event) -> Event:
        """The values of the fields of a CSV row, as the kinds of their columns."""
        if x.keys() == self.numeric and (numbers := finite_numbers(x.values())) is not None:
            return dict(zip(x, numbers, strict=True))
        kinds = self.learner.kinds if self.scaler is None else self.kinds
        of_columns = {name: self.table.kind(name) or kinds.kind(name) for name in x}
        of_columns |= dict.fromkeys(self.categories & x.keys(), "text")
        if {*of_columns.values()} == {"number"}:
            self.numeric = frozenset(x)
        return {name: v.as_kind(of_columns[name]) if isinstance(v, Field) else v for name, v in x.items()}

    def _learn_named(self, waiting: WaitingEvents, name: str, x: Event, y: object) -> Answer:
        """Answers an event with an id: an event that now waits for its label, one with its label, or a label alone."""
        if y is not None and not x:
            return self._learn_late(waiting, name, y)
        answer = self._answer(x, y)
        if y is None:
            waiting.keep(name, x, answer["prediction"])
        else:
            waiting.drop(name)
        return answer

    def _learn_late(self, waiting: WaitingEvents, name: str, y: object) -> Answer:
        """The prediction that is judged is the one made when the event came; the scaler has learned it then."""
        x, prediction = waiting.find(name)
        y = self.judge.label(self.label, y)
        scaled = self._scaled(x, y)
        waiting.drop(name)
        return {"prediction": prediction} | self.judge.learn(scaled, y, prediction)

    def _answer(self, x: Event, y: object) -> Answer:
        y = self.judge.label(self.label, y)
        return self.judge.answer(self._scaled(x, y, learns=True), y)

    def _scaled(self, x: Event, y: object = None, *, learns: bool = False) -> Features:
        """The features as the learner takes them. learns: the scaler learns them first. For an event that cannot be
        learned, raises DataError before anything is changed."""
        if self.scaler is None:
            self.learner.check(x, y)
            return x
        plain = self.kinds.plain(x)
        self.learner.check(plain, y)
        numbers = {name: value for name, value in plain.items() if name in x}  # others are columns of texts
        if learns:
            self.scaler.learn_one(numbers)
            self.kinds.learn(x, plain)
        return {**plain, **self.scaler.transform_one(numbers)}

    def remark(self, line: str, parse: Parse) -> str | None:
        """A warning after some events, of which this is the last: of labels that do not come, and of a text feature
        that hardly ever repeats. None at all other times, and for bad lines."""
        if self.events == UNLABELLED and self.waiting is None and not self.learner.n_seen:
            with suppress(DataError):
                return (
                    f"the first {UNLABELLED} events have no label {self.label!r}, so nothing is learned; --label names "
                    f"the field: this event has {listed([*parse(line)])}"
                )
        if self.events != SPREAD:
            return None
        texts = Counter(str(name).partition("=")[0] for name in self.learner.features if "=" in str(name))
        [(name, count)] = texts.most_common(1) or [("", 0)]
        if count <= SPREAD / 2:
            return None
        return (
            f"feature {name!r} has {count:,} different texts in {SPREAD:,} events, each with a column; leave it out, "
            "or send numbers, such as hour and weekday of a time"
        )

    @property
    def learnt(self) -> int:
        return self.judge.learnt

    @property
    def right(self) -> int | None:
        """Correct predictions; None if there are no classes."""
        return self.judge.right()

    def decide(self, events: Sequence[Features]) -> np.ndarray:
        """(m, columns) decision values of events, without learning them; a label next to the features is not read.
        Raises DataError, which names the event."""
        step = max(1, BLOCK_ENTRIES // max(1, self.learner.n_columns))
        blocks = []
        for start in range(0, len(events), step):
            rows = [self._row(i, events[i]) for i in range(start, min(start + step, len(events)))]
            blocks.append(self.learner.decide_rows(np.array(rows)))
        return np.concatenate(blocks)

    def _row(self, i: int, event: Features) -> np.ndarray:
        """The row of event i of a request. Raises DataError."""
        try:
            x, _ = self._features_of(event)
            if self.waiting is not None:
                self.waiting.id_of(event, x)
            return self.learner.row_of(x if self.scaler is None else self._scaled(x))
        except DataError as error:
            raise DataError(f"event {i}: {error}") from None

    def snapshot(self) -> StreamModel | None:
        """A copy of the state as a model; None before any event is learned."""
        if self.learner.n_seen == 0:
            return None
        counts = {"events": self.events, "learnt": self.learnt, "bad": self.bad}
        scaler = None if self.scaler is None else self.scaler.to_state()
        state: dict[str, object] = {"counts": counts, "judge": self.judge.to_state(), "scaler": scaler}
        if self.waiting is not None:
            state["waiting"] = self.waiting.to_state()
        if self.scaler is not None:
            state["kinds_unscaled"] = self.kinds.to_state()
        if requests := self.requests.to_state():
            state["requests"] = requests
        if self.categories:
            state["categories"] = sorted(self.categories)
        if self.topics:
            state["topics"] = self.topics
        if self.table.columns:
            state["table"] = self.table.columns
        model = self.learner.to_model(self._scaling(), **state)
        return replace(model, stream=deepcopy(model.stream))  # arrays are copies already

    def save(self) -> None:
        """Replaces the snapshot at `path`. Raises StorageError."""
        events, model = self.events, self.snapshot()
        if model is not None:
            save_model(model, self.path)
            self.saved = events

    def summary(self) -> dict[str, Any]:
        return {
            "events": self.events,
            "learnt": self.learnt,
            "bad": self.bad,
            **self.judge.scores(),
            "n_support": self.learner.n_support,
            "maintenances": self.learner.stats.maintenances,
            **self.learner.drifts,
            **({} if self.waiting is None else self.waiting.counts()),
            "snapshot": self.saved,
        }

    def _scaling(self) -> Scaling | None:
        """The running standardisation as the model's scaling, so that the snapshot predicts raw rows."""
        if self.scaler is None:
            return None
        scaling = Scaling.none(self.learner.n_columns)
        for column, name in enumerate(self.learner.features):
            if name in self.scaler.moments:  # not of a column of texts
                _, scaling.offset[column], variance = self.scaler.of(name)
                scaling.scale[column] = 1 / variance**0.5 if variance > 0 else 0.0
        return Scaling("standard", scaling.offset, scaling.scale, fill=scaling.offset)


class StreamReporter:
    """Reports on a stream: progress a few times a second, and a `stretch` record every so many events learned. A
    stretch has its own accuracy, of predictions before they were learned, and the state of the learner."""

    def __init__(self, stream: Stream, tell: Events) -> None:
        self._stream, self._tell = stream, tell
        self._began = self._reported = time.perf_counter()
        self._drifts = stream.learner.drifts
        self._first = stream.events
        self._learnt, self._right = stream.learnt, stream.right

    def __call__(self, share: float | None) -> None:
        """Called after an event. share: of the input that was read, if known."""
        if self._stream.learner.drifts != self._drifts:
            self._drift()
        learnt = self._stream.learnt - self._learnt
        if learnt >= max(LEAST_STRETCH, STRETCH * self._stream.learnt):
            self._stretch()
        now = time.perf_counter()
        if now - self._reported >= PROGRESS_S:
            self._reported = now
            self._progress(now, share)

    def _drift(self) -> None:
        at, before, now = f"event {self._stream.events:,}", self._drifts, self._stream.learner.drifts
        if now["alarms"] > before["alarms"]:
            self._tell(Warned(f"{at}: errors rise; a second learner starts next to the first"))
        if now["switches"] > before["switches"]:
            self._tell(Warned(f"{at}: the stream has changed; the second learner takes over"))
        self._drifts = now

    def warn(self, message: str) -> None:
        self._tell(Warned(message))

    def end(self) -> None:
        if self._stream.learnt > self._learnt:
            self._stretch()

    def _stretch(self) -> None:
        stream, learnt = self._stream, self._stream.learnt - self._learnt
        accuracy = None if stream.right is None else (stream.right - (self._right or 0)) / learnt
        facts = asdict(stream.learner.stats) | {"steps": stream.learnt} | stream.recent.facts()
        stream.recent = RecentCounts()
        self._tell(Stretch(events=stream.events, bad=stream.bad, accuracy=accuracy, **facts))
        self._learnt, self._right = stream.learnt, stream.right

    def _progress(self, now: float, share: float | None) -> None:
        stream = self._stream
        done, total = (stream.events, None) if share is None else (share, 1)
        facts: dict[str, object] = {"events": stream.events} if total else {}
        if stream.learnt:
            facts |= dict(islice(stream.judge.scores().items(), 1)) | {"supports": stream.learner.n_support}
        rate = (stream.events - self._first) / (now - self._began)
        self._tell.progress("stream", done, total, rows_s=rate, **facts)


def _code(name: str, value: object) -> str | None:
    """The text of a number code, so that no other value decides what the feature holds. Raises DataError."""
    code = category_code(value)
    if code is not None and not isinstance(code, str):
        raise DataError(f"feature {shown(name)}: found {shown(value)}, expected a number code or a text")
    return code


def features_of(event: Features, label: str) -> tuple[Event, Any]:
    """(features, label or None): `{"x": {...}, "y": ...}`, or features and the label together."""
    if isinstance(event.get("x"), dict):
        return event["x"], event.get(label)
    x = dict(event)
    y = x.pop(label, None)
    return x, y
