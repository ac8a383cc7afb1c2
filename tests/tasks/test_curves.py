"""Curves of each class against the rest, by scikit-learn's."""

from __future__ import annotations

import json

import commands
import numpy as np
import pytest
from sklearn import metrics as twin

from streamsvm.data.store import Store
from streamsvm.metrics import scored
from streamsvm.tasks import task_of
from streamsvm.tasks.scores import MOST_POINTS, CurvesByClass, curves_of


def test_the_most_frequent_classes_have_the_curves_of_one_against_the_rest():
    rng = np.random.default_rng(0)
    truth = rng.choice(12, 3000, p=np.arange(1, 13) / 78)
    values = rng.normal(size=(3000, 12)) + 2 * np.eye(12)[truth]
    found = CurvesByClass(3000, np.bincount(truth))
    for start in range(0, 3000, 700):
        found.add(start, truth[start : start + 700], values[start : start + 700])
    curves = found.result([f"c{code}" for code in range(12)])
    assert [own["label"] for own in curves] == [f"c{code}" for code in range(2, 12)]  # not the two rare ones
    for code, own in enumerate(curves, 2):
        assert own["roc_auc"] == pytest.approx(twin.roc_auc_score(truth == code, values[:, code]))
        fall_out, recall, _ = twin.roc_curve(truth == code, values[:, code], drop_intermediate=False)
        corners = set(zip(fall_out.round(9).tolist(), recall.round(9).tolist(), strict=True))
        assert {tuple(point) for point in np.round(own["roc"], 9).tolist()} <= corners
        assert len(own["precision_recall"]) <= MOST_POINTS


def test_a_class_without_rows_has_no_curve():
    assert curves_of("a", scored(np.zeros(3, bool), np.arange(3.0))) == {"label": "a", "roc_auc": None}


class Judge:
    task, classes, intervals, costs = "classify", np.array(["a", "b", "c"]), None, None

    def codes_of(self, decision, proba=None):
        return np.argmax(decision, axis=1)

    def encode_labels(self, y):
        return np.array([{"a": 0, "b": 1, "c": 2}.get(label, -1) for label in y.tolist()])


def test_rows_with_unknown_labels_are_in_no_curve():
    y = np.array(["a", "b", "c", "z"] * 5)
    store = Store.from_arrays(np.zeros((20, 1)), y)
    without, scores = (task_of("classify").scores(Judge(), store, with_curves=own) for own in (False, True))
    for own in (without, scores):
        own.add(0, 20, np.tile([[3.0, 1, 0], [1, 3, 0], [2, 0, 1], [9, 9, 9]], (5, 1)), None)
    assert "curves_by_class" not in without.result()
    found = scores.result()["curves_by_class"]
    assert [(own["label"], own["roc_auc"]) for own in found] == [("a", 1.0), ("b", 1.0), ("c", 1.0)]


def test_curves_of_label_sets_go_into_the_run_and_not_onto_the_screen(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 3))
    sets = [",".join(str(j) for j in range(3) if row[j] > 0) for row in X]
    rows = [" ".join(f"{j}:{v:.3f}" for j, v in enumerate(row, 1)) for row in X]
    lines = [f"{labels} {row}\n" for labels, row in zip(sets, rows, strict=True)]
    (tmp_path / "a.svm").write_text("".join(lines))
    commands.run("ingest", "a.svm", "--store", "a.zarr", "--multilabel")
    fit = (
        "fit",
        "--store",
        "a.zarr",
        "--model",
        "m.zarr",
        "--task",
        "multilabel",
        "--no-search",
        "--run-dir",
        "run",
    )
    assert commands.run(*fit) == 0
    capsys.readouterr()
    assert commands.run("evaluate", "--model", "m.zarr", "--store", "a.zarr", "--run-dir", "run", "--json") == 0
    assert "curves_by_class" not in json.loads(capsys.readouterr().out)
    found = json.loads((tmp_path / "run" / "evaluation.json").read_text())
    curves = {own["label"]: own["roc_auc"] for own in found["curves_by_class"]}
    assert curves == {row["label"]: row["roc_auc"] for row in found["per_class"]}
