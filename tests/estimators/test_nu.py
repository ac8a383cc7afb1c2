"""nu-SVC and nu-SVR: the problems of scikit-learn's NuSVC and NuSVR, whatever they are divided into."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from cases import labelled
from making import write
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.svm import NuSVC, NuSVR

from streamsvm import DCSVC, DCSVR, load_model
from streamsvm.cli.app import app, exit_status
from streamsvm.data.rows import Rows
from streamsvm.errors import ConfigError, DataError

SAME = {"gamma": 0.5, "tol": 1e-4}
THEIRS = {"gamma": 0.5, "tol": 1e-6}
DIVIDED = {"levels": 1, "children": 3, "part_rows": 200, "random_state": 0}
divided = pytest.mark.parametrize("options", [{}, DIVIDED], ids=["whole", "divided"])


def numbers(n: int = 400) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 3)).astype(np.float32)
    return X, np.sin(2 * X[:, 0]) + X[:, 1] + 0.1 * rng.normal(size=n)


@divided
@pytest.mark.parametrize("k", [2, 3])
@pytest.mark.parametrize("weighed", [False, True])
def test_it_is_the_problem_of_nu_svc(k, weighed, options):
    """Of three classes a pair's vote may be a tie, which SVC gives to the first: pairs themselves are compared."""
    X, y = labelled(k)
    weight = np.random.default_rng(1).uniform(0.2, 3, len(X)) if weighed else None
    ours = DCSVC(nu=0.55, **SAME, **options).fit(X, y, weight)
    theirs = NuSVC(nu=0.55, decision_function_shape="ovo", **THEIRS).fit(X, y, weight)
    pairs = ours.model_.binary_decisions(Rows(X)) * (1 if k == 2 else -1)
    expected = theirs.decision_function(X).reshape(len(X), -1)
    np.testing.assert_allclose(pairs, expected, atol=1e-3 * np.abs(expected).max())
    np.testing.assert_allclose(ours.intercept_, theirs.intercept_, atol=1e-3 * np.abs(expected).max())
    assert ours.n_support_ == pytest.approx(theirs.n_support_, abs=0.02 * len(X))
    assert 0 <= ours.dual_gap_ <= 1e-2 * ours.objective_


def test_the_objective_is_libsvms_and_nu_a_share_of_the_rows():
    """1/2 |w|^2 of decision values whose margin is 1; nu is between the shares of errors and of support vectors."""
    X, y = labelled(2)
    ours = DCSVC(nu=0.55, **SAME).fit(X, y)
    own = X[ours.support_]
    norm = ours.dual_coef_[0] @ rbf_kernel(own, own, gamma=0.5) @ ours.dual_coef_[0]
    assert ours.objective_ == pytest.approx(0.5 * norm, rel=1e-4)
    assert abs(ours.dual_coef_.sum()) < 1e-6 * np.abs(ours.dual_coef_).sum()
    errors = np.where(y == 1, 1, -1) * ours.decision_function(X) < 1 - 1e-3
    assert errors.mean() <= 0.55 <= ours.n_support_.sum() / len(X)


@divided
@pytest.mark.parametrize("nu", [0.2, 0.8])
def test_it_is_the_problem_of_nu_svr(nu, options):
    X, t = numbers()
    weight = np.random.default_rng(1).uniform(0.2, 3, len(X))
    ours = DCSVR(nu=nu, scale_targets=False, C=3.0, **SAME, **options).fit(X, t, weight)
    theirs = NuSVR(nu=nu, C=3.0, **THEIRS).fit(X, t, weight)
    np.testing.assert_allclose(ours.predict(X), theirs.predict(X), atol=1e-3)
    np.testing.assert_allclose(ours.intercept_, theirs.intercept_, atol=2e-3)
    outside = weight[np.abs(t - ours.predict(X)) > ours.epsilon_ + 1e-3].sum() / weight.sum()
    assert outside <= nu <= weight[ours.support_].sum() / weight.sum() + 1e-3
    same = DCSVR(C=3.0, scale_targets=False, epsilon=ours.epsilon_, **SAME).fit(X, t, weight)
    np.testing.assert_allclose(same.predict(X), ours.predict(X), atol=2e-3)


def test_parts_of_an_early_model_are_problems_of_their_own_and_take_what_their_classes_allow():
    X, y = labelled(2)
    few = np.flatnonzero((X[:, 0] < 0) | (y == 0) | (np.arange(len(y)) % 4 > 0))
    X, y = X[few], y[few]
    nu = 0.6
    with pytest.warns(
        UserWarning, match=r"nu 0.6 is more than the classes of some partitions allow: less there"
    ) as said:
        early = DCSVC(nu=nu, early=True, **SAME, **DIVIDED).fit(X, y)
    assert len(said) == 1
    parts, capped = early.model_.partition.assign(Rows(X)), 0
    for part in range(len(early.model_.present)):
        here = parts == part
        counts = np.bincount(y[here], minlength=2)
        most = 2 * counts.min() / counts.sum()
        if not 0 < most or nu > most:
            capped += most > 0
            continue
        theirs = NuSVC(nu=nu, **THEIRS).fit(X[here], y[here]).decision_function(X[here])
        np.testing.assert_allclose(early.decision_function(X[here]), theirs, atol=2e-3 * np.abs(theirs).max())
    assert capped > 0
    assert early.score(X, y) > 0.8


def test_parts_of_an_early_regression_have_an_epsilon_each():
    X, t = numbers(600)
    early = DCSVR(nu=0.4, scale_targets=False, C=3.0, early=True, **SAME, **DIVIDED).fit(X, t)
    parts = early.model_.partition.assign(Rows(X))
    for part in range(len(early.model_.present)):
        here = parts == part
        theirs = NuSVR(nu=0.4, C=3.0, **THEIRS).fit(X[here], t[here])
        np.testing.assert_allclose(early.predict(X[here]), theirs.predict(X[here]), atol=2e-3)


@pytest.mark.parametrize("early", [False, True])
def test_models_are_kept(early, tmp_path):
    X, y = labelled(3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = DCSVC(nu=0.3, early=early, gamma=0.5, **DIVIDED).fit(X, y)
    model.save(tmp_path / "m")
    np.testing.assert_array_equal(load_model(tmp_path / "m").predict(X), model.predict(X))


def test_classes_that_are_alike_leave_no_margin():
    X = np.repeat(np.random.default_rng(0).normal(size=(50, 2)), 2, axis=0)
    y = np.tile([0, 1], 50)
    with pytest.warns(UserWarning, match=r"nu 0.9 leaves no margin between some classes"):
        model = DCSVC(nu=0.9, gamma=0.5).fit(X, y)
    assert np.isfinite(model.decision_function(X)).all()


def test_what_nu_does_not_go_with_is_one_line():
    X, y = labelled(2, 200)
    y = np.where(np.arange(200) < 20, y, 0)
    most = 2 * y.mean()
    with pytest.raises(DataError, match=f"nu is 0.9, and the classes allow at most {most:.4g}"):
        DCSVC(nu=0.9).fit(X, y)
    for wrong in (0.0, 1.5, -0.1):
        with pytest.raises(ConfigError, match="nu: found .*, expected a number"):
            DCSVC(nu=wrong).fit(X, y)
    for name, options in {
        "C": {"C": 2.0},
        "dcsvm.loss": {"loss": "squared_hinge"},
        "metric.kind": {"metric": "diagonal"},
        "dcsvm.part_metric": {"early": True, "part_metric": 1},
    }.items():
        with pytest.raises(ConfigError, match=f"nu is 0.05, which excludes {name}"):
            DCSVC(nu=0.05, **options).fit(X, y)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--C", "3"], "--nu: nu is 0.3, which excludes C"),
        (
            ["--solver", "alfpgm"],
            "--nu: nu is read by solvers dcsvm, bsgd and cutting-plane only, found solver alfpgm",
        ),
        (["--task", "regress", "--set", "epsilon=0.2"], "epsilon is read by a regression without nu only"),
        (["--set", "dcsvm.loss=squared"], "nu is 0.3, which excludes dcsvm.loss"),
    ],
)
def test_the_command_line_says_so_too(words, expected, tmp_path, capsys):
    X, y = labelled(2, 100)
    write(tmp_path / "s.zarr", Rows(X), y, step=100, chunk_rows=100)
    own = ["fit", "--store", str(tmp_path / "s.zarr"), "--model", str(tmp_path / "m.zarr"), "--nu", "0.3"]
    assert exit_status(lambda: app([*own, *words], standalone_mode=False)) == 2
    [line] = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error")]
    assert expected in line
