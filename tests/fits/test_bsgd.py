"""Budgeted descent as a fit: the length of its steps, also in runs that began without a bound."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from cases import labelled
from sklearn.datasets import make_classification
from sklearn.exceptions import ConvergenceWarning

from streamsvm import BudgetedSVC
from streamsvm.config import FitConfig, build_config
from streamsvm.data.store import Store
from streamsvm.fits import bsgd
from streamsvm.fits.base import END_S
from streamsvm.fits.bsgd import Pace
from streamsvm.models.files import load_model
from streamsvm.options.search import SearchConfig
from streamsvm.train import train, train_in_memory


def config(**options: object) -> FitConfig:
    return build_config(("given", {"solver": "bsgd", "C": 5.0, "bsgd": {"budget": 20, **options}}))


def in_time(seconds: float, **options: object) -> FitConfig:
    """So many seconds for learning."""
    return config(**options).model_copy(update={"search": SearchConfig(time_budget=seconds + END_S)})


def store(n: int = 400) -> Store:
    return Store.from_arrays(*labelled(2, n))


@pytest.mark.parametrize(
    ("options", "longest"),
    [({}, 1.0), ({"lam": 1e-3}, 0.0), ({"loss": "logistic"}, 0.5), ({"loss": "logistic", "lam": 1e-3}, 0.5)],
)
def test_a_step_changes_a_decision_by_the_margin_unless_lambda_is_given(options, longest):
    model, _ = train_in_memory(store(), config(**options))
    assert model.options.longest == longest


@pytest.mark.parametrize(("options", "falls"), [({}, True), ({"lam": 1e-3}, False), ({"loss": "logistic"}, False)])
def test_steps_fall_to_0_over_the_last_fifth(options, falls, lessons):
    train_in_memory(store(), config(epochs=2, **options))
    last = np.arange(160, 0, -1) / 160 if falls else np.ones(160)
    np.testing.assert_allclose(np.concatenate(lessons.factors), np.append(np.ones(640), last))


@pytest.mark.parametrize(("options", "falls"), [({}, True), ({"lam": 1e-3}, False)])
def test_steps_fall_to_0_over_the_last_fifth_of_the_time_if_that_ends_first(options, falls, lessons):
    """20 calls take 20 s, and there are 9."""
    lessons.seconds = 1.0
    with pytest.warns(ConvergenceWarning, match="time budget"):
        _, report = train_in_memory(store(5000), in_time(9, **options))
    assert report["epochs"] == pytest.approx(10 * 256 / 5000)
    last = [(1 - 8 / 9) / bsgd.COOLING, 0.0] if falls else [1.0, 1.0]
    assert all(np.ptp(factors) == 0 for factors in lessons.factors)  # rows are half over
    np.testing.assert_allclose([factors[0] for factors in lessons.factors], [1.0] * 8 + last)


def test_time_that_is_left_in_the_end_changes_nothing(lessons):
    unlimited, _ = train_in_memory(store(5000), config())
    lessons.seconds = 1.0
    model, _ = train_in_memory(store(5000), in_time(21))
    assert len(lessons.factors) == 40
    np.testing.assert_array_equal(np.concatenate(lessons.factors[20:]), np.concatenate(lessons.factors[:20]))
    np.testing.assert_array_equal(model.coef, unlimited.coef)


def test_the_pace_is_that_of_rows_or_time_whichever_is_further(monkeypatch):
    monkeypatch.setattr("streamsvm.fits.bsgd.time.time", lambda: 130.0)
    np.testing.assert_allclose(Pace(100).progress(50, 2), [0.5, 0.51])
    np.testing.assert_allclose(Pace(100, 100.0, 200.0).progress(29, 3), [0.3, 0.3, 0.31])
    np.testing.assert_allclose(Pace(100, 120.0, 160.0, passed=0.2).progress(9, 1), [0.4])
    np.testing.assert_array_equal(Pace(0, 100.0, 131.0).factors(50, 2), [1.0, 1.0])


@pytest.mark.parametrize("began", [100.0, 125.0])
def test_when_time_is_up_only_the_first_rows_take_whole_steps(began, monkeypatch):
    """A model needs them, even if reading took all the time, or there was none."""
    monkeypatch.setattr("streamsvm.fits.bsgd.time.time", lambda: 130.0)
    pace = Pace(100, began, 120.0)
    np.testing.assert_array_equal(pace.factors(0, 2), [1.0, 1.0])
    np.testing.assert_array_equal(pace.factors(2, 2), [0.0, 0.0])


def test_the_last_rows_of_a_pass_do_not_decide():
    X, y = make_classification(6000, 8, n_informative=6, n_redundant=0, flip_y=0.2, random_state=0)
    here, there = slice(0, 3000), slice(3000, None)

    def scores(**options: float) -> np.ndarray:
        fits = (BudgetedSVC(budget=100, random_state=seed, **options).fit(X[here], y[here]) for seed in range(3))
        return np.array([svm.score(X[there], y[there]) for svm in fits])

    ours, published = scores(C=10), scores(lam=1 / (10 * 3000))
    assert ours.min() > published.max()
    assert ours.std() < 0.5 * published.std()


def test_steps_are_as_long_under_a_kernel_with_large_values():
    given = {"solver": "bsgd", "kernel": {"name": "linear"}, "bsgd": {"budget": 20, "strategy": "project"}}
    model, _ = train_in_memory(store(), build_config(("given", given)))
    X, _ = labelled(2, 400)
    assert model.options.longest == pytest.approx(1 / np.mean(np.sum(X**2, axis=1)))


def test_a_run_without_a_bound_goes_on_without_it(tmp_path, monkeypatch):
    """As 0.2.0 wrote it."""
    given, path, run = config(epochs=2), tmp_path / "model", tmp_path / "run"
    with monkeypatch.context() as earlier:
        bounded, state = bsgd.bounded, bsgd.BSGDFit._state

        def saved(fit, position):
            return {name: array for name, array in state(fit, position).items() if name != "longest"}

        earlier.setattr(bsgd, "bounded", lambda *args: replace(bounded(*args), longest=0.0))
        whole, _ = train_in_memory(store(), given)
        earlier.setattr(bsgd.BSGDFit, "_state", saved)
        stop_after_an_epoch(earlier)
        with pytest.raises(Stopped):
            train(store(), given, model_path=path, run_dir=run)
    train(store(), given, model_path=path, run_dir=run, resume=True)
    resumed = load_model(path)
    assert resumed.options.longest == 0
    np.testing.assert_array_equal(resumed.support.X, whole.support.X)
    np.testing.assert_array_equal(resumed.coef, whole.coef)


def test_a_resumed_run_has_a_pace_of_its_own(tmp_path, monkeypatch, lessons):
    """An epoch takes 20 of 21 s, then the run is stopped. Resumed, it has 21 s again, and is slower."""
    given, where = in_time(21, epochs=2), {"model_path": tmp_path / "model", "run_dir": tmp_path / "run"}
    monkeypatch.setattr("streamsvm.train.used_s", lambda: (0.0, 0.0))
    lessons.seconds = 1.0
    with monkeypatch.context() as earlier:
        stop_after_an_epoch(earlier)
        with pytest.raises(Stopped):
            train(store(5000), given, **where)
    lessons.seconds = 2.0
    with pytest.warns(ConvergenceWarning, match="time budget"):
        train(store(5000), given, **where, resume=True)
    resumed = [factors[-1] for factors in lessons.factors[20:]]
    assert lessons.starts[20] == 5000
    np.testing.assert_allclose(resumed, [1.0] * 9 + [(1 - 18 / 21) / bsgd.COOLING, (1 - 20 / 21) / bsgd.COOLING])


class Stopped(Exception):
    pass


def stop_after_an_epoch(patch: pytest.MonkeyPatch) -> None:
    learn = bsgd.BSGDFit._learn_epoch

    def first_only(fit, epoch, *rest):
        if epoch:
            raise Stopped
        learn(fit, epoch, *rest)

    patch.setattr(bsgd.BSGDFit, "_learn_epoch", first_only)
