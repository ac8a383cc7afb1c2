"""The page: sections where there is data, whole HTML, nothing from elsewhere, texts of files as texts."""

from __future__ import annotations

import base64
import json
import re
from html.parser import HTMLParser
from xml.etree import ElementTree

import pytest
import told
from every_case import every_case

from streamsvm.cli.app import app
from streamsvm.report.html import contents, page
from streamsvm.report.plots import timeline
from streamsvm.report.read import read_run

# an old matplotlib draws it, too
pytestmark = pytest.mark.lowest

VOID = {"meta", "br", "link", "wbr"}
NASTY = "<script>alert('$x^')</script>&\"\u2028\ud800"


NASTY_METRIC = {
    "metric": {"kind": NASTY, "importances": [[NASTY, 1]], "rungs": [{"kernel": NASTY}]},
    "parts": {"columns": [NASTY], "shares": [[1]]},
}


class Checker(HTMLParser):
    """Every tag is closed by its own; ids, references, text."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.tags: set[str] = set()
        self.links: set[str] = set()
        self.text = ""

    def handle_starttag(self, tag, attrs):
        self.handle_startendtag(tag, attrs)
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.add(tag)
        for name, value in attrs:
            assert not name.startswith("on")
            if name == "id":
                self.ids.append(value)
            if name in ("href", "xlink:href"):
                self.links.add(value)
            self.links |= set(re.findall(r"url\((.*?)\)", value or ""))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


def shown(*folders):
    runs = [read_run(folder) for folder in folders]
    found = contents(runs)
    return [section.id for section, _ in found], page(runs, found)


def check(text):
    checker = Checker()
    checker.feed(text)
    checker.close()
    assert checker.open == []
    assert len(checker.ids) == len(set(checker.ids))
    links = {link for link in checker.links if not link.startswith("data:text/csv;base64,")}
    assert {link[1:] for link in links} <= set(checker.ids)
    assert all(link.startswith("#") for link in links)
    return checker


def test_a_full_page_is_whole_and_needs_nothing_else(tmp_path):
    ids, text = shown(told.everything(tmp_path / "run"))
    checker = check(text)
    assert len(ids) == 16
    assert set(ids) <= set(checker.ids)
    assert not re.search(r"https?:|@import|src=", text)
    assert text.count("<svg ") >= 14
    assert {"script", "link", "img", "iframe"}.isdisjoint(checker.tags)
    assert "prefers-color-scheme: dark" in text
    assert "#1768c4" not in text.partition("</style>")[2]  # colours are the page's


@every_case(
    ("ids", "records", "files"),
    [
        ((), [], {}),
        (("convergence",), told.ROUNDS, {}),
        (("convergence",), told.ADMM, {}),
        (("levels",), [*told.LEVELS[:1]], {}),
        (("levels",), [*told.LEVELS, *told.SUPPORT], {}),  # sums over separate parts are no objective
        (("convergence", "working-sets"), told.WORKING, {}),
        (("convergence", "planes"), told.STEPS, {}),
        (("ranks",), told.HSS, {}),
        (("budget",), told.WINDOWS, {}),
        (("budget",), [r | {"event": "stretch"} for r in told.WINDOWS], {}),
        (("budget",), told.STRETCHES, {}),
        (("parts",), told.PARTS, {}),
        (("cost",), told.TASKS, {}),
        (("cost",), told.MEMORY, {}),
        (("cost",), [], {"result": told.RESULT}),
        (("chosen", "columns"), [], {"result": told.METRIC}),
        (("scores",), [], {"evaluation": told.EVALUATION}),
        (("threshold",), [], {"result": told.THRESHOLD}),
        (("calibration", "scores"), [], {"evaluation": {"accuracy": 1.0} | told.RELIABILITY}),
        (("tune",), [], {"tune": told.TUNE}),
        (("warnings",), told.WARNING, {}),
        (("warnings",), [told.record("failed", 1, message="no space left")], {}),
    ],
)
def test_sections_are_there_where_their_data_is(tmp_path, ids, records, files):
    found, text = shown(told.write_run(tmp_path / "run", records, **files))
    assert found == ["summary", *(s for s in found if s != "summary")]
    assert set(found) - {"summary"} == set(ids)
    check(text)


def test_a_folder_of_tune_alone(tmp_path):
    (tmp_path / "tune.json").write_text(json.dumps(told.TUNE))
    ids, text = shown(tmp_path)
    assert ids == ["summary", "tune"]
    assert "0.7" in check(text).text


@pytest.mark.slow  # pages of several fits
def test_texts_of_files_are_texts(tmp_path):
    evaluation = told.EVALUATION | {
        "classes": [NASTY, "b"],
        "per_class": [{"label": NASTY, NASTY: 1}],
        "store": NASTY,
    }
    folder = told.everything(
        tmp_path / "<i>&'run", start=told.START | {"store": NASTY, "time": NASTY, "config": {NASTY: NASTY}}
    )
    (folder / "evaluation.json").write_text(json.dumps(evaluation))
    (folder / "result.json").write_text(
        json.dumps(told.RESULT | {"solver": NASTY, "seconds_by_phase": {NASTY: 3}} | NASTY_METRIC)
    )
    (folder / "tune.json").write_text(json.dumps([{NASTY: NASTY, "mean_score": 1}]))
    with (folder / "events.jsonl").open("a") as file:
        file.write(json.dumps(told.record("warning", 9, message=NASTY)) + "\n")
        file.write(json.dumps(told.round_(1, phase=NASTY)) + "\n")
    _, text = shown(folder)
    checker = check(text)
    assert "script" not in checker.tags
    assert checker.text.count("alert(") > 5
    assert app(["report", str(folder), "--out", str(tmp_path / "r.html")], standalone_mode=False) is None
    assert "alert(" in (tmp_path / "r.html").read_text(encoding="utf-8")


@pytest.mark.slow  # pages of several fits
def test_several_runs_side_by_side(tmp_path):
    one = told.everything(tmp_path / "a" / "run")
    config = told.CONFIG | {"C": 64.0, "solver": "bsgd"}
    other = told.everything(tmp_path / "b" / "run", start=told.START | {"config": config})
    (other / "result.json").write_text(json.dumps(told.RESULT | {"solver": "bsgd"}))
    (other / "tune.json").unlink()  # whose best trial has another C
    ids, text = shown(one, other)
    checker = check(text)
    assert len(ids) == 16
    for name in ("run (1)", "run (2)", "64", "2 runs", "accuracy"):
        assert name in checker.text
    table = text[text.index('id="summary"') : text.index('id="convergence"')]
    headings = re.findall("<th[^>]*>(.*?)</th>", table)
    assert "C" in headings
    assert "tol" not in headings  # the same in both
    assert "dcsvm.levels" not in headings  # of one alone


def test_a_task_of_the_timeline_is_described_under_the_pointer(tmp_path):
    _, text = shown(told.write_run(tmp_path, [told.record("tasks", 2, phase="a<b", spans=[[0, 1, 1.5], [1, 1, 2]])]))
    assert re.findall(r'<g id="[^"]*hint-\d+">\s*<title>(.*?)</title>', text) == [
        "a&lt;b: 1 s on thread 2, from second 1.00 to 2.00",  # the busiest first
        "a&lt;b: 0.5 s on thread 1, from second 1.00 to 1.50",
    ]


def test_a_worker_has_one_row_of_the_timeline_with_its_threads_in_it(tmp_path):
    spans, workers = [[0, 1, 2], [1, 1, 3], [2, 2, 9]], ["tcp://a", "tcp://a", "tcp://b"]
    run = read_run(told.write_run(tmp_path, [told.record("tasks", 9, phase="x", spans=spans, workers=workers)]))
    axes = timeline.draw(run).axes[0]
    assert [tick.get_text() for tick in axes.get_yticklabels()] == ["worker tcp://b", "worker tcp://a"]
    hints = {bar.get_label(): bar.get_bbox() for bar in axes.patches}
    assert "_x: 2 s on worker tcp://a, from second 1.00 to 3.00" in hints
    heights = sorted((bar.y0, bar.y1) for bar in hints.values() if bar.y0 > 0.5)
    assert heights[0][1] == pytest.approx(heights[1][0])  # of a's threads, which lie above each other


def test_hundreds_of_workers_are_rows_of_the_busiest_and_one_of_the_rest(tmp_path):
    spans = [[lane, 0, 1 + lane] for lane in range(300)] + [[0, 1, 2]]
    workers = [f"w{lane}" for lane in range(300)]
    run = read_run(told.write_run(tmp_path, [told.record("tasks", 400, phase="x", spans=spans, workers=workers)]))
    axes = timeline.draw(run).axes[0]
    rows = [tick.get_text() for tick in axes.get_yticklabels()]
    assert rows == [f"worker w{lane}" for lane in range(299, 268, -1)] + ["269 others"]
    [rest] = [area.get_label() for area in axes.collections if "others" in str(area.get_label())]
    assert rest == "_269 others: 36,316 s in all, at most 269 tasks at a time"
    assert len(axes.patches) == 31


def test_a_table_is_saved_as_csv(tmp_path):
    _, text = shown(told.write_run(tmp_path, told.PARTS, evaluation=told.EVALUATION))
    saved = re.findall('href="data:text/csv;base64,([^"]*)" download="largest-partitions.csv"', text)
    assert base64.b64decode(saved[0]).decode().splitlines() == [
        "partition,rows,n_support,seconds,rows of evaluate,accuracy",
        "0,60,4,0.5,4,0.75",
        "1,40,3,,0,",
    ]


def test_the_page_as_markdown(tmp_path, capsys):
    config = told.START | {"command": "streamsvm fit --store 'a|b'", "store": "a|b <i>"}
    told.write_run(tmp_path / "run", told.PARTS, start=config, evaluation=told.EVALUATION)

    def page_of(*more):
        out = tmp_path / "page.md"
        app(["report", str(tmp_path / "run"), "--out", str(out), *more], standalone_mode=False)
        capsys.readouterr()
        return out.read_text(encoding="utf-8")

    alone = page_of()
    assert alone.startswith("# run\n\na|b &lt;i>")
    assert "| 0 | 60 | 4 | 0.5 s | 4 | 0.75 |" in alone
    assert "    streamsvm fit --store 'a|b'\n" in alone
    assert re.search(r"^\d+ pictures are left out", alone, re.M)
    with_pictures = page_of("--format", "md", "--plots", str(tmp_path / "pictures"))
    links = re.findall(r"!\[.*?\]\((.*?)\)", with_pictures)
    assert "pictures/map.png" in links
    assert all((tmp_path / link).is_file() for link in links)


def test_each_plot_as_a_file(tmp_path, capsys):
    told.write_run(tmp_path / "run", told.ROUNDS[:2] + told.HSS, evaluation=told.EVALUATION)
    args = ["report", tmp_path / "run", "--out", tmp_path / "r.html", "--plots", tmp_path / "plots", "--json"]
    assert app([*map(str, args)], standalone_mode=False) is None
    said = json.loads(capsys.readouterr().out)
    files = {path.name for path in (tmp_path / "plots").iterdir()}
    assert files == set(said["plots"])
    assert {"objective.svg", "objective.png", "confusion.svg", "blocks.png", "roc.svg"} <= files
    for path in (tmp_path / "plots").iterdir():
        if path.suffix == ".svg":
            assert ElementTree.parse(path).getroot().tag.endswith("svg")
        else:
            assert path.read_bytes().startswith(b"\x89PNG")
