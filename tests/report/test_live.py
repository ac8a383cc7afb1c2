"""The live page: lists, compares and follows the runs of a folder, reads nothing else, and holds in a browser."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import subprocess
import sys
from urllib.request import Request, urlopen

import browser
import pytest
import told
from every_case import every_case

from streamsvm.cli.app import app
from streamsvm.errors import ConfigError, NotFoundError
from streamsvm.report import live
from streamsvm.report.live import LivePages, run_folders

PROGRAM = browser.find()


def ask(pages, path="/", query="", method="GET", **headers):
    """(status, headers, body) of a request."""
    sent = []

    async def send(message):
        sent.append(message)

    given = {"host": "127.0.0.1:8321"} | headers
    raw = [(name.replace("_", "-").encode(), value.encode()) for name, value in given.items()]
    scope = {"type": "http", "method": method, "path": path, "query_string": query.encode(), "headers": raw}
    asyncio.run(pages(scope, None, send))
    start, body = sent
    return start["status"], {k.decode(): v.decode() for k, v in start["headers"]}, body["body"].decode()


@pytest.fixture
def runs(tmp_path):
    """A folder of two runs, a file that nobody may read, and links to what is outside."""
    root = tmp_path / "runs"
    told.write_run(root / "one", told.ROUNDS, result=told.RESULT, evaluation=told.EVALUATION)
    told.write_run(root / "later" / "two <b>", [], end=None, start=told.START | {"time": "2026-02-01T00:00:00"})
    outside = told.write_run(tmp_path / "outside", [])
    (root / "secret.txt").write_text("secret")
    (root / "later" / "events.jsonl").write_text('{"temp": 21.5}\n')  # of a stream
    with contextlib.suppress(OSError):  # a system without links
        (root / "link").symlink_to(outside)
        (root / "partly").mkdir()
        (root / "partly" / "events.jsonl").symlink_to(outside / "events.jsonl")
    return root


def test_runs_are_listed_the_latest_first_and_compared(runs):
    pages = LivePages(runs)
    assert set(run_folders(runs)) == {"one", "later/two <b>"}
    status, headers, body = ask(pages)
    assert (status, headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert body.index("later/two &lt;b&gt;") < body.index(">one<")
    assert "<b>" not in body
    assert "0.75" in body  # its accuracy
    told.write_run(runs / "memory", [], start=told.START | {"store": None})
    told.write_run(runs / "pipe", [], start=told.START | {"store": "-"})
    body = ask(LivePages(runs))[2]
    assert all(f">{data}<" in body for data in ("in memory", "stdin"))
    status, _, body = ask(pages, "/runs", "name=one&name=later/two+%3Cb%3E")
    assert (status, "<h1>2 runs</h1>" in body) == (200, True)
    assert ask(pages, "/runs", "name=one")[2].count("<h1>one</h1>") == 1
    assert list(run_folders(runs / "one")) == ["one"]  # a run itself


@every_case(
    ("path", "query"),
    [
        ("/runs", "name=../outside"),
        ("/runs", "name=/etc"),
        ("/runs", "name=link"),
        ("/runs", "name=partly"),
        ("/runs", "name=secret.txt"),
        ("/secret.txt", ""),
        ("/../outside/events.jsonl", ""),
        ("/one/events.jsonl", ""),
    ],
)
def test_nothing_else_is_served(runs, path, query):
    assert ask(LivePages(runs), path, query)[0] == 404


def test_it_only_reads_and_knows_its_name(runs):
    before = sorted(path.as_posix() for path in runs.rglob("*"))
    pages = LivePages(runs)
    assert ask(pages, method="POST")[0] == 405
    assert ask(pages, host="example.org")[0] == 421  # a page from elsewhere that has this machine's address
    assert ask(LivePages(runs, host=None), host="example.org")[0] == 200
    assert ask(pages, host="localhost:1")[0] == 200
    status, headers, body = ask(pages, method="HEAD")
    assert (status, body) == (200, "")
    assert int(headers["content-length"]) > 1000
    assert "default-src 'none'" in headers["content-security-policy"]
    ask(pages, "/runs", "name=one")
    assert sorted(path.as_posix() for path in runs.rglob("*")) == before


def test_a_page_is_drawn_anew_when_its_runs_have_changed(runs, monkeypatch):
    pages = LivePages(runs)
    _, headers, before = ask(pages, "/runs", "name=one")
    tag = headers["etag"]
    assert ask(pages, "/runs", "name=one", if_none_match=tag)[0] == 304
    with (runs / "one" / "events.jsonl").open("a", encoding="utf-8") as file:
        file.write(json.dumps(told.WARNING[0]) + "\n")
    assert ask(pages, "/runs", "name=one")[2] == before  # drawing takes a fifth of a core at most
    monkeypatch.setattr(live.time, "monotonic", lambda: 1e12)
    _, headers, after = ask(pages, "/runs", "name=one")
    assert headers["etag"] != tag
    assert "the disk is nearly full" in after
    assert "the disk is nearly full" not in before


def test_what_it_cannot_show_is_one_line(tmp_path):
    with pytest.raises(NotFoundError, match="no such folder"):
        app(["ui", str(tmp_path / "none")], standalone_mode=False)
    with pytest.raises(ConfigError, match="--port 0 finds a free one"):
        app(["ui", str(tmp_path), "--host", "192.0.2.1"], standalone_mode=False)


@contextlib.contextmanager
def served(folder):
    """The address of the command's server."""
    command = [sys.executable, "-m", "streamsvm", "ui", str(folder), "--port", "0"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        yield re.search(r"http://\S+", process.stderr.readline())[0]
    finally:
        process.terminate()
        process.wait(20)
        process.stderr.close()


def test_the_command_serves(runs):
    with served(runs) as url:
        with urlopen(Request(url)) as answer:
            assert b"Runs in runs" in answer.read()


@pytest.mark.slow  # a server and a browser are started
@pytest.mark.skipif(PROGRAM is None, reason="needs chromium")
def test_a_page_follows_its_run(runs):
    async def follow(tab):
        assert await tab.value("document.querySelector('h1').textContent") == "one"
        assert not await tab.value("document.getElementById('warnings')")
        await tab.value("document.querySelector('details').open = true")
        with (runs / "one" / "events.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(told.WARNING[0]) + "\n")
        await tab.until("document.getElementById('warnings')?.textContent.includes('nearly full')")
        assert await tab.value("document.querySelector('details').open")
        assert tab.problems == []

    with served(runs) as url:
        browser.visit(PROGRAM, f"{url}runs?name=one", follow)


@pytest.mark.slow  # a server and a browser are started
@pytest.mark.skipif(PROGRAM is None or browser.AXE is None, reason="needs chromium and axe-playwright-python")
@pytest.mark.parametrize("path", ["", "runs?name=one", "runs?name=one&name=later/two+%3Cb%3E"])
def test_people_with_disabilities_can_read_it(runs, path):
    async def check(tab):
        for dark in (False, True):
            await tab.look(1400, dark=dark)
            assert await tab.violations() == []

    told.everything(runs / "one")
    with served(runs) as url:
        browser.visit(PROGRAM, url + path, check)
