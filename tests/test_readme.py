"""What the README says to type works, from top to bottom, in an empty folder."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from itertools import groupby
from pathlib import Path

import pytest

from streamsvm.cli.app import app, exit_status

README = Path(__file__).resolve().parents[1] / "README.md"
BLOCK = re.compile(
    r"^<!-- (run|file: (?P<file>\S+)) -->\n```(?P<language>\w+)\n(?P<text>.*?)^```$", re.M | re.S
)
FUNCTIONS = f'python() {{ "{sys.executable}" "$@"; }}\nstreamsvm() {{ python -m streamsvm "$@"; }}'


def execute(*command):
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def is_plain(line):
    """A `streamsvm` command that no pipe or file feeds."""
    return line.startswith("streamsvm ") and "<" not in line


def shell(text):
    """Runs the lines of a block: plain `streamsvm` here and now, all else by bash."""
    for is_ours, lines in groupby(text.splitlines(keepends=True), is_plain):
        for line in lines if is_ours else ():
            words = shlex.split(line)[1:]
            assert exit_status(lambda words=words: app(words, standalone_mode=False)) == 0, line
        if not is_ours:
            execute("bash", "-euo", "pipefail", "-c", f"{FUNCTIONS}\n{''.join(lines)}")


@pytest.mark.timeout(900)
def test_every_marked_block_of_the_readme_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    blocks = list(BLOCK.finditer(README.read_text(encoding="utf-8")))
    assert {block["language"] for block in blocks} == {"sh", "python", "toml"}
    for block in blocks:
        if block["file"]:
            Path(block["file"]).write_text(block["text"])
        elif block["language"] == "sh":
            shell(block["text"])
        else:
            execute(sys.executable, "-W", "error", "-c", block["text"])
    assert Path("labels.csv").read_text().startswith("label\n")
    assert Path("new-labels.csv").read_text() == "label\nyes\nno\n"
