"""What commands print: units for people, bars on a terminal, silence in a pipe."""

from __future__ import annotations

import os
import pty
import subprocess
import sys

import numpy as np
from every_case import every_case
from terminal import read_all

from streamsvm.cli.output import emit, emit_table
from streamsvm.storage.text import human, human_bytes, jsonable


@every_case(
    ("n", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (3 << 29, "1.5 GiB"), (2048 << 40, "2048.0 TiB")],
)
def test_bytes_for_people(n, text):
    assert human_bytes(n) == text


@every_case(
    ("name", "value", "text"),
    [
        ("seconds", 1.26, "1.3 s"),
        ("peak_rss_bytes", 1 << 20, "1.0 MiB"),
        ("n", 1234567, "1,234,567"),
        ("gap", 1.23456789e-5, "1.23457e-05"),
        ("chunks", (4096, 54), "4,096, 54"),
        ("early", True, "yes"),
        ("solver", "dcsvm", "dcsvm"),
    ],
)
def test_values_for_people(name, value, text):
    assert human(name, value) == text


def test_tables_show_plain_values_and_leave_out_what_is_not_known(capsys):
    emit({"n_support": 12, "gap": None, "seconds_by_phase": {"x": 1.0}}, as_json=False, title="Trained")
    out = capsys.readouterr().out
    assert "support vectors" in out
    assert "12" in out
    assert "gap" not in out
    assert "phase" not in out
    emit_table("By class", [{"label": "[red]", "recall": 0.5}, {"label": 2, "recall": 1.0}])
    out = capsys.readouterr().out
    assert "[red]" in out
    assert "0.5" in out


def test_numbers_of_numpy_become_json():
    value = {
        1: np.float32(0.5),
        "a": np.arange(3),
        "b": (np.int64(2), float("inf"), np.nan),
        "c": np.str_("x"),
        "d": None,
    }
    assert jsonable(value) == {"1": 0.5, "a": [0, 1, 2], "b": [2, None, None], "c": "x", "d": None}
    assert type(jsonable(np.int64(2))) is int
    assert jsonable(np.bool_(True)) is True


EVENTS = """
from streamsvm.cli.output import progress
from streamsvm.events import LevelSolved, Warned
with progress() as events:
    events(Warned("rows are sorted by class"))
    events(LevelSolved(3, 64, 9, 5, -1.0, 0.1, 0.2))
    for done in range(4):
        events.progress("cluster", done, 4, gap=0.25)
        import time; time.sleep(0.15)
    events.progress("cluster", 4, 4)
"""


def test_bars_on_a_terminal():
    ours, theirs = pty.openpty()
    run = subprocess.Popen([sys.executable, "-c", EVENTS], stdout=subprocess.PIPE, stderr=theirs)
    os.close(theirs)
    shown = read_all(ours)  # while it runs: a terminal holds 4 KiB
    assert run.communicate() == (b"", None)
    assert run.returncode == 0
    for text in (b"cluster", b"2/4", b"gap 0.25", b"warning: rows are sorted by class"):
        assert text in shown


def test_only_warnings_in_a_pipe():
    run = subprocess.run([sys.executable, "-c", EVENTS], capture_output=True, text=True, check=True)
    assert (run.stdout, run.stderr) == ("", "warning: rows are sorted by class\n")
