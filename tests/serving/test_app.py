"""Limits of the application, without a server around it."""

from __future__ import annotations

import asyncio
import json

import numpy as np
import pytest
from sklearn.datasets import load_diabetes

from streamsvm import BudgetedSVC, BudgetedSVR
from streamsvm.serving import app as app_module
from streamsvm.serving.app import App, Limits
from streamsvm.serving.fixed import FixedModel


class Slow:
    """Answers when it is let."""

    trouble = None

    def __init__(self):
        self.let = asyncio.Event()

    async def predict(self, body, also):
        await self.let.wait()
        return b"[1]"

    def totals(self):
        return {}

    def gauges(self):
        return {}


async def ask(app, *parts, path="/predict", method="POST", query=b"", ends=True):
    """(status, headers, answer) to a body in parts."""
    messages = [{"type": "http.request", "body": part, "more_body": True} for part in parts]
    if ends:
        messages.append({"type": "http.request", "body": b"", "more_body": False})
    sent = []

    async def receive():
        return messages.pop(0) if messages else await asyncio.Event().wait()

    async def send(message):
        sent.append(message)

    scope = {"type": "http", "path": path, "method": method, "query_string": query, "headers": []}
    await app(scope, receive, send)
    headers = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
    return sent[0]["status"], headers, sent[1]["body"].decode()


def test_more_than_wait_are_turned_away():
    async def run():
        served = Slow()
        app = App(served, Limits(waiting=2))
        waiting = [asyncio.create_task(ask(app, b"{}")) for _ in range(2)]
        await asyncio.sleep(0)
        status, headers, said = await ask(app, b"{}")
        assert (status, headers["retry-after"]) == (503, "1")
        assert "found 2 requests that wait" in json.loads(said)["error"]
        assert (await ask(app, path="/health", method="GET"))[0] == 200
        served.let.set()
        assert [status for status, _, _ in await asyncio.gather(*waiting)] == [200, 200]
        assert (await ask(app, b"{}"))[0] == 200

    asyncio.run(run())


def test_a_rate_is_kept(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(app_module.time, "monotonic", lambda: now[0])

    async def run():
        served = Slow()
        served.let.set()
        app = App(served, Limits(rate=2.0))
        statuses = [(await ask(app, b"{}"))[0] for _ in range(3)]
        assert statuses == [200, 200, 429]
        now[0] += 0.5
        assert [(await ask(app, b"{}"))[0] for _ in range(2)] == [200, 429]

    asyncio.run(run())


def test_a_body_is_not_read_beyond_its_limit():
    async def run():
        app = App(Slow(), Limits(body_bytes=10))
        status, headers, said = await ask(app, b"123456", b"123456", ends=False)
        assert (status, headers["connection"]) == (413, "close")
        assert "found a body of 12 bytes, expected at most 10" in said

    asyncio.run(run())


@pytest.mark.parametrize("parts", [(), (b"{",)])
def test_a_body_that_never_ends_is_given_up(parts, monkeypatch):
    monkeypatch.setattr(app_module, "BODY_S", 0.01)
    status, _, said = asyncio.run(ask(App(Slow(), Limits()), *parts, ends=False))
    assert status == 408
    assert "found no end of the body" in said


def served(model, X, query):
    """(status, answer) to rows X with this query."""
    events = [{str(i): value for i, value in enumerate(row)} for row in X.tolist()]
    app = App(FixedModel(model, "", 10), Limits())
    status, _, said = asyncio.run(ask(app, json.dumps(events).encode(), query=query))
    return status, json.loads(said)


def test_intervals_of_any_level_are_those_of_the_model():
    X, y = load_diabetes(return_X_y=True)
    model = BudgetedSVR(interval=0.9, random_state=0).fit(X, y).model_
    for level in (0.9, 0.5):
        status, answers = served(model, X[:3], f"interval={level}".encode())
        assert status == 200
        ends = [[row["lower"], row["upper"]] for row in answers]
        np.testing.assert_allclose(ends, model.predict_interval(X[:3], level), rtol=1e-6)
        assert [row["prediction"] for row in answers] == pytest.approx(model.predict(X[:3]))
    assert isinstance(served(model, X[:1], b"")[1][0], float)
    for query, message in (
        (b"interval=wide", "interval: found wide, expected a level such as 0.9"),
        (b"interval=", "interval: found , expected a level such as 0.9"),
        (b"interval=90", "interval is 90, expected a level above 0 and below 1"),
        (b"interval=0.9999", "held-out rows"),
    ):
        status, answers = served(model, X[:1], query)
        assert status == 400
        assert message in answers["error"]


def test_a_model_without_intervals_says_how_to_get_them():
    X, y = load_diabetes(return_X_y=True)
    status, answers = served(BudgetedSVC().fit(X, y > 100).model_, X[:1], b"interval=0.9")
    assert status == 400
    assert "the model has no intervals" in answers["error"]


def test_the_id_of_a_request_is_a_word():
    app = App(Slow(), Limits())
    for text in (b"", b"a%20b", b"%C3%A9", b"a" * 201):
        status, _, said = asyncio.run(ask(app, b"{}", path="/learn", query=b"id=" + text))
        assert (status, json.loads(said)["error"].partition(":")[0]) == (400, "id")
