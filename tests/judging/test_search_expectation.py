"""A fit that decides worse than the search that chose its options is noticed, before its model is written."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from making import write

from streamsvm.choosing import choices
from streamsvm.data.rows import Rows
from streamsvm.events import Event, Events, Record, Warned
from streamsvm.fits import divided, prepare
from streamsvm.models.files import load_model
from streamsvm.search.options import completed
from streamsvm.train import train

FEW: dict[str, Any] = {
    "threads": 2,
    "metric": {"kind": "none"},
    "kernel": {"name": "rbf"},
    "scale": "standard",
}
EARLY: dict[str, Any] = {"dcsvm": {"early": True, "levels": 1}}
CASES: dict[str, dict[str, Any]] = {
    "exact": {},
    "early numbers": EARLY | {"task": "regress"},
    "kept out and in files": EARLY | {"holdout": 100},
}


def table(n: int = 600) -> tuple[np.ndarray, np.ndarray]:
    X = np.random.default_rng(0).normal(size=(n, 3)).astype(np.float32)
    return X, np.digitize(np.sin(2 * X[:, 0]) + X[:, 1], (-0.5, 0.5))


def broken(name: str, monkeypatch: pytest.MonkeyPatch, *modules: Any) -> None:
    """Prepares all rows alike: values of the kernel differ from 1 by nothing."""
    original = prepare.measured

    def measured(store, config, *args):
        scaling, kernel = original(store, config, *args)
        return scaling, replace(kernel, gamma=1e-9)

    for module in modules:
        monkeypatch.setattr(module, name, measured)


def fitted(folder: Path, **options: Any) -> tuple[Any, dict[str, Any], list[str]]:
    X, y = table()
    heard: list[str] = []

    def hear(record: Record[Event]) -> None:
        if isinstance(record.event, Warned):
            heard.append(record.event.message)

    store = write(folder / "s.zarr", Rows(X), y.astype(float) if "task" in options else y)
    config = completed([("t", FEW | {"search": {"trials": 4, "options": ["C", "gamma"]}} | options)])
    report = train(store, config, model_path=folder / "m.zarr", run_dir=folder / "run", events=Events(hear))
    return load_model(folder / "m.zarr"), report, [line for line in heard if "the search expects" in line]


def score(model: Any, options: dict[str, Any]) -> float:
    X, y = table()
    found = model.predict(Rows(X))
    return float(1 - np.mean((found - y) ** 2) / y.var() if "task" in options else np.mean(found == y))


@pytest.mark.parametrize("name", CASES)
def test_rows_that_are_prepared_wrongly_are_prepared_and_trained_again(name, tmp_path, monkeypatch):
    """The gamma that was chosen is not the one that is trained, until the options are prepared without a search."""
    options = CASES[name]
    if "files" in name:
        monkeypatch.setattr(divided, "STREAMED_SHARE", 1 << 40)
    right, _, nothing = fitted(tmp_path / "right", **options)
    assert nothing == []
    broken("measured", monkeypatch, choices)
    model, report, said = fitted(tmp_path / "wrong", **options)
    [line] = said
    assert "prepared and trained again it has" in line
    assert score(model, options) == pytest.approx(score(right, options), abs=0.02)
    assert model.header.kernel == right.header.kernel
    assert report["expected"]["high"] > 0.7


@pytest.mark.parametrize("name", ["early numbers", "exact"])
def test_a_model_that_stays_below_is_told_with_what_it_scores(name, tmp_path, monkeypatch):
    options = CASES[name]
    broken("measured", monkeypatch, choices, prepare)
    model, report, said = fitted(tmp_path, **options)
    [line] = said
    assert "do not rely on the choice" in line
    assert report["expected"]["score"] == pytest.approx(score(model, options), abs=0.05)  # which is the mean over folds
