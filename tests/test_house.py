"""A size that keeps the house livable: pages at the root, which a reader opens first."""

from __future__ import annotations

from pathlib import Path

import streamsvm

ROOT = Path(streamsvm.__file__).parent


def test_few_pages_are_at_the_root():
    assert len(list(ROOT.glob("*.py"))) <= 12
