"""Learners side by side: one model by events and by blocks, saved and gone on with, before and after a change."""

from __future__ import annotations

from itertools import islice

import numpy as np
import pytest
from river import datasets
from river.datasets import synth

from streamsvm import load_model
from streamsvm.data.rows import Rows
from streamsvm.errors import ModelError
from streamsvm.kernels.distance import RBF
from streamsvm.models import pooled
from streamsvm.models.experts import ExpertsLearner, ExpertsModel
from streamsvm.models.files import save_model
from streamsvm.models.learner import BudgetOptions
from streamsvm.models.pooled import KEPT, SHOWN, parallel_experts
from streamsvm.online import BSGDClassifier

OPTIONS = BudgetOptions(1.0, budget=40, loss="logistic")


def learner(columns: int = 1, d: int = 3) -> ExpertsLearner:
    return ExpertsLearner(parallel_experts(RBF(1.0), OPTIONS, None, None, has_gamma=True), d, columns)


def changing(n: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows whose labels turn round after two thirds."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 3)).astype(np.float32)
    y = np.sign(X[:, 0] * X[:, 1] + 0.3).astype(np.float64)
    y[2 * n // 3 :] *= -1
    return X, y[:, None]


def one_by_one(learner: ExpertsLearner, X: np.ndarray, Y: np.ndarray) -> np.ndarray:
    found = []
    for x, y in zip(X, Y, strict=True):
        decisions, met = learner.decide_one(x)
        found.append(decisions)
        learner.learn_one(x, met, y)
    return np.array(found)


def test_the_experts_are_those_of_what_is_not_given():
    experts = parallel_experts(RBF(1.0), OPTIONS, None, None, has_gamma=True)
    assert [(e.factor, e.options.lam) for e in experts] == [(1, 1e-5), (4, 1e-4), (16, 1e-3)]
    experts = parallel_experts(RBF(1.0), OPTIONS, 0.5, None, has_gamma=True)
    assert [(e.factor, e.options.lam) for e in experts] == [(1, 0.5), (4, 0.5), (16, 0.5)]
    experts = parallel_experts(RBF(1.0), OPTIONS, None, 1.0, has_gamma=True)
    assert [(e.factor, e.options.lam) for e in experts] == [(None, 1e-5), (None, 1e-4), (None, 1e-3)]
    experts = parallel_experts(RBF(1.0), OPTIONS, None, "scale", has_gamma=True)
    assert [e.factor for e in experts] == [1, 1, 1]


@pytest.mark.slow  # blocks compile, after events
@pytest.mark.parametrize("threads", [1, 4])
def test_a_change_is_answered_and_blocks_are_events_bit_by_bit(threads, monkeypatch):
    monkeypatch.setattr(pooled, "_threads", lambda: threads)
    X, Y = changing(2400)
    events, blocks = learner(), learner()
    found = one_by_one(events, X, Y)
    by_blocks = np.concatenate(
        [blocks.learn(Rows(X[i : i + 700]), Y[i : i + 700], np.ones(len(X[i : i + 700]))) for i in range(0, 2400, 700)]
    )
    assert events.drifts == blocks.drifts
    assert min(events.drifts.values()) >= 1
    np.testing.assert_array_equal(found, by_blocks)
    assert (np.sign(found[-300:]) == Y[-300:]).mean() > 0.8


def test_kernels_that_were_less_right_go():
    X, Y = changing(3 * SHOWN)
    found = learner()
    found.learn(Rows(X[: SHOWN - 1]), Y[: SHOWN - 1], np.ones(SHOWN - 1))
    losses = found.first.pool.losses[-3:].copy()
    found.learn(Rows(X[SHOWN - 1 : SHOWN]), Y[SHOWN - 1 : SHOWN], np.ones(1))
    assert len(found.first.kernels) == KEPT
    kept = [e.factor for e in found.first.experts]
    assert kept == [f for f, loss in zip((1, 4, 16), losses, strict=True) if loss < losses.max()]


@pytest.mark.parametrize("n", [500, 1700, 2300])  # before the change, in it, and after
def test_a_saved_learner_goes_on_bit_by_bit(n, tmp_path):
    X, Y = changing(2400)
    straight = BSGDClassifier(budget=30)
    rows = [dict(zip("abc", x, strict=True)) for x in X.tolist()]
    labels = [str(y) for [y] in Y]
    for x, y in zip(rows[:n], labels[:n], strict=True):
        straight.learn_one(x, y)
    save_model(straight.to_model(), tmp_path / "m")
    model = load_model(tmp_path / "m")
    resumed = BSGDClassifier.from_model(model)
    for x, y in zip(rows[n:], labels[n:], strict=True):
        straight.learn_one(x, y)
        resumed.learn_one(x, y)
    for x in rows[-100:]:
        np.testing.assert_array_equal(straight.decision_one(x), resumed.decision_one(x))
    assert straight.drifts == resumed.drifts
    again = BSGDClassifier.from_model(model)
    expected = [list(again.predict_proba_one(x).values()) for x in rows[:50]]
    wide = np.full((50, model.d), np.nan, np.float32)
    wide[:, :3] = X[:50]
    np.testing.assert_allclose(model.predict_proba(Rows(wide)), expected, atol=1e-3)
    assert model.feature_names == ("a", "b", "c")
    with pytest.raises(ModelError, match="not a single expansion; give lambda and gamma for one"):
        model.as_expansion()


def progressive(model: BSGDClassifier, events: list) -> float:
    right = 0
    for x, y in events:
        right += model.predict_one(x) == y
        model.learn_one(x, y)
    return right / len(events)


@pytest.mark.slow  # six streams, 21,000 events
def test_without_a_parameter_or_a_scaler_it_is_as_good_as_the_best_of_each_kind():
    """SEA wants a line, Agrawal intervals, Bananas a narrow kernel, ImageSegments several of them."""
    least = {"Phishing": 0.90, "Bananas": 0.87, "ImageSegments": 0.91}
    for name, expected in least.items():
        assert progressive(BSGDClassifier(), list(getattr(datasets, name)())) > expected, name
    for made, expected in ((synth.SEA(noise=0.1, seed=1), 0.86), (synth.Agrawal(seed=1), 0.98)):
        assert progressive(BSGDClassifier(), list(islice(made, 6000))) > expected, made


def test_columns_of_any_scale_that_come_late_or_are_absent():
    rng = np.random.default_rng(0)
    model, right = BSGDClassifier(), []
    for i in range(1500):
        a, b = rng.normal(size=2)
        x = {"a": 1e6 + 1e3 * a, "b": 1e-6 * b, "constant": 7.0}
        if i > 500:
            x["late"] = float(a * b > 0)
        if i % 3:
            del x["b"]
        y = a * b > 0 if i > 500 else a > 0
        right.append(model.predict_one(x) == y)
        model.learn_one(x, y)
    assert np.mean(right[200:500]) > 0.9
    assert np.mean(right[1000:]) > 0.95


def test_models_of_earlier_versions_hold_each_array():
    X, Y = changing(100)
    streaming = BSGDClassifier(budget=30)
    for x, [y] in zip(X.tolist(), Y, strict=True):
        streaming.learn_one(dict(zip("abc", x, strict=True)), str(y))
    model = streaming.to_model()
    arrays, attrs = model.to_state()
    del attrs["packed"]
    arrays = {name: array for name, array in arrays.items() if not name.startswith("learner_")}
    arrays |= {f"learner_{name}": array for name, array in model.state.items()}
    before = ExpertsModel.from_state(arrays, attrs)
    wide = Rows(np.pad(X, ((0, 0), (0, model.d - 3)), constant_values=np.nan))
    np.testing.assert_array_equal(before.binary_decisions(wide), model.binary_decisions(wide))
