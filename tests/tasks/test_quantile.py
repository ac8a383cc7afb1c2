"""Quantile regression: next to its definition, scikit-learn's scores, other solvers, and the commands."""

from __future__ import annotations

import json

import numpy as np
import pytest
import reference
from cases import config
from commands import require_one_line, run
from making import write
from scipy import sparse
from sklearn.metrics import d2_pinball_score, mean_pinball_loss

from streamsvm import ALFPGMSVR, DCSVR, HSSSVR, Store
from streamsvm.data.rows import Rows
from streamsvm.errors import ConfigError
from streamsvm.kernels.distance import RBF
from streamsvm.search.options import search_of
from streamsvm.search.search import tune
from streamsvm.train import train_in_memory

rng = np.random.default_rng(0)
N, C, GAMMA = 300, 5.0, 1.0
X = rng.uniform(-2, 2, (2 * N, 1)).astype(np.float32)
NOISE = rng.normal(size=2 * N)
Y = 3 + np.sin(2 * X[:, 0]) + (0.2 + 0.3 * np.abs(X[:, 0])) * NOISE
QUANTILES = (0.1, 0.5, 0.9)
OPTIONS = {"C": C, "gamma": GAMMA}


def fitted(kind, quantile, weight=None, **more):
    options = {"scale_targets": True} if kind is ALFPGMSVR else {}
    return kind(**OPTIONS, **options, quantile=quantile, **more).fit(X[:N], Y[:N], weight)


def primal(svm, quantile, weight) -> float:
    """1/2 |w|^2 + sum_i C_i rho(t_i - f(x_i)), of scaled targets."""
    f = svm.predict(X[:N])
    scale = Y[:N].std() if weight is None else np.sqrt(np.cov(Y[:N], aweights=weight, ddof=0))
    coef = np.zeros(N)
    coef[svm.support_] = svm.dual_coef_[0] / scale
    K = reference.kernel_matrix(RBF(GAMMA), X[:N], X[:N])
    losses = np.maximum(quantile * (Y[:N] - f), (quantile - 1) * (Y[:N] - f)) / scale
    return 0.5 * coef @ K @ coef + C * float((losses if weight is None else weight * losses).sum())


@pytest.mark.parametrize("weighted", [False, True], ids=["", "weighted"])
@pytest.mark.parametrize("quantile", QUANTILES)
def test_the_primal_objective_is_the_dual_one(quantile, weighted):
    weight = 1.0 + np.arange(N) % 3 if weighted else None
    svm = fitted(DCSVR, quantile, weight, tol=1e-5)
    assert primal(svm, quantile, weight) == pytest.approx(-svm.objective_, rel=1e-4)
    below = np.average(Y[:N] < svm.predict(X[:N]) - 1e-4, weights=weight)
    above = np.average(Y[:N] > svm.predict(X[:N]) + 1e-4, weights=weight)
    assert below <= quantile + 1e-9
    assert above <= 1 - quantile + 1e-9


def test_quantiles_of_new_rows_are_about_right():
    for quantile in QUANTILES:
        below = np.mean(Y[N:] <= fitted(DCSVR, quantile).predict(X[N:]))
        assert below == pytest.approx(quantile, abs=0.07)


def test_the_median_is_the_regression_without_a_tube():
    median = fitted(DCSVR, 0.5, tol=1e-6).predict(X)
    plain = DCSVR(C=C / 2, gamma=GAMMA, epsilon=0.0, tol=1e-6).fit(X[:N], Y[:N]).predict(X)
    np.testing.assert_allclose(median, plain, atol=1e-3)


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (ALFPGMSVR, {"tol": 1e-5}),
        (ALFPGMSVR, {"tol": 1e-5, "pairs": 20}),
        (HSSSVR, {"leaf": 32, "polish": 5000}),
        (DCSVR, {"levels": 2, "part_rows": 90, "tol": 1e-5}),
        (DCSVR, {"cache_size": 0, "tol": 1e-5}),
    ],
)
def test_solvers_agree(kind, options):
    expected = fitted(DCSVR, 0.8, tol=1e-5)
    svm = fitted(kind, 0.8, **options)
    assert svm.objective_ == pytest.approx(expected.objective_, rel=1e-3)
    np.testing.assert_allclose(svm.predict(X), expected.predict(X), atol=0.05)


def test_early_and_sparse_fits_are_near_the_exact_one():
    expected = fitted(DCSVR, 0.8).predict(X)
    early = fitted(DCSVR, 0.8, early=True, levels=1, part_rows=100).predict(X)
    assert np.mean(np.abs(early - expected)) < 0.1
    of_csr = DCSVR(**OPTIONS, quantile=0.8).fit(sparse.csr_array(X[:N]), Y[:N]).predict(sparse.csr_array(X))
    np.testing.assert_allclose(of_csr, expected, atol=0.01)


@pytest.fixture
def stores(tmp_path):
    for name, part in (("train", slice(N)), ("test", slice(N, None))):
        write(tmp_path / name, Rows(X[part]), Y[part], step=100)
    return tmp_path


def test_commands_score_a_quantile_as_scikit_learn_does(stores, capsys):
    fit = ("fit", "--task", "regress", "--quantile", "0.9", "--store", stores / "train", "--model", stores / "model")
    assert run(*fit, "--no-search", "--gamma", GAMMA, "--C", C) == 0
    capsys.readouterr()
    assert run("evaluate", "--model", stores / "model", "--store", stores / "test", "--json") == 0
    scores = json.loads(capsys.readouterr().out)
    f = fitted(DCSVR, 0.9).predict(X[N:])
    assert scores["pinball_loss"] == pytest.approx(mean_pinball_loss(Y[N:], f, alpha=0.9), rel=1e-3)
    assert scores["d2_pinball"] == pytest.approx(d2_pinball_score(Y[N:], f, alpha=0.9), rel=1e-3)
    assert scores["share_below"] == pytest.approx(np.mean(Y[N:] <= f), abs=0.01)
    assert scores["quantile"] == 0.9
    intervals = {row["score"]: row for row in scores["intervals"]}
    assert intervals["pinball_loss"]["low"] < scores["pinball_loss"] < intervals["pinball_loss"]["high"]


def test_options_are_chosen_by_the_pinball_loss():
    store = Store.from_arrays(X, Y)
    chosen = {"search": {"options": ["C", "gamma"], "trials": 8}}
    model, report = train_in_memory(store, config("dcsvm", task="regress", quantile=0.9, **chosen))
    assert report["metric"]["scoring"] == report["expected"]["scoring"] == "d2_pinball"
    f = model.decision_function(store.read(0, store.n))
    assert d2_pinball_score(Y, f, alpha=0.9) == pytest.approx(report["expected"]["score"], abs=0.1)


def test_tune_compares_by_the_pinball_loss():
    layers = [("test", {"task": "regress", "quantile": 0.9, "tune": {"grid": {"C": [0.001, 5.0]}, "folds": 3}})]
    options, points = search_of(layers)
    result = tune(Store.from_arrays(X, Y), options=options, points=points)
    assert result["scoring"] == "d2_pinball"
    assert result["best"]["params"] == {"C": 5.0}
    assert 0.25 < result["best"]["score"] < 1


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"nu": 0.3}, "quantile is 0.9, which excludes nu: leave one out"),
        ({"interval": 0.9}, "quantile is 0.9, which excludes interval: leave one out"),
        ({"dcsvm": {"loss": "squared"}}, "quantile is 0.9, which excludes dcsvm.loss: leave one out"),
        ({"quantile": 1.0}, "quantile: found 1.0, expected less than 1"),
    ],
)
def test_what_a_quantile_excludes_is_one_line(values, message):
    with pytest.raises(ConfigError, match=message):
        config("dcsvm", **{"task": "regress", "quantile": 0.9} | values)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--task", "regress", "--solver", "bsgd"), "quantile is read by solvers dcsvm, admm-hss and alfpgm only"),
        (("--task", "classify"), "quantile is read by task regress only"),
        (("--task", "regress", "--set", "epsilon=0.2"), "epsilon is read by a regression without quantile only"),
    ],
)
def test_what_does_not_read_a_quantile_says_so(words, message, stores, capsys):
    require_one_line(capsys, message, "fit", "--store", stores / "train", "--no-search", "--quantile", "0.9", *words)
