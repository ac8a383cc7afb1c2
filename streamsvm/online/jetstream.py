"""Events from a stream of NATS JetStream, at least once: a snapshot holds the sequence of the next message."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from streamsvm.errors import NotFoundError, StorageError
from streamsvm.online.messages import BATCH, FIRST_S, WAIT_S, Messages, as_text

KEPT_S = 60.0  # by the server, of a consumer that nobody asks; a slow learner makes another one
NEXT = "sequence"


@dataclass
class JetStream(Messages):
    """Messages of `nats://HOST[:PORT][,HOST[:PORT]]/STREAM[?subject=SUBJECT]`, of one subject or of all.

    next: the sequence of the message from which it begins, if not the oldest. Its consumer ends with it, and nothing
    is acknowledged.
    """

    MODULE, PACKAGE, EXTRA = "nats", "nats-py", "nats"
    EXPECTED = "nats://HOST[:PORT]/STREAM[?subject=SUBJECT]"

    def __post_init__(self) -> None:
        """Raises ConfigError, NotFoundError if the server or the stream cannot be found, StorageError."""
        super().__post_init__()
        self.require("/" not in self.name and not self.query.keys() - {"subject"})
        import nats

        servers = [f"nats://{server}" for server in self.servers.split(",")]
        self._client: Any = None
        self._consumer: Any = None
        self._runner = asyncio.Runner()
        try:
            opened = nats.connect(servers, error_cb=self._warn, max_reconnect_attempts=-1)
            self._client = self._runner.run(asyncio.wait_for(opened, FIRST_S))
            self._context = self._client.jetstream()
            self._runner.run(self._subscribe())
        except BaseException as error:
            self.close()
            if isinstance(error, TimeoutError):
                raise NotFoundError(f"{self.url}: no server answers there") from None
            raise

    def __iter__(self) -> Iterator[str]:
        """Texts of the messages, in their order. Raises StorageError."""
        while True:
            self.wait()
            messages = self._runner.run(self._fetched())
            self.waiting = False
            for message in messages:
                self.next[NEXT] = message.metadata.sequence.stream + 1
                yield as_text(message.data)

    def close(self) -> None:
        if self._client is not None:
            self._runner.run(self._client.close())
        self._runner.close()

    async def _fetched(self) -> list[Any]:
        """The next messages; none where none came in time, or where a server is gone."""
        from nats.errors import Error

        try:
            if self._consumer is None:
                await self._subscribe()
            found = await self._consumer.fetch(BATCH, WAIT_S)
        except TimeoutError:
            return []
        except Error:  # the consumer is gone, with a server, or as it waited too long
            self._consumer = None
            await asyncio.sleep(WAIT_S)
            return []
        return self._in_order(found)

    def _in_order(self, found: list[Any]) -> list[Any]:
        """Those before one that was lost on the way: from there on, another consumer sends them again."""
        for i, message in enumerate(found):
            self._sent += 1
            if message.metadata.sequence.consumer != self._sent:
                self._consumer = None
                return found[:i]
        return found

    async def _subscribe(self) -> None:
        """A new consumer from the next message on. Raises NotFoundError, StorageError."""
        from nats.js import api, errors

        try:
            state = (await self._context.stream_info(self.name)).state
        except errors.NotFoundError:
            raise NotFoundError(f"{self.url}: the server has no stream {self.name}") from None
        start = self.next.get(NEXT, max(state.first_seq, 1))
        if not state.first_seq <= start <= state.last_seq + 1:
            raise StorageError(
                f"{self.url}: expected message {start:,}, found {state.first_seq:,} to {state.last_seq:,}; if it is "
                "gone, --force begins a new stream with the oldest that there is"
            )
        config = api.ConsumerConfig(
            deliver_policy=api.DeliverPolicy.BY_START_SEQUENCE,
            opt_start_seq=start,
            ack_policy=api.AckPolicy.NONE,
            inactive_threshold=KEPT_S,
        )
        self._consumer = await self._context.pull_subscribe(
            self.query.get("subject", ""), stream=self.name, config=config
        )
        self._sent = 0

    async def _warn(self, error: Exception) -> None:
        warnings.warn(f"{self.url}: {error}", stacklevel=2)
