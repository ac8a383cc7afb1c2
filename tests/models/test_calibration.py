"""Maps from decision values to probabilities, next to slow twins; pairs that are coupled; states."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from every_case import every_case
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from streamsvm.errors import ConfigError, DataError, ModelError
from streamsvm.models.calibration import (
    Calibration,
    calibrate,
    coupled,
    fit_isotonic,
    fit_sigmoid,
    own_problems,
    require_classes,
    sigmoid,
)
from streamsvm.options.probability import are_odds

seeds = st.integers(0, 2**32 - 1)


def rows(seed: int, n: int, scale: float = 1.0, noise: float = 1.0):
    """Decision values, classes and weights."""
    rng = np.random.default_rng(seed)
    positive = rng.random(n) < 0.4
    positive[:2] = True, False
    f = scale * (np.where(positive, 1.0, -0.7) + noise * rng.normal(size=n))
    return f, positive, rng.uniform(0.1, 3.0, n)


def platt_targets(positive: np.ndarray, weight: np.ndarray) -> np.ndarray:
    up, down = weight[positive].sum(), weight[~positive].sum()
    return np.where(positive, (up + 1) / (up + 2), 1 / (down + 2))


def cross_entropy(at, f, t, weight) -> float:
    u = at[0] * f + at[1]
    return float(np.sum(weight * (t * np.logaddexp(0, -u) + (1 - t) * np.logaddexp(0, u))))


@given(seeds, st.integers(4, 300), st.sampled_from([1e-6, 1.0, 1e5]), st.sampled_from([0.02, 1.0, 30.0]))
def test_sigmoid_has_the_least_cross_entropy(seed, n, scale, noise):
    f, positive, weight = rows(seed, n, scale, noise)
    t = platt_targets(positive, weight)
    [(slope, offset)] = fit_sigmoid(f, t, weight)
    u = f / scale
    twin = minimize(cross_entropy, [0.0, 0.0], (u, t, weight), "BFGS", options={"gtol": 1e-9})
    found = cross_entropy([slope * scale, offset], u, t, weight)
    assert found <= twin.fun * (1 + 1e-9)
    p = sigmoid(slope * f + offset)  # the certificate: sums of p are those of t
    assert weight @ p == pytest.approx(weight @ t, rel=1e-6)
    assert weight @ (p * u) == pytest.approx(weight @ (t * u), abs=1e-6 * weight @ np.abs(u))


def test_sigmoid_of_values_that_tell_nothing_is_the_share():
    f, positive, weight = np.full(50, 2.5), np.arange(50) < 20, np.ones(50)
    [(slope, offset)] = fit_sigmoid(f, platt_targets(positive, weight), weight)
    assert sigmoid(slope * 2.5 + offset) == pytest.approx(0.4, abs=0.01)


def pooled(f: np.ndarray, t: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """(n,) the isotonic fit: violators next to each other are pooled until there are none."""
    blocks = []
    for x in np.unique(f):
        here = f == x
        blocks.append([weight[here] @ t[here], weight[here].sum(), [x]])
        while len(blocks) > 1 and blocks[-2][0] * blocks[-1][1] >= blocks[-1][0] * blocks[-2][1]:
            total, w, xs = blocks.pop()
            blocks[-1] = [blocks[-1][0] + total, blocks[-1][1] + w, blocks[-1][2] + xs]
    values = {x: total / w for total, w, xs in blocks for x in xs}
    return np.array([values[x] for x in f])


@given(seeds, st.integers(2, 80), st.booleans())
def test_isotonic_is_pooling(seed, n, ties):
    f, positive, weight = rows(seed, n)
    f = np.round(f, 1) if ties else f
    t = platt_targets(positive, weight)
    points = fit_isotonic(f, t, weight)
    p = np.interp(f, points[:, 0], points[:, 1])
    np.testing.assert_allclose(p, pooled(f, t, weight), atol=1e-9)
    assert np.all(np.diff(points[:, 0]) > 0)
    assert np.all((p > 0) & (p < 1))


def coupling_objective(r: np.ndarray, p: np.ndarray) -> float:
    k = len(p)
    return sum((r[j, i] * p[i] - r[i, j] * p[j]) ** 2 for i in range(k) for j in range(k) if i != j)


def iterated(r: np.ndarray) -> np.ndarray:
    """Algorithm 2 of Wu, Lin and Weng (2004), one number after the other."""
    k = len(r)
    Q = np.array([[-r[j, t] * r[t, j] for j in range(k)] for t in range(k)])
    for t in range(k):
        Q[t, t] = sum(r[s, t] ** 2 for s in range(k) if s != t)
    p = np.full(k, 1 / k)
    for _ in range(300):
        for t in range(k):
            p[t] = (p @ Q @ p - sum(Q[t, j] * p[j] for j in range(k) if j != t)) / Q[t, t]
            p /= p.sum()
    return p


def pair_table(r: np.ndarray) -> np.ndarray:
    """(1, n_pairs) probabilities of the later class, from r_ij, that of i among i and j."""
    return np.array([[r[j, i] for i, j in combinations(range(len(r)), 2)]])


@given(seeds, st.integers(3, 6))
@settings(max_examples=30)
def test_coupling_is_the_minimum_that_the_iteration_finds(seed, k):
    rng = np.random.default_rng(seed)
    r = np.full((k, k), 0.5)
    for i, j in combinations(range(k), 2):
        r[i, j] = rng.uniform(0.02, 0.98)
        r[j, i] = 1 - r[i, j]
    [p] = coupled(pair_table(r), k)
    np.testing.assert_allclose(p, iterated(r), atol=1e-7)
    assert p.sum() == pytest.approx(1)
    for q in rng.dirichlet(np.ones(k), 20):
        assert coupling_objective(r, p) <= coupling_objective(r, q) + 1e-12


@given(seeds, st.integers(3, 8))
def test_coupling_finds_probabilities_that_agree_with_all_pairs(seed, k):
    p = np.random.default_rng(seed).dirichlet(np.ones(k)) + 1e-3
    p /= p.sum()
    r = p[:, None] / (p[:, None] + p)
    np.testing.assert_allclose(coupled(pair_table(r), k)[0], p, atol=1e-9)


@given(st.integers(3, 5), st.data())
def test_coupling_of_sure_pairs_is_a_distribution(k, data):
    pairs = k * (k - 1) // 2
    sure = data.draw(st.lists(st.sampled_from([0.0, 1e-217, 0.5, 1.0]), min_size=pairs, max_size=pairs))
    [p] = coupled(np.array([sure]), k)
    assert np.all(p >= 0)
    assert p.sum() == pytest.approx(1)


def test_coupling_in_many_batches_and_of_no_rows(monkeypatch):
    p = np.random.default_rng(0).random((50, 3))
    whole = coupled(p, 3)
    monkeypatch.setattr("streamsvm.models.calibration.COUPLING_BYTES", 1000)
    np.testing.assert_array_equal(coupled(p, 3), whole)
    assert coupled(p[:0], 3).shape == (0, 3)


def test_own_problems_are_the_pairs_of_a_row_s_class():
    k, pairs = 4, list(combinations(range(4), 2))
    decisions, codes = np.random.default_rng(0).normal(size=(20, len(pairs))), np.arange(20) % k
    found = own_problems(decisions, codes, k, pairwise=True)
    for row, c in enumerate(codes):
        others = [o for o in range(k) if o != c]
        expected = [decisions[row, pairs.index((min(c, o), max(c, o)))] for o in others]
        assert found[row].tolist() == expected
    assert own_problems(decisions[:, :1], codes % 2, 2, pairwise=True) is not None


@pytest.mark.parametrize("method", ["sigmoid", "isotonic"])
@pytest.mark.parametrize(("k", "pairwise"), [(2, True), (2, False), (3, True), (4, False)])
class TestCalibrations:
    def made(self, method, k, pairwise, weight=None):
        rng = np.random.default_rng(1)
        codes = rng.integers(0, k, 400)
        truth = 2.0 * (codes[:, None] == np.arange(k)) - 1 + rng.normal(size=(400, k))
        if pairwise or k == 2:
            decisions = np.column_stack([truth[:, j] - truth[:, i] for i, j in combinations(range(k), 2)])
        else:
            decisions = truth
        own = own_problems(decisions, codes, k, pairwise=pairwise)
        made = calibrate(own, codes, k, method=method, pairwise=pairwise, weight=weight)
        return made, decisions, codes

    def test_probabilities_are_those_of_the_rows(self, method, k, pairwise):
        made, decisions, codes = self.made(method, k, pairwise)
        p = made.probabilities(decisions, k, pairwise=pairwise)
        np.testing.assert_allclose(p.sum(axis=1), 1)
        assert np.all(p >= 0)
        np.testing.assert_allclose(p.mean(axis=0), np.bincount(codes) / 400, atol=0.03)
        log_loss = -np.log(p[np.arange(400), codes]).mean()
        assert log_loss < 0.7 * np.log(k)

    def test_state_comes_back(self, method, k, pairwise):
        made, decisions, _ = self.made(method, k, pairwise)
        again = Calibration.from_state(*made.to_state())
        np.testing.assert_array_equal(
            again.probabilities(decisions, k, pairwise=pairwise),
            made.probabilities(decisions, k, pairwise=pairwise),
        )

    def test_weights_without_a_scale_and_rows_of_none(self, method, k, pairwise):
        weight = np.where(np.arange(400) % 3 == 0, 0.0, 1.0)
        made, decisions, codes = self.made(method, k, pairwise, weight)
        few = weight > 0
        own = own_problems(decisions[few], codes[few], k, pairwise=pairwise)
        left = calibrate(own, codes[few], k, method=method, pairwise=pairwise, weight=np.full(few.sum(), 7.0))
        np.testing.assert_allclose(made.points, left.points, rtol=1e-9)


def test_a_class_without_rows_is_told():
    with pytest.raises(DataError, match="rows of all 3 classes, found 2"):
        calibrate(np.zeros((4, 3)), np.array([0, 2, 2, 0]), 3, method="sigmoid", pairwise=False)


@pytest.mark.parametrize("task", ["rank", "ordinal", "regress"])
def test_tasks_without_classes_are_refused(task):
    with pytest.raises(ConfigError, match=f"go only with task classify or multilabel, found task '{task}'"):
        require_classes(task)


@every_case(
    "change",
    [
        {"points": np.array([[np.nan, 0.0]])},
        {"points": np.array([[1, 0]])},
        {"points": np.zeros((2, 2))},
        {"bounds": np.array([0.0, 1.0])},
        {"bounds": np.array([1, 1])},
        {"bounds": np.array([0, 0, 1])},
        {"method": "magic"},
        {"method": "isotonic"},
    ],
)
def test_states_that_nobody_wrote_are_refused(change):
    arrays = {"calibration_points": np.array([[1.0, 0.0]]), "calibration_bounds": np.array([0, 1])}
    assert Calibration.from_state(arrays, {"calibration": "sigmoid"}) is not None
    assert Calibration.from_state({}, {}) is None
    arrays |= {f"calibration_{name}": value for name, value in change.items()}
    with pytest.raises((ValueError, KeyError)):
        Calibration.from_state(arrays, {"calibration": change.get("method", "sigmoid")})


def test_another_number_of_problems_is_told():
    with pytest.raises(ModelError, match="has 1 maps, the model 3 problems"):
        Calibration.of("sigmoid", [np.ones((1, 2))]).probabilities(np.zeros((2, 3)), 3, pairwise=True)


def test_decisions_of_a_logistic_loss_are_logarithms_of_odds():
    assert [loss for loss in (None, "hinge", "squared", "logistic", "epsilon") if are_odds(loss)] == ["logistic"]
    f = np.array([[-2.0], [0.0], [3.0]])
    p = Calibration.logistic(1).probabilities(f, 2, pairwise=False)
    np.testing.assert_allclose(np.log(p[:, 1] / p[:, 0]), f[:, 0], atol=1e-12)
