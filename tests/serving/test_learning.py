"""A stream that is served: what a kill leaves, what a full disk does, and requests that are answered together."""

from __future__ import annotations

import asyncio
import json
import shutil

import numpy as np
import pytest

from streamsvm import load_model
from streamsvm.errors import ConfigError, DataError, StorageError
from streamsvm.online import BSGDClassifier, BSGDOneClass, BSGDRegressor
from streamsvm.online.stream import Stream
from streamsvm.predict import PredictionOptions
from streamsvm.serving import learning as learning_module
from streamsvm.serving.learning import LearningModel
from streamsvm.serving.log import RequestLog
from streamsvm.serving.requests import RequestError

MAKERS = {
    "pool": lambda: BSGDClassifier(budget=20),
    "one": lambda: BSGDClassifier(1e-3, 0.5, budget=20),
    "values": lambda: BSGDRegressor(budget=20),
    "outliers": lambda: BSGDOneClass(nu=0.2, budget=20),
}


def events(n, kind="pool"):
    X = np.round(np.random.default_rng(0).normal(size=(n, 3)), 4)
    y = X.sum(axis=1) if kind == "values" else X[:, 0] * X[:, 1] > 0
    return [{"x": dict(zip("abc", x, strict=True)), "y": t} for x, t in zip(X.tolist(), y.tolist(), strict=True)]


def stream_at(path, kind):
    return Stream.open(path, MAKERS[kind], scale=True, label="y")


def learnt(path, kind, n):
    stream = stream_at(path, kind)
    for event in events(n, kind):
        stream.take(event)
    stream.save()
    return stream


def state(path):
    """But for nanoseconds, which are among counts."""
    arrays, attrs = load_model(path).to_state()
    saved = {name: np.asarray(a).tobytes() for name, a in arrays.items() if not name.endswith("counts")}
    return saved, attrs["stream"]["counts"]


def opened(path, kind, told, every=10_000):
    log = RequestLog(path.with_name(f"{path.name}.log"), "y")
    return LearningModel(stream_at(path, kind), 1000, every, log, told.append)


def served(learning, do):
    """What do(learning) comes to, in a loop of its own; the end is a graceful one."""

    async def run():
        learning.start()
        try:
            return await do(learning)
        finally:
            await learning.close()

    return asyncio.run(run())


SLOW = pytest.mark.slow  # compiles nearly all that one learner does, and more


@pytest.mark.parametrize("kind", ["one", "values", *(pytest.param(kind, marks=SLOW) for kind in ("pool", "outliers"))])
def test_what_is_on_the_disk_when_it_answers_is_all_that_it_learnt(kind, tmp_path):
    path, told, every = tmp_path / "m.zarr", [], events(300, kind)
    learnt(path, kind, 100)

    async def lessons(learning):
        for start in range(100, 300, 40):
            await learning.learn(json.dumps(every[start : start + 40]).encode(), None)
        learning._written.wait()  # or the copy would be of a model that is just being renamed
        shutil.copytree(tmp_path, tmp_path / "killed")

    served(opened(path, kind, told, every=60), lessons)
    again = opened(tmp_path / "killed" / "m.zarr", kind, told)
    assert told[-1].startswith("learned events ")
    assert again.stream.events == 300

    async def nothing(learning): ...

    served(again, nothing)
    expected = state(learnt(tmp_path / "whole.zarr", kind, 300).path)
    assert state(path) == state(again.stream.path) == expected
    assert RequestLog(path.with_name("m.zarr.log"), "y").is_empty


def test_a_snapshot_that_fails_keeps_the_log(tmp_path, monkeypatch):
    path, messages = tmp_path / "m.zarr", []
    learnt(path, "one", 100)

    def full(model, at):
        raise StorageError(f"writing {at} failed: No space left on device")

    async def lesson(learning):
        with monkeypatch.context() as patch:
            patch.setattr(learning_module, "save_model", full)
            await learning.learn(json.dumps(events(200, "one")[100:]).encode(), None)
            await asyncio.to_thread(learning._written.wait)
        assert (learning.failures, learning.stream.saved) == (1, 100)
        assert "no snapshot at event 200: writing" in messages[0]
        assert learning._log.bytes > 0

    served(opened(path, "one", messages, every=50), lesson)
    assert load_model(path).stream["counts"]["events"] == 200


def test_one_bad_request_spoils_no_other_that_is_answered_with_it(tmp_path):
    path = tmp_path / "m.zarr"
    stream = learnt(path, "pool", 200)
    bodies = [json.dumps(events(n + 1)[n:]).encode() for n in range(20)] + [b'{"a": "x"}', b"["]

    async def together(learning):
        requests = (learning.predict(body, PredictionOptions(proba=i == 3)) for i, body in enumerate(bodies))
        return await asyncio.gather(*requests, return_exceptions=True)

    *answers, wrong, broken = served(opened(path, "pool", []), together)
    assert "event 0: feature 'a': found 'x'" in str(wrong)
    assert "broken JSON" in str(broken)
    assert isinstance(wrong, RequestError)
    labels = [stream.learner.predict_one(event["x"]) for event in events(20)]
    said = [json.loads(answer)[0] for answer in answers]
    assert said[3]["prediction"] == labels[3]
    assert said[:3] + said[4:] == labels[:3] + labels[4:]


def test_events_that_wait_for_labels_are_in_the_log_and_survive_a_kill(tmp_path):
    """The server ends without a snapshot: the log alone has the event, and its late label is learned from it."""
    path, messages = tmp_path / "m", list[str]()
    learnt(path, "one", 50)

    def waiting():
        stream = stream_at(path, "one")
        stream.wait(5, None)
        stream.needs_label = True
        return LearningModel(stream, 1000, 10_000, RequestLog(tmp_path / "m.log", stream.fields), messages.append)

    killed = waiting()
    body = json.dumps([{"id": "late", "a": 0.5, "b": 1.0, "c": 0.0}, {"a": 1.0}]).encode()
    first, unlabelled = json.loads(killed._learn_request(body, None))
    assert (first["id"], "label" in first) == ("late", False)
    assert "label 'y': found none" in unlabelled["error"]
    again = waiting()
    assert messages == [f"learned events 51 to 52 again, from {tmp_path / 'm.log'}"]
    (late,) = json.loads(again._learn_request(b'{"id": "late", "y": true}', None))
    assert (late["prediction"], late["label"]) == (first["prediction"], True)
    with pytest.raises(ConfigError, match="expected --label y --id id --wait-for-labels 5"):
        RequestLog(tmp_path / "m.log", "y")


def test_a_request_that_is_sent_again_is_learned_once(tmp_path):
    """Also where the server was killed before it answered: the log has the ids of requests."""
    path, messages = tmp_path / "m.zarr", list[str]()
    learnt(path, "one", 50)
    bodies = [json.dumps(events(60)[start : start + 5]).encode() for start in (50, 55)]
    killed = opened(path, "one", messages)
    (first, *_) = json.loads(killed._learn_request(bodies[0], None, "a"))
    assert (first["event"], "known" in first) == (51, False)
    assert json.loads(killed._learn_request(bodies[0], None, "a")) == [
        {"event": 51 + i, "known": True} for i in range(5)
    ]
    again = opened(path, "one", messages)
    assert again.stream.events == 55
    assert json.loads(again._learn_request(bodies[0], None, "a"))[0] == {"event": 51, "known": True}
    assert "known" not in json.loads(again._learn_request(bodies[1], None, "b"))[0]
    with pytest.raises(DataError, match="id: found 'a' with 5 events, expected those of the first request"):
        again._learn_request(bodies[1], None, "a")
    again.stream.save()
    saved = stream_at(path, "one")
    assert saved.requests.find("b", bodies[1], 5) == 56
    assert saved.learnt == 60


def test_what_goes_wrong_after_an_event_was_learned_is_no_failure_of_the_request(tmp_path, monkeypatch):
    path, messages = tmp_path / "m.zarr", list[str]()
    learnt(path, "one", 50)
    learning = LearningModel(stream_at(path, "one"), 1000, 1, None, messages.append)
    take = learning.stream.take

    def odd(event):
        if event.get("odd"):
            learning.stream.events += 1
            raise ZeroDivisionError("a bug")
        return take(event) | {"note": "half \ud800"}

    monkeypatch.setattr(learning.stream, "take", odd)
    monkeypatch.setattr(learning.stream, "snapshot", lambda: 1 / 0)
    sent = json.dumps([*events(51)[50:], {"odd": True}, *events(52)[51:]]).encode()
    good, bad, last = json.loads(learning._learn_request(sent, None))
    assert (good["event"], good["note"], bad["error"], last["event"]) == (
        51,
        "half \ud800",
        "ZeroDivisionError: a bug",
        53,
    )
    assert learning.stream.learnt == 52
    assert learning.failures == 1
    assert messages == [
        "warning: event 52: ZeroDivisionError: a bug",
        "warning: no snapshot at event 53: ZeroDivisionError: division by zero",
    ]
