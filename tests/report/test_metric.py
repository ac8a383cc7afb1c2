"""The section of columns: what `result.json` says of the metric, and nothing where it says nothing."""

from __future__ import annotations

import pytest
import told

from streamsvm.report import chosen as metric
from streamsvm.report.html import contents, page
from streamsvm.report.parts import Facts, Plot, Table
from streamsvm.report.read import read_run

# an old matplotlib draws it, too
pytestmark = pytest.mark.lowest


def shown(*folders):
    """The parts of the section, by title; facts by their kind."""
    found = contents([read_run(folder) for folder in folders])
    parts = next((parts for section, parts in found if section.id == "columns"), [])
    return {getattr(part, "title", "facts"): part for part in parts}


def written(folder, parts=told.METRIC["parts"], **more):
    result = told.RESULT | {"metric": told.METRIC["metric"] | more, "parts": parts}
    return told.write_run(folder, result=result)


def texts(figure):
    return [text.get_text() for text in figure.axes[0].texts]


def test_what_a_metric_looks_at(tmp_path):
    parts = shown(written(tmp_path))
    assert list(parts) == [
        "facts",
        "Columns",
        "Importances",
        "Importance by partition",
    ]
    facts = {"metric": "diagonal", "columns that count": 3, "partitions with a separate metric": 2}
    assert parts["facts"] == Facts(facts)
    assert parts["Columns"].rows[0] == {"column": "elevation", "share": 0.62}
    figure = parts["Importances"].figure
    assert [bar.get_width() for bar in figure.axes[0].patches] == [62, 30, 8]
    assert texts(figure) == ["62.0", "30.0", "8.0"]
    names = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert names == ["elevation", "distance to the nearest road", "slope"]
    assert figure.axes[0].yaxis_inverted()  # the first on top


def test_what_each_part_looks_at(tmp_path):
    figure = shown(written(tmp_path))["Importance by partition"].figure
    assert texts(figure) == ["90", "10", "50", "50", "25", "75"]
    names = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert names == ["9,912 rows", "8,000 rows", "400 rows"]


def test_of_many_parts_the_largest_are_shown(tmp_path, monkeypatch):
    monkeypatch.setattr(metric, "MOST_PARTS", 2)
    found = metric.parts(read_run(written(tmp_path)))
    assert found.names == ["9,912 rows", "8,000 rows"]
    assert found.shares.tolist() == [[0.9, 0.1], [0.5, 0.5]]


def test_where_plain_won_the_reason_is_said(tmp_path):
    result = told.RESULT | {"metric": {"kind": "none", "reason": "no score was better", "score": 0.9}}
    parts = shown(told.write_run(tmp_path, result=result))
    assert parts == {"facts": Facts({"metric": "none", "reason": "no score was better"})}


def test_a_run_without_one_has_no_section(tmp_path):
    assert shown(told.write_run(tmp_path, result=told.RESULT)) == {}


def test_several_runs_have_their_names(tmp_path):
    folders = [written(tmp_path / "one"), written(tmp_path / "two", parts=None, columns=2)]
    folders.append(told.write_run(tmp_path / "plain", result=told.RESULT))
    parts = shown(*folders)
    assert [(row["run"], row["columns that count"]) for row in parts[""].rows] == [("one", 3), ("two", 2)]
    assert isinstance(parts["Columns: two"], Table)
    assert isinstance(parts["Importances: one"], Plot)
    assert {name for name in parts if name.startswith("Importance by")} == {"Importance by partition: one"}


@pytest.mark.parametrize(
    "wrong",
    [
        {"importances": {"a": 1}, "parts": []},
        {"importances": [["a"], ["b", "c"], ["d", -1.0], 3], "parts": {"columns": ["a"], "shares": [[1, 2]]}},
        {"importances": None, "parts": {"columns": 3, "shares": [[1]]}, "rungs": 3},
        {"importances": [], "parts": {"columns": [], "shares": [[]]}, "rungs": [{"rows": {}}]},
    ],
)
def test_values_of_other_forms_are_left_out(tmp_path, wrong):
    run = read_run(written(tmp_path, **wrong))
    assert page([run], contents([run]))
    assert metric.shares(run) == []
    assert metric.parts(run) is None


@pytest.mark.parametrize("rows", [None, [1, 2], ["a", 2, 3], 7])
def test_parts_without_sizes_have_numbers(tmp_path, rows):
    parts = told.METRIC["parts"] | {"rows": rows}
    assert metric.parts(read_run(written(tmp_path, parts=parts))).names == ["0", "1", "2"]


def test_parts_may_be_told_with_the_metric(tmp_path):
    parts = metric.parts(read_run(written(tmp_path / "one")))
    result = {"metric": told.METRIC["metric"] | {"parts": told.METRIC["parts"]}}
    inside = metric.parts(read_run(told.write_run(tmp_path / "two", result=result)))
    assert (parts.names, parts.shares.tolist()) == (inside.names, inside.shares.tolist())


def test_nothing_counts(tmp_path):
    """Shares of 0 are drawn, too."""
    of_none = {"columns": ["a"], "shares": [[0.0], [0.0]]}
    parts = shown(written(tmp_path, importances=[["a", 0.0]], parts=of_none))
    assert {"Importances", "Importance by partition"} <= set(parts)
