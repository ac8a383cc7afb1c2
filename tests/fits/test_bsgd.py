"""Budgeted descent as a fit: the length of its steps, also in runs that began without a bound."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from cases import labelled
from sklearn.datasets import make_classification

from streamsvm import BudgetedSVC
from streamsvm.config import FitConfig, build_config
from streamsvm.data.store import Store
from streamsvm.fits import bsgd
from streamsvm.models.files import load_model
from streamsvm.models.learner import BudgetLearner
from streamsvm.train import train, train_in_memory


def config(**options: object) -> FitConfig:
    return build_config(("given", {"solver": "bsgd", "C": 5.0, "bsgd": {"budget": 20, **options}}))


def store() -> Store:
    return Store.from_arrays(*labelled(2, 400))


@pytest.mark.parametrize(
    ("options", "longest"),
    [({}, 1.0), ({"lam": 1e-3}, 0.0), ({"loss": "logistic"}, 0.5), ({"loss": "logistic", "lam": 1e-3}, 0.5)],
)
def test_a_step_changes_a_decision_by_the_margin_unless_lambda_is_given(options, longest):
    model, _ = train_in_memory(store(), config(**options))
    assert model.options.longest == longest


@pytest.mark.parametrize(("options", "falls"), [({}, True), ({"lam": 1e-3}, False), ({"loss": "logistic"}, False)])
def test_steps_fall_to_0_over_the_last_fifth(options, falls, monkeypatch):
    seen: list[np.ndarray] = []
    learn = BudgetLearner.learn

    def heard(learner, rows, Y, weight, threads):
        seen.append(weight)
        return learn(learner, rows, Y, weight, threads)

    monkeypatch.setattr(BudgetLearner, "learn", heard)
    train_in_memory(store(), config(epochs=2, **options))
    weights = np.concatenate(seen)
    last = np.arange(160, 0, -1) / 160 if falls else np.ones(160)
    np.testing.assert_allclose(weights, np.append(np.ones(640), last))


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

    class Stopped(Exception):
        pass

    with monkeypatch.context() as earlier:
        bounded, state, learn = bsgd.bounded, bsgd.BSGDFit._state, bsgd.BSGDFit._learn_epoch

        def saved(fit, position):
            return {name: array for name, array in state(fit, position).items() if name != "longest"}

        def first_only(fit, epoch, *rest):
            if epoch:
                raise Stopped
            learn(fit, epoch, *rest)

        earlier.setattr(bsgd, "bounded", lambda *args: replace(bounded(*args), longest=0.0))
        whole, _ = train_in_memory(store(), given)
        earlier.setattr(bsgd.BSGDFit, "_state", saved)
        earlier.setattr(bsgd.BSGDFit, "_learn_epoch", first_only)
        with pytest.raises(Stopped):
            train(store(), given, model_path=path, run_dir=run)
    train(store(), given, model_path=path, run_dir=run, resume=True)
    resumed = load_model(path)
    assert resumed.options.longest == 0
    np.testing.assert_array_equal(resumed.support.X, whole.support.X)
    np.testing.assert_array_equal(resumed.coef, whole.coef)
