"""The page in a browser, light and dark, wide and narrow."""

from __future__ import annotations

import browser
import pytest
import told

from streamsvm.report.html import contents, page
from streamsvm.report.read import read_run

PROGRAM = browser.find()
SHOWN = """
[...document.querySelectorAll('section')].filter(s => s.checkVisibility() && s.offsetHeight > 40).map(s => s.id)
"""
WIDE = "document.documentElement.scrollWidth"
TEXT = "getComputedStyle(document.body).color + getComputedStyle(document.querySelector('svg text')).fill"
FLAT = "[...document.querySelectorAll('svg')].filter(s => s.getBoundingClientRect().height < 60).length"


@pytest.mark.skipif(PROGRAM is None, reason="needs chromium")
@pytest.mark.parametrize("runs", [1, 2])
def test_the_page_in_chromium(tmp_path, runs):
    read = [read_run(told.everything(tmp_path / f"run-{i}" / "long-name-of-a-run")) for i in range(runs)]
    shown = contents(read)
    path = tmp_path / "report.html"
    path.write_text(page(read, shown), encoding="utf-8")

    async def look(tab):
        colours = set()
        for width in (360, 1400):
            for dark in (False, True):
                await tab.look(width, dark=dark)
                assert await tab.value(SHOWN) == [section.id for section, _ in shown]
                assert await tab.value(WIDE) <= width
                assert await tab.value(FLAT) == 0
                colours.add(await tab.value(TEXT))
                if browser.AXE is not None and width == 360:  # contrast and names are those of the wide page
                    assert await tab.violations() == []
        assert len(colours) == 2  # dark text in light, light text in dark
        assert tab.problems == []
        assert tab.requests == [path.resolve().as_uri()]

    browser.visit(PROGRAM, path, look)
