"""Each outcome of a choice, forced: the estimator, the command line, the report, the card and the file tell it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from commands import run
from making import write
from scipy import sparse

from streamsvm import DCSVC, AutoSVC
from streamsvm.choosing import choices
from streamsvm.choosing.choices import ScalingCandidate
from streamsvm.data.labels import set_texts
from streamsvm.data.rows import Rows
from streamsvm.fits.prepare import scaled
from streamsvm.options.layers import read_layer
from streamsvm.report import chosen as section
from streamsvm.report.read import read_run
from streamsvm.search.options import completed

OUTCOMES: dict[str, dict[str, Any]] = {
    "linear": {"kernel": "linear"},
    "rbf": {},
    "matern": {"kernel": "matern"},
    "laplacian": {"kernel": "laplacian"},
    "linear of three classes": {"kernel": "linear", "classes": 3},
    "linear of sets": {"kernel": "linear", "task": "multilabel"},
    "linear, by balanced accuracy": {"kernel": "linear", "weight": "balanced"},
    "sets": {"task": "multilabel"},
    "none": {"scale": "none"},
    "minmax": {"scale": "minmax"},
    "robust": {"scale": "robust", "kernel": "laplacian"},
    "maxabs": {"scale": "maxabs", "sparse": True},
    "metric": {"learned": True},
    "weights": {"weight": "balanced"},
    "no weights": {"weight": ""},
    "early": {"early": True},
    "early, with a metric": {"early": True, "learned": True},
    "early, with weights of three classes": {"early": True, "weight": "balanced", "classes": 3},
}


@pytest.fixture
def outcome(request, monkeypatch) -> dict[str, Any]:
    """Every search ends with it."""
    forced = {"kernel": "rbf", "scale": "standard", "learned": False, "early": False, **request.param}
    best, starts = choices.chosen, choices.starts_of

    def as_forced(state):
        fitted = best(state)
        trial = replace(fitted.trial, class_weight=forced.get("weight", ""))
        return replace(fitted, trial=trial, learned=forced["learned"])

    def one_start(prepared):
        base = starts(prepared)[0]
        scaling = scaled(prepared.store, prepared.config, forced["scale"], prepared.moments)
        return base, {"given": ScalingCandidate(scaling, scaling.scale / base.scale)}

    monkeypatch.setattr(choices, "chosen", as_forced)
    monkeypatch.setattr(choices, "starts_of", one_start)
    monkeypatch.setattr(choices, "KERNELS", (forced["kernel"],))
    if forced["early"]:
        monkeypatch.setattr("streamsvm.choosing.time_budget.EXACT_S", 0.0)
        monkeypatch.setattr("streamsvm.solvers.dcsvm.PART_ROWS", 40)
    return forced


def data(outcome: dict[str, Any]) -> tuple[Rows, np.ndarray]:
    X = np.random.default_rng(0).normal(size=(150, 4)).astype(np.float32)
    if outcome.get("task") == "multilabel":
        return Rows(X), (X[:, :3] > 0.2).astype(int)
    y = np.array(["a", "b", "c"])[np.digitize(X[:, 0] + X[:, 1], [-1, 1] if "classes" in outcome else [0])]
    return Rows(sparse.csr_array(np.where(X > 0, X, 0)) if "sparse" in outcome else X), y


@pytest.mark.filterwarnings("ignore:held-out rows are predicted no better")  # by the forced ones
@pytest.mark.parametrize("outcome", OUTCOMES.values(), ids=OUTCOMES, indirect=True)
def test_every_outcome_is_told_by_each_of_them(outcome, tmp_path, capsys):
    rows, y = data(outcome)
    is_linear = outcome["kernel"] == "linear"
    solver = "cutting-plane" if is_linear and "classes" not in outcome else "dcsvm"
    way = solver if solver != "dcsvm" else "early" if outcome["early"] else "exact"
    values = {"solver": solver, "kernel": outcome["kernel"], "scale": outcome["scale"]}
    values |= {"metric": "diagonal" if outcome["learned"] else "none", "early": outcome["early"]}
    values |= {"class_weight": outcome["weight"] or None} if "weight" in outcome else {}
    by = {"scoring": "balanced_accuracy"} if "weight" in outcome else {}

    svm = AutoSVC(search_params={"trials": 1} | by, random_state=0).fit(rows.X, y)
    assert values.items() <= svm.chosen_.items()
    assert isinstance(svm.chosen_["gamma"], float) != is_linear
    assert set(svm.chosen_) - {"solver"} <= set(DCSVC().get_params())
    assert svm.expected_["low"] <= svm.expected_["score"] <= svm.expected_["high"] <= 1
    assert svm.metric_["kernel"] == outcome["kernel"]

    labels = y if y.ndim == 1 else set_texts(y.astype(bool), np.array(["a", "b", "c"]))
    write(tmp_path / "s.zarr", rows, labels)
    words = [word for name in by for word in (f"--{name}", by[name])]
    words += ["--task", outcome["task"]] if "task" in outcome else []
    fit = ("fit", "--store", tmp_path / "s.zarr", "--trials", 1, "--run-dir", tmp_path / "run")
    assert run(*fit, *words) == 0
    lines = (line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines() if " " in line)
    said = {name: text.strip() for name, text in lines}
    assert (said["kernel"], said["scale"]) == (outcome["kernel"], outcome["scale"])
    assert said["prediction"].startswith(way)
    assert said["metric"].startswith(values["metric"])
    assert ("weight" in outcome) == ("class" in said)

    facts = section.facts(read_run(tmp_path / "run"))
    assert (facts["kernel"], facts["scale"], facts["prediction"]) == (
        outcome["kernel"],
        outcome["scale"],
        way,
    )
    assert facts.get("class_weight") == ((outcome["weight"] or "none") if "weight" in outcome else None)
    assert run("report", tmp_path / "run", "--out", tmp_path / "r.html") == 0
    assert facts["expected on new rows"] in (tmp_path / "r.html").read_text()

    config = completed([read_layer(tmp_path / "s.model.fit.toml")])
    repeated = {"solver": config.solver, "kernel": config.kernel.name, "scale": config.scale}
    repeated |= {"metric": config.metric.kind, "early": config.dcsvm.early}
    assert repeated.items() <= values.items()
    assert config.class_weight == (outcome.get("weight") or None)

    assert run("report", "--model", tmp_path / "s.model.zarr", "--out", tmp_path / "c.md") == 0
    card = (tmp_path / "c.md").read_text()
    assert f"| solver | {solver} |" in card
    assert f"| kernel | {outcome['kernel']}" in card
    assert "## What to expect" in card
