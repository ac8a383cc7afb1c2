"""The command line in this process."""

from __future__ import annotations

import os
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from tempfile import TemporaryFile
from typing import Any

import pytest

from streamsvm.cli.app import app, exit_status


def run(*args: Any) -> int:
    return exit_status(lambda: app([*map(str, args)], standalone_mode=False))


def piped(text: str, *args: Any) -> tuple[int, str, str]:
    """Exit status, stdout and stderr of a command that is given a text on stdin."""
    stdin = os.dup(0)
    with TemporaryFile() as source, redirect_stdout(StringIO()) as out, redirect_stderr(StringIO()) as err:
        source.write(text.encode())
        source.seek(0)
        os.dup2(source.fileno(), 0)
        try:
            status = run(*args)
        finally:
            os.dup2(stdin, 0)
            os.close(stdin)
    return status, out.getvalue(), err.getvalue()


def require_one_line(capsys: pytest.CaptureFixture[str], message: str, *args: Any) -> None:
    """That the command refuses these arguments, with this message in one line."""
    capsys.readouterr()
    assert run(*args) == 2
    error = capsys.readouterr().err.strip()
    assert error.startswith("error: ")
    assert "\n" not in error
    assert message in error
