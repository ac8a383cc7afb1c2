"""The application: routes, limits, every error as one line of JSON, and metrics in the text format of Prometheus.

`App` answers requests by a model, within `Limits`, and counts them in `RequestCounts` for `GET /metrics`. At the foot,
uvicorn around it: a socket, a loop, and a graceful end.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
import time
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias
from urllib.parse import parse_qsl

import uvicorn
from threadpoolctl import threadpool_limits

from streamsvm.errors import ConfigError
from streamsvm.parallel.machine import rss_bytes
from streamsvm.serving.fixed import FixedModel
from streamsvm.serving.learning import LearningModel
from streamsvm.serving.requests import RequestError, as_json, first_event, outputs_of, request_name, require_parameters

BODY_S = 30.0  # that a sender may take for a body
JSON = "application/json"
ROUTES = {"/predict": "POST", "/learn": "POST", "/health": "GET", "/metrics": "GET", "/model": "GET"}
CLOSE = {"connection": "close"}  # the rest of a body is not read
BOUNDS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)  # of the histogram of seconds
KIND = "text/plain; version=0.0.4; charset=utf-8"
BACKLOG = 1024  # connections that wait to be taken
GRACE_S = 30  # for requests that are at work at the end
SWITCH_S = 0.001  # after which a thread releases the interpreter: the loop waits for the learner and for snapshots

Scope = Mapping[str, Any]  # of ASGI
Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[Mapping[str, object]], Awaitable[None]]
ServedModel: TypeAlias = FixedModel | LearningModel  # the first only predicts


@dataclass(frozen=True)
class Limits:
    """Limits of a server. body_bytes: of a request. waiting: requests with a body at a time. rate: of these a second;
    0: any."""

    body_bytes: int = 8 << 20
    waiting: int = 64
    rate: float = 0.0


class RateLimiter:
    """Lets `rate` requests a second through, and at most those of one second at once."""

    def __init__(self, rate: float) -> None:
        self.rate = rate
        self._left, self._at = max(rate, 1.0), time.monotonic()

    def require(self) -> None:
        """Raises RequestError."""
        now = time.monotonic()
        self._left = min(self._left + (now - self._at) * self.rate, max(self.rate, 1.0))
        self._at = now
        if self._left < 1:
            after = str(max(1, round((1 - self._left) / self.rate)))
            raise RequestError(
                429, f"found more than {self.rate:g} requests a second, expected fewer", retry_after=after, **CLOSE
            )
        self._left -= 1


class App:
    """An ASGI application for HTTP."""

    def __init__(self, served: ServedModel, limits: Limits) -> None:
        self._served, self._limits, self._counts = served, limits, RequestCounts()
        self._bucket = RateLimiter(limits.rate) if limits.rate else None
        self._waiting = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        began, path = time.perf_counter(), scope["path"]
        headers: dict[str, str] = {}
        try:
            status, (kind, body) = 200, await self._answer(scope, receive)
        except RequestError as refused:
            status, kind, body = refused.status, JSON, as_json({"error": " ".join(str(refused).split())})
            headers = refused.headers
        fields = {"content-type": kind, "content-length": str(len(body)), **headers}
        raw = [(name.encode(), value.encode()) for name, value in fields.items()]
        await send({"type": "http.response.start", "status": status, "headers": raw})
        await send({"type": "http.response.body", "body": body})
        self._counts.add(path if path in ROUTES else "other", status, time.perf_counter() - began)

    async def _answer(self, scope: Scope, receive: Receive) -> tuple[str, bytes]:
        path, method = scope["path"], scope["method"]
        if path not in ROUTES:
            raise RequestError(404, f"{path[:80]}: no such path, expected one of {', '.join(ROUTES)}", **CLOSE)
        if method != ROUTES[path]:
            raise RequestError(405, f"{path}: found {method}, expected {ROUTES[path]}", allow=ROUTES[path], **CLOSE)
        query = dict(parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True))
        if path == "/health":
            if self._served.trouble:
                raise RequestError(503, self._served.trouble)
            return JSON, as_json({"status": "ok"})
        if path == "/model":
            return JSON, as_json(await self._served.facts())
        if path == "/metrics":
            gauges = {"requests_waiting": self._waiting, **self._served.gauges()}
            return KIND, self._counts.text(gauges, self._served.totals()).encode()
        return JSON, await self._admitted(path, query, scope, receive)

    async def _admitted(self, path: str, query: dict[str, str], scope: Scope, receive: Receive) -> bytes:
        """Answers within the limits: from the first byte of its body on, a request counts as waiting."""
        if self._bucket is not None:
            self._bucket.require()
        if self._waiting >= self._limits.waiting:
            raise RequestError(
                503, f"found {self._waiting} requests that wait, expected fewer", retry_after="1", **CLOSE
            )
        self._waiting += 1
        try:
            body = await self._body(scope, receive)
            if path == "/predict":
                require_parameters(query, "decision", "proba", "interval")
                return await self._served.predict(body, outputs_of(query))
            require_parameters(query, "from", "id")
            first, name = first_event(query), request_name(query)
            return await self._served.learn(body, first, name)
        finally:
            self._waiting -= 1

    async def _body(self, scope: Scope, receive: Receive) -> bytes:
        announced = dict(scope["headers"]).get(b"content-length", b"0")
        self._require_small(int(announced) if announced.isdigit() else 0)
        pieces, size, more = list[bytes](), 0, True
        try:
            async with asyncio.timeout(BODY_S):
                while more:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise RequestError(400, "the sender left before the end of the body")
                    pieces.append(message.get("body", b""))
                    size, more = size + len(pieces[-1]), message.get("more_body", False)
                    self._require_small(size)
        except TimeoutError:
            raise RequestError(408, f"found no end of the body in {BODY_S:g} s", **CLOSE) from None
        return b"".join(pieces)

    def _require_small(self, size: int) -> None:
        limit = self._limits.body_bytes
        if size > limit:
            raise RequestError(413, f"found a body of {size:,} bytes, expected at most {limit:,}", **CLOSE)


class RequestCounts:
    """Requests by route and status, and how long they took; only the event loop changes it."""

    def __init__(self) -> None:
        self.requests: dict[tuple[str, int], int] = defaultdict(int)
        self._seconds: dict[str, float] = defaultdict(float)
        self._within: dict[str, list[int]] = defaultdict(lambda: [0] * (len(BOUNDS_S) + 1))

    def add(self, route: str, status: int, seconds: float) -> None:
        self.requests[route, status] += 1
        self._seconds[route] += seconds
        self._within[route][bisect_left(BOUNDS_S, seconds)] += 1

    def text(self, gauges: Mapping[str, float], totals: Mapping[str, float]) -> str:
        """The metrics as text. gauges, totals: of the model, by name."""
        lines = ["# TYPE streamsvm_requests_total counter"]
        for (route, status), n in sorted(self.requests.items()):
            lines.append(f'streamsvm_requests_total{{route="{route}",status="{status}"}} {n}')
        lines.append("# TYPE streamsvm_request_seconds histogram")
        for route in sorted(self._within):
            lines += self._histogram(route)
        process = {"process_resident_memory_bytes": rss_bytes()}
        for kind, values in (("counter", totals), ("gauge", gauges)):
            metrics = {f"streamsvm_{name}": value for name, value in values.items()}
            for name, value in (metrics | (process if kind == "gauge" else {})).items():
                lines += [f"# TYPE {name} {kind}", f"{name} {value}"]
        return "\n".join(lines) + "\n"

    def _histogram(self, route: str) -> Iterator[str]:
        name, so_far = "streamsvm_request_seconds", 0
        for bound, n in zip([*map(str, BOUNDS_S), "+Inf"], self._within[route], strict=True):
            so_far += n
            yield f'{name}_bucket{{route="{route}",le="{bound}"}} {so_far}'
        yield f'{name}_sum{{route="{route}"}} {self._seconds[route]:.6f}'
        yield f'{name}_count{{route="{route}"}} {so_far}'


def listening(host: str, port: int) -> socket.socket:
    """A socket that waits for connections. Raises ConfigError."""
    with ExitStack() as unless_listening:
        try:
            family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
            at = socket.socket(family, kind, socket.IPPROTO_TCP)  # so asyncio sends small answers at once
            unless_listening.enter_context(at)
            if os.name == "posix":
                at.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            at.bind(address)
            at.listen(BACKLOG)
        except OSError as error:
            raise ConfigError(
                f"--host {host} --port {port}: {error.strerror or error}; take another --port, 0 for a free one"
            ) from None
        unless_listening.pop_all()
        return at


def serve(served: ServedModel, limits: Limits, at: socket.socket, ready: Callable[[], None]) -> int:
    """Answers until SIGINT or SIGTERM; the signal. Requests at work are answered before the end, see `close`."""
    config = uvicorn.Config(
        App(served, limits),
        log_config=None,
        log_level="error",
        access_log=False,
        lifespan="off",
        server_header=False,
        proxy_headers=False,
        ws="none",
        timeout_keep_alive=60,
        timeout_graceful_shutdown=GRACE_S,
    )

    signals: list[int] = []

    class Server(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            self.should_exit = bool(signals)  # one that came before it listened to them
            ready()

    async def run() -> None:
        if isinstance(served, LearningModel):
            served.start()
        try:
            await Server(config).serve([at])
        finally:
            await served.close()

    switch = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_S)
    try:
        with _recorded(signals), threadpool_limits(1, user_api="blas"):
            with asyncio.Runner(loop_factory=_loop_factory()) as runner:
                runner.run(run())
    finally:
        sys.setswitchinterval(switch)
    return signals[0] if signals else 0


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop's, where that is installed."""
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


@contextmanager
def _recorded(received: list[int]) -> Iterator[None]:
    """Records signals. uvicorn raises them again when it has stopped, which would end the process too early."""
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.signal(number, lambda which, _: received.append(which)) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
