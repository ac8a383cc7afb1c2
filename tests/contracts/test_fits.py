"""What every solver keeps to from a store to a page: certificates, interruptions, models in files, reports."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cases import EVERY_STEP, GAPS, PAGES, PLAIN, SOLVERS, config, labelled
from making import write
from stepwise import train_by_single_steps

from streamsvm.cli.app import app
from streamsvm.config import FitConfig
from streamsvm.data.rows import Rows
from streamsvm.data.store import Store
from streamsvm.events import STEPS, Event, Events, Planned, Progress, Record, Round
from streamsvm.models.files import load_model
from streamsvm.report.html import contents
from streamsvm.report.parts import Plot
from streamsvm.report.read import read_run
from streamsvm.solvers.catalogue import solver_row
from streamsvm.train import train, train_in_memory

pytestmark = pytest.mark.parametrize("name", SOLVERS)


def small_steps(name: str) -> FitConfig:
    return config(name, **EVERY_STEP)


def decisions(model: Path, k: int = 3) -> np.ndarray:
    return load_model(model).decision_function(Rows(labelled(k)[0]))


@pytest.fixture(scope="module")
def stores(tmp_path_factory) -> dict[int, Store]:
    """By number of classes, several chunks each."""
    folder = tmp_path_factory.mktemp("stores")
    return {k: write(folder / str(k), Rows(labelled(k)[0]), labelled(k)[1], step=100, chunk_rows=100) for k in (2, 3)}


@pytest.fixture(scope="module")
def whole(stores, tmp_path_factory) -> Callable[..., tuple[dict[str, Any], Path, list[str]]]:
    """whole(name, k): (report, folder of `model` and `run`, names of all events) of a fit that nothing disturbs."""

    @cache
    def fitted(name: str, k: int = 3) -> tuple[dict[str, Any], Path, list[str]]:
        folder, told = tmp_path_factory.mktemp("whole"), list[str]()
        paths = {"model_path": folder / "model", "run_dir": folder / "run"}
        events = Events(lambda record: told.append(record.event.kind))
        return train(stores[k], small_steps(name), **paths, events=events), folder, told

    return fitted


@pytest.mark.parametrize("k", [2, 3])
def test_the_certificate_is_kept_and_small(name, k, whole):
    report, folder, _ = whole(name, k)
    certificate = load_model(folder / "model").header.certificate
    for fact in ("objective", "gap", "converged"):
        assert certificate[fact] == report[fact]
    ends = "tol" in solver_row(config(name).solver).reads
    assert report["converged"] is (True if ends else None)
    if not ends:
        assert report["gap"] is None
    else:
        assert 0 <= report["gap"] <= GAPS.get(name, config(name).tol) * abs(report["objective"])


def test_the_saved_model_is_the_one_in_memory_on_one_thread(name, stores, whole):
    report, folder, _ = whole(name)
    model, again = train_in_memory(stores[3], config(name, threads=1))
    expected = model.decision_function(Rows(labelled(3)[0]))
    np.testing.assert_array_equal(decisions(folder / "model"), expected)
    assert again["objective"] == report["objective"]


MADE = {step.kind for step in STEPS}


@pytest.mark.filterwarnings("ignore:.*holds no whole checkpoint")
@pytest.mark.parametrize("share", [0.6, *(pytest.param(one, marks=pytest.mark.slow) for one in (0.3, 0.9))])
def test_interrupted_and_resumed_it_is_the_same(name, share, stores, whole, tmp_path):
    """After a share of the steps of an undisturbed fit; what else is told depends on the clock and what is compiled."""
    _, folder, told = whole(name)
    made = MADE if MADE & set(told) else {Progress.kind}  # as solvers from outside may tell
    left = math.ceil(share * sum(kind in made for kind in told))

    def interrupt(record: Record[Event]) -> None:
        nonlocal left
        is_step = record.event.kind in made  # others come from threads of their own
        left -= is_step
        if is_step and left == 0:
            raise KeyboardInterrupt

    run = {"model_path": tmp_path / "model", "run_dir": tmp_path / "run"}
    with pytest.raises(KeyboardInterrupt):
        train(stores[3], small_steps(name), **run, events=Events(interrupt))
    assert not (tmp_path / "model").exists()
    train(stores[3], small_steps(name), **run, resume=True)
    np.testing.assert_array_equal(decisions(tmp_path / "model"), decisions(folder / "model"))


@pytest.mark.filterwarnings("ignore:.*holds no whole checkpoint")
def test_ended_and_resumed_it_is_the_same(name, stores, tmp_path):
    """As after a kill between its model and its end, when the last checkpoint is of a step before the end."""
    run = {"model_path": tmp_path / "model", "run_dir": tmp_path / "run"}
    few = config(name, checkpoint_every="3 steps")
    train(stores[3], few, **run)
    expected = decisions(tmp_path / "model")
    train(stores[3], few, **run, resume=True)
    np.testing.assert_array_equal(decisions(tmp_path / "model"), expected)


def test_a_page_tells_of_the_fit(name, stores, whole, capsys):
    report, folder, _ = whole(name, 2)
    sections, plots = PAGES.get(name, PLAIN)
    run = read_run(folder / "run")
    assert run.status == "finished"
    assert run.config["C"] == 5.0
    assert run.started.limit_bytes == 8 << 30
    assert run.last(Planned).kernel["name"] == config(name).kernel.name
    assert run.result["objective"] == report["objective"]
    assert run.result["peak_rss_bytes"] > 10 << 20
    shown = contents([run])
    assert {section.id for section, _ in shown} - {"summary", "warnings"} == sections
    drawn = {part.name for _, parts in shown for part in parts if isinstance(part, Plot)}
    assert drawn - {"tasks"} == plots | {
        "phases",
        "memory",
    }  # tasks: only those that take a millisecond or two
    for last in [event for _, event in run.of(Round) if event.gap is not None][-1:]:
        assert last.objective == pytest.approx(report["objective"])
        assert last.gap == pytest.approx(report["gap"], abs=1e-6 * abs(report["objective"]))

    words = ["--model", folder / "model", "--store", stores[2].url, "--run-dir", folder / "run", "--json"]
    app(["evaluate", *map(str, words)], standalone_mode=False)
    said = json.loads(capsys.readouterr().out)
    assert "roc" not in said
    scored = read_run(folder / "run")
    assert scored.evaluation["accuracy"] == said["accuracy"]
    assert scored.evaluation["roc"][-1] == [1, 1]
    assert {section.id for section, _ in contents([scored])} >= {"scores"}


@pytest.mark.slow  # as many fits as steps
def test_stopped_after_every_step_it_is_the_same(name, tmp_path):
    X, y = (array[:200] for array in labelled(2))
    store = write(tmp_path / "store", Rows(X), y, step=100, chunk_rows=100)
    train(store, small_steps(name), model_path=tmp_path / "whole")
    assert train_by_single_steps(store, small_steps(name), tmp_path / "model", tmp_path / "run") > 3
    np.testing.assert_array_equal(decisions(tmp_path / "model", 2), decisions(tmp_path / "whole", 2))
