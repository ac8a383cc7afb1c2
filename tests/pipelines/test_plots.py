"""The plots of the documentation: what is drawn of the figures, and that no page shows an old one."""

from __future__ import annotations

from pathlib import Path

import pytest
from svg import texts

ROOT = Path(__file__).resolve().parents[2]
with pytest.MonkeyPatch.context() as patch:
    patch.syspath_prepend(str(ROOT / "pipelines"))
    import figures
    import plots
    import tables
    from measure import Spread

PLOTS = plots.plots()
ROWS = [
    {
        "who": "a",
        "rows": 10,
        "seconds": Spread.of([3.0, 1.0, 2.0]),
        "share": tables.Share(0.5),
        "p = 2": 1.0,
        "p = 5": None,
    },
    {
        "who": "b",
        "rows": 20,
        "seconds": Spread.of([4.0]),
        "share": None,
        "p = 2": 2.0,
        "p = 5": tables.Bytes(2**20),
    },
]


@pytest.fixture
def kept(tmp_path, monkeypatch):
    """A folder of figures with one file, in place of the project's."""
    monkeypatch.setattr(plots, "FIGURES", tmp_path)
    about = {"command": "python pipelines/x.py", "date": "2026-11-26", "machine": {"cpu": "X", "cores": 2}}
    tables.write(tmp_path / "one.json", [tables.Measured(**about, tables=[tables.Table("first", ROWS)])])
    return tmp_path


def words(picture):
    return {found.strip() for found in texts(picture)}


@pytest.mark.parametrize("name", PLOTS)
def test_a_plot_shows_what_its_figures_say_and_names_all(name):
    picture = plots.PICTURES / f"{name}.svg"
    assert plots.is_current(PLOTS[name], picture), "run python pipelines/plots.py"
    drawn = words(picture)
    assert {PLOTS[name]["title"], *(series["label"] for series in PLOTS[name]["series"])} <= drawn
    labels = [PLOTS[name][side]["label"] for side in "xy" if "label" in PLOTS[name][side]]
    assert labels
    assert set(labels) <= drawn
    assert "fill: #ffffff" not in picture.read_text(encoding="utf-8")


def test_a_page_has_the_plot():
    pages = [page.read_text(encoding="utf-8") for page in figures.PAGES]
    assert [name for name in PLOTS if not any(f"pictures/{name}.svg)" in page for page in pages)] == []


def test_all_pictures_are_of_a_plot_or_a_recording():
    assert {path.stem for path in plots.PICTURES.glob("*.svg")} == PLOTS.keys() | {"session"}


def test_cells_become_points(kept):
    of = {"figures": "one", "table": "first"}
    assert plots.points(of | {"x": "rows", "y": "seconds"}) == [(10, 2.0), (20, 4.0)]
    assert plots.points(of | {"x": "rows", "y": "share"}) == [(10, 50.0)]
    assert plots.points(of | {"x": "seconds", "y": "who", "where": {"rows": 20}}) == [(4.0, "b")]
    assert plots.points(of | {"over": "p = "}) == [(2, 1.0), (2, 2.0), (5, 1.0)]


@pytest.mark.parametrize("wrong", [{"table": "second"}, {"where": {"who": "c"}}, {"x": "row"}, {"over": "q"}])
def test_nothing_to_draw_is_one_line(kept, wrong):
    with pytest.raises(tables.Malformed, match=r"one.json: nothing to draw of 'that', as"):
        plots.points({"figures": "one", "x": "rows", "y": "seconds", "label": "that"} | wrong)


def test_a_plot_is_drawn_the_same_each_time_and_again_when_its_figures_change(kept, monkeypatch):
    series = {"figures": "one", "x": "rows", "y": "seconds", "label": "that"}
    plot = {"title": "Time", "x": {"label": "rows"}, "y": {"label": "seconds"}, "series": [series]}
    monkeypatch.setattr(plots, "PICTURES", kept)
    monkeypatch.setattr(plots, "plots", lambda: {"time": plot})
    plots.redraw()
    drawn = kept / "time.svg"
    first, changed = drawn.read_bytes(), drawn.stat().st_mtime_ns
    plots.redraw()
    assert drawn.stat().st_mtime_ns == changed  # it was current
    plots.redraw(["time"])
    assert drawn.read_bytes() == first
    [run] = tables.read(kept / "one.json")
    run.tables[0].rows[0]["rows"] = 11
    tables.write(kept / "one.json", [run])
    assert not plots.is_current(plot, drawn)
    plots.redraw()
    assert plots.is_current(plot, drawn)


def test_accuracy_by_its_errors(kept, tmp_path):
    series = {"figures": "one", "x": "rows", "y": "share", "label": "that", "at": [8, 0]}
    axis = {"label": "accuracy, %", "scale": "error", "limits": [10, 99], "ticks": [50, 90, 99]}
    plots.draw({"title": "Errors", "x": {"label": "rows"}, "y": axis, "series": [series]}, tmp_path / "e.svg")
    assert {"50", "90", "99", "that"} <= words(tmp_path / "e.svg")


def test_unknown_plots_are_one_line():
    with pytest.raises(SystemExit, match=r"plots.py: no plot covtyp; there are covtype, "):
        plots.main(["covtyp"])
