"""What README and docs say to type works, page by page; the site builds without a warning."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from itertools import groupby
from pathlib import Path

import pytest

from streamsvm.cli.app import app, exit_status

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
TUTORIAL = DOCS / "tutorial.md"
BLOCK = re.compile(r"^(?:<!-- (?P<mark>.*?) -->\n)?```(?P<language>\S+)\n(?P<text>.*?)^```$", re.M | re.S)
MARK = re.compile(r"not run: \w.*|file: \S+|tests")
RUN = ("sh", "python")
SHOWN = ("text", "toml", "yaml", "json", "{toctree}", "{eval-rst}")
FUNCTIONS = f'python() {{ "{sys.executable}" "$@"; }}\nstreamsvm() {{ python -m streamsvm "$@"; }}'


def blocks(page):
    return list(BLOCK.finditer(page.read_text(encoding="utf-8")))


def is_run(block):
    return block["mark"] is None and block["language"] in RUN


def name_of(page):
    return str(page.relative_to(ROOT))


PAGES = sorted([ROOT / "README.md", *DOCS.rglob("*.md")])
OTHERS = [page for page in PAGES[1:] if page != TUTORIAL and any(map(is_run, blocks(page)))]


def execute(*command):
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def is_plain(line):
    """A `streamsvm` command that no pipe or file feeds."""
    return line.startswith("streamsvm ") and "<" not in line


def shell(text):
    """Runs the lines of a block: plain `streamsvm` here and now, all else by bash."""
    for is_ours, lines in groupby(text.splitlines(keepends=True), is_plain):
        for line in lines if is_ours else ():
            words = shlex.split(line)[1:]
            assert exit_status(lambda words=words: app(words, standalone_mode=False)) == 0, line
        if not is_ours:
            execute("bash", "-euo", "pipefail", "-c", f"{FUNCTIONS}\n{''.join(lines)}")


def follow(page):
    """Does what the page says, in the folder at hand."""
    for block in blocks(page):
        if (block["mark"] or "").startswith("file: "):
            Path(block["mark"].removeprefix("file: ")).write_text(block["text"], encoding="utf-8")
        elif is_run(block) and block["language"] == "sh":
            shell(block["text"])
        elif is_run(block):
            exec(compile(block["text"], name_of(page), "exec"), {"__name__": "__main__"})


@pytest.fixture(scope="module")
def ended(tmp_path_factory):
    """The folder that the tutorial leaves."""
    folder = tmp_path_factory.mktemp("tutorial")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        follow(TUTORIAL)
    return folder


@pytest.mark.timeout(900)
def test_the_readme_can_be_followed_in_an_empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    follow(ROOT / "README.md")
    assert Path("labels.csv").read_text(encoding="utf-8").startswith("label\n")
    assert Path("report.html").exists()


@pytest.mark.timeout(900)
def test_the_tutorial_can_be_followed(ended):
    assert (ended / "new-labels.csv").read_text().startswith("label,decision\nyes,")


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("page", OTHERS, ids=name_of)
def test_a_page_goes_on_where_the_tutorial_ends(page, ended, tmp_path, monkeypatch):
    shutil.copytree(ended, tmp_path / "here")
    monkeypatch.chdir(tmp_path / "here")
    follow(page)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_blocks_are_run_or_say_why_not(page):
    for block in blocks(page):
        assert block["language"] in (*RUN, *SHOWN)
        assert block["mark"] is None or MARK.fullmatch(block["mark"]), block["mark"]


def test_links_of_the_readme_lead_somewhere():
    links = re.findall(r"\]\((?!https?:)([^)#]+)", (ROOT / "README.md").read_text(encoding="utf-8"))
    assert links
    assert not [link for link in links if not (ROOT / link).exists()]


@pytest.mark.slow
def test_the_site_builds_without_a_warning(tmp_path):
    execute(sys.executable, "-m", "sphinx", "-q", "-W", str(DOCS), str(tmp_path / "site"))
    index = (tmp_path / "site" / "reference" / "options.html").read_text(encoding="utf-8")
    assert "dcsvm.early_level" in index
