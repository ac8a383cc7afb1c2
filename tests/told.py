"""Run directories as a solver, a tuner and an evaluation leave them, small and made up."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from streamsvm.events import Event, Record
from streamsvm.runs.records import parse

CONFIG = {
    "solver": "dcsvm",
    "C": 2.0,
    "tol": 1e-3,
    "memory_limit": 1 << 30,
    "dcsvm": {"levels": 2},
    "bsgd": {"budget": 3},
}
START = {
    "store": "data.zarr",
    "n": 100,
    "d": 3,
    "config": CONFIG,
    "limit_bytes": 1 << 30,
    "time": "2026-01-01T00:00:00",
}


def record(event: str, t: float, **fields: Any) -> dict[str, Any]:
    return {"event": event, "t": t, **fields}


def parsed(record: dict[str, Any]) -> Record[Event]:
    """As it is read from a file."""
    found = parse(json.dumps(record).encode())
    assert found is not None
    return found


def round_(number: int, **fields: Any) -> dict[str, Any]:
    facts = {"phase": "top", "problem": 0, "round": number, "violation": 10.0**-number}
    return record("round", 1 + number / 10, **facts, objective=-9 - 1 / number, gap=1 / number) | fields


SUPPORT = [record("support", 4, level=level, precision=0.8, recall=0.9) for level in (2, 1)]
LEVELS = [
    record("level", 1.0 + i, level=level, parts=4**level, max_rows=9, n_support=7, objective=-9.0 + i)
    for i, level in enumerate((2, 1))
]
ROUNDS = [round_(number) for number in range(1, 5)]
WORKING = [round_(number, phase="solve", working_set=8, active=90 - number) for number in range(1, 5)]
STEPS = [
    record("step", i / 3, step=i, passes=2 * i, objective=9 + 9.0 / i, bound=9 - 9.0 / i, gap=1 / i, planes=i)
    for i in range(1, 6)
]
ADMM = [record("step", i / 3, step=i, primal=1 / i, dual=2 / i, beta=1.0) for i in range(1, 6)]
HSS = [
    record(
        "hss",
        3,
        rows=64,
        depth=2,
        hss_ranks=[{"mean": 3.5, "most": 4}, {"mean": 2.0, "most": 3}],
        ranks=[[3, 4], [1, 2, 2, 3]],
    )
]
WINDOWS = [
    record("window", i, steps=100 * i, supports=40, degradation=0.1 * i, accuracy=0.8 + i / 100) for i in range(1, 6)
]
PARTS = [record("parts", 2, level=1, rows=[60, 40], n_support=[4, 3], seconds=[0.5, None], places=[[0, 1], [2, 0]])]
TASKS = [record("tasks", 2, phase="level 1", spans=[[0, 1.0, 1.5], [1, 1.0, 1.75]])]
STRETCHES = [
    record("stretch", i, steps=100 * i, events=100 * i, supports=40, accuracy=0.8, degradation=0.0)
    | {"labels": {"a": 90 - 10 * i, "b": 10 + 10 * i}, "answer_s": 1e-3, "slowest_s": 0.1}
    for i in range(1, 6)
]
MEMORY = [record("memory", i, rss_bytes=(200 + 10 * i) << 20) for i in range(5)]
WARNING = [record("warning", 2, message="the disk is nearly full")]
RESULT = {
    "solver": "dcsvm",
    "n_support": 7,
    "objective": -9.5,
    "gap": 1e-3,
    "seconds_by_phase": {"read": 0.5, "top": 2.0},
}
EVALUATION = {
    "store": "test.zarr",
    "accuracy": 0.75,
    "classes": ["no", "yes"],
    "confusion": [[3, 1], [1, 3]],
    "per_class": [{"label": "no", "recall": 0.75}, {"label": "yes", "recall": 0.75}],
    "roc": [[0, 0], [0.25, 0.75], [1, 1]],
    "precision_recall": [[0.75, 0.75], [1, 0.5]],
    "histogram": {"edges": [-1, 0, 1], "counts": [[3, 1], [1, 3]], "threshold": 0.0},
    "parts": {"rows": [4, 0], "right": [3, 0]},
}
BY_CLASS = {
    "classes": ["a", "b", "c"],
    "curves_by_class": [
        {
            "label": label,
            "roc_auc": 0.75,
            "roc": [[0, 0], [0.25, 0.75], [1, 1]],
            "precision_recall": [[1, 0.5]],
        }
        for label in "abc"
    ],
}
RELIABILITY = {"reliability": [{"confidence": i / 5, "frequency": i / 5, "count": 9} for i in range(5)]}
THRESHOLD = {
    "threshold": {
        "wish": "f1",
        "value": 0.25,
        "met": True,
        "rows": 90,
        **dict.fromkeys(("precision", "recall", "f1", "balanced_accuracy"), 0.75),
        "expected": {"f1": {"score": 0.7, "low": 0.6, "high": 0.8}},
        "curve": [[0.5, 1.0], [0.75, 0.75], [1.0, 0.5]],
    }
}
METRIC = {
    "metric": {
        "kind": "diagonal",
        "kernel": "matern",
        "C": 30.0,
        "gamma": 1.2,
        "score": 0.89,
        "plain_score": 0.85,
        "columns": 3,
        "importances": [["elevation", 0.62], ["distance to the nearest road", 0.3], ["slope", 0.08]],
        "rungs": [
            {"rows": 2000, "kernel": "rbf", "C": 3.0, "gamma": 0.7, "columns": 5, "score": 0.81},
            {"rows": 8000, "kernel": "matern", "C": 30.0, "gamma": 1.2, "columns": 3, "score": 0.89},
        ],
    },
    "parts": {
        "columns": ["elevation", "slope"],
        "shares": [[0.9, 0.1], [0.25, 0.75], [0.5, 0.5]],
        "rows": [9912, 400, 8000],
        "own": 2,
    },
}
TUNE = [
    {"gamma": g, "C": C, "mean_score": 0.5 + g * C / 10, "std_score": 0.01, "seconds": 0.5}
    for g in (0.1, 1.0)
    for C in (0.5, 1.0, 2.0)
]


def write_run(
    folder: Path,
    records: Iterable[dict[str, Any]] = (),
    *,
    start: dict[str, Any] | None = None,
    end: str | None = "done",
    **files: Any,
) -> Path:
    """A run directory with these records between its start and its end; files: result={...} and so on."""
    folder.mkdir(parents=True, exist_ok=True)
    begun = record("start", 0.0, resume=False, **(START if start is None else start))
    ended = [record(end, 9.0, message="made up")] if end else []
    lines = [json.dumps(r) for r in (begun, *records, *ended)]
    (folder / "events.jsonl").write_text("\n".join(lines) + "\n")
    for name, value in files.items():
        (folder / f"{name}.json").write_text(json.dumps(value))
    return folder


def everything(folder: Path, **more: Any) -> Path:
    """A run that has something for every section."""
    records = [
        *LEVELS,
        *ROUNDS,
        *WORKING,
        *STEPS,
        *HSS,
        *WINDOWS,
        *SUPPORT,
        *PARTS,
        *TASKS,
        *MEMORY,
        *WARNING,
    ]
    return write_run(
        folder,
        records,
        result=RESULT | METRIC | THRESHOLD,
        evaluation=EVALUATION | RELIABILITY,
        tune=TUNE,
        **more,
    )
