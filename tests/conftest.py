"""Fixtures of all tests."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

SHARED = Path(__file__).resolve().parents[2] / "shared" / "data"


@pytest.fixture(scope="session")
def shared_data() -> Callable[[str], Path]:
    """The path of a real data set beside the checkout; the test is skipped where it is not there."""

    def path_of(name: str) -> Path:
        if not (SHARED / name).exists():
            pytest.skip(f"no {SHARED / name}")
        return SHARED / name

    return path_of
