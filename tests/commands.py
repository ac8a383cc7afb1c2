"""The command line in this process."""

from __future__ import annotations

from typing import Any

import pytest

from streamsvm.cli.app import app, exit_status


def run(*args: Any) -> int:
    return exit_status(lambda: app([*map(str, args)], standalone_mode=False))


def require_one_line(capsys: pytest.CaptureFixture[str], message: str, *args: Any) -> None:
    """That the command refuses these arguments, with this message in one line."""
    capsys.readouterr()
    assert run(*args) == 2
    error = capsys.readouterr().err.strip()
    assert error.startswith("error: ")
    assert "\n" not in error
    assert message in error
