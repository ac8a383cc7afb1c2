"""Events from a topic of Kafka, at least once: a snapshot holds the next offset of each partition."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from streamsvm.errors import NotFoundError, StorageError
from streamsvm.online.messages import BATCH, FIRST_S, WAIT_S, Messages, as_text

OWN = {"group.id": "streamsvm", "enable.auto.commit": False, "auto.offset.reset": "error", "log_level": 0}


@dataclass
class Topic(Messages):
    """Messages of `kafka://HOST[:PORT][,HOST[:PORT]]/TOPIC[?PROPERTY=VALUE&...]`, with properties of librdkafka.

    next: offsets by partition; a partition without one begins at its oldest message. No group of consumers is joined,
    and nothing is committed.
    """

    MODULE, PACKAGE, EXTRA = "confluent_kafka", "confluent-kafka", "kafka"
    EXPECTED = "kafka://HOST[:PORT]/TOPIC"

    def __post_init__(self) -> None:
        """Raises ConfigError, NotFoundError if the broker or the topic cannot be found."""
        super().__post_init__()
        from confluent_kafka import Consumer, KafkaException

        said = {"bootstrap.servers": self.servers, "error_cb": self._warn} | self.query | OWN
        try:
            self._consumer = Consumer(said)
            found = self._consumer.list_topics(self.name, timeout=FIRST_S).topics[self.name]
        except KafkaException as error:
            raise NotFoundError(f"{self.url}: {error.args[0].str()}") from None
        if found.error is not None:
            raise NotFoundError(f"{self.url}: {found.error.str()}")
        self._assign(sorted(found.partitions))

    def __iter__(self) -> Iterator[str]:
        """In the order of each partition. Raises StorageError."""
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

    def _assign(self, partitions: list[int]) -> None:
        from confluent_kafka import OFFSET_BEGINNING, TopicPartition

        starts = {p: self.next.get(str(p), OFFSET_BEGINNING) for p in partitions}
        self._consumer.assign([TopicPartition(self.name, p, start) for p, start in starts.items()])

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
