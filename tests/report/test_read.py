"""Run directories in any state are read."""

from __future__ import annotations

import json

import numpy as np
import pytest
import told
from every_case import every_case
from hypothesis import given, settings
from hypothesis import strategies as st

from streamsvm.errors import NotFoundError
from streamsvm.events import Round
from streamsvm.report.drawing import thinned
from streamsvm.report.html import contents
from streamsvm.report.read import by_number, columns, matrix, read_run
from streamsvm.report.trials import grid
from streamsvm.runs.records import number

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**30), 10**30) | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)


def events(run):
    return [event.kind for _, event in run.records]


@given(st.data())
def test_an_events_file_cut_at_any_byte_is_read(tmp_path_factory, data):
    folder = told.everything(tmp_path_factory.mktemp("run"))
    path, whole = folder / "events.jsonl", read_run(folder)
    text = path.read_bytes()
    cut = data.draw(st.integers(0, len(text)))
    path.write_bytes(text[:cut])
    found = read_run(folder).records
    lines = text[:cut].count(b"\n")
    assert found[:lines] == whole.records[:lines]
    assert len(found) - lines in (0, 1)  # the last line may lack its end alone


@given(st.lists(st.binary(max_size=40), max_size=8))
def test_lines_that_are_no_records_are_left_out(tmp_path_factory, junk):
    folder = told.write_run(tmp_path_factory.mktemp("run"), told.ROUNDS)
    whole = read_run(folder).records
    lines = (folder / "events.jsonl").read_bytes().splitlines()
    for i, line in enumerate(junk):
        lines.insert(i % len(lines), line.replace(b"\n", b""))
    lines.insert(2, b'{"event": "round", "t": "late"}')
    lines.insert(3, b'["event"]')
    (folder / "events.jsonl").write_bytes(b"\n".join(lines) + b"\n")
    assert read_run(folder).records == whole


@given(st.data())
@settings(max_examples=8)
def test_values_of_any_kind_do_not_stop_a_report(tmp_path_factory, data):
    folder = told.everything(tmp_path_factory.mktemp("run"))
    values = [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]
    files = {path: json.loads(path.read_text()) for path in folder.glob("*.json")}
    for value in [*data.draw(st.lists(st.sampled_from(values[1:]), max_size=6)), *files.values()]:
        rows = value if isinstance(value, list) else [value]
        row = data.draw(st.sampled_from(rows))
        name = data.draw(st.sampled_from(sorted(row)))
        if name not in ("event", "t"):
            row[name] = data.draw(JSON)
    (folder / "events.jsonl").write_text("\n".join(map(json.dumps, values)))
    for path, value in files.items():
        path.write_text(json.dumps(value))
    assert contents([read_run(folder)])


def test_time_goes_on_where_a_run_was_resumed(tmp_path):
    resumed = told.record("start", 0.1, **told.START | {"resume": True})
    again = [told.round_(2) | {"t": 0.4}, told.round_(3) | {"t": 0.5}]
    folder = told.write_run(tmp_path, [*told.ROUNDS[:2], resumed, *again], end=None)
    run = read_run(folder)
    assert [r.t for r in run.records] == pytest.approx([0, 1.1, 1.2, 1.2, 1.5, 1.6])
    assert run.seconds == pytest.approx(1.6)
    rounds = by_number(run.of(Round), lambda record: record.event.round)
    assert [event.round for _, event in rounds] == [1, 2, 3]
    assert rounds[1].t == pytest.approx(1.5)  # the later one
    assert run.status == "not finished"


def test_what_was_in_the_folder_before_is_another_runs(tmp_path):
    anew = told.record("start", 0.0, resume=False, n=5)
    folder = told.write_run(tmp_path, [*told.ROUNDS, anew, told.round_(1) | {"t": 2.0}])
    run = read_run(folder)
    assert events(run) == ["start", "round", "done"]
    assert [r.t for r in run.records] == [0, 2, 9]
    assert run.started.n == 5


@pytest.mark.parametrize(("end", "status"), [("done", "finished"), ("failed", "failed"), (None, "not finished")])
def test_how_it_ended(tmp_path, end, status):
    assert read_run(told.write_run(tmp_path, end=end)).status == status


def test_an_interrupt_is_no_failure(tmp_path):
    folder = told.write_run(tmp_path, [told.record("failed", 1, message="KeyboardInterrupt")], end=None)
    assert read_run(folder).status == "interrupted"


def test_a_damaged_file_is_told_and_the_rest_is_shown(tmp_path):
    folder = told.everything(tmp_path / "run")
    (folder / "evaluation.json").write_text('{"accuracy": 0.')
    run = read_run(folder)
    assert run.evaluation == {}
    assert run.notes[0].startswith("evaluation.json cannot be read")
    assert "scores" not in {section.id for section, _ in contents([run])}


def test_folders_without_a_run(tmp_path):
    with pytest.raises(NotFoundError, match="no such run directory"):
        read_run(tmp_path / "none")
    with pytest.raises(NotFoundError, match=r"found none of events.jsonl, .*, expected the directory of a run"):
        read_run(tmp_path)


@given(JSON)
def test_a_number_is_finite(value):
    found = number(value)
    assert found is None or (np.isfinite(found) and found == float(value))


def test_columns_are_of_rows_whose_values_are_all_numbers():
    x, y = columns(2, [(1, 2), (3, None), (True, 1), (4.5, float("nan")), (5, 6)])
    assert (x.tolist(), y.tolist()) == ([1, 5], [2, 6])
    assert [len(column) for column in columns(2, [])] == [0, 0]


@every_case("value", [None, 3, [], [1, 2], [[1], [2, 3]], [["a", "b"]], [[1, float("inf")]], [[[1]]]])
def test_what_is_no_matrix(value):
    assert matrix(value) is None


def test_a_thinned_line_keeps_its_ends_and_its_top():
    x = np.arange(10_000.0)
    y = np.sin(x / 700)
    y[4321] = 5
    few, values = thinned(x, y)
    assert len(few) == 500
    assert (few[0], few[-1], values.max()) == (0, 9999, 5)
    assert np.all(np.isin(few, x))
    assert np.all(np.diff(few) > 0)


def test_the_grid_has_the_best_of_whatever_else_was_tried():
    trials = [{"kernel.gamma": 1, "C": 2, "mean_score": s, "scale": "none"} for s in (0.5, 0.7, 0.6)]
    trials.append({"kernel.gamma": 3, "C": 1, "mean_score": 0.2})
    gammas, Cs, scores = grid(trials, "kernel.gamma", "C")
    assert (gammas, Cs) == ([1, 3], [1, 2])
    np.testing.assert_array_equal(scores, [[np.nan, 0.7], [0.2, np.nan]])
    assert grid([{"C": 1, "mean_score": 0.5}], "kernel.gamma", "C")[0] == []


def test_values_of_any_kind_make_a_grid():
    trials = [{"a": a, "b": b, "mean_score": 0.5} for a in ("scale", 10, 2.0, [1], "10") for b in (True, "x")]
    rows, columns, scores = grid([*trials, {"a": 1, "b": 1, "mean_score": "none"}], "a", "b")
    assert (rows, columns, scores.shape) == ([2.0, "10", [1], "scale"], [True, "x"], (4, 2))
