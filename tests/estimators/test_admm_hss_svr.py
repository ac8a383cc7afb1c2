"""HSSSVR, and `fit --solver admm-hss --task regress`: LIBSVM's problem, paths of C, and what every fit keeps to."""

from __future__ import annotations

import json

import numpy as np
import pytest
from cases import EVERY_STEP
from making import write
from sklearn.svm import SVR
from stepwise import train_by_single_steps

from streamsvm import HSSSVR, Store, load_model
from streamsvm.cli.app import app, exit_status
from streamsvm.config import build_config
from streamsvm.data.folds import make_folds
from streamsvm.data.rows import Rows
from streamsvm.search.folds import can_share
from streamsvm.search.options import TuneConfig, points
from streamsvm.search.search import tune
from streamsvm.train import plan, train_in_memory

FINE = {"rtol": 1e-6, "atol": 0.0, "max_rank": 1000, "iterations": 400, "beta": 1.0}
KERNEL = {"gamma": 0.5}
SAME = {"epsilon": 0.05} | KERNEL
BASE = {"solver": "admm-hss", "task": "regress", "kernel": KERNEL, "epsilon": 0.05, "threads": 2}
pytestmark = pytest.mark.filterwarnings("ignore:not converged")  # after 50 steps, where C is not small


def curve(n: int = 300) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 3)).astype(np.float32)
    return X, np.sin(2 * X[:, 0]) + X[:, 1] + 0.1 * rng.normal(size=n)


def objective(svr: SVR, X: np.ndarray, t: np.ndarray) -> float:
    v = np.zeros(len(X))
    v[svr.support_] = svr.dual_coef_[0]
    K = np.exp(-svr.gamma * ((X[:, None] - X[None]) ** 2).sum(axis=2))
    return 0.5 * v @ K @ v - t @ v + svr.epsilon * np.abs(v).sum()


def config(**values):
    return build_config(("t", BASE), ("own", values))


@pytest.mark.parametrize("weighed", [False, True])
@pytest.mark.parametrize(
    ("how", "apart"), [(FINE, 3e-3), ({"polish": 10_000, "tol": 1e-4}, 1e-5)], ids=["fine", "polished"]
)
def test_it_comes_to_libsvms_solution(how, apart, weighed):
    X, t = curve()
    weight = np.random.default_rng(1).uniform(0.2, 3, len(X)) if weighed else None
    theirs = SVR(tol=1e-5, **SAME).fit(X, t, weight)
    ours = HSSSVR(scale_targets=False, random_state=0, **SAME, **how).fit(X, t, weight)
    assert ours.objective_ == pytest.approx(objective(theirs, X, t), rel=apart)
    assert 0 <= ours.dual_gap_ < 0.02 * -ours.objective_
    np.testing.assert_allclose(ours.predict(X), theirs.predict(X), atol=2e-2)
    np.testing.assert_allclose(ours.intercept_, theirs.intercept_, atol=2e-2)
    assert abs(ours.dual_coef_.sum()) < 1e-3 * np.abs(ours.dual_coef_).sum()
    assert ours.n_support_ == pytest.approx(theirs.n_support_, abs=0.02 * len(X))


@pytest.mark.parametrize(("scale", "offset"), [(1e-6, 0.0), (3e8, 7e9)])
def test_targets_of_any_size_are_learned_as_well(scale, offset):
    X, t = curve()
    t = (t - t.mean()) / t.std()
    plain = HSSSVR(random_state=0, **SAME, scale_targets=False).fit(X, t).predict(X)
    found = HSSSVR(random_state=0, **SAME).fit(X, offset + scale * t).predict(X)
    np.testing.assert_allclose((found - offset) / scale, plain, atol=1e-4)


def test_each_C_of_a_path_has_the_model_of_a_fit_of_its_own(tmp_path):
    X, t = curve()
    path = HSSSVR(C=[0.1, 1, 2], random_state=0, **SAME).fit(X, t)
    assert (list(path.path_), path.C_) == ([0.1, 1.0, 2.0], 2.0)
    for C in (0.1, 1):
        one = HSSSVR(C=C, random_state=0, **SAME).fit(X, t)
        np.testing.assert_allclose(path.choose(C).predict(X), one.predict(X), atol=1e-5)
    path.save(tmp_path / "m")
    np.testing.assert_array_equal(load_model(tmp_path / "m").predict(X), path.predict(X))


def test_folds_share_one_factorisation_and_score_as_fit_by_fit():
    store, grid = Store.from_arrays(*curve()), {"C": [0.1, 1.0]}
    base = ("base", BASE | {"admm_hss": FINE | {"iterations": 100}})
    scores = []
    for share in (True, False):
        tried = TuneConfig(grid=grid, folds=3, share=share)
        found = tune(store, tried, points(tried, base))
        assert found["scoring"] == "r2"
        scores.append({r["C"]: r["fold_scores"] for r in found["results"]})
    assert can_share(store, config(), make_folds(store, 3, False, 0).count)
    for C, expected in scores[1].items():  # scaled by all targets, or by a fold's
        np.testing.assert_allclose(scores[0][C], expected, atol=5e-3)


def test_stopped_after_every_step_it_is_the_same(tmp_path):
    X, t = curve(150)
    store = write(tmp_path / "s.zarr", Rows(X), t, step=100, chunk_rows=100)
    each = config(admm_hss={"iterations": 10}, **EVERY_STEP)
    whole, _ = train_in_memory(store, each)
    assert train_by_single_steps(store, each, tmp_path / "model", tmp_path / "run") > 8
    np.testing.assert_array_equal(load_model(tmp_path / "model").predict(Rows(X)), whole.predict(Rows(X)))


def test_a_plan_counts_both_variables_of_a_row():
    X, t = curve()
    labels = Store.from_arrays(X, (t > 0).astype(int))
    fewer = plan(labels, config(task="classify", epsilon=0.1))["vector_bytes"]
    assert plan(Store.from_arrays(X, t), config())["vector_bytes"] > fewer


def test_from_the_command_line(tmp_path, capfd):
    X, t = curve()
    store, model = str(write(tmp_path / "s.zarr", Rows(X), t).url), str(tmp_path / "m.zarr")

    def run(*words):
        return exit_status(lambda: app([*words, "--store", store], standalone_mode=False))

    how = ("--no-search", "--solver", "admm-hss", "--task", "regress", "--gamma", "0.5", "--model", model)
    assert run("fit", *how, "--set", "nu=0.3") == 2
    assert "nu is read by solvers " in capfd.readouterr().err
    assert run("fit", *how, "--json") == 0
    report = json.loads(capfd.readouterr().out)
    assert {"product_error", "primal_residual", "target_units", "gap"} <= set(report)
    assert run("evaluate", "--model", model, "--json") == 0
    assert json.loads(capfd.readouterr().out)["r2"] > 0.9
