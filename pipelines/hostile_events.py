"""Right events of a stream, then the same ones with 100,000 random wrong events between them: are the answers the same?

    python pipelines/hostile_events.py [--wrong 100000] [--only lines,http,python,messages] [--quick] [--out hostile.md]

Each task learns through each door: lines of `stream`, requests to `serve`, `learn_one` in Python, messages of a broker.
A wrong event has a value or a label of another type, text that is not Unicode, a number without an end, a name that is
another column's, or is not an event. It has to be refused, and the answers to the right events have to be those of
the stream without it, to the last bit.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import time
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
from bench import among, from_arguments
from measure import Failed
from tables import Report, Seconds, Table

from streamsvm.errors import DataError
from streamsvm.online import LEARNERS, BSGDClassifier
from streamsvm.online.brokers import as_text
from streamsvm.online.lines import json_event
from streamsvm.online.stream import Stream
from streamsvm.serving.app import App, Limits
from streamsvm.serving.learning import LearningModel

RIGHT, BATCH = 400, 50  # right events; events of a request
TASKS: dict[str, Callable[[], Any]] = {
    "classify": BSGDClassifier,
    "one learner": lambda: BSGDClassifier(1e-3, 0.5, budget=50),
    **{task: LEARNERS[task] for task in LEARNERS if task != "classify"},
}
Event = dict[str, Any]
HALVES = "\ud800", "b\udfff", "\udce9"
NUMBERS = (float("nan"), float("inf"), -1e19, 10**30, 10**400)
OBJECTS = (
    np.array([1.0, 2.0]),
    1j,
    b"1",
    Decimal("sNaN"),
    Decimal("NaN"),
    object(),
    np.datetime64("2026-01-01"),
)


def right_events(task: str, n: int) -> list[Event]:
    """Numbers, true and false, texts, and what is missing."""
    rng, found = random.Random(0), []
    for _ in range(n):
        x: Event = {"a": round(rng.gauss(0, 1), 4), "b": rng.randrange(9), "flag": rng.random() < 0.5}
        x["sky"] = rng.choice(["grey", "blue", "red", None])
        x["late"] = rng.choice(["n/a", None, "", 1.5])
        inside = x["a"] > 0 and x["flag"]
        labels = {
            "regress": x["a"] + x["b"],
            "multilabel": {"in": inside, "far": x["b"] > 4},
            "oneclass": None,
        }
        x["y"] = labels.get(task, "in" if inside else "out")
        if task == "oneclass":
            del x["y"]
        found.append(x)
    found[0] |= {"late": 0.5, "sky": "grey"}  # so that all kinds are known
    return found


def wrong_values(kind: str, *, objects: bool) -> list[Any]:
    """Values that a column of this kind does not take. objects: of Python, too."""
    values: list[Any] = [[], [1.0], {}, {"b": 1}, *HALVES]
    values += [] if kind == "text" else ["warm", "1.5", "true"]
    values += [] if kind == "bool" else [True, False]
    values += [7, -0.5] if kind != "number" else []
    values += NUMBERS
    return [*values, *OBJECTS, datetime(2026, 1, 1)] if objects else values


def wrong_labels(task: str, *, objects: bool) -> list[Any]:
    labels: dict[str, list[Any]] = {
        "regress": ["high", True, [1.0], *NUMBERS],
        "multilabel": [7.5, True, {"in": "yes"}, {"a,b": True}, [["in"]], "in,,far", ["a\x00"]],
        "oneclass": [[1], {"a": 1}, float("nan"), float("inf")],
    }
    found = labels.get(task, [7, 0.5, True, [1], {"a": 1}, "in\x00", *NUMBERS[:2]])
    if task != "regress":
        found = [*found, *HALVES]
    return [*found, ("in", 1), b"in", object()] if objects and task in ("classify", "one learner") else found


def wrong_events(task: str, n: int, rights: list[Event], *, objects: bool = False) -> Iterator[Event]:
    """Right events, each with something wrong."""
    rng = random.Random(1)
    kinds = {"a": "number", "b": "number", "late": "number", "flag": "bool", "sky": "text"}
    values = {name: wrong_values(kind, objects=objects) for name, kind in kinds.items()}
    labels = wrong_labels(task, objects=objects)
    for _ in range(n):
        x, how = dict(rng.choice(rights)), rng.random()
        if how < 0.6:
            name = rng.choice([*kinds])
            x[name] = rng.choice(values[name])
        elif how < 0.8 and not (objects and task == "oneclass"):
            x["y"] = rng.choice(labels)
        elif how < 0.9:
            x |= {rng.choice(HALVES): 1.0}
        else:
            x |= {"sky=grey": rng.choice([7, -1.5, True, "grey"])}
        yield x


def wrong_texts(events: Iterable[Event]) -> Iterator[bytes]:
    """The same as JSON, some cut off, or with bytes that are not UTF-8."""
    rng = random.Random(2)
    for event in events:
        text, how = json.dumps(event).encode(), rng.random()
        if how < 0.1:
            text = text[: rng.randrange(1, len(text))]
        elif how < 0.2:
            text = text.replace(b'"', b'"\xe9', 1)
        elif how < 0.25:
            text = rng.choice([b"[1]", b"7", b"null", b'"x"', b"{]", b"[" * 5000])
        yield text


def between(rights: list[Any], wrongs: Iterator[Any], n: int) -> Iterator[tuple[bool, Any]]:
    """(is right, event): n wrong ones, evenly after each right one."""
    done = 0
    for i, right in enumerate(rights, 1):
        yield True, right
        while done < n * i // len(rights):
            done += 1
            yield False, next(wrongs)


class Door:
    """Answers events. refused: wrong ones; taken: wrong ones that were not."""

    objects = False

    def __init__(self, task: str, work: Path) -> None:
        self.task, self.refused, self.taken = task, 0, list[Any]()
        self.stream = Stream.open(work / "snapshot.zarr", TASKS[task], scale=True, label="y", anew=True)

    def answers(self, events: Iterable[tuple[bool, Any]]) -> list[Any]:
        """To the right events."""
        found = []
        for is_right, event in events:
            answer = self.answer(event)
            if is_right:
                found.append(answer)
            elif answer is None:
                self.refused += 1
            else:
                self.taken.append(event)
        return found

    def answer(self, event: Any) -> Any:
        """None where it is refused."""
        return _said(self.stream.answer(as_text(event), json_event))


class Messages(Door):
    """Of Kafka and NATS: as lines, after a message became text."""


class Http(Door):
    """Requests, right events one by one, wrong ones in lists."""

    def answers(self, events: Iterable[tuple[bool, Any]]) -> list[Any]:
        learning = LearningModel(self.stream, 1000, 1 << 60, None, lambda message: self.taken.append(message))
        app = App(learning, Limits())

        async def run() -> list[Any]:
            learning.start()
            found, waiting = [], list[bytes]()
            for is_right, event in events:
                if not is_right:
                    waiting.append(event)
                if waiting and (is_right or len(waiting) == BATCH):
                    await self._post_wrong(app, waiting)
                    waiting = []
                if is_right:
                    _, said = await _post(app, event)
                    found.append(_said(said[0]))
            if waiting:
                await self._post_wrong(app, waiting)
            await learning.close()
            return found

        return asyncio.run(run())

    async def _post_wrong(self, app: App, bodies: list[bytes]) -> None:
        """Those that are JSON in one request, the others one by one."""
        whole = [body for body in bodies if _is_object(body)]
        alone = [body for body in bodies if not _is_object(body)]
        for body in [b"[" + b",".join(whole) + b"]"] * bool(whole) + alone:
            status, said = await _post(app, body)
            if status == 400:  # of a list with an event that is not JSON, which refuses the others, too
                self.refused += len(whole) if body[:2] == b"[{" else 1
            else:
                self.refused += sum("error" in answer for answer in said)
                self.taken += [answer for answer in said if "error" not in answer]


class Python(Door):
    objects = True

    def answer(self, event: Event) -> Any:
        x = dict(event)
        y = x.pop("y", None)
        learner = self.stream.learner
        try:
            said = learner.decision_one(x).tobytes() if learner.n_seen else b""
            learner.learn_one(x) if self.task == "oneclass" else learner.learn_one(x, y)
        except DataError:
            return None
        return said


DOORS: dict[str, type[Door]] = {"lines": Door, "http": Http, "python": Python, "messages": Messages}


def _said(answer: Event) -> Any:
    """But for numbers of events."""
    return None if "error" in answer else {k: v for k, v in answer.items() if k not in ("event", "snapshot")}


def _is_object(body: bytes) -> bool:
    """Whether it can stand in a list with others."""
    try:
        json.dumps(json_event(as_text(body)), allow_nan=False)
    except (DataError, ValueError):
        return False
    return True


async def _post(app: App, body: bytes) -> tuple[int, Any]:
    sent = list[dict[str, Any]]()

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    scope = {"type": "http", "path": "/learn", "method": "POST", "query_string": b"", "headers": []}
    await app(scope, receive, send)
    return sent[0]["status"], json.loads(sent[1]["body"])


def compared(task: str, door: str, wrong: int, work: Path) -> dict[str, Any]:
    """A row of the table. Raises Failed for a wrong event that is learned."""
    kind = DOORS[door]
    rights = right_events(task, RIGHT)
    wrongs: Iterator[Any] = wrong_events(task, wrong, rights, objects=kind.objects)
    given: list[Any] = rights
    if not kind.objects:
        given, wrongs = [json.dumps(event).encode() for event in rights], wrong_texts(wrongs)
    expected = kind(task, work).answers((True, event) for event in given)
    tried, began = kind(task, work), time.perf_counter()
    found = tried.answers(between(given, wrongs, wrong))
    if tried.taken:
        raise Failed(f"{task}, {door}: learned {tried.taken[0]!r}")
    return {
        "task": task,
        "door": door,
        "right events": len(expected),
        "wrong events": wrong,
        "refused": tried.refused,
        "answers that differ": sum(a != b for a, b in zip(expected, found, strict=True)),
        "seconds": Seconds(time.perf_counter() - began),
    }


def _own_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--wrong", type=int, default=100_000, help="wrong events of each task and door")
    parser.add_argument("--only", type=among(DOORS), default=[*DOORS], help="doors")


def main() -> None:
    with from_arguments(__doc__, _own_options) as (bench, args):
        wrong = 400 if args.quick else args.wrong
        rows = [compared(task, door, wrong, bench.work) for door in args.only for task in TASKS]
        checks = [
            ("every wrong event refused", all(row["refused"] == row["wrong events"] for row in rows)),
            ("answers to right events the same", not any(row["answers that differ"] for row in rows)),
        ]
        Report(args.out).add([Table("Wrong events between right ones", rows, [], checks)])


if __name__ == "__main__":
    main()
