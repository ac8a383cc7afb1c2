"""BudgetedSVR: scikit-learn's habits, near SVR, whatever the units of y, and models that are kept."""

from __future__ import annotations

import json

import numpy as np
import pytest
from making import write
from sklearn.svm import SVR
from stepwise import train_by_single_steps

from streamsvm import BudgetedSVR, Store, load_model
from streamsvm.cli.app import app, exit_status
from streamsvm.config import build_config
from streamsvm.data.rows import Rows
from streamsvm.online import BSGDRegressor
from streamsvm.train import train_in_memory

SAME = {"gamma": 0.5, "C": 3.0, "epsilon": 0.05}
MANY = {"epochs": 15, "average": True, "budget": 3000, "random_state": 0}


def curve(n: int = 800) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 3)).astype(np.float32)
    return X, 5 + np.sin(2 * X[:, 0]) + X[:, 1] + 0.1 * rng.normal(size=n)


def risk(f: np.ndarray, t: np.ndarray, squared: float) -> float:
    return 0.5 * squared / (len(t) * SAME["C"]) + float(np.mean(np.maximum(np.abs(f - t) - SAME["epsilon"], 0)))


def test_without_a_bound_it_comes_to_the_objective_of_svr():
    X, t = curve(200)
    ours, theirs = BudgetedSVR(**SAME, **MANY, scale_targets=False).fit(X, t), SVR(**SAME).fit(X, t)
    f, a = theirs.predict(X), theirs.dual_coef_[0]
    best = risk(f, t, float(a @ (theirs.predict(theirs.support_vectors_) - theirs.intercept_)))
    a, f = ours.dual_coef_[0], ours.predict(X)
    found = risk(f, t, float(a @ (ours.predict(ours.support_vectors_) - ours.intercept_)))
    assert best <= found <= 1.2 * best  # b is the mean of y, and 15 passes are not all
    assert found <= ours.objective_  # whose losses are those of rows before their steps


@pytest.mark.parametrize("scaled", [False, True])
def test_units_of_the_targets_do_not_matter(scaled):
    X, t = curve()
    same = SAME | {"scale_targets": scaled, "budget": 100, "random_state": 0}
    in_their_units = {} if scaled else {"C": 3e6, "epsilon": 5e4}
    plain = BudgetedSVR(**same).fit(X, t)
    far = BudgetedSVR(**same | in_their_units).fit(X, 1e6 * t - 1e8)
    np.testing.assert_allclose((far.predict(X) + 1e8) / 1e6, plain.predict(X), atol=1e-6)
    assert far.objective_ == pytest.approx(1e6 * plain.objective_)
    assert plain.score(X, t) > 0.9


def test_constant_targets_are_answered():
    X, _ = curve(100)
    constant = BudgetedSVR(scale_targets=False).fit(X, np.full(100, 7.0))
    np.testing.assert_allclose(constant.predict(X), 7.0)


def test_regions_have_learners_of_their_own():
    X, t = curve()
    svm = BudgetedSVR(**SAME, budget=25, epochs=5, random_state=0)
    config = build_config(
        ("t", {"task": "regress", "solver": "bsgd", "C": 3.0, "epsilon": 0.05, "kernel": {"gamma": 0.5}}),
        ("t", {"bsgd": {"budget": 25, "epochs": 5, "partitions": 4}}),
    )
    model, report = train_in_memory(Store.from_arrays(X, t), config)
    assert report["regions"] == 4
    assert "online_accuracy" not in report
    errors = [np.mean(np.abs(found.predict(X) - t)) for found in (model, svm.fit(X, t))]
    assert errors[0] < errors[1] < 0.3  # four budgets


@pytest.mark.parametrize("partitions", [1, 3])
def test_from_the_command_line_to_onnx(partitions, tmp_path, capsys):
    ort = pytest.importorskip("onnxruntime", reason="an extra")
    X, t = curve(700)
    write(tmp_path / "s.zarr", Rows(X), t, step=100, chunk_rows=100)
    store, model, out = (str(tmp_path / name) for name in ("s.zarr", "m.zarr", "m.onnx"))

    def run(*words: str) -> None:
        assert exit_status(lambda: app([*words], standalone_mode=False)) in (0, None)

    sets = ["epsilon=0.05", "kernel.gamma=0.5", "C=3", "bsgd.epochs=3", f"bsgd.partitions={partitions}"]
    more = [word for text in sets for word in ("--set", text)]
    run(
        "fit",
        "--task",
        "regress",
        "--solver",
        "bsgd",
        "--no-search",
        "--store",
        store,
        "--model",
        model,
        *more,
    )
    capsys.readouterr()
    run("evaluate", "--model", model, "--store", store, "--json")
    assert json.loads(capsys.readouterr().out)["r2"] > 0.9
    run("export", "--model", model, "--out", out, "--format", "onnx")
    session = ort.InferenceSession(out, providers=["CPUExecutionProvider"])
    found = session.run(None, {session.get_inputs()[0].name: X})[-1]
    np.testing.assert_allclose(np.ravel(found), load_model(model).predict(X), atol=1e-4)


@pytest.mark.parametrize("partitions", [1, 3])
def test_interrupted_after_every_step_or_by_one_thread_it_is_the_same(partitions, tmp_path):
    X, t = curve(600)
    own = {"task": "regress", "solver": "bsgd", "kernel": {"gamma": 0.5}, "checkpoint_every": "1 step"}
    own |= {"bsgd": {"budget": 30, "epochs": 3, "partitions": partitions}}
    store = write(tmp_path / "s.zarr", Rows(X), t, step=100, chunk_rows=100)
    expected = train_in_memory(Store.from_arrays(X, t), build_config(("t", own | {"threads": 2})))[0]
    config = build_config(("t", own | {"threads": 1}))
    assert train_by_single_steps(store, config, tmp_path / "m", tmp_path / "run") > 2
    np.testing.assert_array_equal(load_model(tmp_path / "m").predict(X), expected.predict(X))


def test_a_stream_goes_on_from_a_fit():
    X, t = curve()
    svm = BudgetedSVR(**SAME, budget=100, epochs=3, random_state=0).fit(X[:700], t[:700])
    online = BSGDRegressor.from_model(svm.model_)
    events = [dict(zip("012", map(float, x), strict=True)) for x in X[700:]]
    found = [online.predict_one(x) for x in events]
    np.testing.assert_allclose(found, svm.predict(X[700:]), atol=1e-5)
    for x, y in zip(events, t[700:], strict=True):
        online.learn_one(x, y)
    assert online.n_seen == 2200


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"epsilon": -1.0}, "epsilon: found -1.0"),
        ({"budget": 1}, "budget: found 1"),
        ({"C": 0}, "C: found 0"),
    ],
)
def test_bad_parameters_are_named(options, match):
    with pytest.raises(ValueError, match=match):
        BudgetedSVR(**options).fit(*curve(50))
