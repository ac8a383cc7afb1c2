"""Bytes that this process reads from others and sends to them, counted where distributed's TCP comms do it."""

from __future__ import annotations

from collections import Counter
from contextvars import ContextVar
from typing import Any

from distributed.comm import tcp

READ: Counter[str] = Counter()  # by address of the other end
WRITTEN: Counter[str] = Counter()
_peer = ContextVar("peer", default="")


def count() -> None:
    """From now on. A second call changes nothing."""
    if hasattr(tcp.TCP.read, "counts"):
        return
    read, write, read_bytes = tcp.TCP.read, tcp.TCP.write, tcp.read_bytes_rw

    async def counted_read(self: tcp.TCP, deserializers: Any = None) -> Any:
        _peer.set(self.peer_address)
        return await read(self, deserializers)

    async def counted_read_bytes(stream: Any, n: int) -> Any:
        READ[_peer.get()] += n
        return await read_bytes(stream, n)

    async def counted_write(self: tcp.TCP, *args: Any, **options: Any) -> int:
        n = await write(self, *args, **options)
        WRITTEN[self.peer_address] += n
        return n

    counted_read.counts = True  # type: ignore[attr-defined]
    tcp.TCP.read, tcp.TCP.write = counted_read, counted_write  # type: ignore[method-assign]
    tcp.read_bytes_rw = counted_read_bytes


def seen() -> tuple[Counter[str], Counter[str]]:
    """Bytes read and written so far, by address."""
    return READ.copy(), WRITTEN.copy()
