"""The search for a metric, on an oracle whose losses are known: what it tries, keeps, and goes on from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from streamsvm.choosing.metric_search import (
    FittedTrial,
    MetricSearch,
    MetricState,
    Track,
    Trial,
    TrialResult,
    chosen,
    facts,
)
from streamsvm.errors import ConfigError
from streamsvm.solvers.loop import run

D, H = 3, 400
GIVEN = Trial("rbf", np.nan, 1.0)
SAME = np.ones((1, D))


class Known:
    """An oracle: losses have one minimum, at kernel b, gamma 8, C 30 and a metric of the first column alone; they fall
    with the rows. helps: whether a metric does."""

    def __init__(self, n: int = 8000, helps: bool = True) -> None:
        self.n, self.helps, self.asked = n, helps, list[tuple[int, Trial]]()

    def tried(
        self, rows: int, factor: np.ndarray, trials: Sequence[Trial], start: np.ndarray | None
    ) -> list[TrialResult]:
        self.asked += [(rows, trial) for trial in trials]
        return [TrialResult(self.losses(rows, factor, trial), np.full((rows, 1), trial.C)) for trial in trials]

    def losses(self, rows: int, factor: np.ndarray, trial: Trial) -> np.ndarray:
        gamma = 1.0 if np.isnan(trial.gamma) else trial.gamma
        far = abs(np.log2(gamma / 8)) + abs(np.log(trial.C / 30)) / 2 + 2.0 * (trial.kernel != "b")
        if self.helps:
            far += 3.0 * float(np.abs(factor[:, 1:]).sum() / np.abs(factor).sum())
        wrong = round(H * (0.05 + 0.02 * far + 20 / rows))
        return (np.arange(H) < wrong).astype(np.float64)

    def refitted(self, rows: int, factor: np.ndarray, trial: Trial, alpha: np.ndarray) -> np.ndarray:
        assert alpha.shape == (rows, 1)
        return factor * np.array([[1.0, 0.5, 0.5]])


def search(iterations: int = 12, gamma: bool = True, C: bool = True) -> MetricSearch:
    tracks = tuple(Track(Trial(name, 2.0, 10.0), SAME) for name in "abc")
    return MetricSearch(tracks, iterations, gamma, C, (GIVEN, SAME))


def found(search: MetricSearch, oracle: Known) -> MetricState:
    return run(search, oracle, stop=search.is_solved)


def test_the_search_finds_what_is_best_and_tries_few_on_all_rows():
    oracle = Known()
    state = found(search(), oracle)
    best = chosen(state)
    assert best.trial.kernel == "b"
    assert 4 <= best.trial.gamma <= 16
    assert 10 <= best.trial.C <= 90
    assert best.learned
    assert best.score == max(row["score"] for row in facts(state) if row["rows"] == oracle.n)
    rows = [rows for rows, _ in oracle.asked]
    assert rows.count(oracle.n) < len(rows) / 2
    assert len(state.records) <= search().total(oracle.n)


@pytest.mark.parametrize("name", ["gamma", "C"])
def test_what_is_given_is_kept(name):
    oracle = Known()
    found(search(gamma=name != "gamma", C=name != "C"), oracle)
    kept = {getattr(trial, name) for _, trial in oracle.asked if trial != GIVEN and trial.kernel != "rbf"}
    assert kept == {getattr(search().tracks[0].trial, name)}


def test_without_a_gain_of_more_than_chance_nothing_is_changed():
    state = found(search(), Known(helps=False))
    assert not chosen(state).learned
    same = np.zeros(H)
    given = FittedTrial(GIVEN, 10, SAME, same)
    by_two = FittedTrial(GIVEN, 10, np.array([[1.0, 0, 0]]), -(np.arange(H) < 2).astype(float))
    one_each = np.where(np.arange(H) < 3, -1.0, np.where(np.arange(H) < 5, 1.0, 0.0))
    assert by_two.beats(given)
    assert not FittedTrial(GIVEN, 10, np.array([[1.0, 0, 0]]), one_each).beats(given)


@pytest.mark.parametrize("iterations", [1, 2, 5, 12])
@pytest.mark.parametrize("n", [80, 1500, 8000])
def test_a_track_learns_as_many_metrics_as_are_asked_for(iterations, n):
    solver = search(iterations)
    assert sum(phase.steps for phase in solver.schedule(n)) == iterations + 1
    assert [phase.rows for phase in solver.schedule(n)] == sorted(phase.rows for phase in solver.schedule(n))
    assert solver.schedule(n)[-1].rows == n
    state = found(solver, Known(n))
    assert state.best is not None
    assert len(state.records) <= solver.total(n)


def test_from_any_state_it_goes_on_as_if_nothing_had_happened():
    solver, oracle = search(4), Known(3000)
    whole = found(solver, oracle)
    state = solver.init(oracle)
    while not solver.is_solved(state):
        state = MetricState.from_arrays(solver.step(oracle, state).to_arrays())
    assert state.records == whole.records
    for one, other in zip((state.best, *state.plain), (whole.best, *whole.plain), strict=True):
        np.testing.assert_array_equal(one.losses, other.losses)
        np.testing.assert_array_equal(one.factor, other.factor)
    assert chosen(state).trial == chosen(whole).trial


def test_tracks_of_a_search_before_go_on_with_all_rows_and_are_not_compared():
    oracle = Known()
    solver = MetricSearch((Track(Trial("b", 4.0, 10.0), SAME),), 6, True, True)
    state = found(solver, oracle)
    assert {rows for rows, _ in oracle.asked} == {oracle.n}
    assert not state.plain
    assert state.best.score > 0.9
    assert {trial.C for _, trial in oracle.asked[:5]} >= {10.0, 30.0}


def test_without_a_metric_nothing_is_tried_twice_on_the_same_rows():
    tracks = tuple(Track(Trial(name, 2.0, 10.0), SAME, learns=False) for name in "abcdefgh")
    oracle = Known(helps=False)
    state = found(MetricSearch(tracks, 12, True, True, (GIVEN, SAME)), oracle)
    assert chosen(state).trial.kernel == "b"
    assert max(map(oracle.asked.count, oracle.asked)) == 2  # once more in the end, next to the defaults
    assert len(set(oracle.asked)) > 0.9 * len(oracle.asked)
    assert len(facts(state)) < 60


def test_without_a_metric_the_best_of_all_steps_on_as_many_rows_is_chosen():
    """On few rows all phases have the same ones, and a later step may be worse than an earlier one."""
    tracks = (Track(Trial("b", 1.0, 30.0), SAME, learns=False),)
    best = chosen(found(MetricSearch(tracks, 12, True, True, (GIVEN, SAME)), Known(900, helps=False)))
    assert (best.trial.gamma, best.trial.C) == (8.0, 30.0)


@pytest.mark.parametrize(("most", "n"), [(3000, 3000), (0, 1000), (9000, 8000)])
def test_there_are_no_more_rows_than_there_is_time_for_and_no_fewer_than_were_tried(most, n):
    told: list[list[tuple[int, int]]] = []

    def affordable(state: MetricState, ahead: Sequence[tuple[int, int]]) -> int:
        told.append(list(ahead))
        return most

    oracle = Known()
    state = found(replace(search(), affordable=affordable), oracle)
    assert state.n == chosen(state).rows == max(rows for rows, _ in oracle.asked) == n
    assert all(fitted.rows == n for fitted in state.plain)
    rows, trials = zip(*told[0], strict=True)
    assert rows == (2000, 4000, 8000, 8000)
    assert sum(trials) < 2 * len(oracle.asked) or n < oracle.n


class Overflowing(Known):
    """Fits of some kernels fail, always or from so many rows on."""

    def __init__(self, kernels: str, from_rows: int = 0, n: int = 8000) -> None:
        super().__init__(n)
        self.kernels, self.from_rows = kernels, from_rows

    def losses(self, rows: int, factor: np.ndarray, trial: Trial) -> np.ndarray:
        fails = trial.kernel in self.kernels.split() and rows >= self.from_rows
        return np.full(H, np.inf) if fails else super().losses(rows, factor, trial)


@pytest.mark.parametrize("kernels", ["a", "c", "a c", "a c rbf", "rbf"])
def test_fits_that_fail_are_dropped_and_counted(kernels):
    solver, oracle = search(4), Overflowing(kernels)
    state = solver.init(oracle)
    while not solver.is_solved(state):
        state = MetricState.from_arrays(solver.step(oracle, state).to_arrays())
    assert state.failed == sum(trial.kernel in kernels.split() for _, trial in oracle.asked) > 0
    assert chosen(state).trial.kernel == "b"
    assert all(row["kernel"] not in kernels.split() for row in facts(state))
    assert np.isfinite(state.pool).all()
    for kernel in kernels.replace("rbf", "").split():  # a track is tried once
        assert len({rows for rows, trial in oracle.asked if trial.kernel == kernel}) == 1


def test_a_search_whose_fits_fail_on_more_rows_ends_with_those_of_fewer():
    state = found(search(4), Overflowing("a b c rbf", from_rows=3000))
    assert chosen(state).rows < 3000
    assert state.failed > 0


def test_a_search_whose_fits_all_fail_says_so():
    state = found(search(4), Overflowing("a b c rbf"))
    with pytest.raises(ConfigError, match="all .* fits of the search failed, .* scale the features"):
        chosen(state)


def test_gradients_beyond_float32_leave_a_track_without_a_metric():
    class Steep(Known):
        def refitted(self, *given):
            return None

    state = found(search(4), Steep())
    assert not chosen(state).learned
    assert chosen(state).trial.kernel == "b"
