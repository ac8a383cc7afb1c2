"""Ctrl-C: answered at once, whatever the main thread computes; the hint how to go on is where there is a state."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from streamsvm.cli.fit import hint_to_resume
from streamsvm.cli.output import FIRST, answered
from streamsvm.events import Memory, Progress, Record
from streamsvm.progress.lines import MinuteLines

BUSY = """
import hashlib, signal
from streamsvm.cli import output
signal.signal(signal.SIGINT, lambda *_: None)  # whenever it comes, what follows begins
with output.progress():
    print("busy", flush=True)
    hashlib.pbkdf2_hmac("sha256", b"", b"", 40_000_000)  # compiled code, that hears of no signal
    print("done", flush=True)
"""


@pytest.fixture
def busy():
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", BUSY], stdout=pipe, stderr=pipe, text=True) as process:
        assert process.stdout.readline() == "busy\n"
        yield process
        process.kill()


def test_the_first_is_answered_at_once_and_the_second_ends(busy):
    busy.send_signal(signal.SIGINT)
    assert busy.stderr.readline() == f"{FIRST}\n"
    busy.send_signal(signal.SIGINT)
    assert busy.wait(60) == 130
    assert busy.stdout.read() == ""  # it was never done


def test_what_listened_before_listens_again():
    said = []
    with answered(said.append):
        pass
    assert signal.set_wakeup_fd(-1) == -1
    assert said == []


@pytest.mark.parametrize("has_state", [False, True])
def test_the_hint_is_given_where_there_is_a_state(has_state, tmp_path, capsys):
    with pytest.raises(KeyboardInterrupt), hint_to_resume(tmp_path, lambda folder: has_state):
        raise KeyboardInterrupt
    said = capsys.readouterr().err
    assert ("--resume" in said) == has_state
    assert (f"no checkpoint is in {tmp_path} yet" in said) != has_state


def test_a_log_gets_a_line_a_minute():
    lines = []
    sink = MinuteLines(lines.append)
    for t in range(0, 190, 7):
        sink(Record(t, Progress("level 2", t / 2, 4000)))
    sink(Record(260.2, Progress("stream", 12345, None)))
    sink(Record(330.0, Progress("assign", 12345, 20000)))
    sink(Record(400.0, Progress("top", 0.953, 1)))
    sink(Record(900.0, Memory(1 << 20)))
    assert lines == [
        "level 2  31.5/4,000  0:01:03",
        "level 2  63/4,000  0:02:06",
        "level 2  94.5/4,000  0:03:09",
        "stream  12,345  0:04:20",
        "assign  12,345/20,000  0:05:30",
        "top  95%  0:06:40",
    ]
