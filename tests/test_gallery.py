"""Programs of the gallery: each has a title, a picture and its place. test_documents.py has the site run them."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parents[1] / "docs"
SCRIPTS = sorted((DOCS / "gallery").glob("*.py"))
TITLE = re.compile(r"\n(?P<title>.+)\n(?P<line>=+)\n\n\S")


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_a_script_has_a_title_a_picture_and_where_to_read_on(script):
    text = script.read_text(encoding="utf-8")
    found = TITLE.match(ast.get_docstring(ast.parse(text), clean=False))
    assert found
    assert len(found["title"]) == len(found["line"])
    assert text.count("plt.show()") == 1
    pages = re.findall(r":doc:`/([^`]+)`", text)
    assert pages
    assert not [page for page in pages if not (DOCS / f"{page}.md").exists()]


def test_every_script_has_its_place(monkeypatch):
    monkeypatch.syspath_prepend(DOCS)
    from pictures import ORDER

    assert sorted(f"plot_{name}" for name in ORDER) == [script.stem for script in SCRIPTS]
