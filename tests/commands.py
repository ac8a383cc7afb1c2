"""The command line in this process."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from io import StringIO
from tempfile import TemporaryFile
from typing import Any, BinaryIO

import pytest

from streamsvm.cli.app import app, exit_status
from streamsvm.parallel import machine

FRESH_BYTES = 256 << 20  # a process that has imported everything


def run(*args: Any) -> int:
    with memory_of_a_new_process():
        return exit_status(lambda: app([*map(str, args)], standalone_mode=False))


@contextmanager
def memory_of_a_new_process() -> Iterator[None]:
    """Memory limits do not count what earlier tests have left in this process."""
    rss_bytes = machine.rss_bytes
    before = rss_bytes()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(machine, "rss_bytes", lambda: FRESH_BYTES + max(0, rss_bytes() - before))
        yield


@contextmanager
def stdin_of(source: BinaryIO) -> Iterator[None]:
    """Commands of this process read from this file."""
    before = os.dup(0)
    os.dup2(source.fileno(), 0)
    try:
        yield
    finally:
        os.dup2(before, 0)
        os.close(before)


def piped(text: str, *args: Any) -> tuple[int, str, str]:
    """Exit status, stdout and stderr of a command that is given a text on stdin."""
    with TemporaryFile() as source, redirect_stdout(StringIO()) as out, redirect_stderr(StringIO()) as err:
        source.write(text.encode())
        source.seek(0)
        with stdin_of(source):
            status = run(*args)
    return status, out.getvalue(), err.getvalue()


def require_one_line(capsys: pytest.CaptureFixture[str], message: str, *args: Any) -> None:
    """That the command refuses these arguments, with this message in one line."""
    capsys.readouterr()
    assert run(*args) == 2
    error = capsys.readouterr().err.strip()
    assert error.startswith("error: ")
    assert "\n" not in error
    assert message in error
