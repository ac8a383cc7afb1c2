"""CuttingPlaneSVR: scikit-learn's habits, LIBLINEAR's objective, units, rows in files, other doors, bad input."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import reference
from making import refuse_whole_columns, write
from sklearn.svm import LinearSVR
from stepwise import train_by_single_steps

from streamsvm import CuttingPlaneSVR, Store, load_model
from streamsvm.cli.app import app, exit_status
from streamsvm.config import FitConfig, build_config
from streamsvm.data.rows import Rows
from streamsvm.errors import ConfigError
from streamsvm.fits import cutting_plane as recipe
from streamsvm.fits.prepare import TrainingData
from streamsvm.ingest.files import ingest
from streamsvm.ingest.options import IngestOptions
from streamsvm.parallel.engine import Engine
from streamsvm.predict import evaluate
from streamsvm.train import plan, train, train_in_memory


def data(n: int = 600) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 5)).astype(np.float32)
    return X, X @ [1.0, -2.0, 0.5, 0.0, 0.3] + 0.5 + 0.3 * rng.standard_t(3, size=n)


def config(**values) -> FitConfig:
    linear = {"solver": "cutting-plane", "kernel": {"name": "linear"}, "task": "regress", "threads": 2}
    return build_config(("test", linear | values))


def primal(svr, X, y, weight, C, epsilon) -> float:
    w, Z = np.append(svr.coef_, svr.intercept_), np.column_stack([X, np.ones(len(X))])
    return 0.5 * w @ w + reference.epsilon_risk(Z, y, C * weight, epsilon, w)[0]


@pytest.mark.parametrize("epsilon", [0.0, 0.3])
@pytest.mark.parametrize("C", [0.01, 1.0])
def test_the_objective_is_liblinears(C, epsilon):
    X, y = data()
    weight = np.random.default_rng(1).random(len(y))
    ours = CuttingPlaneSVR(C=C, epsilon=epsilon, scale_targets=False, tol=1e-4).fit(X, y, weight)
    peer = LinearSVR(C=C, epsilon=epsilon, tol=1e-6, max_iter=100_000).fit(X, y, weight)
    best = primal(peer, X, y, weight, C, epsilon)
    assert ours.objective_ == pytest.approx(primal(ours, X, y, weight, C, epsilon), rel=1e-6)
    assert best * (1 - 1e-5) <= ours.objective_ <= best * (1 + 1e-4)
    assert 0 <= ours.dual_gap_ <= 1e-4 * ours.objective_


def test_targets_of_any_size_are_learned_as_well():
    X, t = data()
    one = CuttingPlaneSVR(epsilon=0.1, tol=1e-6).fit(X, t)
    far = CuttingPlaneSVR(epsilon=0.1, tol=1e-6).fit(X, 7e9 + 3e8 * t)
    np.testing.assert_allclose((far.predict(X) - 7e9) / 3e8, one.predict(X), atol=2e-3)
    assert far.objective_ == pytest.approx(one.objective_, rel=1e-5)


def test_landmarks_learn_curves():
    X, _ = data(900)
    y = np.sin(2 * X[:, 0]) + X[:, 1]
    curved = CuttingPlaneSVR(kernel="rbf", gamma=0.2, landmarks=150, C=10.0, random_state=0)
    assert CuttingPlaneSVR(C=10.0).fit(X[:600], y[:600]).score(X[600:], y[600:]) < 0.8
    assert curved.fit(X[:600], y[:600]).score(X[600:], y[600:]) > 0.9


@pytest.mark.parametrize("landmarks", [None, 40])
@pytest.mark.slow  # many passes
def test_nothing_of_each_row_is_held_and_resumed_it_is_the_same(landmarks, tmp_path, monkeypatch):
    X, y = data(500)
    kernel = {"name": "linear"} if landmarks is None else {"name": "rbf", "gamma": 0.3}
    options = config(kernel=kernel, cutting_plane={"landmarks": landmarks}, checkpoint_every="1 step")
    expected = train_in_memory(Store.from_arrays(X, y), options)[0].predict(X)
    store = write(tmp_path / "s", Rows(X), y, step=100, chunk_rows=100)
    monkeypatch.setattr(recipe, "PASS_BYTES", 1000)
    monkeypatch.setattr(recipe.CuttingPlaneFit, "_cache_bytes", lambda self: 0)
    monkeypatch.setattr(TrainingData, "dual_data", property(lambda self: pytest.fail("targets of all rows")))
    refuse_whole_columns(monkeypatch)
    assert plan(store, options)["vector_bytes"] == 0
    assert train_by_single_steps(store, options, tmp_path / "m", tmp_path / "run") > 3
    np.testing.assert_allclose(load_model(tmp_path / "m").predict(X), expected, atol=1e-5)


def test_every_way_to_the_rows_gives_the_same_bits(tmp_path):
    X, y = data(500)
    store = write(tmp_path / "s", Rows(X), y, step=100, chunk_rows=100)
    report = train(store, config(threads=1), model_path=tmp_path / "m")
    again = train_in_memory(Store.from_arrays(X, y), config())[0]
    np.testing.assert_array_equal(load_model(tmp_path / "m").predict(X), again.predict(X))
    assert report["target_units"]["offset"] == pytest.approx(y.mean())


def run(*words: object) -> int:
    return exit_status(lambda: app([*map(str, words)], standalone_mode=False))


LINEAR = ("--solver", "cutting-plane", "--kernel", "linear", "--task", "regress", "--no-search")


@pytest.fixture
def store(tmp_path):
    X, y = data(300)
    return write(tmp_path / "s.zarr", Rows(X), y, step=100, chunk_rows=100).url


def test_from_the_command_line_to_other_systems(store, tmp_path, capsys):
    from exchange import libsvm_twin

    ort = pytest.importorskip("onnxruntime", reason="an extra")
    model, (X, _) = tmp_path / "m", data(300)
    assert run("fit", "--store", store, *LINEAR, "--dry-run", "--json") == 0
    assert json.loads(capsys.readouterr().out)["pass_bytes"] == X.nbytes
    assert run("fit", "--store", store, *LINEAR, "--model", model, "--set", "epsilon=0.05") == 0
    capsys.readouterr()
    assert run("evaluate", "--model", model, "--store", store, "--json") == 0
    assert json.loads(capsys.readouterr().out)["r2"] > 0.9
    for kind in ("onnx", "libsvm"):
        assert run("export", "--model", model, "--format", kind, "--out", tmp_path / kind) == 0
    expected = load_model(model).predict(X)
    session = ort.InferenceSession(str(tmp_path / "onnx"), providers=["CPUExecutionProvider"])
    np.testing.assert_allclose(np.ravel(session.run(None, {"X": X})[-1]), expected, atol=1e-5)
    assert (tmp_path / "libsvm").read_text().startswith("svm_type epsilon_svr\nkernel_type linear\n")
    twin = libsvm_twin.Twin(tmp_path / "libsvm", X.shape[1])
    np.testing.assert_allclose(twin.decisions(X)[:, 0], expected, atol=1e-6)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            ("--set", "nu=0.3"),
            "nu is 0.3, which solver cutting-plane supports for one class only; leave it out",
        ),
        (("--set", "class_weight=balanced"), "task is 'regress', which has no classes"),
        (("--probability", "sigmoid"), "probabilities go only with task classify or multilabel"),
        (("--set", "epsilon=-1"), "epsilon: found -1, expected a number at least 0"),
    ],
)
def test_bad_options_are_one_line(store, tmp_path, capfd, options, said):
    assert run("fit", "--store", store, *LINEAR, "--model", tmp_path / "m", *options) == 2
    error = capfd.readouterr().err
    assert said in error
    assert error.count("\n") == 1
    assert not (tmp_path / "m").exists()


@pytest.mark.parametrize(
    ("labels", "said"),
    [
        (np.full(30, 7.5), r"all labels are 7.5 \(n_samples=30\), expected different numbers to learn"),
        (
            np.array(["a", "b", "c"] * 10),
            "holds text, expected numbers to regress on; found 'a' among the labels",
        ),
        (np.array(["1.5", "2", "nan"] * 10), "holds text, .*; found 'nan' among the labels"),
        (np.array([1e300, -1e300] * 15), "the labels' deviation is inf; learn them in other units"),
    ],
)
def test_targets_that_cannot_be_learned(labels, said, tmp_path):
    X, _ = data(30)
    for store in (Store.from_arrays(X, labels), write(tmp_path / "s", Rows(X), labels)):
        with pytest.raises(ValueError, match=said):
            train_in_memory(store, config())


def test_targets_stored_as_text_are_numbers(tmp_path):
    X, y = data(30)
    y = y.round(3)
    pq.write_table(pa.table({"a": X[:, 0], "b": X[:, 1], "y": y.astype(str)}), tmp_path / "a.parquet")
    ingest([tmp_path / "a.parquet"], tmp_path / "s", IngestOptions())
    store = Store.open(tmp_path / "s")
    model, _ = train_in_memory(store, config())
    twin, _ = train_in_memory(Store.from_arrays(X[:, :2].astype(np.float32), y), config())
    np.testing.assert_allclose(model.decision_function(store), twin.decision_function(store), rtol=1e-6)
    assert evaluate(model, store, engine=Engine(1))["r2"] == evaluate(twin, store, engine=Engine(1))["r2"]


def test_constant_targets_as_they_are():
    X, _ = data(60)
    svr = CuttingPlaneSVR(scale_targets=False, intercept_scaling=10.0).fit(X, np.full(60, 7.0))
    np.testing.assert_allclose(svr.predict(X), 7.0, atol=0.1)


def test_squares_are_not_of_this_solver():
    with pytest.raises(ConfigError, match="found 'squared', expected 'hinge' or 'logistic'"):
        config(cutting_plane={"loss": "squared"})
