"""DCSVR: scikit-learn's habits, LIBSVM's problem, and parts that are problems of their own."""

from __future__ import annotations

import numpy as np
import pytest
from making import write
from sklearn.compose import TransformedTargetRegressor
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVR

from streamsvm import DCSVR, Store, load_model
from streamsvm.cli.app import app, exit_status
from streamsvm.config import build_config
from streamsvm.data.rows import Rows
from streamsvm.train import train_in_memory

SAME = {"gamma": 0.5, "C": 3.0, "epsilon": 0.05, "tol": 1e-4}
AS_THEY_ARE = SAME | {"scale_targets": False}
DIVIDED = {"levels": 1, "children": 3, "part_rows": 200, "random_state": 0}


def run(words: list[str]) -> int:
    return exit_status(lambda: app(words, standalone_mode=False))


def curve(n: int = 500) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 3)).astype(np.float32)
    return X, np.sin(2 * X[:, 0]) + X[:, 1] + 0.1 * rng.normal(size=n)


@pytest.mark.parametrize("weighed", [False, True])
@pytest.mark.parametrize("options", [{}, DIVIDED], ids=["whole", "divided"])
def test_it_is_the_problem_of_svr(weighed, options):
    X, t = curve()
    weight = np.random.default_rng(1).uniform(0.2, 3, len(X)) if weighed else None
    ours, theirs = DCSVR(**AS_THEY_ARE, **options).fit(X, t, weight), SVR(**SAME).fit(X, t, weight)
    np.testing.assert_allclose(ours.predict(X), theirs.predict(X), atol=2e-3)
    np.testing.assert_allclose(ours.intercept_, theirs.intercept_, atol=2e-3)
    assert abs(ours.dual_coef_.sum()) < 1e-6
    assert 0 <= ours.dual_gap_ <= 1e-2 * abs(ours.objective_)
    assert ours.n_support_ == pytest.approx(theirs.n_support_, abs=0.02 * len(X))


@pytest.mark.parametrize(("scale", "offset"), [(1e-6, 0.0), (3e8, 7e9)])
def test_targets_of_any_size_are_learned_as_well(scale, offset):
    X, t = curve()
    y = offset + scale * t
    svr = TransformedTargetRegressor(SVR(**SAME), transformer=StandardScaler()).fit(X, y)
    ours = DCSVR(**SAME).fit(X, y)
    np.testing.assert_allclose((ours.predict(X) - offset) / scale, (svr.predict(X) - offset) / scale, atol=3e-3)
    divided = DCSVR(**SAME, **DIVIDED, early=True)
    found, as_given = divided.fit(X, y).predict(X), divided.fit(X, t).predict(X)
    np.testing.assert_allclose((found - offset) / scale, as_given, atol=2e-3)


def test_scaled_targets_are_the_problem_with_c_and_epsilon_times_their_deviation():
    X, t = curve()
    y = 40 * t + 3
    s = float(y.std())
    with_s = {name: SAME[name] * s for name in ("C", "epsilon", "tol")}
    theirs = SVR(**SAME | with_s).fit(X, y)
    np.testing.assert_allclose(DCSVR(**SAME).fit(X, y).predict(X), theirs.predict(X), atol=3e-3 * s)


def test_parts_of_an_early_model_are_problems_of_their_own():
    X, t = curve(900)
    early = DCSVR(**AS_THEY_ARE, **DIVIDED, early=True).fit(X, t)
    parts = early.model_.partition.assign(Rows(X))
    assert len(early.model_.present) > 3
    for part in range(len(early.model_.present)):
        here = parts == part
        theirs = SVR(**SAME).fit(X[here], t[here])
        np.testing.assert_allclose(early.predict(X[here]), theirs.predict(X[here]), atol=3e-3)
    assert early.score(X, t) > 0.97
    with pytest.raises(AttributeError, match="support vectors by part"):
        _ = early.dual_coef_


@pytest.mark.parametrize("early", [False, True])
def test_rows_in_files_give_the_same_model_and_it_is_kept(early, monkeypatch, tmp_path):
    X, t = curve(700)
    options = {"C": 3.0, "task": "regress", "kernel": {"gamma": 0.5}, "threads": 2}
    config = build_config(("t", options | {"dcsvm": {"levels": 1, "part_rows": 200, "early": early}}))
    here, report = train_in_memory(Store.from_arrays(X, t), config)
    monkeypatch.setattr("streamsvm.fits.divided.stay_in_memory", lambda *_: False)
    there, again = train_in_memory(write(tmp_path / "s.zarr", Rows(X), t, step=100, chunk_rows=100), config)
    # the intercept is made of a mean over blocks, which rounds otherwise
    np.testing.assert_allclose(there.predict(X), here.predict(X), rtol=0, atol=1e-15)
    assert report["objective"] == pytest.approx(again["objective"], rel=1e-12)  # a sum by BLAS
    estimator = DCSVR(C=3.0, gamma=0.5, levels=1, part_rows=200, early=early, random_state=0).fit(X, t)
    estimator.save(tmp_path / "m")
    np.testing.assert_array_equal(load_model(tmp_path / "m").predict(X), estimator.predict(X))


@pytest.mark.parametrize("early", ["true", "false"])
def test_from_the_command_line_to_onnx(early, tmp_path, capsys):
    ort = pytest.importorskip("onnxruntime", reason="an extra")
    X, t = curve(700)
    write(tmp_path / "s.zarr", Rows(X), t)
    options = (
        "--no-search",
        "--C",
        "3",
        "--gamma",
        "0.5",
        "--set",
        "epsilon=0.05",
        "--set",
        f"dcsvm.early={early}",
    )
    store, model, out = (str(tmp_path / name) for name in ("s.zarr", "m.zarr", "m.onnx"))
    divided = ("--set", "dcsvm.levels=1", "--set", "dcsvm.part_rows=200")
    assert run(["fit", "--task", "regress", "--store", store, "--model", model, *options, *divided]) in (
        0,
        None,
    )
    assert run(["evaluate", "--model", model, "--store", store, "--json"]) == 0
    assert '"r2": 0.9' in capsys.readouterr().out
    assert run(["export", "--model", model, "--out", out, "--format", "onnx"]) == 0
    session = ort.InferenceSession(out, providers=["CPUExecutionProvider"])
    found = session.run(None, {session.get_inputs()[0].name: X})[-1]
    np.testing.assert_allclose(np.ravel(found), load_model(model).predict(X), atol=1e-5)


def test_parts_that_are_added_up_are_refused():
    X, t = curve(300)
    config = build_config(("t", {"task": "regress", "dcsvm": {"early": True, "levels": 1, "combine": "naive"}}))
    with pytest.raises(ValueError, match="adds up partitions"):
        train_in_memory(Store.from_arrays(X, t), config)


@pytest.mark.parametrize(
    ("options", "targets", "match"),
    [
        ({"epsilon": -1.0}, None, "epsilon: found -1.0"),
        ({"C": 0}, None, "C: found 0, expected a number above 0"),
        ({}, np.array(["a", "b", "c"] * 100), "could not convert|text|numeric"),
        (
            {},
            np.full(300, 2.5),
            "y: all labels are 2.5 .n_samples=300., expected different numbers to learn",
        ),
    ],
)
def test_bad_input_is_named(options, targets, match):
    X, t = curve(300)
    with pytest.raises((ValueError, TypeError), match=match):
        DCSVR(**options).fit(X, t if targets is None else targets)
