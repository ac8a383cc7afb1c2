"""A log-linear pool against its formula, and its alarm."""

from __future__ import annotations

import numpy as np
import pytest

from streamsvm.solvers.pooling import FORGET, LEAST, RATE, SUREST, Pool


def said(D: np.ndarray, shared: int) -> np.ndarray:
    """(experts, classes) probabilities of one row's decisions (experts, columns)."""
    if D.shape[1] == 1:
        p = 1 / (1 + np.exp(-D[:, 0]))
        return np.column_stack([1 - p, p])
    p = np.exp(D - D.max(axis=1, keepdims=True))
    p[shared:] = 1 / (1 + np.exp(-D[shared:]))
    return p / p.sum(axis=1, keepdims=True)


@pytest.mark.parametrize("columns", [1, 3])
def test_weights_take_the_steps_of_the_formula(columns):
    rng = np.random.default_rng(0)
    D = rng.normal(scale=3, size=(4, 200, columns))
    codes = rng.integers(0, max(2, columns), 200)
    weight = rng.uniform(0.5, 2, 200)
    pool, v, G = Pool(4), np.full(4, 0.25), np.ones(4)
    log_odds = np.concatenate(
        [
            pool.learn(D[:, :50], 2, codes[:50], weight[:50]),
            pool.learn(D[:, 50:], 2, codes[50:], weight[50:]),
        ]
    )
    for i, code in enumerate(codes):
        logs = np.log(np.maximum(said(D[:, i], 2), SUREST))
        p = np.exp(v @ logs)
        p /= p.sum()
        p_column = p[1:] if columns == 1 else p
        np.testing.assert_allclose(log_odds[i], np.log(p_column / (1 - p_column)), rtol=1e-9)
        gradient = weight[i] * (logs @ p - logs[:, code])
        G = FORGET * G + gradient**2
        v = np.maximum(v - RATE * gradient / np.sqrt(G), LEAST)
    np.testing.assert_allclose(pool.v, v, rtol=1e-9)
    np.testing.assert_allclose(pool.decide(D[:, -1:], 2).shape, (1, columns))


@pytest.mark.parametrize("columns", [1, 3])
def test_slopes_are_those_of_finite_differences(columns):
    rng, h = np.random.default_rng(1), 1e-6
    pool, D = (
        Pool(4),
        rng.normal(scale=4, size=(4, 50, columns)),
    )  # some of them surer than they are taken to be
    pool.v[:] = 0.6, 0.8, -0.3, 0.4
    for own in range(columns):
        slopes = pool.slopes(D, 2, own)
        for e in range(4):
            for c in range(columns):
                step = np.zeros((4, 1, columns))
                step[e, 0, c] = h
                rise = (pool.decide(D + step, 2) - pool.decide(D - step, 2))[:, own]
                np.testing.assert_allclose(slopes[e, :, c], rise / (2 * h), rtol=1e-4, atol=1e-6)


def test_the_expert_that_is_right_is_heard():
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 2, 2000)
    right, noise = (2.0 * codes - 1) * 2, rng.normal(size=(2, 2000))
    D = np.stack([noise[0], right, noise[1]])[..., None]
    pool = Pool(3)
    out = pool.learn(D, 0, codes, np.ones(2000))
    assert ((out[200:, 0] > 0) == codes[200:]).all()
    assert np.argmax(pool.v) == 1
    assert np.argmin(pool.losses) == 1


def test_errors_that_rise_are_an_alarm_and_those_of_chance_are_none():
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 2, 6000)
    flipped = np.where(rng.random(6000) < 0.1, 1 - codes, codes)  # a tenth is wrong, always
    f = (2.0 * flipped - 1)[None, :, None]
    pool, alarms = Pool(1), []
    for i in range(6000):
        pool.learn(f[:, i : i + 1], 0, codes[i : i + 1], np.ones(1))
        alarms.append(pool.is_alarmed)
    assert np.mean(alarms) < 0.01
    for i in range(64):  # half is wrong
        pool.learn(f[:, i : i + 1], 0, (codes[i : i + 1] + i) % 2, np.ones(1))
    assert pool.is_alarmed
