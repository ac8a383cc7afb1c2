"""Files of figures: their schema, what pages make of them, and runs that replace them."""

from __future__ import annotations

import json
import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import beta

from streamsvm.estimators import clients
from streamsvm.explain import shapley
from streamsvm.fits import admm_hss
from streamsvm.options import search
from streamsvm.parallel import contact, machine
from streamsvm.runs import records
from streamsvm.serving import app
from streamsvm.storage import locks
from streamsvm.tasks import uncertainty

ROOT = Path(__file__).resolve().parents[2]
FIGURES = ROOT / "docs" / "figures"
FILES = sorted(FIGURES.glob("*.json"))
MEASURED_PAGES = sorted((ROOT / "docs" / "measured").glob("*.md"))
NUMBER = re.compile(r"(?<![\w.])\d[\d,]*(?:\.\d+)?")
MEASURED = re.compile(r"\d (?:s|ms|%|MiB|MB/s|CPU seconds)(?!\w)")
UNITS = r"%|per cent|[mµn]?s|min|h|hours?|minutes?|seconds?|points|times"  # of time, shares and ratios
TYPED = re.compile(rf"(?<![\w.$^{{-])\d[\d,]*(?:\.\d+)?\s*(?:{UNITS})(?![\w-])")
SHOWN = re.compile(r"^```.*?^```|`[^`]*`|<!-- figure: .*?<!-- end -->", re.M | re.S)  # output, code, marked figures
CITED = re.compile(r"\bpapers?\b|\bpublished\b|\b(?:19|20)\d\d\b", re.I)
END_OF_SENTENCE = re.compile(r"(?<=[.;])\s+|\s*\|\s*|\n\n")
SETTINGS = {  # numbers of pages that the program sets, and no run measures
    "at least 5 s": search.LEAST_BUDGET_S,
    "gets no data after 30 s": contact.MOVE_S,
    "waits up to 20 s": contact.CONNECT_S,
    "more than 30 % of a worker's memory": 100 * clients.MAX_SHARE,
    "after 30 s without a write": locks.STALE_S,
    "uploaded every 5 s": records.EVERY_S,
    "below 1 % of the largest value": 100 * shapley.PRECISE,
    "80 % of the free memory": 100 * machine.FREE_SHARE,
    "80 % of free memory": 100 * machine.FREE_SHARE,
    "a 95 % interval": 100 * uncertainty.LEVEL,
    "between 88.1 and 91.8 %": 100 * beta.ppf(0.975, 901, 100),
    "was not complete within 30 s": app.BODY_S,
    "above 5 % of the objective": 100 * admm_hss.CONVERGED,
}
with pytest.MonkeyPatch.context() as patch:
    patch.syspath_prepend(str(ROOT / "pipelines"))
    import figures
    import rerun
    import tables
    from measure import Spread

AMOUNTS = st.floats(0, 1e6)
CELLS = st.one_of(
    st.none(),
    st.text("ab µ|\\", max_size=5),
    st.integers(0, 10**9),
    AMOUNTS,
    AMOUNTS.map(tables.Seconds),
    AMOUNTS.map(tables.Factor),
    st.floats(0, 1).map(tables.Share),
    st.integers(0, 2**40).map(tables.Bytes),
    st.lists(AMOUNTS, min_size=1, max_size=4).map(Spread.of),
)
COLUMNS = ("what", "s", "value")
ROWS = st.lists(
    st.tuples(CELLS, CELLS, CELLS).map(lambda cells: dict(zip(COLUMNS, cells, strict=True))),
    min_size=1,
    max_size=3,
)


def a_run(rows, **facts):
    about = {
        "command": "python pipelines/covtype.py",
        "date": "2026-11-25",
        "machine": {"cpu": "X", "cores": 2, "memory": "1 GiB", "load": "0.1"},
        "versions": {"python": "3", "streamsvm": "1"},
    }
    return tables.Measured(**about | facts, tables=[tables.Table("one", rows)])


def is_repeatable(command):
    """A recipe of the project that names no path of a machine, or said to be by hand."""
    words = command.split()
    is_recipe = words[0] == "python" and words[1].startswith("pipelines/") and (ROOT / words[1]).is_file()
    return command.startswith("by hand: ") or (is_recipe and "/" not in command.replace("pipelines/", ""))


def test_files_say_what_was_measured_by_which_command_where_and_when():
    unclear = []
    for path in FILES:
        runs = tables.read(path)
        if not runs:
            unclear.append(f"{path.stem}: no runs")
        for run in runs:
            checks = {
                f"command {run.command}": is_repeatable(run.command),
                f"date {run.date}": re.fullmatch(r"\d{4}-\d\d-\d\d", run.date),
                "machine": {"cpu", "cores", "memory", "load"} <= set(run.machine),
                "versions": {"python", "streamsvm"} <= set(run.versions),
                "empty table": all(table.rows for table in run.tables),
            }
            unclear += [f"{path.stem}: {name}" for name, is_said in checks.items() if not is_said]
    assert not unclear, "\n".join(unclear)


def test_the_pages_are_what_the_files_say():
    pages = {path: path.read_text(encoding="utf-8") for path in figures.PAGES}
    for path, page in pages.items():
        assert page == figures.refreshed(page, link=figures.link_from(path)), f"{path}: run python pipelines/figures.py"
    assert sorted({name for page in pages.values() for name in figures.names(page)}) == sorted(p.stem for p in FILES)


def test_every_recipe_has_seconds_by_which_the_cheapest_come_first():
    seconds = [run.seconds for run in rerun.in_order().values()]
    assert None not in seconds
    assert seconds == sorted(seconds)


def test_no_figure_of_a_measured_page_is_typed():
    pages = {page.name: page.read_text(encoding="utf-8") for page in MEASURED_PAGES}
    texts = {name: SHOWN.sub("", figures.BLOCK.sub("", page)) for name, page in pages.items()}
    assert {name: MEASURED.findall(text) for name, text in texts.items()} == dict.fromkeys(texts, [])
    assert len(texts) > 10


def typed(page):
    """The sentences and cells of a page with a time, a share or a ratio that is no marked figure and cites no paper."""
    text = SHOWN.sub("", figures.BLOCK.sub("", page))
    for setting in SETTINGS:
        text = re.sub(r"\s+".join(map(re.escape, setting.split())), "", text)
    return [s.strip() for s in END_OF_SENTENCE.split(text) if TYPED.search(s) and not CITED.search(s)]


def test_times_shares_and_ratios_in_prose_come_from_a_run_a_setting_or_a_paper():
    pages = {path: typed(path.read_text(encoding="utf-8")) for path in (*figures.PAGES, ROOT / "CONTRIBUTING.md")}
    assert {path.name: found for path, found in pages.items() if found} == {}


def test_a_typed_figure_is_found_and_a_marked_cited_or_shown_one_is_not():
    page = "It took 3 s. The paper says 4 s. `5 s` <!-- figure: a/b -->6 s<!-- end -->\n```text\n7 %\n```\nor 1.4 times"
    assert typed(page) == ["It took 3 s.", "or 1.4 times"]


def test_settings_in_prose_are_those_of_the_program():
    assert {phrase: NUMBER.findall(phrase)[-1] for phrase in SETTINGS} == {p: f"{v:.3g}" for p, v in SETTINGS.items()}
    text = " ".join(" ".join(path.read_text(encoding="utf-8") for path in figures.PAGES).split())
    assert [phrase for phrase in SETTINGS if phrase not in text] == []


@given(ROWS)
def test_rows_are_read_as_they_were_written(tmp_path_factory, rows):
    path = tmp_path_factory.mktemp("figures") / "one.json"
    run = a_run(rows, seconds=1.5)
    tables.write(path, [run])
    [found] = tables.read(path)
    assert found == run
    assert [[type(cell) for cell in row.values()] for row in found.tables[0].rows] == [
        [type(cell) for cell in row.values()] for row in rows
    ]


@given(ROWS)
def test_a_row_is_a_line_with_a_cell_for_each_column(rows):
    head, rule, *lines = tables.Table("", rows).markdown().rstrip("\n").splitlines()
    assert head == "| what | s | value |"
    assert rule == "| --- | --- | --- |"
    assert len(lines) == len(rows)
    for line, row in zip(lines, rows, strict=True):
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        shown = [tables.text(cell).strip() for cell in row.values()]
        assert [cell.replace("\\|", "|") for cell in cells] == [cell.replace("\\|", "|") for cell in shown]


@given(st.lists(AMOUNTS, min_size=2, max_size=5))
def test_of_several_runs_the_median_and_the_range_are_shown(values):
    middle, low, high = (float(word.replace(",", "")) for word in NUMBER.findall(tables.text(Spread.of(values))))
    assert low <= middle <= high
    for shown, value in ((low, min(values)), (high, max(values))):
        assert shown == pytest.approx(value, rel=0.06, abs=0.006)


def test_what_is_missing_is_empty():
    assert tables.text(None) == ""
    one = figures.in_one([tables.Table("a", [{"x": 1}]), tables.Table("b", [{"y": 2}], [], [("fast", True)])], "of")
    assert one.rows == [{"of": "a", "x": 1, "y": None}, {"of": "b", "x": None, "y": 2}]
    assert one.checks == [("fast", True)]


@pytest.mark.parametrize("text", ["{", "[{}]", '[{"command": "c", "tables": []}]', '[{"tables": [{"line": 1}]}]'])
def test_other_files_are_named(text, tmp_path):
    (tmp_path / "one.json").write_text(text, encoding="utf-8")
    with pytest.raises(tables.Malformed, match=r"one.json: not a file of figures .*; run its recipe again"):
        tables.read(tmp_path / "one.json")


def test_a_block_without_a_file_is_named(tmp_path):
    with pytest.raises(tables.Malformed, match=r"gone.json: no such file; a recipe writes it"):
        figures.refreshed("<!-- figures: gone -->\n<!-- end of figures -->\n", tmp_path)


def test_a_block_shows_the_tables_that_it_names(tmp_path):
    run = a_run([{"n": 1}])
    tables.write(tmp_path / "one.json", [replace(run, tables=[*run.tables, tables.Table("two", [{"n": 2}])])])
    page = "<!-- figures: one only tw -->\n<!-- end of figures -->\n"
    assert "**two**" in figures.refreshed(page, tmp_path)
    assert "**one**" not in figures.refreshed(page, tmp_path)
    with pytest.raises(tables.Malformed, match=r"one.json: no table's title begins with 'three'"):
        figures.refreshed(page.replace("tw", "three"), tmp_path)


def test_single_figures_follow_their_file(tmp_path):
    seconds = {"solver": "ours (new)", "seconds": Spread.of([1.0, 2.0, 30.0])}
    run = a_run([{"solver": "other", "seconds": Spread.of([5.0])}, seconds])
    page = "<!-- figure: one/on/ours/seconds -->9 s<!-- end -->"
    tables.write(tmp_path / "one.json", [run])
    assert figures.refreshed(page, tmp_path) == page.replace("9 s", "2.00 s")
    with pytest.raises(tables.Malformed, match=r"one.json: no 'bytes' of 'ours' in a table 'on'"):
        figures.refreshed(page.replace("seconds", "bytes"), tmp_path)


def test_a_run_has_a_caption(tmp_path):
    tables.write(tmp_path / "one.json", [a_run([{"n": 1}])])
    last = figures.block(tmp_path / "one.json").splitlines()[-1]
    assert last.startswith("By `python pipelines/covtype.py`: 2026-11-25, 2 cores of X, 1 GiB, load: 0.1, Python 3")


def test_the_commands_of_files_are_those_of_this_machine():
    typed = "python pipelines/tune_table.py --data DIR --peer-python PYTHON --only 'a b'"
    script, *options = rerun.words(typed, Path("here"), "python3")[1:]
    assert Path(script).is_file()
    assert options == ["--data", "here", "--peer-python", "python3", "--only", "a b"]


WRITES = "import json, sys; open(sys.argv[2], 'w').write(json.dumps(NEW))"


@pytest.mark.parametrize(
    ("program", "outcome", "value"),
    [
        (WRITES, "measured; not met: fast", 2),
        (f"{WRITES}; sys.exit(1)", r"failed with exit status 1 \(fast\); .* old ones", 1),
        ("import sys; open(sys.argv[2], 'w').write('[')", "wrote no figures; .* old ones", 1),
        ("import sys; sys.exit(3)", "failed with exit status 3; .* old ones", 1),
        ("import time; time.sleep(60)", "stopped; .* old ones", 1),
    ],
)
def test_figures_are_replaced_when_their_command_has_ended_well(program, outcome, value, tmp_path):
    path = tmp_path / "one.json"
    new = a_run([{"n": 2}])
    new.tables[0].checks = [("fast", False), ("small", True)]
    tables.write(path, [new])
    made = json.loads(path.read_text(encoding="utf-8"))
    tables.write(path, [a_run([{"n": 1}])])
    argv = [sys.executable, "-c", program.replace("NEW", repr(made))]
    took, found = rerun.rerun(path, argv, 0.3 if "sleep" in program else 20)
    assert re.fullmatch(outcome, found)
    [run] = tables.read(path)
    assert run.tables[0].rows == [{"n": value}]
    assert (run.seconds or 0) == (took if value == 2 or found.startswith("stopped") else 0)
    assert [*tmp_path.iterdir()] == [path]


@pytest.fixture
def few(tmp_path, monkeypatch):
    """Three files of figures: quick, slow, and longer than an hour. What is run, by its file's name."""
    for name, seconds in (("slow", 50.0), ("quick", 5.0), ("long", 4000.0)):
        command = f"python pipelines/netns.py --rows {seconds:.0f}"
        tables.write(tmp_path / f"{name}.json", [a_run([], seconds=seconds, command=command)])
    tables.write(tmp_path / "typed.json", [a_run([], command="by hand: fit")])
    ran = []

    def run(path, argv, limit_s):
        ran.append(path.stem)
        assert limit_s == (
            None if path.stem == "long" and "--only" in sys.argv else 5000 if "5000" in sys.argv else 3600
        )
        return 1.0, "failed; its figures are the old ones" if path.stem == "quick" else "measured"

    monkeypatch.setattr(rerun, "FIGURES", tmp_path)
    monkeypatch.setattr(rerun, "PAGES", ())
    monkeypatch.setattr(rerun, "redraw", lambda: None)
    monkeypatch.setattr(rerun, "rerun", run)
    monkeypatch.setattr(rerun, "lacking", lambda name, run, python: None)
    return ran


def test_a_page_that_misses_its_figures_stops_nothing(few, tmp_path, monkeypatch, capsys):
    page = tmp_path / "page.md"
    page.write_text("<!-- figures: gone -->\n<!-- end of figures -->\n", encoding="utf-8")
    monkeypatch.setattr(rerun, "PAGES", (page,))
    monkeypatch.setattr(sys, "argv", ["rerun.py", "--data", ".", "--only", "slow"])
    with pytest.raises(SystemExit) as ended:
        rerun.main()
    assert (few, ended.value.code) == (["slow"], 1)
    assert "the pages show the old ones" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "order", "status"),
    [
        ([], ["quick", "slow"], 1),
        (["--skip", "quick"], ["slow"], 0),
        (["--only", "long,quick"], ["quick", "long"], 1),
        (["--limit-s", "5000"], ["quick", "slow", "long"], 1),
        (["--list"], [], None),
    ],
)
def test_recipes_run_from_the_cheapest_to_the_dearest(options, order, status, few, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["rerun.py", "--data", ".", *options])
    if status is None:
        rerun.main()
    else:
        with pytest.raises(SystemExit) as ended:
            rerun.main()
        assert ended.value.code == status
    assert few == order
    said = capsys.readouterr().out
    assert ("takes longer than 3,600 s" in said) == (options in ([], ["--skip", "quick"], ["--list"]))


@pytest.mark.parametrize(
    ("name", "command", "lacks"),
    [
        ("one", "python pipelines/covtype.py", None),
        ("one", "python pipelines/tune_table.py --peer-python PYTHON", "needs --peer-python with sklearnex"),
        ("choice_sets", "python pipelines/choice_table.py", "needs lightgbm"),
        ("netns", "python pipelines/netns.py", "needs root and network namespaces"),
    ],
)
def test_what_a_machine_lacks_is_named(name, command, lacks, monkeypatch):
    monkeypatch.setattr(rerun, "_imports", lambda python, modules: not modules)
    monkeypatch.setattr(rerun.shutil, "which", lambda program: None)
    found = rerun.lacking(name, a_run([], command=command), sys.executable)
    assert found is None if lacks is None else found.startswith(lacks)


def test_the_readme_is_its_template_without_the_marks_of_its_figures():
    template = figures.TEMPLATE.read_text(encoding="utf-8")
    readme = figures.MARKS.sub("", template)
    assert readme == figures.README.read_text(encoding="utf-8"), "edit its template, run python pipelines/figures.py"
    assert len(figures.CELL.findall(template)) > 10
    assert len(readme) < 9_000
