"""The runs of a folder as pages that follow them: a plain ASGI app, which reads and never writes.

`/` lists the runs, `/runs?name=A&name=B` shows some, as `streamsvm report` does. What is asked for is looked up among
the runs that were found in the folder: no path of a request is ever opened.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

from streamsvm.errors import StreamSVMError
from streamsvm.report.html import contents, page, run_list
from streamsvm.report.read import SCORE, Run, read_run
from streamsvm.runs.checkpoints import is_at_work
from streamsvm.runs.directory import EVALUATION, EVENTS, RESULT, TUNE
from streamsvm.runs.records import Row, is_log, number

FILES = (EVENTS, RESULT, EVALUATION, TUNE)  # that a run is read from
MOST_RUNS, MOST_DEPTH = 500, 4  # folders below the one that is served
DRAWN_SHARE = 0.2  # of a core that a page which changes takes at most: the machine has runs to do
MOST_PAGES = 16  # that are kept
LOCAL = ("127.0.0.1", "localhost", "[::1]")
SECURITY = ["default-src 'none'", "style-src 'unsafe-inline'", "script-src 'self'", "connect-src 'self'"]
SECURITY += ["base-uri 'none'", "form-action 'self'", "frame-ancestors 'none'"]
HEADERS = {
    "Cache-Control": "no-cache",
    "Content-Security-Policy": "; ".join(SECURITY),
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
Answer = tuple[int, Mapping[str, str], bytes]
Send = Callable[[Row], Awaitable[None]]
Signature = tuple[tuple[int, int] | None, ...]


def run_folders(root: Path) -> dict[str, Path]:
    """Folders of runs by their path below the root; the root's own name, where it is one. Links are not followed."""
    if _signature(root) is not None:
        return {root.resolve().name: root}
    runs: dict[str, Path] = {}
    for folder, inside, _ in os.walk(root):
        below = Path(folder).relative_to(root)
        for name in sorted(inside):
            if _signature(Path(folder, name)) is not None and len(runs) < MOST_RUNS:
                runs[(below / name).as_posix()] = Path(folder, name)
        is_deep = len(below.parts) + 1 >= MOST_DEPTH
        inside[:] = [] if is_deep else [name for name in inside if (below / name).as_posix() not in runs]
    return runs


def _signature(folder: Path) -> Signature | None:
    """When the files of a run were written, and their sizes; None if it is not a run, or contains links."""
    if folder.is_symlink():
        return None
    files: list[tuple[int, int] | None] = []
    for path in (folder / name for name in FILES):
        try:
            stat = path.lstat()
        except OSError:
            files.append(None)
            continue
        if path.is_symlink():
            return None
        # a log may be a file of another program, with runs below it
        is_read = path.name != EVENTS or is_log(path)
        files.append((stat.st_mtime_ns, stat.st_size) if is_read else None)
    return tuple(files) if any(files) else None


@dataclass(frozen=True)
class RenderedPage:
    """A page. tag: of what it was made from; until: time.monotonic() up to which it is good enough."""

    tag: str
    html: bytes
    until: float


class LivePages:
    """The app. host: the only one that requests may name, apart from this machine's names; None: any."""

    def __init__(self, root: Path, host: str | None = LOCAL[0]) -> None:
        self._root = root
        self._hosts = None if host is None else {host, *LOCAL}
        self._drawn: dict[tuple[str, ...], RenderedPage] = {}
        self._lock = threading.Lock()  # matplotlib's style is of the whole process

    async def __call__(self, scope: Mapping[str, Any], receive: object, send: Send) -> None:
        if scope["type"] != "http":
            return
        status, headers, body = await self._answer(scope)
        every_header = {**HEADERS, **headers, "Content-Length": str(len(body))}
        raw = [(name.lower().encode(), value.encode()) for name, value in every_header.items()]
        await send({"type": "http.response.start", "status": status, "headers": raw})
        await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else body})

    async def _answer(self, scope: Mapping[str, Any]) -> Answer:
        request_headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
        if scope["method"] not in ("GET", "HEAD"):
            return _text(405, "only reads", Allow="GET, HEAD")
        host = request_headers.get(b"host", "").rpartition(":")[0] or request_headers.get(b"host", "")
        if self._hosts is not None and host not in self._hosts:
            return _text(421, f"found host {host}, expected {LOCAL[0]}; --host lets others in")
        match scope["path"]:
            case "/live.js":
                script = files("streamsvm.report").joinpath("live.js").read_bytes()
                return 200, {"Content-Type": "text/javascript; charset=utf-8"}, script
            case "/":
                names: tuple[str, ...] = ()
            case "/runs":
                names = tuple(parse_qs(scope["query_string"].decode("latin-1")).get("name", ()))
            case _:
                return _text(404, "no such page")
        rendered = await asyncio.to_thread(self._page, names)
        if rendered is None:
            return _text(404, "no such run")
        tag = f'"{rendered.tag}"'
        if request_headers.get(b"if-none-match") == tag:
            return 304, {"ETag": tag}, b""
        return 200, {"Content-Type": "text/html; charset=utf-8", "ETag": tag}, rendered.html

    def _page(self, names: tuple[str, ...]) -> RenderedPage | None:
        """The page of these runs, of none: the list of all; None where one of them is not there."""
        with self._lock:
            folders = run_folders(self._root)
            if any(name not in folders for name in names):
                return None
            tag = _tag({name: folders[name] for name in names or folders})
            rendered = self._drawn.pop(names, None)
            if rendered is None or (rendered.tag != tag and time.monotonic() >= rendered.until):
                rendered = self._draw(tag, folders, names)
            self._drawn[names] = rendered  # the last one now
            while len(self._drawn) > MOST_PAGES:
                del self._drawn[next(iter(self._drawn))]
            return rendered

    def _draw(self, tag: str, folders: Mapping[str, Path], names: Sequence[str]) -> RenderedPage:
        started = time.thread_time()
        if names:
            runs = [replace(run, name=name) for name in names for run in _read(folders[name])]
            html = page(runs, contents(runs), live=tag)
        else:
            html = run_list(self._root.resolve().name, list(_rows(folders)), tag)
        until = time.monotonic() + (time.thread_time() - started) / DRAWN_SHARE
        return RenderedPage(tag, html.encode("utf-8", errors="replace"), until)


def _text(status: int, text: str, **headers: str) -> Answer:
    return status, {"Content-Type": "text/plain; charset=utf-8", **headers}, f"{text}\n".encode()


def _tag(runs: Mapping[str, Path]) -> str:
    states = [(name, _signature(path), is_at_work(path)) for name, path in runs.items()]
    return hashlib.sha256(repr(states).encode()).hexdigest()[:20]


def _read(folder: Path) -> list[Run]:
    """The run, unless it has gone meanwhile."""
    try:
        return [read_run(folder)]
    except StreamSVMError:
        return []


def _rows(folders: Mapping[str, Path]) -> Iterator[Row]:
    """A row of the list for each run, the latest first."""
    listed = [(name, _listed(path, _signature(path)), path) for name, path in folders.items()]
    for name, row, path in sorted(listed, key=lambda run: run[1].get("started") or "", reverse=True):
        is_running = row.get("status") == "not finished" and is_at_work(path)
        yield {"name": name} | row | ({"status": "running"} if is_running else {})


@lru_cache(maxsize=MOST_RUNS)
def _listed(folder: Path, signature: Signature | None) -> Row:
    """What the list says of a run whose files have this signature."""
    for run in _read(folder):
        best = run.tune[0].get(SCORE) if run.tune else None
        online, own = run.result.get("online_accuracy"), run.result.get("accuracy")
        scores = (run.evaluation.get("accuracy"), online, own, best)
        return {
            "status": run.status,
            "solver": run.solver,
            "store": run.data,
            "n": run.started.n,
            "score": next((score for score in scores if number(score) is not None), None),
            "seconds": number(run.result.get("seconds")) or run.seconds,
            "started": (run.started.time or "").replace("T", " ").removesuffix("+00:00"),
        }
    return {}
