"""A model over HTTP: a real server, asked over a real port."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from http.client import HTTPConnection

import numpy as np
import pytest
from commands import require_one_line, run
from every_case import every_case

from streamsvm import BudgetedSVC, load_model
from streamsvm.data.rows import Rows
from streamsvm.online import BSGDClassifier
from streamsvm.online.stream import Stream

COMMAND = (sys.executable, "-m", "streamsvm", "serve")
LIMITS = ("--max-body", "64KiB", "--max-events", "100")


class Server:
    """`streamsvm serve` at a free port; as a context it ends by SIGTERM, and must say so in one line."""

    def __init__(self, model, *options):
        command = [*COMMAND, "--model", str(model), "--port", "0", *options]
        self.child = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        self.said = []
        while not (at := re.search(r" at http://127\.0\.0\.1:(\d+)$", self.said[-1] if self.said else "", re.M)):
            line = self.child.stderr.readline()
            assert line, self.said
            self.said.append(line)
        self.port = int(at[1])

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.child.send_signal(signal.SIGTERM)
        _, said = self.child.communicate(timeout=60)
        assert self.child.returncode == 0, said
        [last] = [line for line in said.splitlines() if not line.startswith("compiling kernels")]
        assert last.startswith("stopped")

    def kill(self):
        self.child.kill()
        self.child.communicate()

    def ask(self, method, path, body=None):
        """(status, answer)"""
        connection = HTTPConnection("127.0.0.1", self.port, timeout=60)
        connection.request(method, path, body if isinstance(body, bytes | None) else json.dumps(body).encode())
        answer = connection.getresponse()
        text = answer.read().decode()
        connection.close()
        is_json = answer.headers["content-type"] == "application/json"
        return answer.status, json.loads(text) if is_json else text

    def post(self, path, body):
        status, answer = self.ask("POST", path, body)
        assert status == 200, answer
        return answer

    def refused(self, status, message, path, body=None, method="POST"):
        found, answer = self.ask(method, path, body)
        assert (found, list(answer)) == (status, ["error"])
        assert message in answer["error"]
        assert "\n" not in answer["error"]


def events(n, seed=0):
    X = np.round(np.random.default_rng(seed).normal(size=(n, 3)), 4)
    return [{"a": a, "b": b, "c": c, "y": "up" if a * b > 0 else "down"} for a, b, c in X.tolist()]


def learnt(path, n):
    """The model of a stream of n events, saved there; the stream."""
    stream = Stream.open(path, lambda: BSGDClassifier(1e-3, 0.5, budget=30), scale=True, label="y")
    for event in events(n):
        stream.take(event)
    stream.save()
    return stream


def require_same(path, other):
    """That two models of streams are equal bit by bit, but for nanoseconds."""
    (arrays, attrs), (whole, told) = (load_model(p).to_state() for p in (path, other))
    assert attrs["stream"]["counts"] == told["stream"]["counts"]
    assert {name: np.asarray(a).tobytes() for name, a in arrays.items() if name != "learner_counts"} == {
        name: np.asarray(a).tobytes() for name, a in whole.items() if name != "learner_counts"
    }


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    path = tmp_path_factory.mktemp("served") / "m.zarr"
    learnt(path, 200)
    with Server(path, *LIMITS) as server:
        server.model = load_model(path)
        yield server


def test_predictions_are_the_models(server):
    asked = events(50, seed=1)
    columns = list(server.model.feature_names)
    rows = Rows(np.array([[event[name] for name in columns] for event in asked], np.float32))
    rows = rows.arranged(np.arange(3), server.model.d)
    labels = server.model.predict(rows).tolist()
    assert server.post("/predict", asked) == labels
    assert server.post("/predict", {"x": {name: asked[0][name] for name in "abc"}}) == labels[:1]
    said = server.post("/predict?proba=1&decision=1", asked)
    assert [one["prediction"] for one in said] == labels
    np.testing.assert_allclose([one["decision"] for one in said], server.model.decision_function(rows), rtol=1e-3)
    assert all(max(one["probabilities"], key=one["probabilities"].get) == one["prediction"] for one in said)
    assert [sum(one["probabilities"].values()) for one in said] == pytest.approx([1.0] * 50, abs=2e-6)


def test_what_is_learnt_is_numbered_and_not_learnt_twice(server):
    at = server.ask("GET", "/model")[1]["events"]
    first = server.post("/learn", events(3, seed=2))
    assert [answer["event"] for answer in first] == [at + 1, at + 2, at + 3]
    again = server.post(f"/learn?from={at + 2}", events(3, seed=3))
    assert [answer.get("known", False) for answer in again] == [True, True, False]
    server.refused(409, f"found event {at + 6}, expected at most {at + 5}", f"/learn?from={at + 6}", events(1))
    unlabelled, wrong = server.post("/learn", [{"a": 1.0}, {"a": [], "y": "up"}])
    assert "label 'y': found none" in unlabelled["error"]
    assert "feature 'a': found []" in wrong["error"]
    facts = server.ask("GET", "/model")[1]
    assert (facts["events"], facts["learnt"], facts["bad"]) == (at + 6, at + 4, 2)
    assert facts["features"] == ["a", "b", "c"]
    assert sorted(facts["classes"]) == ["down", "up"]


@every_case(
    ("status", "message", "path", "body"),
    [
        (400, "broken JSON", "/predict", b'{"a": 1'),
        (400, "found '[]', expected an event or a list of events", "/predict", b"[]"),
        (400, "event 1: found '3', expected a JSON object", "/learn", [{"a": 1}, 3]),
        (400, "event 1: feature 'a': found 'x', expected a number", "/predict", [{"a": 1}, {"a": "x"}]),
        (400, "proba: found 'maybe', expected 1 or 0", "/predict?proba=maybe", {"a": 1}),
        (400, "probe: no such parameter, expected decision or proba", "/predict?probe=1", {"a": 1}),
        (400, "from: found '0', expected the number of the first event", "/learn?from=0", {"a": 1}),
        (413, "found 101 events, expected at most 100", "/learn", [{"a": 1, "y": "up"}] * 101),
        (413, "bytes, expected at most 65,536", "/predict", b" " * 70_000),
        (404, "/guess: no such path, expected one of /predict, /learn", "/guess", {"a": 1}),
        (405, "/model: found POST, expected GET", "/model", {"a": 1}),
    ],
)
def test_bad_requests_are_told_in_a_line(server, status, message, path, body):
    server.refused(status, message, path, body)


def test_metrics_count(server):
    server.post("/predict", events(7))
    status, text = server.ask("GET", "/metrics")
    assert status == 200
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    found = {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines)}
    assert found['streamsvm_requests_total{route="/predict",status="200"}'] >= 1
    buckets = [n for name, n in found.items() if "_bucket" in name and "/predict" in name]
    assert buckets == sorted(buckets)
    assert buckets[-1] == found['streamsvm_request_seconds_count{route="/predict"}']
    assert found["streamsvm_events_predicted_total"] >= 7
    assert found["process_resident_memory_bytes"] > 1e6
    assert server.ask("GET", "/health") == (200, {"status": "ok"})


@pytest.mark.slow  # two servers one after the other
def test_what_was_acknowledged_survives_a_kill(tmp_path, capsys):
    path, more = tmp_path / "m.zarr", events(500)
    learnt(path, 200)
    server = Server(path, "--durable", "--snapshot-every", "120")
    for start in range(200, 400, 40):
        server.post("/learn", more[start : start + 40])
    server.kill()
    require_one_line(capsys, "holds events that the model may not have learned", "serve", "--model", path, "--port", 0)
    with Server(path, "--durable") as server:
        assert server.ask("GET", "/model")[1]["events"] == 400
        server.post("/learn?from=361", more[360:500])
    require_same(path, learnt(tmp_path / "whole.zarr", 500).path)


def test_a_model_that_does_not_learn_says_so(tmp_path, capsys):
    X = np.random.default_rng(0).normal(size=(80, 2))
    svm = BudgetedSVC(scale="minmax", gamma=1.0, budget=20).fit(X, np.where(X[:, 0] > 0, "yes", "no"))
    svm.save(tmp_path / "m.zarr")
    given = ("serve", "--model", tmp_path / "m.zarr", "--port", 0)
    require_one_line(capsys, "--durable is of a model that learns: ", *given, "--durable")
    require_one_line(capsys, "no such model", "serve", "--model", tmp_path / "none.zarr", "--port", 0)
    with Server(tmp_path / "m.zarr") as server:
        asked = [{"0": a, "1": b} for a, b in X.tolist()]
        assert server.post("/predict", asked) == svm.predict(X).tolist()
        server.refused(400, "event 0: feature '1' is missing", "/predict", [{"0": 1.0}])
        server.refused(400, "event 0: feature 'z' is none of the model's", "/predict", [{"z": 1.0}])
        server.refused(
            409,
            "was fitted with scaling, which a stream cannot continue with",
            "/learn",
            {"0": 1.0, "1": 2.0, "y": "yes"},
        )
        facts = server.ask("GET", "/model")[1]
        assert (facts["learns"], facts["features"], facts["classes"]) == (False, ["0", "1"], ["no", "yes"])
        require_one_line(capsys, "take another --port", *given[:-1], server.port)


def test_sizes_are_read(capsys):
    assert run("serve", "--model", "m", "--max-body", "many") == 2
    assert "found 'many'" in capsys.readouterr().err
