"""Fixtures that several test folders share, and how many examples properties are tried on."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import settings

# how long an example takes is the machine's business
settings.register_profile("quick", deadline=None, max_examples=25)
settings.register_profile("thorough", deadline=None, max_examples=100)

DATA = Path(os.environ.get("STREAMSVM_TEST_DATA", Path(__file__).resolve().parents[2] / "shared" / "data"))


LONG = {"test_documents.py", "test_recipes.py"}  # whose tests share little and take long: any worker takes the next


def pytest_configure(config: pytest.Config) -> None:
    settings.load_profile("quick" if config.getoption("markexpr") == "not slow" else "thorough")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A file's tests go to one worker, which makes its fixtures and compiles its kernels once."""
    for item in items:
        if item.get_closest_marker("xdist_group") is None and item.path.name not in LONG:
            item.add_marker(pytest.mark.xdist_group(item.path.stem))


@pytest.fixture
def shared_data() -> Callable[[str], Path]:
    """shared_data(name): a file of real data; skips the test where it is absent."""

    def find(name: str) -> Path:
        path = DATA / name
        if not path.exists():
            pytest.skip(f"needs real data, which STREAMSVM_TEST_DATA names the folder of: {path} is absent")
        return path

    return find
