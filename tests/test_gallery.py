"""Programs of the gallery: each has a title, a picture and its place. test_documents.py has the site run them."""

from __future__ import annotations

import ast
import re
from pathlib import Path

DOCS = Path(__file__).resolve().parents[1] / "docs"
SCRIPTS = sorted((DOCS / "gallery").glob("*.py"))
TITLE = re.compile(r"\n(?P<title>.+)\n(?P<line>=+)\n\n\S")


def test_a_script_has_a_title_a_picture_and_where_to_read_on():
    missing = []
    for script in SCRIPTS:
        text = script.read_text(encoding="utf-8")
        title = TITLE.match(ast.get_docstring(ast.parse(text), clean=False))
        pages = re.findall(r":doc:`/([^`]+)`", text)
        checks = {
            "title": title and len(title["title"]) == len(title["line"]),
            "picture": text.count("plt.show()") == 1,
            "page to read on": pages and all((DOCS / f"{page}.md").exists() for page in pages),
        }
        missing += [f"{script.stem}: {name}" for name, is_there in checks.items() if not is_there]
    assert not missing


def test_every_script_has_its_place(monkeypatch):
    monkeypatch.syspath_prepend(DOCS)
    from pictures import ORDER

    assert sorted(f"plot_{name}" for name in ORDER) == [script.stem for script in SCRIPTS]
