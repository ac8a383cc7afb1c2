"""Events of a topic: the brokers are the client's own mock, in this process, and the streams are commands."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
from itertools import islice

import numpy as np
import pytest

from streamsvm import load_model
from streamsvm.errors import NotFoundError, StorageError
from streamsvm.online.brokers import Topic

confluent_kafka = pytest.importorskip("confluent_kafka", reason="the extra kafka is not installed")


@pytest.fixture
def producer():
    return confluent_kafka.Producer({"test.mock.num.brokers": 1, "bootstrap.servers": "mock", "log_level": 0})


def url(producer, topic: str = "t") -> str:
    (broker,) = producer.list_topics(timeout=10).brokers.values()
    return f"kafka://{broker.host}:{broker.port}/{topic}"


def send(producer, texts: list[str]) -> None:
    for i, text in enumerate(texts):
        producer.produce("t", text, partition=i % 2)
    assert producer.flush(30) == 0


def taken(producer, offsets: dict[str, int], n: int) -> list[str]:
    topic = Topic(url(producer), offsets, lambda: None)
    try:
        return list(islice(topic, n))
    finally:
        topic.close()


def test_a_topic_goes_on_where_its_offsets_say(producer):
    texts = [f"e{i}" for i in range(20)]
    send(producer, texts)
    offsets: dict[str, int] = {}
    first = taken(producer, offsets, 7)
    assert sum(offsets.values()) == 7
    assert sorted(first + taken(producer, offsets, 13)) == sorted(texts)
    assert offsets == {"0": 10, "1": 10}


def test_a_missing_topic_and_offsets_that_are_gone_are_said(producer):
    send(producer, ["e", "f"])
    with pytest.raises(NotFoundError, match="/nope: Broker: Unknown topic"):
        Topic(url(producer, "nope"), {}, lambda: None)
    with pytest.raises(StorageError, match="partition 0, from offset 500: .*; if the topic no longer has"):
        taken(producer, {"0": 500, "1": 1}, 1)


@pytest.mark.slow  # processes of the command
def test_a_killed_stream_learns_each_message_once(producer, tmp_path):
    rng = np.random.default_rng(0)
    rows = np.round(rng.normal(size=(1200, 2)), 4).tolist()
    send(producer, [json.dumps({"a": a, "b": b, "y": int(a * b > 0)}) for a, b in rows])
    command = [
        sys.executable,
        "-m",
        "streamsvm",
        "stream",
        "--input",
        url(producer),
        "--snapshot-every",
        "100",
    ]
    command += ["--lam", "1e-3", "--gamma", "0.5", "--budget", "20", "--model", str(tmp_path / "m")]
    draw, answered = random.Random(0), 0
    for stop in (draw.randrange(150, 400), draw.randrange(150, 400), None):
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            assert process.stdout is not None
            for count, line in enumerate(process.stdout):
                answered = json.loads(line)["event"]
                if count == stop:
                    process.send_signal(signal.SIGKILL)
                    break
                if answered == 1200:
                    process.send_signal(signal.SIGTERM)
                    break
            process.communicate(timeout=60)
        assert answered <= 1200
    snapshot = load_model(tmp_path / "m").stream
    assert snapshot["counts"]["learnt"] == snapshot["counts"]["events"] == 1200
    assert snapshot["topics"] == {"t": {"0": 600, "1": 600}}
