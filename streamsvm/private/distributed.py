"""distributed: how a client waits for its scheduler."""

from __future__ import annotations

import asyncio
from typing import Any

from distributed import Client


class BoundedClient(Client):
    """Waits for what listens, but never speaks, no longer than for what does not listen."""

    def start(self, **options: Any) -> None:
        try:
            super().start(**options)
        except BaseException:
            self.close()  # else the garbage collector does, maybe where that waits for itself
            raise

    async def _ensure_connected(self, timeout: float | None = None) -> None:
        await asyncio.wait_for(super()._ensure_connected(timeout), timeout)
