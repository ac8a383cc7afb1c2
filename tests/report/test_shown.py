"""What the page says is what happened: the best trial's options, names at the curves, units, what has not converged."""

from __future__ import annotations

import json
import re
from itertools import pairwise

import numpy as np
import pytest
import told
from every_case import every_case

from streamsvm.report import drawing, part_plots, plots
from streamsvm.report.html import contents, page
from streamsvm.report.parts import Facts, Plot, Table
from streamsvm.report.read import read_run

# an old matplotlib draws it, too
pytestmark = pytest.mark.lowest


def parts(*folders):
    """All of a page, by title or kind."""
    runs = [read_run(folder) for folder in folders]
    return [part for _, parts in contents(runs) for part in parts]


def facts(folder):
    return next(part.values for part in parts(folder) if isinstance(part, Facts))


def plot(name, *folders):
    return next(part for part in parts(*folders) if isinstance(part, Plot) and part.name == name)


def legend(name, *folders):
    """The texts of a plot's legend, without what is no run's."""
    legends = plot(name, *folders).figure.legends
    texts = [text.get_text() for legend in legends for text in legend.get_texts()]
    return [text for text in texts if text != "tol" and not text.startswith("limit")]


def html(*folders):
    runs = [read_run(folder) for folder in folders]
    return page(runs, contents(runs))


CONFIG = told.CONFIG | {"solver": "alfpgm", "C": 0.1, "kernel": {"name": "rbf", "gamma": 0.5}}
TRIALS = [
    {"C": 10.0, "kernel.gamma": 2.0, "mean_score": 0.90, "rank": 1, "rows": 100},
    {"C": 10.0, "kernel.gamma": 0.5, "mean_score": 0.89, "rank": 2, "rows": 100},
    {"C": 0.1, "kernel.gamma": 0.5, "mean_score": 0.95, "rank": 3, "rows": 10},  # of few rows: says less
]


def test_a_search_shows_the_options_of_its_best_trial(tmp_path):
    folder = told.write_run(tmp_path, start=told.START | {"config": CONFIG}, tune=TRIALS)
    shown = facts(folder)
    assert (shown["C"], shown["kernel"]) == (10.0, "rbf, gamma 2")
    trials = next(part.rows for part in parts(folder) if isinstance(part, Table) and part.title == "Trials")
    assert [row["rank"] for row in trials] == [1, 2, 3]
    assert list(trials[0])[:2] == ["C", "kernel.gamma"]


def test_scores_of_folds_are_no_axis_of_a_heat_map(tmp_path):
    trials = [{"C": C, "mean_score": C, "rank": i, "fold_scores": [C, C]} for i, C in enumerate((0.2, 0.1))]
    shown = parts(told.write_run(tmp_path, tune=trials, result={"scoring": "roc_auc"}))
    [plot] = [part for part in shown if isinstance(part, Plot)]
    assert plot.name == "tuned"  # over C alone
    assert plot.figure.axes[0].get_ylabel() == "mean ROC AUC"


@every_case(
    ("name", "records", "files"),
    [
        ("objective", told.ROUNDS, {}),
        ("gap", told.STEPS, {}),
        ("violation", told.ROUNDS, {}),
        ("residuals", told.ADMM, {}),
        ("memory", told.MEMORY, {}),
        ("budget", told.WINDOWS, {}),
        ("phases", [], {"result": told.RESULT}),
        ("roc", [], {"evaluation": told.EVALUATION}),
        ("calibration", [], {"evaluation": told.RELIABILITY}),
    ],
)
def test_a_curve_has_its_runs_name_and_colour_where_others_have_none(tmp_path, name, records, files):
    empty = told.write_run(tmp_path / "empty", [])
    full = told.write_run(tmp_path / "full", records, **files)
    assert any(text.startswith("full") for text in legend(name, empty, full))
    [axes, *_] = plot(name, empty, full).figure.axes
    drawn = [line.get_color() for line in axes.lines] + [patch.get_facecolor() for patch in axes.patches]
    if name not in ("violation", "residuals", "phases"):
        assert plots.colour(1) in drawn  # that of the second run


def test_the_objective_is_the_whole_problems(tmp_path):
    refine = [told.round_(i, phase="refine", objective=-20.0 + i, gap=5.0) for i in (1, 2)]
    folder = told.write_run(tmp_path, [*told.LEVELS, *refine, *told.ROUNDS])
    [line] = plot("objective", folder).figure.axes[0].lines
    assert line.get_ydata().tolist() == [-19, -18, *(r["objective"] for r in told.ROUNDS)]
    [line] = plot("gap", folder).figure.axes[0].lines  # a refined problem's gap is not the whole one's
    assert len(line.get_ydata()) == len(told.ROUNDS)
    table = next(part for part in parts(folder) if isinstance(part, Table) and part.title == "Level by level")
    assert "objective" not in table.rows[0]
    assert table.rows[0]["sum of the partitions' objectives"] == -9.0


@pytest.mark.parametrize(("converged", "said"), [(True, "yes"), (False, "no"), (None, None)])
def test_what_has_not_converged_is_said_in_red(tmp_path, converged, said):
    result = told.RESULT | ({} if converged is None else {"converged": converged})
    folder = told.write_run(tmp_path / "run", result=result)
    assert facts(folder).get("converged") == said
    other = told.write_run(tmp_path / "other", result=told.RESULT)
    for text in (html(folder), html(folder, other)):
        assert ('converged-no">no<' in text) == (said == "no")
    assert ".converged-no {" in html(folder)


def test_rounds_are_whole_and_seconds_have_their_unit(tmp_path):
    folder = told.write_run(tmp_path, told.ROUNDS, result=told.RESULT)
    axes = plot("violation", folder).figure.axes[0]
    assert all(tick == round(tick) for tick in axes.get_xticks())
    texts = [text.get_text() for text in plot("phases", folder).figure.axes[0].texts]
    assert texts == ["0.5 s", "2 s"]


@pytest.mark.parametrize(("limit", "is_drawn"), [(1 << 29, True), (1 << 40, False)])
def test_the_limit_of_memory_is_drawn_or_said(tmp_path, limit, is_drawn):
    folder = told.write_run(tmp_path, told.MEMORY, start=told.START | {"limit_bytes": limit})
    shown = plot("memory", folder)
    texts = [text.get_text() for legend in shown.figure.legends for text in legend.get_texts()]
    assert ("limit 512 MiB" in texts) == is_drawn
    assert ("The limit of 1.0 TiB is far above and not drawn." in shown.caption) != is_drawn


@pytest.mark.parametrize("name", ["roc-by-class", "precision-recall-by-class"])
def test_a_curve_of_each_class_has_its_label_and_its_area(tmp_path, name):
    run = told.write_run(tmp_path / "run", evaluation=told.BY_CLASS | {"classes": ["a", "b", "c"]})
    assert legend(name, run) == [f"{label}, AUC 0.750" for label in "abc"]
    assert all(axes.get_xlabel() and axes.get_ylabel() for axes in plot(name, run).figure.axes)


def test_no_two_of_ten_lines_look_the_same(tmp_path):
    [curve] = told.BY_CLASS["curves_by_class"][:1]
    run = told.write_run(tmp_path, evaluation={"curves_by_class": [curve | {"label": label} for label in range(10)]})
    lines = plot("roc-by-class", run).figure.axes[0].lines[1:]
    assert len({(line.get_color(), line.get_linestyle()) for line in lines}) == 10


def named(axis, ticks):
    """Whether an axis says what it shows: by a name with its unit, or by the names of its places."""
    texts = [tick.get_text() for tick in ticks]
    return bool(axis) or any(re.search("[a-z]", text) for text in texts)


def test_every_plot_has_a_title_something_to_see_and_names_at_its_axes(tmp_path):
    folder = told.everything(tmp_path)
    evaluation = told.EVALUATION | told.RELIABILITY | {"curves_by_class": told.BY_CLASS["curves_by_class"]}
    (folder / "evaluation.json").write_text(json.dumps(evaluation))
    plots = [part for part in parts(folder) if isinstance(part, Plot)]
    assert len(plots) > 20
    for part in plots:
        assert part.title
        assert part.caption
        last = part.figure.axes[-1]  # which has the name of the x that all share
        assert named(last.get_xlabel(), last.get_xticklabels()), part.name
        for axes in part.figure.axes:
            assert named(axes.get_ylabel(), axes.get_yticklabels()), part.name
            assert len(axes.get_children()) > len(part.figure.add_subplot().get_children()), part.name


@pytest.mark.parametrize(
    "records",
    [
        told.ROUNDS[:1],
        told.SUPPORT[:1],
        told.WINDOWS[:1],
        [told.record("tasks", 2, phase="x", spans=[[0, 1, 1.01]])],
    ],
    ids=["violation", "levels", "budget", "tasks"],
)
def test_a_plot_of_next_to_nothing_is_left_out(tmp_path, records):
    assert not [part for part in parts(told.write_run(tmp_path, records)) if isinstance(part, Plot)]


def test_partitions_far_away_leave_room_for_the_others():
    near = np.random.default_rng(0).normal(size=(12, 2))
    places = np.vstack([near, [[300.0, 0.0], [0.0, -400.0]]])
    found = part_plots.drawn_in(places)
    assert np.ptp(found[:12], axis=0).min() > 0.2 * np.ptp(found, axis=0).max()
    assert part_plots.drawn_in(near) is near
    assert part_plots.apart(places, np.ones(14), np.arange(14)) == [0, 12, 13]  # those near lie on one place


def test_classes_have_their_mean(tmp_path):
    rows = [
        {"label": label, "precision": p, "recall": p, "f1": p, "support": n}
        for label, p, n in (("a", 0.5, 10), ("b", 1.0, 90))
    ]
    folder = told.write_run(tmp_path, evaluation={"per_class": rows})
    table = next(part for part in parts(folder) if isinstance(part, Table) and part.title == "By class")
    assert table.rows[-1] == {
        "label": "macro average",
        "precision": 0.75,
        "recall": 0.75,
        "f1": 0.75,
        "support": None,
    }


def test_parts_show_their_rows_and_what_evaluate_says_of_them(tmp_path):
    folder = told.write_run(tmp_path, told.PARTS, evaluation=told.EVALUATION)
    [axes] = plot("map", folder).figure.axes
    assert [text.get_text() for text in axes.texts] == ["0: 75 %", "1"]
    small, large = sorted(axes.collections[0].get_sizes())
    assert small / large == pytest.approx(40 / 60)
    other = told.write_run(tmp_path / "other", told.PARTS, evaluation={"parts": {"rows": [1], "right": [1]}})
    assert "accuracy" not in part_plots.parts_of(read_run(other))[0]  # of a model of other parts


def test_tasks_are_in_their_lanes_and_the_busiest_is_the_first(tmp_path):
    [axes] = plot("tasks", told.write_run(tmp_path, told.TASKS)).figure.axes
    bars = [patch.get_bbox() for patch in axes.patches]
    assert [(bar.x0, bar.x1, round((bar.y0 + bar.y1) / 2)) for bar in bars] == [(1, 1.75, 0), (1, 1.5, 1)]


def test_decision_values_are_by_class_with_the_threshold(tmp_path):
    folder = told.write_run(tmp_path, evaluation=told.EVALUATION)
    assert legend("by-class", folder) == ["no", "yes", "threshold"]


def test_scores_over_C_have_a_line_for_each_gamma(tmp_path):
    folder = told.write_run(tmp_path, tune=told.TUNE)
    assert sorted(legend("tuned", folder)) == ["gamma 0.1", "gamma 1"]


def test_shares_of_labels_add_up(tmp_path):
    folder = told.write_run(tmp_path, told.STRETCHES)
    [axes] = plot("labels", folder).figure.axes
    top = axes.collections[-1].get_paths()[0].get_extents()
    assert (top.x0, top.x1, top.y1) == (100, 500, 1)


@every_case("spoiled", [None, "x", [], [1], [[None]], {"rows": 3}, [["a", "b"]]])
def test_what_cannot_be_drawn_is_left_out(tmp_path, spoiled):
    records = [told.PARTS[0] | {name: spoiled for name in ("rows", "seconds", "places")}]
    records += [
        told.TASKS[0] | {"spans": spoiled},
        told.STRETCHES[0] | {"labels": spoiled, "answer_s": spoiled},
    ]
    evaluation = told.EVALUATION | dict.fromkeys(("histogram", "parts", "reliability_before"), spoiled)
    names = {
        part.name for part in parts(told.write_run(tmp_path, records, evaluation=evaluation)) if isinstance(part, Plot)
    }
    assert names.isdisjoint({"map", "tasks", "labels", "by-class"})


def test_long_values_have_wide_tiles_and_break_at_slashes(tmp_path):
    folder = told.write_run(tmp_path, evaluation={"store": "d20/test.zarr", "accuracy": 0.5})
    text = html(folder)
    assert '<div class="long"><dt>data</dt><dd>d20/<wbr>test.zarr</dd>' in text
    assert re.search(r"<div><dt>accuracy</dt><dd>0.5</dd>", text)


def test_names_of_a_digit_stand_upright(tmp_path):
    evaluation = {"classes": [*map(str, range(10))], "confusion": [[1] * 10] * 10}
    folder = told.write_run(tmp_path, evaluation=json.loads(json.dumps(evaluation)))
    [axes] = plot("confusion", folder).figure.axes
    assert {label.get_rotation() for label in axes.get_xticklabels()} == {0}


@pytest.mark.parametrize("low", [0.0, 0.99401, 86_399.12])
def test_labels_of_a_short_span_do_not_meet(low):
    with drawing.look():
        figure, axes = drawing.new(xlabel="seconds")
        axes.plot(low + np.linspace(0, 0.0012, 4), np.arange(4))
        drawing.uncrowd(figure)
        figure.draw_without_rendering()
        low, high = axes.get_xlim()
        shown = [tick.label1 for tick in axes.xaxis.get_major_ticks() if low <= tick.get_loc() <= high]
        boxes = [label.get_window_extent() for label in shown]
    assert len(boxes) >= 2
    assert all(one.x1 < other.x0 for one, other in pairwise(boxes))
