"""Additive logistic regression against dense features and dense steps."""

from __future__ import annotations

import numpy as np
import pytest

from streamsvm.solvers.additive import DAMPING, END, GRIDS, LARGEST, TRACKS, AdditiveLearner


def features(z: np.ndarray, *, curved: bool) -> np.ndarray:
    """A constant, the columns, and the hat functions of each grid; nothing of columns that are 0."""
    found = [np.ones(1), z.clip(-LARGEST, LARGEST)]
    for x in z if curved else ():
        for knots in GRIDS:
            places = np.linspace(-END, END, knots)
            hats = np.maximum(1 - np.abs(np.clip(x, -END, END) - places) / (places[1] - places[0]), 0)
            found.append(hats if x else np.zeros(knots))
    return np.concatenate(found)


def probabilities(f: np.ndarray) -> np.ndarray:
    scores = np.append(0.0, f) if len(f) == 1 else f
    p = np.exp(scores - scores.max())
    return p / p.sum()


def twin(Z: np.ndarray, codes: np.ndarray, weight: np.ndarray, columns: int) -> np.ndarray:
    """(tracks, m, columns) f of each row before its step."""
    out = np.zeros((len(TRACKS), len(Z), columns))
    for t, (rate, curved) in enumerate(TRACKS):
        width = len(features(Z[0], curved=curved))
        w, squares = np.zeros((width, columns)), np.full((width, columns), DAMPING)
        for i, z in enumerate(Z):
            phi = features(z, curved=curved)
            out[t, i] = phi @ w
            one_hot = np.eye(max(2, columns))[codes[i]]
            error = (probabilities(out[t, i]) - one_hot)[-columns:]
            gradient = weight[i] * np.outer(phi, error)
            squares += gradient**2
            w -= rate * gradient / np.sqrt(squares)
    return out


@pytest.mark.parametrize("columns", [1, 3])
def test_steps_are_those_of_dense_features(columns):
    rng = np.random.default_rng(0)
    Z = rng.normal(scale=2, size=(60, 3)).astype(np.float32)
    Z[rng.random(Z.shape) < 0.2] = 0
    codes = rng.integers(0, max(2, columns), 60)
    weight = rng.uniform(0.5, 2, 60)
    learner = AdditiveLearner(3, columns)
    decisions = np.concatenate(
        [learner.learn(Z[:20], codes[:20], weight[:20]), learner.learn(Z[20:], codes[20:], weight[20:])],
        axis=1,
    )
    np.testing.assert_allclose(decisions, twin(Z.astype(float), codes, weight, columns), atol=1e-5)


@pytest.mark.parametrize("columns", [1, 3])
def test_curves_and_gradients_are_those_of_its_decisions(columns):
    rng = np.random.default_rng(2)
    Z = rng.normal(scale=2, size=(200, 3)).astype(np.float32)
    learner = AdditiveLearner(3, columns)
    learner.learn(Z, rng.integers(0, max(2, columns), 200), np.ones(200))
    knots = np.linspace(-END, END, GRIDS[-1])
    f = learner.decide(Z)
    lines = learner.W[:, 0, None] + np.einsum("ij,tjc->tic", Z.clip(-LARGEST, LARGEST), learner.W[:, 1:])
    for t, c in np.ndindex(len(TRACKS), columns):
        h = sum(np.interp(Z[:, j], knots, learner.curves()[t, j, :, c]) for j in range(3))
        np.testing.assert_allclose(f[t, :, c], lines[t, :, c] + h, atol=1e-5)
    Z[rng.random(Z.shape) < 0.2] = 0
    S, step = rng.normal(size=(len(TRACKS), 200, columns)), np.float32(2e-3)
    for j in range(3):
        ends = [Z.copy(), Z.copy()]
        for end, sign in zip(ends, (-1, 1), strict=True):
            end[:, j] += sign * step
        rise = (learner.decide(ends[1]) - learner.decide(ends[0])) / (ends[1] - ends[0])[:, j][:, None]
        place = (Z[:, j] + END) / (knots[1] - knots[0])
        is_smooth = (np.abs(place - place.round()) > 0.05) & (np.abs(np.abs(Z[:, j]) - LARGEST) > 0.01)
        expected = np.einsum("tic,tic->i", S, rise)
        np.testing.assert_allclose(learner.gradients(Z, S)[is_smooth, j], expected[is_smooth], atol=2e-2)
        assert is_smooth.sum() > 100


def test_a_rule_on_intervals_is_learned():
    rng = np.random.default_rng(0)
    Z = rng.uniform(-2, 2, (3000, 2)).astype(np.float32)
    codes = (np.abs(Z[:, 0]) > 1).astype(int)
    D = AdditiveLearner(2, 1).learn(Z, codes, np.ones(3000))
    right = ((D[:, 1000:, 0] > 0) == codes[1000:]).mean(axis=1)
    assert right[1] > 0.97
    assert right[0] < 0.6  # a straight one cannot


def test_new_columns_and_classes_change_nothing_that_was_said():
    rng = np.random.default_rng(0)
    Z, codes = rng.normal(size=(40, 2)).astype(np.float32), rng.integers(0, 2, 40)
    learner = AdditiveLearner(2, 1)
    learner.learn(Z, codes, np.ones(40))
    before = learner.decide(Z)[..., 0]
    learner.widen(200)
    wide = np.pad(Z, ((0, 0), (0, 198)))
    np.testing.assert_allclose(learner.decide(wide)[..., 0], before, atol=1e-6)
    learner.add_column()
    after = learner.decide(wide)
    np.testing.assert_allclose(after[..., 1] - after[..., 0], before, atol=1e-6)
    np.testing.assert_array_equal(after[..., 2], 0)
