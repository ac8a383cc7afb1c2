"""Trials of a step share kernel values: these are those of NumPy, and the trials are the same as each alone."""

from __future__ import annotations

import math
import pickle
from itertools import product
from typing import Any

import numpy as np
import pytest
from scipy import sparse
from scipy.spatial.distance import cdist

from streamsvm.choosing import sample_fits
from streamsvm.choosing.metric_search import Trial, TrialResult
from streamsvm.choosing.sample_fits import SharedGram, SharedOperands, TrialFit, losses, solve
from streamsvm.choosing.trials import SampleTrials, TrialSettings, draw_samples
from streamsvm.config import KernelConfig, build_config
from streamsvm.data.rows import Rows
from streamsvm.data.store import Store
from streamsvm.fits.prepare import prepare
from streamsvm.kernels.base import kernel_from
from streamsvm.parallel.engine import Engine

D = 6
TASKS: dict[str, dict[str, Any]] = {
    "two classes": {"k": 2},
    "three classes": {"k": 3},
    "many classes": {"k": 22},
    "against the rest": {"k": 3, "multiclass": "rest"},
    "regress": {"task": "regress"},
    "squared": {"k": 3, "dcsvm": {"loss": "squared"}},
}
STEP = [Trial("rbf", gamma, C) for gamma, C in ((2.0, 1.0), (1.0, 1.0), (2.0, 3.0), (4.0, 0.3))]


def values(name: str, gamma: float, X: np.ndarray) -> np.ndarray:
    """K(X, X), float64."""
    if name == "linear":
        return X @ X.T
    if name == "poly":
        return (gamma * (X @ X.T) + 1) ** 2
    if name == "laplacian":
        return np.exp(-gamma * cdist(X, X, "cityblock"))
    distances = cdist(X, X)
    return np.exp(-gamma * distances**2) if name == "rbf" else np.exp(-gamma * distances)


@pytest.mark.parametrize("layout", ["dense", "csr"])
@pytest.mark.parametrize("name", ["rbf", "matern", "laplacian", "linear", "poly"])
def test_shared_values_are_those_of_each_kernel(name, layout, monkeypatch):
    monkeypatch.setattr(sample_fits, "COLUMNS", 32)  # several strips
    X = np.random.default_rng(0).normal(size=(75, D)).astype(np.float32)
    X[X < 0.5] = 0
    gammas = (0.3, 2.0, 0.3) if name != "linear" else (1.0, 1.0)
    kernels = [kernel_from({"name": name, "gamma": g, "nu": 0.5, "degree": 2, "coef0": 1.0}) for g in gammas]
    rows = Rows(X if layout == "dense" else sparse.csr_array(X))
    shared = SharedOperands(2)
    operands = shared.of(kernels[0], rows, None)
    assert pickle.loads(pickle.dumps(shared))._operands == {}
    grams = [SharedGram(kernels, rows), SharedGram(kernels, rows, operands), SharedGram(kernels[-1:], rows, operands)]
    for gram, (kernel, gamma) in product(grams, zip(kernels, gammas, strict=True)):
        np.testing.assert_allclose(gram.of(kernel), values(name, gamma, X.astype(np.float64)), rtol=1e-5, atol=2e-3)


def oracle(kind: str, threads: int = 1, memory_limit: int | None = None) -> SampleTrials:
    """Trials on folds of some rows."""
    options = dict(TASKS[kind])
    k, rng = options.pop("k", 0), np.random.default_rng(1)
    X = rng.normal(size=(330, D)).astype(np.float32)
    f = X[:, 0] * X[:, 1] + X[:, 2]
    y = np.searchsorted(np.quantile(f, np.arange(1, k) / k), f) if k else f
    config = build_config(("t", {"search": {"options": ("gamma", "C")}, "threads": 1} | options))
    prepared = prepare(Store.from_arrays(X, y), config, Engine(1))
    drawn = draw_samples(prepared, prepared.scaling, Engine(1))
    assert not isinstance(drawn, str)
    samples, _ = drawn
    learner = TrialSettings(KernelConfig(), None, samples[0].rows, config.dcsvm.is_squared)
    return SampleTrials(samples, learner, Engine(threads), memory_limit)


def tried(trials: SampleTrials, step: list[Trial], start: np.ndarray | None = None) -> list[TrialResult]:
    return trials.tried(trials.n, np.ones((1, D)), step, start)


def assert_same(results: list[TrialResult], others: list[TrialResult]) -> None:
    for result, other in zip(results, others, strict=True):
        np.testing.assert_allclose(result.alpha, other.alpha, atol=2e-3)
        np.testing.assert_allclose(result.losses, other.losses, atol=1e-4)
        assert 0 < result.seconds < 60


@pytest.mark.parametrize("kind", TASKS)
def test_trials_of_a_step_are_those_of_each_alone(kind, monkeypatch):
    """On one thread, on more, and with no memory for all kernel values, from zero and from a solution."""
    monkeypatch.setattr(sample_fits, "TOL", 1e-5)
    trials, start = oracle(kind), None
    for _ in range(2):
        alone = [result for trial in STEP for result in tried(trials, [trial], start)]
        assert len({result.alpha.tobytes() for result in alone}) == len(STEP)
        for other in (trials, oracle(kind, threads=16), oracle(kind, memory_limit=1)):
            assert_same(tried(other, STEP, start), alone)
        start = alone[0].alpha / STEP[0].C


def test_values_are_computed_once_for_a_step_or_where_memory_is_short_for_each_pair(monkeypatch):
    made, operands = [], sample_fits._operands

    def counted(kernel: Any, rows: Rows, threads: int = 1) -> np.ndarray:
        made.append(len(rows))
        return operands(kernel, rows, threads)

    monkeypatch.setattr(sample_fits, "_operands", counted)
    trials = oracle("three classes")
    folds, n = len(trials.samples), trials.n
    for each in (trials, oracle("three classes", threads=16)):  # a thread for each trial
        tried(each, STEP)
        assert made == [n] * folds
        made.clear()
    tried(oracle("three classes", memory_limit=1), STEP)
    assert len(made) == 3 * folds
    assert sum(made) == 2 * n * folds  # a row is in two of three pairs
    made.clear()
    monkeypatch.setattr(sample_fits, "WHOLE", n - 1)
    tried(trials, STEP)
    assert len(made) == 3 * folds


def test_a_trial_beyond_float32_fails_alone():
    sample = oracle("two classes").samples[0]
    kernels = [kernel_from({"name": "poly", "gamma": g, "degree": 9, "coef0": 0.0}) for g in (0.1, 1e9, 0.2)]
    fits = [TrialFit(kernel, sample.dual_data) for kernel in kernels]
    with np.errstate(all="ignore"):
        solve(fits, sample.rows, 1 << 30)
    lost = losses(fits, sample.rows, sample.held_out, sample.held_out_data)
    assert [fit.error is None for fit in fits] == [True, False, True]
    assert [math.isfinite(each.mean()) for each in lost] == [True, False, True]


def test_the_unit_of_gamma_is_computed_once_for_each_kernel_under_a_metric(monkeypatch):
    made, computed = [], TrialSettings._unit

    def unit(*args: Any) -> Any:
        made.append(args[1])
        return computed(*args)

    monkeypatch.setattr(TrialSettings, "_unit", unit)
    trials, factor = oracle("three classes"), np.ones((1, D))
    [result] = tried(trials, STEP[:1])
    tried(trials, [*STEP, Trial("matern", 1.0, 1.0)])
    learned = trials.refitted(trials.n, factor, STEP[0], result.alpha)
    assert made == ["rbf", "matern"]
    [under] = trials.tried(trials.n, learned, STEP[:1], None)
    assert made == ["rbf", "matern", "rbf"]
    assert_same([under], oracle("three classes").tried(trials.n, learned, STEP[:1], None))
