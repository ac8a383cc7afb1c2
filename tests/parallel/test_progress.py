"""Progress moves with every task that ends, and with the shares of those at work; compiling has a name."""

from __future__ import annotations

import threading
import time

import numba as nb
import numpy as np
import pytest

from streamsvm.config import build_config
from streamsvm.data.store import Store
from streamsvm.events import Events, Progress
from streamsvm.fits.parts import PartitionSolver
from streamsvm.parallel.compiling import PHASE, compile_notices, compiled_s
from streamsvm.parallel.engine import Engine
from streamsvm.progress import Meter, advance
from streamsvm.runs.phases import Phases
from streamsvm.train import train, train_in_memory


def told(records, phase="work"):
    return [event.done for _, event in records if isinstance(event, Progress) and event.phase == phase]


def rows(n=600):
    X = np.random.default_rng(0).normal(size=(n, 3)).astype(np.float32)
    return Store.from_arrays(X, (X[:, 0] * X[:, 1] > 0).astype(int))


def test_a_task_counts_when_it_ends_not_when_its_window_does():
    """The first task of a window waits until nine others were counted."""
    records, nine = [], threading.Event()

    def sink(record):
        records.append(record)
        if record.event.done == 9:
            nine.set()

    def work(item):
        assert item > 0 or nine.wait(30)

    list(Engine(2).map(work, range(10), window=10, phase="work", events=Events(sink)))
    assert told(records) == list(range(11))


def test_tasks_that_take_long_tell_their_share():
    def work(item):
        for share in (0.25, 0.5, 0.1):
            time.sleep(0.25)
            advance(share)

    records = []
    list(Engine(1).map(work, range(2), phase="work", events=Events(records.append)))
    assert told(records) == [0, 0.25, 0.5, 0.5, 1, 1.25, 1.5, 1.5, 2]


def test_where_nobody_counts_a_share_is_no_error():
    advance(0.5)


def test_a_task_that_runs_twice_counts_once():
    records = []
    meter = Meter(Events(records.append), "work", 2)
    for number in (1, 1, 0):
        meter.end(number)
    assert told(records) == [0, 1, 2]


def test_nothing_is_told_of_a_map_that_was_left():
    records = []
    results = Engine(1).map(str, range(9), window=1, phase="work", events=Events(records.append))
    next(results)
    results.close()
    before = len(records)
    time.sleep(0.1)
    assert len(records) == before < 9


def test_no_silence_in_a_fit(monkeypatch):
    """16 parts on two threads are one window, which went by without a word."""
    solve, seen, before = PartitionSolver.__call__, [], []

    def told_of():
        return [event for _, event in seen if isinstance(event, Progress) and event.phase == "level 2"]

    def solving(*args):
        before.append(len(told_of()))
        return solve(*args)

    options = {"threads": 2, "dcsvm": {"early": True, "levels": 2, "part_rows": 100}}
    monkeypatch.setattr(PartitionSolver, "__call__", solving)
    train_in_memory(rows(), build_config(("test", options)), Events(seen.append))
    assert len(told_of()) > 16
    assert len(before) >= 16
    assert max(number - told for number, told in enumerate(before[:16])) <= 2


def compiled_now():
    @nb.njit
    def inner(x):
        return x + 1

    @nb.njit
    def outer(x):
        return inner(x) * 2

    return outer(1)


def test_compiling_is_told_and_timed():
    records, before = [], compiled_s()
    with compile_notices(Events(records.append)), compile_notices(Events(pytest.fail)):
        assert compiled_now() == 4
    compiled_now()
    assert {event.phase for _, event in records} == {PHASE}
    assert [event.total is None for _, event in records] == [True] * (len(records) - 1) + [False]
    assert records[-1].event.done == records[-1].event.total >= 2
    assert len(records) == 3  # two begin, the outer one ends
    wall, cpu = (now - then for now, then in zip(compiled_s(), before, strict=True))
    assert 0 < cpu <= wall + 0.1


def test_compiling_inside_a_phase_is_a_phase_of_its_own():
    phase, began = Phases(), time.perf_counter()
    with phase("outer"), phase("inner"):
        inside = time.perf_counter()
        compiled_now()
        inside_s = time.perf_counter() - inside
    report, outside_s = phase.report()["seconds_by_phase"], time.perf_counter() - began
    assert report["compile"] > 0.5 * sum(report.values())
    assert inside_s - 1e-3 <= sum(report.values()) <= outside_s + 1e-3  # which are rounded


def test_phases_add_up_to_the_seconds_of_the_command(tmp_path):
    report = train(rows(), build_config(("test", {"kernel": {"gamma": 1.0}})), model_path=tmp_path / "m")
    phases = report["seconds_by_phase"]
    assert list(phases)[0] == "start"
    assert list(phases)[-1] == "other"
    assert sum(phases.values()) == pytest.approx(report["seconds"], abs=0.01)
    assert phases.keys() == report["cores_busy_by_phase"].keys()
