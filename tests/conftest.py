"""Fixtures that several test folders share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import settings

settings.register_profile("patient", deadline=None)  # how long an example takes is the machine's business
settings.load_profile("patient")

SHARED = Path(__file__).resolve().parents[1].parent / "shared" / "data"


@pytest.fixture
def shared_data() -> Callable[[str], Path]:
    """shared_data(name): a file of real data; skips the test where the folder is absent."""

    def find(name: str) -> Path:
        path = SHARED / name
        if not path.exists():
            pytest.skip(f"needs real data: {path} is absent")
        return path

    return find
