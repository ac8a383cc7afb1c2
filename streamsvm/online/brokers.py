"""Events from a message broker, each at least once: a snapshot holds the places of the next messages.

`Topic` reads a topic of Kafka, and its places are the next offset of each partition. `JetStream` reads a stream of
NATS, and its place is the sequence number of the next message."""

from __future__ import annotations

import asyncio
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any, ClassVar
from urllib.parse import parse_qsl, urlsplit

from streamsvm.errors import ConfigError, NotFoundError, StorageError
from streamsvm.online.lines import Interruptible

BATCH = 500  # messages that are taken at once
FIRST_S, WAIT_S = 10.0, 0.2  # for the broker's first answer; for messages, before signals are handled
# of Kafka's consumers
FIXED_PROPERTIES = {"group.id": "streamsvm", "enable.auto.commit": False, "auto.offset.reset": "error", "log_level": 0}
INACTIVE_S = 60.0  # after which NATS drops a consumer without requests; a slow learner makes another one
NEXT = "sequence"  # place in a stream of NATS


@dataclass
class Messages(Interruptible, ABC):
    """The messages of a broker's URL as texts; `close` leaves the broker. next: places of the first messages to read;
    each message that is yielded moves them on."""

    MODULE: ClassVar[str]
    PACKAGE: ClassVar[str]
    EXTRA: ClassVar[str]
    EXPECTED: ClassVar[str]  # form of URLs

    url: str
    next: dict[str, int]
    before_waiting: Callable[[], None]
    share: None = field(default=None, init=False)  # the end is not known

    def __post_init__(self) -> None:
        """Raises ConfigError without the extra, and for URLs of another form."""
        if find_spec(self.MODULE) is None:
            raise ConfigError(f"{self.url}: needs {self.PACKAGE}; install streamsvm's extra `{self.EXTRA}`")
        parts = urlsplit(self.url)
        self.servers, self.name = parts.netloc, parts.path.strip("/")
        self.query = dict(parse_qsl(parts.query))
        self.require(bool(self.servers and self.name))

    def require(self, is_expected: bool) -> None:
        """Raises ConfigError if the URL is of another form."""
        if not is_expected:
            raise ConfigError(f"{self.url}: expected {self.EXPECTED}")

    @abstractmethod
    def __iter__(self) -> Iterator[str]:
        """Texts of the messages, without an end. Raises StorageError."""

    @abstractmethod
    def close(self) -> None: ...


def as_text(message: bytes) -> str:
    """The text of a message; bytes that are not UTF-8 become text that is not Unicode, and so a bad line."""
    return message.decode("utf-8", errors="surrogateescape")


@dataclass
class Topic(Messages):
    """Messages of `kafka://HOST[:PORT][,HOST[:PORT]]/TOPIC[?PROPERTY=VALUE&...]`, with properties of librdkafka. next:
    offsets by partition; a partition without one begins at its oldest message. No group of consumers is joined, and
    nothing is committed."""

    MODULE, PACKAGE, EXTRA = "confluent_kafka", "confluent-kafka", "kafka"
    EXPECTED = "kafka://HOST[:PORT]/TOPIC"

    def __post_init__(self) -> None:
        """Raises ConfigError, NotFoundError if the broker or the topic cannot be found."""
        super().__post_init__()
        from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, TopicPartition

        properties = {"bootstrap.servers": self.servers, "error_cb": self._warn} | self.query | FIXED_PROPERTIES
        try:
            self._consumer = Consumer(properties)
            topic = self._consumer.list_topics(self.name, timeout=FIRST_S).topics[self.name]
        except KafkaException as error:
            raise NotFoundError(f"{self.url}: {error.args[0].str()}") from None
        if topic.error is not None:
            raise NotFoundError(f"{self.url}: {topic.error.str()}")
        starts = {p: self.next.get(str(p), OFFSET_BEGINNING) for p in sorted(topic.partitions)}
        self._consumer.assign([TopicPartition(self.name, p, start) for p, start in starts.items()])

    def __iter__(self) -> Iterator[str]:
        """Texts of the messages, in the order of each partition. Raises StorageError."""
        while True:
            messages = self._consumer.consume(BATCH, 0)
            while not messages:
                self.wait()
                messages = self._consumer.consume(BATCH, WAIT_S)
                self.waiting = False
            for message in messages:
                yield self._text(message)

    def close(self) -> None:
        self._consumer.close()

    def _text(self, message: Any) -> str:
        """A message without a value has no event: its text is empty."""
        place = str(message.partition())
        if message.error():
            raise StorageError(
                f"{self.url}: partition {place}, from offset {self.next.get(place, 0):,}: {message.error().str()}; if "
                "the topic no longer has these events, --force begins a new stream with the oldest that it has"
            )
        self.next[place] = message.offset() + 1
        return as_text(message.value() or b"")

    def _warn(self, error: Any) -> None:
        warnings.warn(f"{self.url}: {error.str()}", stacklevel=2)


@dataclass
class JetStream(Messages):
    """Messages of `nats://HOST[:PORT][,HOST[:PORT]]/STREAM[?subject=SUBJECT]`, of one subject or of all. next: the
    sequence of the message from which it begins, if not the oldest. Its consumer ends with it, and nothing is
    acknowledged."""

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
        """The next messages; none if none came in time, or if a server is gone."""
        from nats.errors import Error

        try:
            if self._consumer is None:
                await self._subscribe()
            messages = await self._consumer.fetch(BATCH, WAIT_S)
        except TimeoutError:
            return []
        except Error:  # the consumer is gone, with a server, or as it waited too long
            self._consumer = None
            await asyncio.sleep(WAIT_S)
            return []
        return self._in_order(messages)

    def _in_order(self, messages: list[Any]) -> list[Any]:
        """The messages up to the first gap in their order: from there on, a new consumer sends them again."""
        for i, message in enumerate(messages):
            self._sent += 1
            if message.metadata.sequence.consumer != self._sent:
                self._consumer = None
                return messages[:i]
        return messages

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
            inactive_threshold=INACTIVE_S,
        )
        self._consumer = await self._context.pull_subscribe(
            self.query.get("subject", ""), stream=self.name, config=config
        )
        self._sent = 0

    async def _warn(self, error: Exception) -> None:
        warnings.warn(f"{self.url}: {error}", stacklevel=2)
