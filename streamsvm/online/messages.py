"""Events from a broker, at least once: a snapshot holds the places of the next messages."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import ClassVar
from urllib.parse import parse_qsl, urlsplit

from streamsvm.errors import ConfigError
from streamsvm.online.lines import Interruptible

BATCH = 500  # messages that are taken at once
FIRST_S, WAIT_S = 10.0, 0.2  # for the broker's first answer; for messages, before signals are looked at


@dataclass
class Messages(Interruptible, ABC):
    """The texts of a URL's messages; `close` leaves the broker.

    next: places from which it begins, and which it moves past each message that it yields.
    """

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
        """Without an end. Raises StorageError."""

    @abstractmethod
    def close(self) -> None: ...


def as_text(message: bytes) -> str:
    """A message; bytes that are not UTF-8 become text that is not Unicode, and so a bad line."""
    return message.decode("utf-8", errors="surrogateescape")
