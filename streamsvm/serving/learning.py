"""A stream that learns in a separate thread. Waiting predictions are decided as one block, and learning pauses for
them every few events. Snapshots are taken in that thread and written by a second one; a third thread syncs the log, for
all requests that wait for it."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from time import perf_counter
from typing import Any, TypeAlias, TypeVar

import numpy as np

from streamsvm.errors import DataError, StorageError, StreamSVMError
from streamsvm.models import StreamModel
from streamsvm.models.files import save_model
from streamsvm.online.kinds import Event
from streamsvm.online.scores import Answer
from streamsvm.online.stream import Stream
from streamsvm.predict import PredictionOptions
from streamsvm.serving.log import RequestLog, sync_tree
from streamsvm.serving.requests import Predictions, RequestError, as_json, events_in

STRETCH = 50  # events learned before waiting predictions are answered
MOST_JOINED = 16  # requests that are decided at once

Report = Callable[[str], None]
Result = TypeVar("Result")
Reply: TypeAlias = object  # to a request: bytes or facts, or the error that is raised instead


@dataclass
class LearnerRequest:
    """A request to the learner's thread, which answers it by `do`, or predictions together with others."""

    answered: asyncio.Future[Any]
    do: Callable[[], object] | None = None
    body: bytes = b""
    options: PredictionOptions = PredictionOptions()
    events: list[Event] = field(default_factory=list)


class LearningModel:
    """Predicts and learns. log: keeps requests until a snapshot has them. report: is called with warnings."""

    refusal = ""

    def __init__(self, stream: Stream, most_events: int, every: int, log: RequestLog | None, report: Report) -> None:
        self.stream, self._most, self._every = stream, most_events, every
        self._log, self._report = log, report
        self.predicted = self.snapshots = self.failures = 0
        self.snapshot_s = 0.0
        self._snapshot_event = stream.events  # of the last snapshot that was begun
        self._predict_queue, self._learn_queue = deque[LearnerRequest](), deque[LearnerRequest]()
        self._wake, self._ends = threading.Event(), False
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="snapshots")
        self._syncer = ThreadPoolExecutor(1, thread_name_prefix="log")
        self._written = threading.Event()  # no snapshot is under way
        self._written.set()
        self._sync: asyncio.Task[None] | None = None  # that has not begun
        self._syncing = asyncio.Lock()
        if log is not None:
            self._replay(log)
        self._worker = threading.Thread(target=self._work, name="learner", daemon=True)

    @property
    def kind(self) -> str:
        return f"stream, after event {self.stream.events:,}"

    @property
    def closing_message(self) -> str:
        """The end of the message that the server prints when it has stopped."""
        waiting = self.stream.waiting
        gone = waiting.gone if waiting is not None else ""
        return f" after event {self.stream.events:,}; snapshot of event {self.stream.saved:,}" + (gone and f"; {gone}")

    def start(self) -> None:
        """Called in the event loop that the requests come from."""
        self._loop = asyncio.get_running_loop()
        self._worker.start()

    async def predict(self, body: bytes, options: PredictionOptions) -> bytes:
        """Raises RequestError."""
        return await self._submit(
            self._predict_queue, LearnerRequest(self._loop.create_future(), body=body, options=options)
        )

    async def learn(self, body: bytes, first: int | None, name: str | None = None) -> bytes:
        """Learns the events of a request. first: the number of the first event; events with known numbers are not
        learned again. name: of the request; a request with a known name is not learned again. Raises RequestError."""
        answer = await self._in_learner_thread(partial(self._learn_request, body, first, name))
        if self._log is not None:
            await self._synced()
        return answer

    async def close(self) -> None:
        """Answers all waiting requests, writes a snapshot, and ends. Raises StorageError."""
        self._ends = True
        self._wake.set()
        await asyncio.to_thread(self._worker.join)
        self._writer.shutdown()
        self._syncer.shutdown()
        if self.stream.events > self.stream.saved:
            self.stream.save()
        if self._log is not None:
            self._log.begin(self.stream.events + 1)
            self._forget(self.stream.saved)
            self._log.close()

    async def facts(self) -> dict[str, object]:
        """The answer to `GET /model`."""
        return await self._in_learner_thread(self._facts)

    def _facts(self) -> dict[str, object]:
        learner, stream = self.stream.learner, self.stream
        return {
            "kind": "stream",
            "task": learner.task,
            "learns": True,
            "label": stream.label,
            "features": [str(name) for name in learner.features],
            "classes": list(getattr(learner, "labels", [])),
            **stream.summary(),
            "durable": self._log is not None,
        }

    def totals(self) -> dict[str, float]:
        stream = self.stream
        counts = {"predicted": self.predicted, "learnt": stream.learnt, "bad": stream.bad}
        totals: dict[str, float] = {f"events_{name}_total": n for name, n in counts.items()}
        return totals | {"snapshots_total": self.snapshots, "snapshot_failures_total": self.failures}

    def gauges(self) -> dict[str, float]:
        stream = self.stream
        gauges = {"events": stream.events, "support_vectors": stream.learner.n_support}
        if stream.waiting is not None:
            gauges["events_waiting"] = len(stream.waiting)
        gauges |= {"snapshot_event": stream.saved, "snapshot_seconds": self.snapshot_s}
        return gauges if self._log is None else gauges | {"log_bytes": self._log.bytes}

    @property
    def trouble(self) -> str | None:
        """Why the server should be restarted, or None."""
        return None if self._log is None else self._log.broken

    async def _in_learner_thread(self, do: Callable[[], Result]) -> Result:
        return await self._submit(self._learn_queue, LearnerRequest(self._loop.create_future(), do))

    async def _submit(self, waiting: deque[LearnerRequest], job: LearnerRequest) -> Any:
        if self._ends:
            raise RequestError(503, "the server is stopping", retry_after="1")
        waiting.append(job)
        self._wake.set()
        return await job.answered

    async def _synced(self) -> None:
        """Waits for the next sync of the log to begin and end, together with all other requests that wait for it."""
        if self._sync is None:
            self._sync = asyncio.create_task(self._sync_log())
        try:
            await asyncio.shield(self._sync)
        except StorageError as error:
            raise RequestError(507, f"learned, but it may be lost when the server ends: {error}") from None

    async def _sync_log(self) -> None:
        assert self._log is not None
        async with self._syncing:
            self._sync = None
            await self._loop.run_in_executor(self._syncer, self._log.sync)

    # What follows runs in the learner's thread.

    def _work(self) -> None:
        while True:
            self._wake.wait()
            self._wake.clear()
            while self._predict_queue or self._learn_queue:
                self._predict_waiting()
                if self._learn_queue:
                    job = self._learn_queue.popleft()
                    assert job.do is not None
                    self._reply([(job, self._result_of(job.do))])
            if self._ends:
                return

    def _predict_waiting(self) -> None:
        jobs = [self._predict_queue.popleft() for _ in range(min(len(self._predict_queue), MOST_JOINED))]
        if len(jobs) > 1:
            try:
                self._reply(list(zip(jobs, self._predict(jobs), strict=True)))
                return
            except (RequestError, DataError):
                pass  # one of them is bad: each is answered on its own
        for job in jobs:
            self._reply([(job, self._result_of(partial(self._predict_one, job)))])

    def _predict_one(self, job: LearnerRequest) -> bytes:
        return self._predict([job])[0]

    def _predict(self, jobs: list[LearnerRequest]) -> list[bytes]:
        """The answers to several requests, from one block of rows."""
        for job in jobs:
            job.events = events_in(job.body, self._most)
        events = [event for job in jobs for event in job.events]
        labels, shown, probabilities = self.stream.judge.answers(self.stream.decide(events))
        classes = getattr(self.stream.learner, "labels", ())
        answers = Predictions(labels, shown, probabilities, classes, learns=True)
        stops = np.cumsum([len(job.events) for job in jobs]).tolist()
        replies = [
            as_json(answers.part(stop - len(job.events), stop).as_answers(job.options))
            for job, stop in zip(jobs, stops, strict=True)
        ]
        self.predicted += len(events)
        return replies

    def _learn_request(self, body: bytes, first: int | None, name: str | None = None) -> bytes:
        """Learns the events of a request, which are in the log before."""
        events = events_in(body, self._most)
        if name is not None and (first_known := self.stream.requests.find(name, body, len(events))) is not None:
            first = first_known
        first = first or self.stream.events + 1
        if first > self.stream.events + 1:
            raise RequestError(
                409, f"from: found event {first:,}, expected at most {self.stream.events + 1:,}, the next one"
            )
        is_new = first + len(events) > self.stream.events + 1
        if self._log is not None and is_new:
            self._log.append(first, body, name)
        answers = self._learn(events, first)
        if name is not None and is_new:
            self.stream.requests.add(name, body, first)
        if self.stream.events - self._snapshot_event >= self._every and self._written.is_set():
            self._take_snapshot()
        return as_json(answers)

    def _learn(self, events: list[Event], first: int) -> list[Answer]:
        """The answers to events; events with known numbers are not learned again. An event that fails is answered by
        its error, and the others of the request are learned."""
        n_known = min(self.stream.events + 1 - first, len(events))
        answers: list[Event] = [{"event": first + i, "known": True} for i in range(n_known)]
        for i, event in enumerate(events[n_known:], 1):
            try:
                answers.append(self.stream.take(event))
            except Exception as error:  # a bug, which the sender hears of, and whoever runs the server
                self._report(f"warning: event {self.stream.events:,}: {type(error).__name__}: {error}")
                answers.append({"event": self.stream.events, "error": f"{type(error).__name__}: {error}"})
            if i % STRETCH == 0 and self._predict_queue:
                self._predict_waiting()
        return answers

    def _replay(self, log: RequestLog) -> None:
        """Learns again, in the same order, the events that a killed server had learned after its last snapshot."""
        events_before = self.stream.events
        for first, body, name in log.records(events_before):
            events = events_in(body, len(body))
            if first > self.stream.events + 1:
                raise StorageError(
                    f"{log.folder}: found event {first:,}, expected {self.stream.events + 1:,}: the log is not of "
                    f"{self.stream.path}; move it away"
                )
            self._learn(events, first)
            if name is not None:
                self.stream.requests.add(name, body, first)
        if self.stream.events > events_before:
            self._report(f"learned events {events_before + 1:,} to {self.stream.events:,} again, from {log.folder}")
        log.begin(self.stream.events + 1)

    def _take_snapshot(self) -> None:
        events = self._snapshot_event = self.stream.events
        try:
            model = self.stream.snapshot()
        except Exception as error:  # a bug: what was learned is, and its sender has to hear that
            self._fail(events, f"{type(error).__name__}: {error}")
            return
        if model is None:
            return
        if self._log is not None:
            self._log.begin(events + 1)
        self._written.clear()
        self._writer.submit(self._write, model, events)

    def _fail(self, events: int, why: str) -> None:
        self.failures += 1
        self._report(f"warning: no snapshot at event {events:,}: {why}")

    def _write(self, model: StreamModel, events: int) -> None:
        """Writes a snapshot, in the second thread."""
        began = perf_counter()
        try:
            save_model(model, self.stream.path)
            self.stream.saved = events
            self.snapshots += 1
            self._forget(events)
        except StreamSVMError as error:
            self._fail(events, str(error))
        finally:
            self.snapshot_s = perf_counter() - began
            self._written.set()

    def _forget(self, events: int) -> None:
        """Drops requests from the log that a snapshot contains, as soon as it is on the disk."""
        if self._log is None:
            return
        sync_tree(self._log.folder.with_name(self.stream.path.name))
        self._log.drop(events + 1)

    def _result_of(self, do: Callable[[], Reply]) -> Reply:
        """The result of `do`, or an error as the answer: the thread continues after any failure."""
        try:
            return do()
        except DataError as error:
            return RequestError(400, str(error))
        except StorageError as error:
            return RequestError(507, f"nothing was learned: {error}")
        except RequestError as refused:
            return refused
        except Exception as error:  # a bug, which the sender hears of, and whoever runs the server
            self._report(f"warning: {type(error).__name__}: {error}")
            return RequestError(500, f"{type(error).__name__}: {error}")

    def _reply(self, answers: list[tuple[LearnerRequest, Reply]]) -> None:
        self._loop.call_soon_threadsafe(_deliver, answers)


def _deliver(answers: list[tuple[LearnerRequest, Reply]]) -> None:
    for job, answer in answers:
        if job.answered.done():  # nobody waits any more
            continue
        if isinstance(answer, Exception):
            job.answered.set_exception(answer)
        else:
            job.answered.set_result(answer)
