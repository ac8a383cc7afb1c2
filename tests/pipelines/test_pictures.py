"""The pictures of README: figures as they are kept, and the recording of a terminal."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from svg import texts

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
FIGURES = DOCS / "figures" / "covtype.json"
CURVES = tomllib.loads((ROOT / "configs" / "covtype_picture.toml").read_text(encoding="utf-8"))["curve"]
TITLES = [curve["name"] for curve in CURVES]
ROWS = [{"setting": name, "seconds": 10.0, "accuracy": 0.9} for name in "ab"]


@pytest.fixture(autouse=True)
def recipes(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "pipelines")


def words(picture):
    return " ".join(texts(picture))


def test_every_curve_has_its_figures():
    from tables import read

    kept = {table.title: table for run in read(FIGURES) for table in run.tables}
    assert set(kept) == set(TITLES)
    for curve in CURVES:
        rows = kept[curve["name"]].rows
        assert len(rows) == len(curve["points"])
        assert all(0.5 < row["accuracy"] < 1 and row["seconds"] > 0 for row in rows)


def test_tables_are_kept_by_title(tmp_path):
    from tables import Table, keep, read, this_run

    path = tmp_path / "figures.json"
    for title, rows in (("one", ROWS), ("two", ROWS), ("two", ROWS[:1])):
        run = this_run()
        run.tables = [Table(title, rows)]
        keep(path, run)
    assert [(run.tables[0].title, run.tables[0].rows) for run in read(path)] == [
        ("one", ROWS),
        ("two", ROWS[:1]),
    ]
    assert read(path)[1].machine["cores"] >= 1


def test_a_command_is_recorded_as_its_terminal_shows_it(tmp_path):
    pytest.importorskip("pyte", reason="needs pyte: pip install pyte")
    from recording_svg import Terminal, drawn

    shown = r"printf '\033[38;5;70mgone\n'; sleep 0.7; printf '\033[1A\033[2K\033[0mkept & <it>  end\n'"
    (tmp_path / "show").write_text(shown, encoding="utf-8")
    terminal = Terminal(tmp_path)
    terminal.run("bash show")
    frames = [[(word.text, word.colour) for line in lines for word in line] for _, lines in terminal.frames]
    prompt = [("$", "green"), ("bash show", "default")]
    assert [*prompt, ("gone", "5faf00")] in frames
    assert frames[-1] == [*prompt, ("kept & <it>", "default"), ("end", "default")]
    picture = tmp_path / "session.svg"
    picture.write_text(drawn(terminal.frames), encoding="utf-8")
    assert all(text in words(picture) for text in ("gone", "kept & <it>"))
    with pytest.raises(SystemExit, match="exit status 3 of: exit 3"):
        terminal.run("exit 3")


def test_the_recording_is_of_the_commands_in_readme():
    pytest.importorskip("pyte", reason="needs pyte: pip install pyte")
    from recording_svg import commands

    picture = DOCS / "pictures" / "session.svg"
    shown = words(picture)
    assert all(command in shown for command in commands())
    assert picture.stat().st_size < 60_000
