"""uvicorn around the application: a socket, a loop, and a graceful end."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import uvicorn
from threadpoolctl import threadpool_limits

from streamsvm.errors import ConfigError
from streamsvm.serving.app import App, Limits
from streamsvm.serving.fixed import FixedModel
from streamsvm.serving.learning import LearningModel

BACKLOG = 1024  # connections that wait to be taken
GRACE_S = 30  # for requests that are at work at the end
SWITCH_S = 0.001  # after which a thread releases the interpreter: the loop waits for the learner and for snapshots


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


def serve(served: FixedModel | LearningModel, limits: Limits, at: socket.socket, ready: Callable[[], None]) -> int:
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
