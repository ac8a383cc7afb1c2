"""What each solver tells is what reports read."""

from __future__ import annotations

import json

import numpy as np
import pytest
from making import write

from streamsvm.cli.app import app
from streamsvm.config import build_config
from streamsvm.data.rows import Rows
from streamsvm.report.html import contents
from streamsvm.report.read import read_run
from streamsvm.report.sections import Plot
from streamsvm.train import train

KERNEL = {"kernel": {"name": "rbf", "gamma": 1.0}}
CASES = {
    "dcsvm": (
        KERNEL | {"dcsvm": {"levels": 1, "part_rows": 400}},
        {"convergence", "levels", "cost"},
        {"objective", "gap", "violation", "levels", "phases", "memory"},
    ),
    "bsgd": (
        KERNEL | {"bsgd": {"budget": 30, "epochs": 3}},
        {"budget", "cost"},
        {"budget", "phases", "memory"},
    ),
    "cutting-plane": (
        {"kernel": {"name": "linear"}},
        {"convergence", "planes", "cost"},
        {"objective", "gap", "planes", "phases", "memory"},
    ),
    "admm-hss": (
        KERNEL | {"hss": {"leaf": 64, "polish": 50}},
        {"convergence", "ranks", "cost"},
        {"objective", "gap", "violation", "residuals", "ranks", "blocks", "phases", "memory"},
    ),
    "alfpgm": (
        KERNEL | {"alfpgm": {"pairs": 20}},
        {"convergence", "working-sets", "cost"},
        {"objective", "gap", "violation", "working-sets", "phases", "memory"},
    ),
}


def store(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(600, 3)).astype(np.float32)
    y = (X[:, 0] + X[:, 1] ** 2 + rng.normal(0, 0.3, 600) > 0.5).astype(np.int64)
    return write(tmp_path / "data", Rows(X), y, step=100)


@pytest.mark.parametrize("solver", CASES)
def test_a_fit_is_reported(tmp_path, solver, capsys):
    options, sections, plots = CASES[solver]
    config = build_config(("test", {"solver": solver, "memory_limit": "2GiB", "C": 3.0, **options}))
    folder = tmp_path / "run"
    report = train(store(tmp_path), config, model_path=tmp_path / "model", run_dir=folder)
    run = read_run(folder)
    assert run.status == "finished"
    assert run.config["C"] == 3.0
    assert run.first("start")["limit_bytes"] == 2 << 30
    assert run.first("plan")["kernel"]["name"] == config.kernel.name
    assert run.result["objective"] == report["objective"]
    assert run.result["peak_rss_bytes"] > 10 << 20
    shown = contents([run])
    assert {section.id for section, _ in shown} - {"summary", "warnings"} == sections
    assert {part.name for _, parts in shown for part in parts if isinstance(part, Plot)} == plots

    args = [
        "evaluate",
        "--model",
        tmp_path / "model",
        "--store",
        tmp_path / "data",
        "--run-dir",
        folder,
        "--json",
    ]
    app([*map(str, args)], standalone_mode=False)
    said = json.loads(capsys.readouterr().out)
    assert "roc" not in said
    scored = read_run(folder)
    assert scored.evaluation["accuracy"] == said["accuracy"]
    assert scored.evaluation["roc"][-1] == [1, 1]
    assert {section.id for section, _ in contents([scored])} >= {"scores"}


@pytest.mark.parametrize("solver", ["dcsvm", "alfpgm", "admm-hss"])
def test_the_last_round_tells_what_the_report_does(tmp_path, solver):
    config = build_config(("test", {"solver": solver, "C": 3.0, **CASES[solver][0]}))
    report = train(store(tmp_path), config, model_path=tmp_path / "model", run_dir=tmp_path / "run")
    known = [record for record in read_run(tmp_path / "run").of("round") if "gap" in record]
    assert known[-1]["objective"] == pytest.approx(report["objective"])
    assert known[-1]["gap"] == pytest.approx(report["gap"], abs=1e-6 * abs(report["objective"]))
