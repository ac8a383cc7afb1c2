"""What people need who use a keyboard or have a page read to them, and the theme's pages lack (checked by axe-core).

Headings of the menu get their level, regions that scroll can be reached by the Tab key, the two side bars have names,
and pictures of the gallery are links with a text.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

REPAIRS = (
    (re.compile(r'<p class="caption" role="heading">'), '<p class="caption" role="heading" aria-level="2">'),
    (re.compile(r"<pre(?=[ >])"), '<pre tabindex="0"'),
    (re.compile(r'<div class="(table-wrapper|formula)'), r'<div tabindex="0" class="\1'),
    (re.compile(r'<aside class="sidebar-drawer"'), '<aside class="sidebar-drawer" aria-label="All pages"'),
    (re.compile(r'<aside class="toc-drawer'), '<aside aria-label="On this page" class="toc-drawer'),
    (re.compile(r'<th class="head"><p></p></th>'), '<td class="head"></td>'),
    (
        re.compile(r'(<a class="reference internal" href="[^"]*")(><span class="doc">)([^<]*)(?=</span></a>)'),
        r'\1 aria-label="\3"\2\3',
    ),
)


def repair(app: Any, error: Exception | None) -> None:
    if error is None and app.builder.format == "html":
        for page in Path(app.outdir).rglob("*.html"):
            before = text = page.read_text(encoding="utf-8")
            for found, better in REPAIRS:
                text = found.sub(better, text)
            if text != before:
                page.write_text(text, encoding="utf-8")


def setup(app: Any) -> dict[str, bool]:
    app.connect("build-finished", repair)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
