"""Examples in docstrings do what they say; every public class has one."""

from __future__ import annotations

import doctest
from importlib import import_module
from pathlib import Path

import pytest

import streamsvm
from streamsvm.online import BSGDClassifier

ROOT = Path(streamsvm.__file__).parent
MODULES = [path for path in sorted(ROOT.rglob("*.py")) if ">>> " in path.read_text(encoding="utf-8")]
PUBLIC = [getattr(streamsvm, name) for name in streamsvm.__all__ if not name.startswith("_")]


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_examples_do_what_they_say(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    name = ".".join(("streamsvm", *path.relative_to(ROOT).with_suffix("").parts))
    found = doctest.testmod(import_module(name))
    assert found.attempted > 0
    assert found.failed == 0


def test_every_public_class_has_an_example():
    assert [public.__name__ for public in (*PUBLIC, BSGDClassifier) if ">>> " not in public.__doc__] == []
