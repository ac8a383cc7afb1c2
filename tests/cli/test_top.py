"""`top` and bars: a run as it goes, from its records alone."""

from __future__ import annotations

import io
import json
import os
import pty
import re
import subprocess
import sys
from datetime import UTC, datetime, timedelta

import pytest
import told
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console
from terminal import read_all

from streamsvm.cli.app import app
from streamsvm.cli.top import RunMonitor
from streamsvm.errors import NotFoundError
from streamsvm.progress.bars import Bars
from streamsvm.runs.checkpoints import run_folder
from streamsvm.runs.directory import Tail


def progress(t, done, total=10, phase="level 2", **more):
    return told.record("progress", t, phase=phase, done=done, total=total, **more)


PLAN = told.record("plan", 0.1, kernel={"name": "rbf", "gamma": 0.25})
AT_WORK = [PLAN, *told.LEVELS, *told.WARNING, *told.MEMORY, *told.ROUNDS]
AT_WORK += [progress(4.0, 3), progress(5.0, 4), progress(6.0, 5)]


def once(folder, capsys):
    app(["top", str(folder), "--once"], standalone_mode=False)
    return capsys.readouterr().out


def test_a_run_at_work(tmp_path, capsys):
    folder = told.write_run(tmp_path / "run", AT_WORK, end=None)
    with run_folder(folder):
        out = once(folder, capsys)
    assert "dcsvm  data.zarr  100 x 3  rbf  gamma 0.25  C 2" in out
    assert "running for" in out
    assert "level 2" in out
    assert "5/10" in out
    assert "1/s" in out
    assert "violation 0.0001" in out
    assert "(tol 0.001)" in out
    assert "memory 240.0 MiB of 1.0 GiB, at most 240.0 MiB" in out
    assert "warning: the disk is nearly full" in out


def test_the_clock_counts_from_the_beginning_of_the_run(tmp_path, capsys):
    """Not from the last record, which was written at second 6, on to when `top` was called."""
    began = datetime.now(UTC) - timedelta(seconds=100)
    start = told.START | {"time": began.isoformat(timespec="seconds")}
    folder = told.write_run(tmp_path / "run", AT_WORK, start=start, end=None)
    with run_folder(folder):
        out = once(folder, capsys)
    assert re.search(r"running for 0:01:[45]\d", out)


@pytest.mark.parametrize(
    ("end", "words"),
    [
        ("done", "finished after 0:00:09"),
        ("failed", "ended after 0:00:09: made up"),
        (None, "no longer running"),
    ],
)
def test_a_run_that_has_ended(tmp_path, capsys, end, words):
    out = once(told.write_run(tmp_path / "run", AT_WORK, end=end), capsys)
    assert words in out
    assert "5/10" not in out


def test_without_a_run(tmp_path, capsys):
    with pytest.raises(NotFoundError, match="no such run directory"):
        once(tmp_path / "none", capsys)
    assert "no longer running" in once(tmp_path, capsys)


def test_on_a_terminal_it_ends_with_the_run(tmp_path):
    folder = told.write_run(tmp_path / "run", AT_WORK, end=None)
    script = "import sys; from streamsvm.cli.app import app; app(['top', sys.argv[1], '--interval', '0.1'])"
    ours, theirs = pty.openpty()
    with run_folder(folder):
        process = subprocess.Popen([sys.executable, "-c", script, folder], stdout=theirs, stderr=theirs)
        os.close(theirs)
        shown = b""
        while b"5/10" not in shown:
            shown += os.read(ours, 1 << 16)
        with (folder / "events.jsonl").open("a") as file:
            file.write(json.dumps(told.record("done", 12.0)) + "\n")
        shown += read_all(ours)
    assert process.wait(timeout=30) == 0
    assert b"finished after 0:00:12" in shown


def test_records_come_once_and_whole(tmp_path):
    folder = told.write_run(tmp_path / "run", told.ROUNDS, end=None)
    tail = Tail(folder)
    assert [event.kind for _, event in tail()] == ["start", *["round"] * 4]
    assert tail() == []
    with (folder / "events.jsonl").open("a") as file:
        line = json.dumps(told.round_(5)) + "\n"
        file.write(line[:9])
        file.flush()
        assert tail() == []
        file.write(line[9:])
        file.flush()
        assert [event.round for _, event in tail()] == [5]
    told.write_run(folder, [], end=None)  # another, shorter file
    assert [event.kind for _, event in tail()] == ["start"]


kinds = st.sampled_from(["start", "plan", "progress", "level", "round", "step", "memory", "warning", "failed", "x"])
values = st.none() | st.integers() | st.floats() | st.text(max_size=3) | st.lists(st.integers(), max_size=2)
fields = st.dictionaries(
    st.sampled_from(["phase", "done", "total", "level", "violation", "config", "kernel", "rss_bytes", "message", "n"]),
    values | st.just({"name": "rbf", "gamma": 1}),
)


@given(st.lists(st.tuples(kinds, fields), max_size=8))
@settings(max_examples=50)
def test_records_of_any_kind_are_shown(tmp_path_factory, records):
    console = Console(file=io.StringIO(), width=100)
    watch = RunMonitor(tmp_path_factory.getbasetemp(), console)
    watch.take([told.parsed(told.record(kind, float(i)) | more) for i, (kind, more) in enumerate(records)])
    console.print(watch.frame())


class TestBars:
    def shown(self, records, now):
        clock = [0.0]
        console = Console(file=io.StringIO(), width=140)
        bars = Bars(console, lambda: clock[0])
        for record in records:
            clock[0] = record["t"]
            bars(told.parsed(record))
        clock[0] = now
        console.print(bars.progress)
        return console.file.getvalue()

    def test_rate_elapsed_and_rest(self):
        out = self.shown([progress(t, 10 * t, 100, gap=0.25) for t in range(6)], 5)
        for text in ("level 2", "50/100", "10/s", "0:00:05", "gap 0.25"):
            assert text in out
        assert out.count("0:00:05") == 2  # behind it, and before it

    def test_a_share_of_the_way(self):
        out = self.shown([progress(t, t / 8, 1, violation=0.5) for t in range(5)], 4)
        assert "50 %" in out
        assert "/s" not in out
        assert out.count("0:00:04") == 2

    def test_rows_are_the_rate_where_they_are_told(self):
        assert "12,345/s" in self.shown([progress(1, 1, 2, rows_s=12345.0)], 1)

    def test_an_unknown_end(self):
        out = self.shown([progress(t, 100 * t, None) for t in range(3)], 2)
        assert "200" in out
        assert "200/" not in out

    def test_a_full_bar_stays_until_another_phase(self):
        full = [progress(1, 1, 10), progress(2, 10, 10)]
        assert "10/10" in self.shown(full, 3)
        assert "10/10" not in self.shown([*full, progress(3, 1, 4, phase="top")], 3)
        assert "2/10" in self.shown([*full, progress(3, 2, 10)], 3)
