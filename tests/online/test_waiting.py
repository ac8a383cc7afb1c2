"""Labels that come later by an id: learned from what the event was, through kills, in bounded memory."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamsvm import load_model
from streamsvm.errors import ConfigError, DataError
from streamsvm.online import BSGDClassifier, BSGDOneClass, BSGDRegressor
from streamsvm.online.stream import Stream, WaitingEvents

MAKERS = {
    "pool": lambda: BSGDClassifier(budget=20),
    "one": lambda: BSGDClassifier(1e-3, 0.5, budget=20),
    "values": lambda: BSGDRegressor(budget=20),
}


def events(n: int, kind: str = "one", after: int = 7, seed: int = 0) -> list[dict]:
    """Events without labels, and their labels so many events later; each tenth label comes with its event."""
    X = np.round(np.random.default_rng(seed).normal(size=(n, 3)), 4)
    found, late = [], []
    for i, x in enumerate(X.tolist()):
        y = sum(x) if kind == "values" else int(x[0] * x[1] > 0)
        event = {"id": f"e{i}"} | dict(zip("abc", x, strict=True))
        found.append(event | {"y": y} if i % 10 == 0 else event)
        late.append(None if i % 10 == 0 else {"id": f"e{i}", "y": y})
        if i >= after and late[i - after]:
            found.append(late[i - after])
    return found


def stream_at(path: Path, kind: str, most: int | None = 50) -> Stream:
    stream = Stream.open(path, MAKERS[kind], scale=True, label="y")
    stream.wait(most, None)
    return stream


def state(path: Path) -> dict[str, bytes]:
    arrays, _ = load_model(path).to_state()
    return {name: np.asarray(a).tobytes() for name, a in arrays.items() if not name.endswith("counts")}


@pytest.mark.parametrize("kind", MAKERS)
def test_a_late_label_is_learned_from_the_features_that_came_and_judges_the_answer_given(kind, tmp_path):
    stream, twin, right = stream_at(tmp_path / "m", kind), MAKERS[kind](), 0
    shown: dict[str, tuple] = {}
    for event in events(150, kind):
        answer = stream.take(event)
        assert answer["id"] == event["id"]
        if "a" in event:
            shown[event["id"]] = ({name: event[name] for name in "abc"}, answer["prediction"])
        if "y" in event:
            x, prediction = shown[event["id"]]
            assert (answer["prediction"], answer["label"]) == (prediction, event["y"])
            right += prediction == event["y"]
            if stream.scaler is None:
                twin.learn_one(x, event["y"])
    assert stream.summary()["waiting"] == 7
    assert stream.learnt == 150 - 7
    assert kind == "values" or stream.right == right
    if stream.scaler is None:
        assert twin.predict_proba_one(x) == stream.learner.predict_proba_one(x)


@pytest.mark.parametrize("kind", MAKERS)
def test_snapshots_keep_what_waits(kind, tmp_path):
    """In two parts, with a snapshot between, to the same model and answers."""
    sent = events(120, kind)
    whole = stream_at(tmp_path / "whole", kind)
    expected = [whole.take(event) for event in sent]
    whole.save()
    first = stream_at(tmp_path / "m", kind)
    answers = [first.take(event) for event in sent[:101]]
    first.save()
    second = stream_at(tmp_path / "m", kind, None)
    answers += [second.take(event) for event in sent[101:]]
    second.save()
    assert [a | {"snapshot": 0} for a in answers] == expected
    assert state(tmp_path / "m") == state(tmp_path / "whole")


def test_memory_is_bounded_and_what_is_gone_is_counted(tmp_path):
    stream = stream_at(tmp_path / "m", "one", 3)
    for event in events(10, after=99):
        stream.take(event)
    assert (
        "found a label for 'e1', expected the id of one of the 3 events" in stream.take({"id": "e1", "y": 1})["error"]
    )
    assert "label" in stream.take({"id": "e9", "y": 1})
    assert "'e9', expected the id" in stream.take({"id": "e9", "y": 0})["error"]  # it had its label
    assert stream.waiting is not None
    assert stream.waiting.counts() == {"waiting": 2, "expired": 6, "unknown": 2}
    assert stream.waiting.gone.startswith("6 events expired before their labels came, and 2 labels had ids")
    bad = stream.take({"id": "e8", "y": [1]})
    assert "label 'y': found [1]" in bad["error"]
    assert "label" in stream.take({"id": "e8", "y": 1})  # a bad label leaves it waiting
    assert "id 'id': found True" in stream.take({"id": True, "a": 1})["error"]


def test_the_field_of_ids_is_fixed_while_events_wait_and_outliers_wait_for_none(tmp_path):
    stream = stream_at(tmp_path / "m", "one")
    stream.take({"id": 1, "a": 1.0, "y": 0})
    stream.take({"id": 2, "a": 1.0})
    stream.save()
    again = Stream.open(tmp_path / "m", MAKERS["one"], scale=True, label="y")
    with pytest.raises(ConfigError, match="--id key: the events that wait in .* have their ids in 'id'"):
        again.wait(None, "key")
    with pytest.raises(ConfigError, match="task oneclass needs no labels"):
        Stream.open(tmp_path / "o", BSGDOneClass, scale=True, label="y").wait(5, None)
    with pytest.raises(ConfigError, match="give --wait-for-labels"):
        Stream.open(tmp_path / "n", MAKERS["one"], scale=True, label="y").wait(None, "key")


names, values = (
    st.text(max_size=5),
    st.one_of(st.floats(allow_nan=False), st.booleans(), st.text(max_size=5), st.none()),
)


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.tuples(names, st.dictionaries(names, values, max_size=4), values), max_size=12),
    st.integers(0, 6),
)
def test_what_waits_is_the_same_after_a_snapshot(kept, most):
    waiting = WaitingEvents(most)
    for name, x, prediction in kept:
        waiting.keep(name, x, prediction)
    again = WaitingEvents.from_state(json.loads(json.dumps(waiting.to_state())))
    assert again == waiting
    assert len(waiting) <= most
    last = {name: (x, prediction) for name, x, prediction in kept}
    for name in last:
        try:
            assert waiting.find(name) == last[name]
        except DataError:
            assert waiting.expired


@pytest.mark.slow  # processes of the command
def test_a_killed_stream_with_late_labels_resumes_exactly(tmp_path):
    file = tmp_path / "events"
    file.write_text("\n".join(map(json.dumps, events(1500, after=40))), encoding="utf-8")
    command = [sys.executable, "-m", "streamsvm", "stream", "--input", str(file), "--snapshot-every", "150"]
    command += ["--lam", "1e-3", "--gamma", "0.5", "--budget", "20", "--wait-for-labels", "60"]
    subprocess.run([*command, "--model", str(tmp_path / "whole")], check=True, stdout=subprocess.DEVNULL)
    rng = random.Random(1)
    for kill in range(3):
        with subprocess.Popen([*command, "--model", str(tmp_path / "m")], stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            stop = rng.randrange(200, 700) if kill < 2 else 10_000
            for count, _ in enumerate(process.stdout):
                if count == stop:
                    process.send_signal(signal.SIGKILL)
                    break
    assert state(tmp_path / "m") == state(tmp_path / "whole")
