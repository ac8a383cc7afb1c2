"""What a fit will take by the trials before it, and what is done in the time that is left."""

from __future__ import annotations

import math
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from streamsvm import Store, load_model
from streamsvm import train as recipe
from streamsvm.choosing import time_budget
from streamsvm.choosing.metric_search import RECORD_FIELDS
from streamsvm.choosing.time_budget import (
    END_S,
    FEWEST,
    TIMES,
    FitTimes,
    in_time,
    planned_in_time,
    rows_in_time,
    with_more_rows,
    with_sample,
)
from streamsvm.config import build_config
from streamsvm.data.rows import Rows
from streamsvm.errors import MemoryLimitError, StorageError
from streamsvm.events import Events, Warned, ignore
from streamsvm.fits.dcsvm import DCSVMFit
from streamsvm.fits.prepare import prepare, with_task
from streamsvm.parallel.engine import Engine
from streamsvm.runs.checkpoints import Checkpoints
from streamsvm.search.options import completed
from streamsvm.train import Run, fit_models, train_in_memory

STEPS = [
    {"rows": 1000, "support": 500, "seconds": 0.2, "kernel": "rbf", "score": 0.7},
    {"rows": 2000, "support": 800, "seconds": 0.9, "kernel": "rbf", "score": 0.8},
    {"rows": 2000, "support": 800, "seconds": 0.5, "kernel": "rbf", "score": 0.8},
]


def table(n: int = 900, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    X = np.random.default_rng(seed).normal(size=(n, 4)).astype(np.float32)
    return X, (X[:, 0] * X[:, 1] > 0).astype(int)


def prepared(**options: Any) -> Any:
    store = Store.from_arrays(*table())
    config = with_task(build_config(("t", {"threads": 1} | options)), store)
    return prepare(store, config, Engine(1))


def context(left_s: float, allowed: list[float] | None = None) -> Any:
    phase = SimpleNamespace(seconds={"scale": 0.1})
    told = [] if allowed is None else allowed
    return SimpleNamespace(left=lambda: left_s, phase=phase, events=ignore, allow=told.append)


def test_seconds_go_with_rows_times_support_vectors():
    power = math.log(800 / 500) / math.log(2)
    speed = FitTimes(STEPS, 0)
    assert speed.fit_s(4000, 4000) == pytest.approx(2 * 0.5 * 2 ** (1 + power))
    assert FitTimes(STEPS[:1], 0).fit_s(1000, 1000) == pytest.approx(0.4)
    halves = speed.fit_s(4000, 2000) / TIMES["early"]  # two parts, as dense as all rows are
    assert halves == pytest.approx(speed.fit_s(4000, 4000) / TIMES["exact"] / 2)


def test_without_a_time_counts_tell_how_many_rows_a_search_has():
    """The clock does not: the same command chooses the same."""
    data, ahead = prepared(search={"options": ["C"]}), [(8000, 40), (16_000, 80)]

    def rows(share: float, seconds: float) -> int:
        step = {"rows": 2000, "trials": 30, "support": int(2000 * share), "seconds": seconds}
        row = ({"kernel": "rbf", "score": 0.8} | step).get
        state: Any = SimpleNamespace(n=16_000, records=[[row(name) for name in RECORD_FIELDS]])
        return rows_in_time(data, state, ahead)

    assert rows(0.1, 1.0) == 16_000
    assert 2000 < rows(0.9, 1.0) < rows(0.5, 1.0) < 16_000
    assert rows(0.5, 1.0) == rows(0.5, 100.0)


@pytest.mark.parametrize(
    ("left_s", "early", "is_whole"), [(math.inf, False, True), (40.0, False, True), (2.5, True, False)]
)
def test_exact_where_time_allows_else_early_else_of_fewer_rows(left_s, early, is_whole, monkeypatch):
    monkeypatch.setattr(time_budget, "FEWEST", 300)
    data = prepared(search={"options": ["early"]}, dcsvm={"levels": 1})
    slow = [step | {"rows": step["rows"] // 5, "seconds": 2.5 * step["seconds"]} for step in STEPS]
    found = in_time(data, slow, context(left_s))
    assert found.config.dcsvm.early is early
    config, seconds = planned_in_time(data, slow, left_s, 0.1)  # a plan decides as the fit does
    assert (config.dcsvm, config.rows) == (found.config.dcsvm, found.config.rows)
    assert 0 < seconds <= left_s
    assert (found.store.n == data.store.n) is is_whole
    if not is_whole:
        assert found.config.rows == found.store.n == len(found.upper) == len(found.targets.codes)
        assert found.header().fingerprint == data.header().fingerprint  # of the whole store
    assert in_time(prepared(), slow, context(0.5)).config.dcsvm.early is False  # where nobody asks


def test_a_search_that_took_too_long_leaves_time_for_a_fit_like_its_last_trial(monkeypatch):
    monkeypatch.setattr(time_budget, "FEWEST", 300)
    monkeypatch.setattr(time_budget, "HURRY_S", 0.0)
    allowed: list[float] = []
    data, steps = prepared(search={"options": ["C"]}), [step | {"rows": step["rows"] // 5} for step in STEPS]
    found = in_time(data, steps, context(-9.0, allowed))
    assert allowed == [0.5 + END_S]
    assert found.config.rows == 400
    in_time(data, steps, context(100.0, allowed))
    assert len(allowed) == 1


def test_fits_on_folds_leave_time_for_the_fit_on_all_rows(monkeypatch):
    """A second for four of them; the first one takes half of it."""
    ends, original, clock = [], recipe.planned_fit, iter([0.0, 0.5, 0.5])

    def noted(store, config, run, *args):
        ends.append(run.until)
        return original(store, config, run, *args)

    monkeypatch.setattr(recipe, "planned_fit", noted)
    monkeypatch.setattr(recipe, "time", SimpleNamespace(time=lambda: next(clock)))
    options = {"probability": {"method": "sigmoid", "folds": 3}, "threads": 1}
    store = Store.from_arrays(*table(300))
    [(model, _)] = fit_models(store, with_task(build_config(("t", options)), store), Run(ignore, until=1.0))
    np.testing.assert_allclose(ends, [1 / 4, 0.5 + 0.5 / 3, 0.5 + 0.5 / 2, 1.0])
    assert model.header.calibration is not None


def test_a_long_budget_has_a_larger_sample_unless_one_is_given():
    data = prepared(search={"options": ["C"], "time_budget": 600})
    assert with_sample(data, 240.0).config.search.sample == 40_000
    assert with_sample(data, 1e9).config.search.sample == 60_000
    assert with_sample(data, math.inf) is data
    given = prepared(search={"options": ["C"], "sample": 500})
    assert with_sample(given, 600.0) is given


@pytest.mark.parametrize("early", [False, True])
def test_a_fit_whose_time_is_up_ends_with_a_model_and_says_so(early):
    X, y = table(1500)
    store, said = Store.from_arrays(X, y), []
    options = {"dcsvm": {"early": early, "levels": 1, "part_rows": 700}, "C": 100.0, "threads": 1}
    config = with_task(build_config(("t", options)), store)
    events = Events(lambda record: said.append(record.event))
    [(model, report)] = fit_models(store, config, Run(events, until=0.0))
    assert report["converged"] is False
    assert any(isinstance(e, Warned) and "the time budget ended the fit" in e.message for e in said)
    right = float(np.mean(model.predict(Rows(table(500, 1)[0])) == table(500, 1)[1]))
    assert right > 0.8  # parts learn from few of their rows, the whole in a round
    [(_, whole)] = fit_models(store, config, Run(ignore))
    assert whole["converged"] is True


def test_trials_end_a_search_the_same_way_each_time():
    few = [("t", {"search": {"trials": 3}, "threads": 2})]
    store = Store.from_arrays(*table())
    (one, first), (other, second) = (train_in_memory(store, completed(few), ignore) for _ in range(2))
    assert len(first["metric"]["rungs"]) == 3
    assert "plain_score" not in first["metric"]
    np.testing.assert_array_equal(one.decision_function(table()[0]), other.decision_function(table()[0]))
    assert first["expected"] == second["expected"]


@pytest.mark.slow  # seconds have to pass
def test_a_budget_of_seconds_is_kept():
    """However short it is: a step, and a fit."""
    X, y = table(3000)
    options = [("t", {"search": {"time_budget": 5}, "threads": 1})]
    _, report = train_in_memory(Store.from_arrays(X, y), completed(options), ignore)
    assert report["seconds_by_phase"]["search"] < 5.0
    assert report["metric"]["rungs"]


@pytest.mark.parametrize(("left_s", "levels"), [(math.inf, None), (100.0, 1), (40.0, None)])
def test_of_a_large_budget_parts_are_as_large_as_it_allows(left_s, levels):
    """Of 256,000 rows, where two levels are usual and an exact fit takes too long."""
    store = SimpleNamespace(n=256_000)
    config = completed([("t", {})])
    slow = [step | {"seconds": 0.05} for step in STEPS]
    data = replace(prepared(), config=config, store=store)
    assert in_time(data, slow, context(left_s)).config.dcsvm.levels == levels


def large(n: int = 50_000) -> Any:
    X, y = table(n)
    config = with_task(build_config(("t", {"threads": 1, "search": {"options": ["C"]}})), Store.from_arrays(X, y))
    return prepare(Store.from_arrays(X, y), config, Engine(1))


def test_as_many_rows_as_the_time_left_allows_where_seconds_grow_faster_than_rows():
    """Twice the rows take more than three times as long, so 0.75 of the time is enough for more than 0.6 of them."""
    data, steps = large(10_000), STEPS
    whole_s = FitTimes.of(steps, data).least_fit_s(10_000, data.config, 0.1)
    found = in_time(data, steps, context(0.75 * whole_s))
    assert 0.65 * 10_000 < found.store.n < 10_000
    assert found.all_rows is data


def test_no_hurry_leaves_fewer_than_some_thousands_of_rows():
    """A moment in which the search was slow costs seconds, and not the model."""
    allowed: list[float] = []
    slow = [step | {"seconds": 10 * step["seconds"]} for step in STEPS]
    found = in_time(large(), slow, context(1.0, allowed))
    assert found.store.n == FEWEST
    assert 5.0 < allowed[0] < 20.0


@pytest.mark.parametrize(
    ("left_s", "took_s", "rows"),
    [(9.0, 0.02, (50_000, 50_000)), (9.0, 1.0, (4500, 49_999)), (1.5, 0.5, None)],
)
def test_a_fit_that_ends_before_it_was_expected_is_repeated_with_more_rows(left_s, took_s, rows):
    slow = [step | {"seconds": 10 * step["seconds"]} for step in STEPS]
    first = replace(in_time(large(), slow, context(1.0)), choices={"rungs": slow})
    assert first.all_rows is not None
    more = with_more_rows(first, took_s, context(left_s))
    if rows is None:
        assert more is None
        return
    assert more is not None
    assert rows[0] <= more.store.n <= rows[1]


HASTY = {
    "search": {"time_budget": 1000, "trials": 2},
    "metric": {"kind": "none"},
    "threads": 1,
    "checkpoint_every": "1 step",
    "memory_limit": "8GiB",  # which decides, and not what this process holds
}


@pytest.fixture
def slow_search(monkeypatch):
    """The search is told to be slow, so that a fit of few rows comes first; the clock of the fit is not. Nor does the
    search end early, however busy the machine is: then other options would be chosen."""
    monkeypatch.setattr(time_budget.Deadline, "is_late", lambda *args: False)
    monkeypatch.setattr(time_budget, "FEWEST", 300)
    original = time_budget.FitTimes.of

    def slow(cls: Any, steps: Any, data: Any, **own: Any) -> Any:
        found = original(steps, data, **own)
        return replace(found, steps=[{**step, "seconds": 1e4} for step in found.steps])

    monkeypatch.setattr(time_budget.FitTimes, "of", classmethod(slow))
    monkeypatch.setattr("streamsvm.choosing.solve.with_more_rows", all_of_them)


def all_of_them(data: Any, took_s: float, context: Any) -> Any:
    assert data.all_rows is not None
    return data.all_rows if data.store.n < 1500 else None


@pytest.mark.usefixtures("slow_search")
def test_the_model_is_of_the_rows_for_which_there_was_time_in_the_end(monkeypatch):
    said: list[Any] = []
    events = Events(lambda record: said.append(record.event))
    store = Store.from_arrays(*table(1500))
    model, report = train_in_memory(store, completed([("t", HASTY)]), events)
    assert report["n"] == 1500
    assert not any(isinstance(event, Warned) and "the time left" in event.message for event in said)
    monkeypatch.setattr("streamsvm.choosing.solve.with_more_rows", lambda *args: None)
    _, report = train_in_memory(store, completed([("t", HASTY)]), events)
    assert report["n"] < 1500
    assert any(isinstance(event, Warned) and "the time left was enough" in event.message for event in said)


@pytest.mark.parametrize("error", [MemoryLimitError("too little memory"), StorageError("disk full"), MemoryError()])
@pytest.mark.parametrize("at", ["plan", "solve"])
@pytest.mark.usefixtures("slow_search")
def test_a_larger_fit_that_fails_leaves_the_model_before_it(error, at, monkeypatch, tmp_path):
    said: list[Any] = []
    plan, solve = DCSVMFit.__init__, DCSVMFit.solve

    def planned(self: Any, data: Any, context: Any) -> None:
        plan(self, data, context)
        if at == "plan" and data.store.n == 1500:
            raise error

    def solved(self: Any, draft: Any) -> Any:
        if at == "solve" and self.store.n == 1500:
            raise error
        return solve(self, draft)

    monkeypatch.setattr(DCSVMFit, "__init__", planned)
    monkeypatch.setattr(DCSVMFit, "solve", solved)
    events = Events(lambda record: said.append(record.event))
    store, config = Store.from_arrays(*table(1500)), completed([("t", HASTY)])
    report = recipe.train(store, config, model_path=tmp_path / "m", run_dir=tmp_path / "run", events=events)
    assert report["n"] == 1000
    messages = [event.message for event in said if isinstance(event, Warned)]
    what = str(error) or "MemoryError"
    assert f"a fit of 1,500 rows failed ({what}): the model is that of 1,000 rows" in messages
    assert messages[-1] == "the time left was enough to learn from 1,000 of 1,500 rows"
    X, y = table(500, 1)
    assert np.mean(load_model(tmp_path / "m").predict(Rows(X)) == y) > 0.8


@pytest.mark.usefixtures("slow_search")
def test_a_resumed_fit_has_the_rows_and_options_that_were_chosen_whatever_time_is_left(monkeypatch, tmp_path):
    """The first time it is killed in its fit of few rows, the second time in that of all."""
    ways = {"model_path": tmp_path / "m", "run_dir": tmp_path / "run"}
    store, config, killed = Store.from_arrays(*table(1500)), completed([("t", HASTY)]), [1000, 1500]
    offer, loaded = Checkpoints.offer, list[int]()

    def kill(self: Any, state: Any, **own: Any) -> None:
        offer(self, state, **own)
        if killed and self.choice.get("rows") == killed[0]:
            del killed[0]
            raise KeyboardInterrupt

    def load(self: Any) -> Any:
        found = read(self)
        loaded.extend([self.choice["rows"]] if found is not None and self.choice else [])
        return found

    read = Checkpoints.load
    monkeypatch.setattr(Checkpoints, "offer", kill)
    monkeypatch.setattr(Checkpoints, "load", load)
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            recipe.train(store, config, resume=(tmp_path / "run").exists(), events=ignore, **ways)
        monkeypatch.setattr(time_budget, "FEWEST", 1200)  # would choose other rows now
    report = recipe.train(store, config, resume=True, events=ignore, **ways)
    assert loaded == [1000, 1000, 1500]
    assert report["n"] == 1500
    whole = recipe.train(store, config, model_path=tmp_path / "other", events=ignore)
    assert report["objective"] == pytest.approx(whole["objective"], rel=1e-6)
