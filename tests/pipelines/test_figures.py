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

ROOT = Path(__file__).resolve().parents[2]
FIGURES = ROOT / "docs" / "figures"
FILES = sorted(FIGURES.glob("*.json"))
PAGE = (ROOT / "docs" / "measured.md").read_text(encoding="utf-8")
NUMBER = re.compile(r"(?<![\w.])\d[\d,]*(?:\.\d+)?")
MEASURED = re.compile(r"\d (?:s|ms|%|MiB|MB/s|CPU seconds)(?!\w)")
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
        "machine": {"cpu": "X", "cores": 2},
    }
    return tables.Measured(**about | facts, tables=[tables.Table("one", rows)])


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_files_say_what_was_measured_by_which_command_where_and_when(path):
    runs = tables.read(path)
    assert runs
    for run in runs:
        assert run.command.startswith(("python pipelines/", "by hand: "))
        assert (ROOT / run.command.split()[1]).is_file() or run.command.startswith("by hand: ")
        assert re.fullmatch(r"\d{4}-\d\d-\d\d", run.date)
        assert {"cpu", "cores"} <= set(run.machine)
        assert "/" not in run.command.replace("pipelines/", "") or run.command.startswith("by hand: ")
        assert (
            run.entered
            or {"memory", "load"} <= set(run.machine)
            and {"python", "streamsvm"} <= set(run.versions)
        )
        assert all(table.rows or table.text for table in run.tables)
        assert run.entered or not any(table.text for table in run.tables)
        for table in run.tables:
            assert all(row.keys() == table.rows[0].keys() for row in table.rows) or not run.entered


def test_the_page_is_what_the_files_say():
    assert PAGE == figures.refreshed(PAGE), "run python pipelines/figures.py"
    assert sorted(figures.names(PAGE)) == [path.stem for path in FILES]


def test_no_figure_of_the_page_is_typed():
    assert MEASURED.findall(figures.BLOCK.sub("", PAGE)) == []


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
    middle, low, high = (float(word) for word in NUMBER.findall(tables.text(Spread.of(values))))
    assert low <= middle <= high
    for shown, value in ((low, min(values)), (high, max(values))):
        assert shown == pytest.approx(value, rel=0.06, abs=0.006)


def test_what_is_missing_is_empty():
    assert tables.text(None) == ""
    assert figures.in_one([tables.Table("a", [{"x": 1}]), tables.Table("b", [{"y": 2}])], "of").rows == [
        {"of": "a", "x": 1, "y": None},
        {"of": "b", "x": None, "y": 2},
    ]


@pytest.mark.parametrize(
    "text", ["{", "[{}]", '[{"command": "c", "tables": []}]', '[{"tables": [{"line": 1}]}]']
)
def test_other_files_are_named(text, tmp_path):
    (tmp_path / "one.json").write_text(text, encoding="utf-8")
    with pytest.raises(tables.Malformed, match=r"one.json: not a file of figures .*; run its recipe again"):
        tables.read(tmp_path / "one.json")


def test_a_block_without_a_file_is_named(tmp_path):
    with pytest.raises(tables.Malformed, match=r"gone.json: no such file; a recipe writes it"):
        figures.refreshed("<!-- figures: gone -->\n<!-- end of figures -->\n", tmp_path)


def test_a_run_has_a_caption_where_it_was_not_entered(tmp_path):
    about = {"machine": {"cpu": "X", "cores": 2, "memory": "1 GiB", "load": "0.1"}, "commit": "abc"}
    measured = a_run([{"n": 1}], versions={"python": "3", "streamsvm": "1"}, **about)
    tables.write(tmp_path / "one.json", [measured])
    assert (
        figures.block(tmp_path / "one.json")
        .splitlines()[-1]
        .startswith("By `python pipelines/covtype.py`: 2026-11-25")
    )
    tables.write(tmp_path / "one.json", [replace(measured, entered=True)])
    assert figures.block(tmp_path / "one.json").splitlines()[-1] == "| 1 |"


def test_the_commands_of_files_are_those_of_this_machine():
    typed = "python pipelines/tune_table.py --data DIR --peer-python PYTHON --only 'a b'"
    script, *options = rerun.words(typed, Path("here"))[1:]
    assert Path(script).is_file()
    assert options == ["--data", "here", "--peer-python", sys.executable, "--only", "a b"]


@pytest.mark.parametrize(
    ("program", "said", "value"),
    [
        ("import json, sys; open(sys.argv[2], 'w').write(json.dumps(NEW))", r"\d.* s", 2),
        (
            "import sys; open(sys.argv[2], 'w').write('['); sys.exit(3)",
            "failed with exit status 3; .* old ones",
            1,
        ),
        ("import time; time.sleep(60)", "stopped after .* old ones", 1),
    ],
)
def test_figures_are_replaced_when_their_command_has_ended_well(program, said, value, tmp_path, monkeypatch):
    path = tmp_path / "one.json"
    tables.write(path, [a_run([{"n": 2}])])
    new = json.loads(path.read_text(encoding="utf-8"))
    tables.write(path, [a_run([{"n": 1}], entered=True)])
    words = [sys.executable, "-c", program.replace("NEW", repr(new))]
    monkeypatch.setattr(rerun, "words", lambda typed, data: words)
    assert re.fullmatch(said, rerun.rerun(path, tmp_path, 0.3 if "sleep" in program else 20))
    [found] = tables.read(path)
    assert found.tables[0].rows == [{"n": value}]
    assert found.entered == (value == 1)
    assert [*tmp_path.iterdir()] == [path]


def test_the_figures_of_the_readme_are_those_of_the_files():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    table = re.search(r"^\| task \| streamsvm \|.*\n\|.*\n((?:\|.*\n)+)", readme, re.M)
    for line in table[1].splitlines():
        _, ours, accuracy, _, typed = (cell.strip() for cell in line.strip("|").split("|"))
        texts = [figures.block(path) for path in FILES if made(path, typed.strip("`"))]
        shown = [float(n.replace(",", "")) for text in texts for n in NUMBER.findall(text)]
        assert shown, f"no file of figures was made by {typed}"
        for number in NUMBER.findall(f"{ours} {accuracy}"):
            digits, value = len(number.partition(".")[2]), float(number.replace(",", ""))
            assert any(value == round(n, digits) for n in shown), (
                f"{number} is none of the figures of {typed}"
            )


def made(path, typed):
    """Whether this command, or the same with more items, made the file."""
    own = tables.read(path)[-1].command
    (start, _, items), (own_start, _, own_items) = (words.partition(" --only ") for words in (typed, own))
    return start == own_start and set(items.split(",")) <= set((own_items or items).split(","))
