"""A page in headless Chromium, driven over its DevTools protocol."""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
import shutil
import subprocess
import tempfile
from collections.abc import Awaitable, Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tornado.websocket import WebSocketClientConnection, websocket_connect

FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync --disable-dev-shm-usage --remote-debugging-port=0"
).split()


def _axe() -> Path | None:
    """The script of axe-core that axe-playwright-python brings; its Playwright is not used."""
    found = find_spec("axe_playwright_python")
    return None if found is None or found.origin is None else Path(found.origin).with_name("axe.min.js")


AXE = _axe()


def find() -> str | None:
    """The program, if it is installed."""
    return shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


class Page:
    """An open tab. problems: what it said on its console or in its log; requests: URLs that it asked for."""

    def __init__(self, socket: WebSocketClientConnection) -> None:
        self._socket, self._numbers = socket, itertools.count(1)
        self.problems: list[str] = []
        self.requests: list[str] = []
        self._loaded = False

    async def call(self, method: str, **params: Any) -> dict[str, Any]:
        number = next(self._numbers)
        await self._socket.write_message(json.dumps({"id": number, "method": method, "params": params}))
        while True:
            message = await self._next()
            if message.get("id") == number:
                assert "error" not in message, message
                return message["result"]

    async def _next(self) -> dict[str, Any]:
        text = await self._socket.read_message()
        assert text is not None, "the browser has gone"
        message = json.loads(text)
        kind, params = message.get("method"), message.get("params", {})
        if kind in ("Log.entryAdded", "Runtime.exceptionThrown", "Runtime.consoleAPICalled"):
            self.problems.append(json.dumps(params))
        elif kind == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])
        elif kind == "Page.loadEventFired":
            self._loaded = True
        return message

    async def open(self, at: Path | str) -> None:
        """A file, or a URL."""
        for domain in ("Page", "Log", "Runtime", "Network"):
            await self.call(f"{domain}.enable")
        await self.call("Page.navigate", url=at if isinstance(at, str) else at.resolve().as_uri())
        while not self._loaded:
            await self._next()

    async def look(self, width: int, *, dark: bool = False) -> None:
        """How wide the window is, and which colours are preferred."""
        await self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=900,
            deviceScaleFactor=1,
            mobile=width < 500,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        await self.call("Emulation.setEmulatedMedia", features=[scheme])

    async def value(self, script: str) -> Any:
        found = await self.call("Runtime.evaluate", expression=script, returnByValue=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    async def until(self, script: str, seconds: float = 20.0) -> Any:
        """What a script says once it says something that is true."""
        for _ in range(int(10 * seconds)):
            if found := await self.value(script):
                return found
            await asyncio.sleep(0.1)
        raise AssertionError(f"{script} stayed false for {seconds} s")

    async def violations(self) -> list[str]:
        """What axe-core finds to be wrong for people with disabilities."""
        assert AXE is not None
        await self.call("Runtime.evaluate", expression=AXE.read_text(encoding="utf-8"))
        ask = "axe.run().then(r => r.violations.map(v => `${v.impact} ${v.id}: ${v.nodes[0].html.slice(0, 200)}`))"
        found = await self.call("Runtime.evaluate", expression=ask, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found
        return found["result"]["value"]

    async def picture(self, path: Path) -> None:
        found = await self.call("Page.captureScreenshot", captureBeyondViewport=True, format="png")
        path.write_bytes(base64.b64decode(found["data"]))


def visit(program: str, path: Path | str, script: Callable[[Page], Awaitable[None]]) -> None:
    """Opens a file or a URL and does what `script` says with the page."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        command = [program, *FLAGS, f"--user-data-dir={profile}", "about:blank"]
        process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
        assert process.stderr is not None
        try:
            port = next(line.split(":")[2].split("/")[0] for line in process.stderr if "DevTools listening" in line)
            asyncio.run(_visit(port, path, script))
        finally:
            process.kill()
            process.wait()
            process.stderr.close()


async def _visit(port: str, path: Path | str, script: Callable[[Page], Awaitable[None]]) -> None:
    from tornado.httpclient import AsyncHTTPClient

    found = await AsyncHTTPClient().fetch(f"http://127.0.0.1:{port}/json/list")
    target = next(target for target in json.loads(found.body) if target["type"] == "page")
    socket = await websocket_connect(target["webSocketDebuggerUrl"], max_message_size=1 << 28)
    try:
        page = Page(socket)
        await page.open(path)
        await script(page)
    finally:
        socket.close()
