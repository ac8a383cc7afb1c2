"""The section of what was chosen: what `result.json` says of the search, and nothing where it says nothing."""

from __future__ import annotations

import numpy as np
import pytest
import told

from streamsvm.report import chosen
from streamsvm.report.html import contents, page
from streamsvm.report.parts import Facts, Plot
from streamsvm.report.read import read_run

# an old matplotlib draws it, too
pytestmark = pytest.mark.lowest


def step(rows, kernel, gamma, C, score):
    return {
        "rows": rows,
        "kernel": kernel,
        "gamma": gamma,
        "C": C,
        "columns": 3,
        "score": score,
        "seconds": 0.1,
    }


STEPS = [
    step(1000, "rbf", 2.0, 10.0, 0.80),
    step(1000, "laplacian", 2.0, 10.0, 0.82),
    step(1000, "laplacian", 4.0, 30.0, 0.84),
    step(2000, "rbf", 2.0, 10.0, 0.85),
    step(2000, "laplacian", 4.0, 30.0, 0.92),
]
METRIC = {
    "kind": "diagonal",
    "kernel": "laplacian",
    "gamma": 0.3,
    "C": 30.0,
    "scale": "standard",
    "scoring": "accuracy",
    "score": 0.92,
    "plain_score": 0.9,
    "given_score": 0.7,
    "columns": 3,
    "rungs": STEPS,
}
RESULT = told.RESULT | {
    "n": 4000,
    "exact": False,
    "metric": METRIC,
    "expected": {"scoring": "accuracy", "score": 0.93, "low": 0.91, "high": 0.95, "rows": 500, "model": True},
    "seconds_by_phase": {"search": 4.0, "regions": 0.5, "top": 1.0},
}


def run(folder, result=RESULT, **more):
    return read_run(told.write_run(folder, result=result | {"metric": result["metric"] | more}))


def shown(*runs):
    found = contents(list(runs))
    parts = next((parts for section, parts in found if section.id == "chosen"), [])
    return {getattr(part, "title", "facts"): part for part in parts}


def labels(figure):
    return [text.get_text() for text in figure.legends[0].get_texts()]


def test_what_was_chosen_comes_first(tmp_path):
    parts = shown(run(tmp_path))
    choices = {"kernel": "laplacian", "scale": "standard", "gamma": 0.3, "C": 30.0, "metric": "diagonal"}
    scores = {"held-out rows": "92.0 %", "without metric": "90.0 %", "with defaults": "70.0 %"}
    expected = {"expected on new rows": "93.0 % (91.0 % to 95.0 %)", "search": "4.5 s"}
    assert parts["facts"] == Facts(choices | {"prediction": "early"} | scores | expected)
    pictures = ["Candidates", "How much each choice matters", "Score by rows"]
    assert [name for name, part in parts.items() if isinstance(part, Plot)] == pictures
    assert len(parts["Steps of the search"].rows) == len(STEPS)


def test_candidates_by_kernel_and_the_best_so_far(tmp_path):
    figure = chosen.candidates.draw(run(tmp_path))
    lines = {line.get_label(): line for line in figure.axes[0].lines}
    assert labels(figure) == ["best so far", "rbf", "laplacian", "defaults", "without metric", "chosen"]
    assert lines["best so far"].get_ydata() == pytest.approx([80, 82, 84, 85, 92])
    assert list(lines["rbf"].get_xdata()) == [1, 4]
    assert lines["rbf"].get_marker() != lines["laplacian"].get_marker()
    assert [text.get_text() for text in figure.axes[0].texts] == ["1k", "2k"]


def test_the_best_in_regions_is_of_its_own(tmp_path):
    steps = [step(600, "laplacian", 4.0, 30.0, score) for score in (0.6, 0.7)]
    found = run(tmp_path, regions=steps)
    axes = chosen.candidates.draw(found).axes[0]
    assert axes.lines[1].get_ydata() == pytest.approx([60, 70])
    assert [text.get_text() for text in axes.texts][-1] == "regions"
    assert shown(found)["Steps of the search"].rows[-1]["rows"] == "600 in a region"
    assert chosen.curve(found)[-1] == (2000, 0.92)


def test_how_much_each_choice_matters(tmp_path):
    found = {row["choice"]: row for row in chosen.differences(run(tmp_path))}
    assert list(found) == ["all, over the defaults", "kernel", "metric", "gamma", "C"]
    assert found["kernel"]["difference"] == pytest.approx(0.07)  # on 2,000 rows
    assert (found["kernel"]["rows"], found["gamma"]["rows"]) == (2000, 1000)
    assert found["gamma"]["values"] == "4: 84.0 %, 2: 82.0 %"  # of the kernel that was chosen
    bars = chosen.influences.draw(run(tmp_path)).axes[0].patches
    assert [bar.get_width() for bar in bars] == pytest.approx([22, 7, 2, 2, 2])


def test_class_weights_are_compared_with_none_by_the_score_of_the_search(tmp_path):
    rungs = [step | {"class_weight": weight} for step in STEPS[:3] for weight in ("", "balanced")]
    found = run(tmp_path, rungs=rungs, scoring="balanced_accuracy")
    [row] = [row for row in chosen.values_of(found) if row["choice"] == "class_weight"]
    assert row["values"] in ("none: 84.0 %, balanced: 84.0 %", "balanced: 84.0 %, none: 84.0 %")
    assert chosen.influences.draw(found).axes[0].get_xlabel() == "points of balanced accuracy"


def test_scalings_are_compared_where_steps_tell_them(tmp_path):
    steps = [each | {"scale": kind} for each, kind in zip(STEPS, ["none", "standard"] * 3, strict=False)]
    found = {row["choice"]: row for row in chosen.differences(run(tmp_path, rungs=steps))}
    assert found["scale"]["values"].startswith("none: 92.0 %")


def test_more_rows_are_extrapolated_and_said_to_be(tmp_path):
    found = run(tmp_path)
    figure = chosen.learning.draw(found)
    twice = chosen.extrapolated(found, np.array([4000]))[0]
    assert twice == pytest.approx(1 - 0.08 / 2**0.5)  # errors fall by the root of the rows, at most
    names = ["measured", "extrapolated", "twice the rows: +2.3 points", "expected of the model"]
    assert labels(figure) == names
    dotted = figure.axes[0].lines[1]
    assert dotted.get_linestyle() == ":"
    assert dotted.get_ydata()[0] == pytest.approx(92)
    assert dotted.get_xdata()[-1] == pytest.approx(16000)


def test_labels_of_sizes_that_are_alike_do_not_overlap(tmp_path):
    steps = [each | {"rows": 1200 if each["rows"] == 2000 else each["rows"]} for each in STEPS]
    axes = chosen.learning.draw(run(tmp_path, rungs=steps)).axes[0]
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["1k", "4k", "16k"]


def test_a_score_of_a_regression_is_no_share(tmp_path):
    found = run(tmp_path, scoring="r2")
    assert chosen.facts(found)["held-out rows"] == "0.9200"
    assert chosen.candidates.draw(found).axes[0].get_ylabel() == "r2"


def test_a_search_on_all_rows_has_no_curve(tmp_path):
    found = run(tmp_path, rungs=STEPS[:3])
    assert chosen.learning.draw(found) is None
    assert "Score by rows" not in shown(found)


def test_nothing_chosen_nothing_shown(tmp_path):
    too_few = told.RESULT | {"metric": {"kind": "none", "reason": "12 rows are too few"}}
    assert shown(read_run(told.write_run(tmp_path / "few", result=too_few))) == {}
    assert shown(read_run(told.write_run(tmp_path / "plain", result=told.RESULT))) == {}


def test_several_runs_have_their_names(tmp_path):
    parts = shown(run(tmp_path / "one"), run(tmp_path / "two", C=1.0))
    assert [(row["run"], row["C"]) for row in parts[""].rows] == [("one", 30.0), ("two", 1.0)]
    assert {"Candidates: one", "Candidates: two"} <= set(parts)


def test_runs_of_before_tell_less(tmp_path):
    found = read_run(told.write_run(tmp_path, result=told.METRIC))
    parts = shown(found)
    assert parts["facts"].values["held-out rows"] == "0.8900"
    assert "Candidates" in parts


@pytest.mark.parametrize(
    "wrong",
    [
        {"rungs": 3, "score": "high", "given_score": None},
        {"rungs": [{"rows": -1, "score": 0.5}, {"rows": "a"}, 3], "plain_score": float("nan")},
        {"rungs": [{"rows": 10, "score": 0.5, "kernel": ["a"]}] * 2, "kernel": 3, "scoring": 5},
        {"rungs": [{"rows": 1e300, "score": 1e300}, {"rows": 1, "score": -1e300}], "regions": {"a": 1}},
    ],
)
def test_values_of_other_forms_are_left_out(tmp_path, wrong):
    found = run(tmp_path, RESULT | {"expected": {"score": "a"}, "n": None}, **wrong)
    assert page([found], contents([found]))
