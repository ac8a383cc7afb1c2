"""Events in a file: one line each, whatever happens to the file."""

from __future__ import annotations

import errno
import json
import os

import pytest

from streamsvm import events
from streamsvm.events import Events, JsonLines


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.parametrize("torn", ["", '{"event": "ro', '{"event": "round"}', "x" * 200])
@pytest.mark.parametrize("before", ["", '{"event": "a"}\n{"event": "b"}\n'])
def test_a_torn_last_line_is_removed(tmp_path, monkeypatch, before, torn):
    monkeypatch.setattr(events, "BLOCK", 16)
    path = tmp_path / "events.jsonl"
    path.write_text(before + torn)
    log = JsonLines(path)
    Events(log)("c")
    log.close()
    assert [record["event"] for record in lines(path)] == [*(["a", "b"] if before else []), "c"]


def test_progress_is_not_written(tmp_path):
    log = JsonLines(tmp_path / "events.jsonl")
    Events(log).progress("read", 1, 2)
    log.close()
    assert lines(tmp_path / "events.jsonl") == []


@pytest.mark.parametrize("some", [0, 5])
def test_a_full_disk_leaves_whole_lines(tmp_path, some):
    """A write that fails, or writes a few bytes only."""
    log = JsonLines(tmp_path / "events.jsonl")
    whole, say = log._file, Events(log)

    class Full:
        tell, truncate, close = whole.tell, whole.truncate, whole.close

        @staticmethod
        def write(line):
            if not some:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return whole.write(line[:some])

    say("a")
    log._file = Full
    say("lost")
    log._file = whole
    say("b")
    log.close()
    assert [record["event"] for record in lines(tmp_path / "events.jsonl")] == ["a", "b"]
