"""What fits of tasks that read no labels keep to, from a store without any to a page."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cases import EVERY_STEP, SHARES, WITHOUT_LABELS, config, labelled
from making import write
from stepwise import train_by_single_steps

from streamsvm.cli.app import app
from streamsvm.data.rows import Rows
from streamsvm.data.store import Store
from streamsvm.errors import ConfigError
from streamsvm.events import STEPS, Event, Events, Record
from streamsvm.models.files import load_model
from streamsvm.report.html import contents
from streamsvm.report.read import read_run
from streamsvm.train import graph_of, plan, train, train_in_memory

pytestmark = pytest.mark.parametrize("name", WITHOUT_LABELS)
MADE = {step.kind for step in STEPS}


@pytest.fixture(scope="module")
def store(tmp_path_factory) -> Store:
    """Several chunks."""
    return write(tmp_path_factory.mktemp("stores") / "s", Rows(labelled()[0]), step=100, chunk_rows=100)


@pytest.fixture(scope="module")
def whole(store, tmp_path_factory) -> Callable[[str], tuple[dict[str, Any], Path, list[str]]]:
    @cache
    def fitted(name: str) -> tuple[dict[str, Any], Path, list[str]]:
        folder, told = tmp_path_factory.mktemp("whole"), list[str]()
        paths = {"model_path": folder / "model", "run_dir": folder / "run"}
        report = train(store, small(name), **paths, events=Events(lambda record: told.append(record.event.kind)))
        return report, folder, told

    return fitted


def small(name: str, **values: Any) -> Any:
    return config(name, **EVERY_STEP, **values)


def decisions(folder: Path) -> np.ndarray:
    return load_model(folder / "model").decision_function(Rows(labelled()[0]))


def test_the_certificate_is_kept_and_small(name, whole):
    report, folder, _ = whole(name)
    certificate = load_model(folder / "model").header.certificate
    assert all(certificate[fact] == report[fact] for fact in ("objective", "gap", "converged"))
    if report["gap"] is None:
        return
    assert report["converged"]
    assert -1e-6 * report["objective"] <= report["gap"] <= 1e-3 * report["objective"]


def test_the_share_of_outliers_is_as_asked_for(name, whole):
    assert np.mean(decisions(whole(name)[1]) < 0) == pytest.approx(0.1, abs=SHARES.get(name, 0.015))


def test_one_thread_labels_and_rows_in_files_change_nothing(name, whole, store, monkeypatch):
    expected = decisions(whole(name)[1])
    X, y = labelled()
    one, _ = train_in_memory(Store.from_arrays(X, y), config(name, threads=1, C=7.0))
    np.testing.assert_array_equal(one.decision_function(Rows(X)), expected)
    monkeypatch.setattr("streamsvm.fits.divided.stay_in_memory", lambda *_: False)
    there, _ = train_in_memory(store, config(name))
    np.testing.assert_array_equal(there.decision_function(Rows(X)), expected)


@pytest.mark.filterwarnings("ignore:.*holds no whole checkpoint")
@pytest.mark.parametrize("share", [0.3, 0.8])
def test_interrupted_and_resumed_it_is_the_same(name, share, store, whole, tmp_path):
    _, folder, told = whole(name)
    left = math.ceil(share * sum(kind in MADE for kind in told))

    def interrupt(record: Record[Event]) -> None:
        nonlocal left
        is_step = isinstance(record.event, STEPS)  # others come from threads of their own
        left -= is_step
        if is_step and left == 0:
            raise KeyboardInterrupt

    run = {"model_path": tmp_path / "model", "run_dir": tmp_path / "run"}
    with pytest.raises(KeyboardInterrupt):
        train(store, small(name), **run, events=Events(interrupt))
    train(store, small(name), **run, resume=True)
    np.testing.assert_array_equal(decisions(tmp_path), decisions(folder))


@pytest.mark.slow  # as many fits as steps
def test_stopped_after_every_step_it_is_the_same(name, store, whole, tmp_path):
    assert train_by_single_steps(store, small(name), tmp_path / "model", tmp_path / "run") > 3
    np.testing.assert_array_equal(decisions(tmp_path), decisions(whole(name)[1]))


def test_a_page_tells_of_the_fit(name, store, whole, capsys):
    report, folder, _ = whole(name)
    run = read_run(folder / "run")
    assert run.status == "finished"
    assert run.result["objective"] == report["objective"]
    words = ["--model", folder / "model", "--store", store.url, "--run-dir", folder / "run", "--json"]
    app(["evaluate", *map(str, words)], standalone_mode=False)
    assert json.loads(capsys.readouterr().out)["outliers"] == pytest.approx(0.1, abs=SHARES.get(name, 0.015))
    assert {section.id for section, _ in contents([read_run(folder / "run")])} >= {"summary", "cost"}


def test_it_is_planned_as_it_is(name, store, whole):
    assert plan(store, config(name))["n"] == store.n
    if not config(name).dcsvm.early:
        with pytest.raises(ConfigError, match="a graph needs an early fit"):
            graph_of(store, config(name))
        return
    model = graph_of(store, config(name)).compute(scheduler="sync")
    np.testing.assert_array_equal(model.decision_function(Rows(labelled()[0])), decisions(whole(name)[1]))
