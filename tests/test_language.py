"""Plain English: documentation and the texts of package and recipes avoid the wording that docs/words.toml lists.

Files that are still to be cleaned have their number of findings in tests/language.toml. It may only fall.
`python tests/test_language.py` lists all findings, and `--counts` prints that file.
"""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from bisect import bisect_right
from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / ".github").glob("*.md"), *DOCS.rglob("*.md")])
FOLDERS = ("streamsvm", "pipelines", "docs")  # of the last, the gallery and what builds the site
BUILT = DOCS / "examples"  # the gallery's pages, by sphinx-gallery
SOURCES = sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py") if BUILT not in path.parents)
GUIDE = [ROOT / "README.md", DOCS / "index.md", DOCS / "tutorial.md", DOCS / "faq.md"]
GUIDE += sorted((DOCS / "guide").glob("*.md"))
KNOWN = tomllib.loads((ROOT / "tests" / "language.toml").read_text(encoding="utf-8"))
AVOID = [
    (re.compile(entry["pattern"]), entry["better"])
    for entry in tomllib.loads((DOCS / "words.toml").read_text(encoding="utf-8"))["avoid"]
]
EASE = 60  # Flesch: plain English is 60 to 70
SEARCHED = "benchmark cite contribute cross-validation hyperparameter imbalanced license multiclass outlier"
NOT_PROSE = re.compile(r"^```.*?^```$|^\$\$.*?\$\$$|<!--.*?-->", re.M | re.S)
INLINE = re.compile(r"(`+)[^`]+\1|\$[^$\n]+\$")
LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)")
# a line that belongs to no paragraph before it
STARTS = re.compile(r"\s*([-*|#]|\d+\. |$)|\s{4,}\S.*\S\s{2,}\S")


class Finding(NamedTuple):
    path: Path
    line: int
    found: str
    better: str

    def __str__(self) -> str:
        return f"{name_of(self.path)}:{self.line}: found '{self.found}', better: {self.better}"


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def prose(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Line number and lines of each paragraph, list item or table row of a page, or of each text of a module."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".py":
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
                yield from paragraphs(node.value, node.lineno)
        for block in re.finditer(r"^# %%\n((?:#.*\n)+)", text, re.M):  # a paragraph of a page of the gallery
            yield from paragraphs(re.sub("(?m)^# ?", "", block[1]), text.count("\n", 0, block.start(1)) + 1)
    else:
        blank = NOT_PROSE.sub(lambda block: "\n" * block[0].count("\n"), text)
        yield from paragraphs(blank, 1)


def paragraphs(text: str, first: int) -> Iterator[tuple[int, list[str]]]:
    start, lines = first, []
    text = LINK.sub(lambda link: link[1], INLINE.sub(lambda code: "…" + "\n" * code[0].count("\n"), text))
    for number, line in enumerate(text.split("\n"), first):
        if STARTS.match(line) and lines:
            yield start, lines
            lines = []
        if line.strip():
            start = start if lines else number
            lines.append(line.strip())
    if lines:
        yield start, lines


def findings(path: Path) -> Iterator[Finding]:
    for first, lines in prose(path):
        text, ends = " ".join(lines), list(accumulate(len(line) + 1 for line in lines))
        for pattern, better in AVOID:
            for match in pattern.finditer(text):
                yield Finding(path, first + bisect_right(ends, match.end() - 1), match[0].strip()[-60:], better)


def syllables(word: str) -> int:
    """Groups of vowels without a silent e: within 4 % of a hyphenation dictionary's over a page."""
    bare = re.sub(r"(?<=[^aeiouyl])e$|(?<=[^aeiouytd])ed$|(?<=[^aeiouyszxc])es$", "", word.lower())
    return max(1, len(re.findall(r"[aeiouy]+", bare)))


def reading_ease(path: Path) -> float:
    """Flesch 1948: 206.8 - 1.015 words a sentence - 84.6 syllables a word, of paragraphs and lists without code."""
    texts = [" ".join(lines) for _, lines in prose(path) if not re.match(r"[|#]", lines[0])]
    words = [word for text in texts for word in re.findall(r"[A-Za-z']+", text)]
    sentences = sum(len(re.findall(r"[.!?](?= |$)", text)) or 1 for text in texts)
    return 206.835 - 1.015 * len(words) / sentences - 84.6 * sum(map(syllables, words)) / len(words)


def test_wording_is_plain():
    """Of each file with more findings than are known, all."""
    excess = []
    for path in PAGES + SOURCES:
        found, known = list(findings(path)), KNOWN["findings"].get(name_of(path), 0)
        if len(found) > known:
            excess += [f"{name_of(path)}: {len(found)} findings, {known} known:", *map(str, found)]
    assert not excess, "\n".join(excess)


def test_guides_are_easy_to_read():
    ease = {name_of(path): reading_ease(path) for path in GUIDE}
    assert {name: value for name, value in ease.items() if value < KNOWN["reading_ease"].get(name, EASE)} == {}


def test_what_people_search_for_is_on_the_site():
    site = [page.read_text(encoding="utf-8").lower() for page in DOCS.rglob("*.md")]
    assert [word for word in SEARCHED.split() if not any(word in page for page in site)] == []


def test_a_finding_names_file_line_and_what_is_better(tmp_path, monkeypatch):
    monkeypatch.setitem(globals(), "ROOT", tmp_path)
    page = tmp_path / "page.md"
    page.write_text("# Title\n\n```sh\ntold\n```\nA `told` word.\nIt is\ntold here.\n", encoding="utf-8")
    [finding] = findings(page)
    assert str(finding).startswith("page.md:8: found 'told', better: print, report")


def test_texts_of_modules_are_scanned(tmp_path):
    module = tmp_path / "module.py"
    module.write_text('told = 1  # told\n\n\ndef f():\n    """Adds.\n\n    As told.\n    """\n', encoding="utf-8")
    assert [(finding.line, finding.found) for finding in findings(module)] == [(7, "told")]


def test_reading_ease_is_that_of_flesch(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(
        "The regularisation of multidimensional optimisation is computationally expensive.\n",
        encoding="utf-8",
    )
    assert reading_ease(page) < 0
    page.write_text("The cat sat on the mat. The dog ran to the house.\n", encoding="utf-8")
    assert reading_ease(page) == pytest.approx(206.835 - 1.015 * 6 - 84.6, abs=0.01)  # a syllable a word


def main(asked: list[str]) -> None:
    found = {path: list(findings(path)) for path in PAGES + SOURCES}
    if asked == ["--counts"]:
        lines = [f'"{name_of(path)}" = {len(of)}' for path, of in found.items() if of]
        ease = {name_of(path): int(reading_ease(path)) for path in GUIDE}
        lines += [
            "",
            "[reading_ease]",
            *(f'"{name}" = {value}' for name, value in ease.items() if value < EASE),
        ]
        sys.stdout.write("\n".join(["[findings]", *lines, ""]))
    else:
        sys.stdout.writelines(f"{finding}\n" for of in found.values() for finding in of)


if __name__ == "__main__":
    main(sys.argv[1:])
