"""What README and docs say to type works, page by page; the site builds without a warning."""

from __future__ import annotations

import io
import os
import re
import shlex
import shutil
import subprocess
import sys
from contextlib import redirect_stdout
from itertools import groupby, pairwise
from pathlib import Path
from xml.etree import ElementTree

import browser
import commands
import pytest
from commands import stdin_of

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
README = ROOT / "README.md"
TUTORIAL = DOCS / "tutorial.md"
BLOCK = re.compile(r"^(?:<!-- (?P<mark>[^\n]*?) -->\n)?```(?P<language>\S+)\n(?P<text>.*?)^```$", re.M | re.S)
MARK = re.compile(r"not run: \w.*|file: \S+|tests")
RUN = ("sh", "python")
SHOWN = ("text", "toml", "yaml", "json", "{toctree}", "{eval-rst}")
VARIES = re.compile(r"^(seconds|peak memory|threads|stored|model|gap) .*", re.M)  # from machine to machine
NUMBER = re.compile(r"(?<![\w.])-?\d(?:[\d,]*\d)?(?:\.\d+)?(?:e[-+]?\d+)?(?![\w.])")
UNIT = re.compile(r"\b[KMG]iB\b")  # of memory
BRIEF = re.compile(r"compile [\d.]+ s, |, fit [\d.]+ s")  # stages that may be too short to be told
OF_DATA = re.compile(r"^(kernel|metric|prediction|scale) .*")
FED = re.compile(r" < (\S+)$", re.M)
WARNED = re.compile(r":\d+: \w*Warning: .*")  # as Python shows one
FUNCTIONS = f'python() {{ "{sys.executable}" "$@"; }}\nstreamsvm() {{ python -m streamsvm "$@"; }}'


def blocks(page):
    return list(BLOCK.finditer(page.read_text(encoding="utf-8")))


def is_run(block):
    return block["mark"] is None and block["language"] in RUN


def name_of(page):
    return str(page.relative_to(ROOT))


PAGES = sorted([README, ROOT / "CONTRIBUTING.md", *DOCS.rglob("*.md")])
OTHERS = [page for page in sorted(DOCS.rglob("*.md")) if page != TUTORIAL and any(map(is_run, blocks(page)))]


def execute(*command):
    """What it prints."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def is_plain(line):
    """A `streamsvm` command that reads from stdin, if at all, a file, and whose answer goes into none."""
    return line.startswith("streamsvm ") and "<" not in FED.sub("", line) and " > " not in line


def here(line):
    """Runs a plain command in this process."""
    command, source = FED.sub("", line), FED.search(line)
    with open(source[1] if source else os.devnull, "rb") as file, stdin_of(file):
        assert commands.run(*shlex.split(command, comments=True)[1:]) == 0, line


def shell(text):
    """Runs the lines of a block: plain `streamsvm` here and now, all else by bash. Prints what they print."""
    for is_ours, lines in groupby(text.splitlines(keepends=True), is_plain):
        for line in lines if is_ours else ():
            here(line)
        if not is_ours:
            said = execute("bash", "-euo", "pipefail", "-c", f"{FUNCTIONS}\n{''.join(lines)}")
            sys.stdout.write(said)


def follow(page):
    """Does what the page says, in the folder at hand; what it shows below a block is the end of what that prints."""
    shown = outputs(page)
    for block in blocks(page):
        if (block["mark"] or "").startswith("file: "):
            Path(block["mark"].removeprefix("file: ")).write_text(block["text"], encoding="utf-8")
        elif is_run(block):
            with redirect_stdout(io.StringIO()) as printed:
                run(block, name_of(page))
            if block.start() in shown:
                require_alike(shown[block.start()], printed.getvalue())


def run(block, name):
    if block["language"] == "sh":
        shell(block["text"])
    else:
        with commands.memory_of_a_new_process():
            exec(compile(block["text"], name, "exec"), {"__name__": "__main__"})


def outputs(page):
    """The text that a page shows right below a block that is run, by where that block begins."""
    text = page.read_text(encoding="utf-8")
    return {
        block.start(): after["text"]
        for block, after in pairwise(blocks(page))
        if is_run(block) and after["language"] == "text" and not text[block.end() : after.start()].strip()
    }


def require_alike(shown, printed):
    """The shown lines are the last ones printed, but for spaces, what VARIES, and numbers that are nearly the same."""
    wanted, found = plain_lines(shown), plain_lines(printed)
    found = found[-len(wanted) :]
    assert [NUMBER.sub("#", line) for line in wanted] == [NUMBER.sub("#", line) for line in found]
    for one, other in zip(wanted, found, strict=True):
        values = [[float(n.replace(",", "")) for n in NUMBER.findall(line)] for line in (one, other)]
        assert values[0] == pytest.approx(values[1], rel=0.05, abs=0.01), (one, other)


def plain_lines(text):
    lines = (" ".join(line.split()) for line in VARIES.sub(r"\1 ..", text).splitlines())
    return [line for line in lines if line.strip("─ ")]


@pytest.mark.parametrize(
    ("shown", "printed", "is_so"),
    [
        ("rows   16,000\nseconds  1.2 s", "Labels\nrows 15,990\n\nseconds 9 s\n", True),
        ("rows (n)   16,000", "rows   16,000", False),
        ("accuracy   0.9035", "accuracy   0.9037", True),
        ("rows   16,000", "rows   26,000", False),
    ],
)
def test_what_is_shown_is_compared(shown, printed, is_so):
    if is_so:
        require_alike(shown, printed)
    else:
        with pytest.raises(AssertionError):
            require_alike(shown, printed)


def test_nothing_is_installed_by_a_name_that_no_index_has():
    texts = {path: path.read_text(encoding="utf-8") for path in [*PAGES, *(ROOT / "streamsvm").rglob("*.py")]}
    assert not [path for path, text in texts.items() if "install 'streamsvm" in text]


@pytest.fixture(scope="module")
def ended(tmp_path_factory):
    """The folder that the tutorial leaves."""
    folder = tmp_path_factory.mktemp("tutorial")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        follow(TUTORIAL)
    return folder


def test_the_first_lines_of_the_readme_go_from_a_csv_to_answers_and_a_page(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    first = next(block["text"] for block in blocks(README) if "fit sales.csv" in block["text"])
    shell(next(block["text"] for block in blocks(README) if "> sales.csv" in block["text"]))
    rows = Path("sales.csv").read_text(encoding="utf-8").splitlines()[:400]
    Path("sales.csv").write_text("\n".join([*rows, ""]), encoding="utf-8")
    Path("new.csv").write_text("\n".join([row.rpartition(",")[0] for row in rows[:21]]), encoding="utf-8")
    installs, *commands = first.splitlines(keepends=True)
    assert installs.startswith("pip install ")
    with redirect_stdout(io.StringIO()) as printed:
        shell("".join(commands))
    assert skeleton(recorded()) == skeleton(printed.getvalue().partition("Report\n")[0])
    head, *answers = Path("answers.csv").read_text(encoding="utf-8").splitlines()
    assert head == "hour,amount,label"
    assert {answer.rpartition(",")[2] for answer in answers} == {"yes", "no"}
    assert len(answers) == 20
    assert "<svg" in Path("report.html").read_text(encoding="utf-8")


def recorded():
    """What the commands of the recording print on stdout, which is what its last picture shows."""
    root = ElementTree.parse(DOCS / "pictures" / "session.svg").getroot()
    lines = ["  ".join(words.itertext()) for words in root.findall("{*}g") if "visibility" not in words.attrib]
    shown = "\n".join(lines).partition("$  cat answers.csv")[0]
    return re.sub(r"\$.*\n|.* read into the store .*\n", "", shown).replace("\n--force", " --force")


def skeleton(text):
    """Names, and values without their numbers, where these are not the data's. A score that the chosen one is compared
    with is printed only where it differs."""
    lines = (" ".join(line.split()) for line in BRIEF.sub("", text).splitlines())
    lines = (line for line in lines if line and not line.startswith("search, with"))
    return [OF_DATA.sub(r"\1", UNIT.sub("iB", NUMBER.sub("#", line))) for line in lines]


@pytest.mark.slow  # every command in a process of its own
@pytest.mark.timeout(900)
def test_the_readme_can_be_followed_in_an_empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    follow(README)
    assert Path("labels.csv").read_text(encoding="utf-8").startswith("label\n")
    assert Path("exact.html").exists()


@pytest.mark.timeout(900)
@pytest.mark.slow  # a page of commands
def test_the_tutorial_can_be_followed(ended):
    assert (ended / "new-labels.csv").read_text().startswith("label,decision\nyes,")


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("page", OTHERS, ids=name_of)
def test_a_page_goes_on_where_the_tutorial_ends(page, ended, tmp_path, monkeypatch):
    shutil.copytree(ended, tmp_path / "here")
    monkeypatch.chdir(tmp_path / "here")
    follow(page)


def test_blocks_are_run_or_say_why_not():
    unclear = [
        f"{name_of(page)}: {block['language']} {block['mark']}"
        for page in PAGES
        for block in blocks(page)
        if block["language"] not in (*RUN, *SHOWN) or not (block["mark"] is None or MARK.fullmatch(block["mark"]))
    ]
    assert not unclear, "\n".join(unclear)


@pytest.mark.parametrize("page", [README, ROOT / "CONTRIBUTING.md"], ids=name_of)
def test_links_outside_the_site_lead_somewhere(page):
    links = re.findall(r"\]\((?!https?:|#)([^)#]+)", page.read_text(encoding="utf-8"))
    assert links
    assert not [link for link in links if not (page.parent / link).exists()]


@pytest.mark.slow  # runs the programs of the gallery
@pytest.mark.timeout(900)
def test_the_site_builds_without_a_warning(tmp_path):
    """Nor does a program of the gallery give one, which its page would show, or leave a file."""
    pytest.importorskip("sphinx_gallery", reason="needs what builds the site: streamsvm[docs]")
    before = set((DOCS / "gallery").iterdir())
    anew = ("-D", "sphinx_gallery_conf.run_stale_examples=1")
    command = (sys.executable, "-W", "always", "-m", "sphinx", "-q", "-W", *anew, DOCS, tmp_path / "site")
    execute(*map(str, command))
    index = (tmp_path / "site" / "reference" / "options.html").read_text(encoding="utf-8")
    assert "dcsvm.early_level" in index
    measured = (tmp_path / "site" / "measured" / "speed.html").read_text(encoding="utf-8")
    assert "fit --early" in measured  # two dashes, as they are typed
    assert not re.search(r"\d (?:s|%|MiB)</p></td>", measured)  # units stay with their numbers
    gallery = (tmp_path / "site" / "examples" / "index.html").read_text(encoding="utf-8")
    scripts = list((DOCS / "gallery").glob("plot_*.py"))
    assert gallery.count("_thumb.png") == len(scripts)
    pages = {script.stem: DOCS / "examples" / f"{script.stem}.rst" for script in scripts}
    warned = {name: WARNED.findall(page.read_text(encoding="utf-8")) for name, page in pages.items()}
    assert not {name: found for name, found in warned.items() if found}
    assert set((DOCS / "gallery").iterdir()) == before
    if browser.find() and browser.AXE:
        for page in ("index", "examples/index", "guide/report", "reference/api/streamsvm.DCSVC", "measured/speed"):
            browser.visit(browser.find(), tmp_path / "site" / f"{page}.html", can_be_read)


async def can_be_read(tab):
    """By people with disabilities, light and dark, on a desk and on a phone."""
    for width in (390, 1400):
        for dark in (False, True):
            await tab.look(width, dark=dark)
            assert await tab.violations() == []
            assert await tab.value("document.documentElement.scrollWidth") <= width
