"""CuttingPlaneOneClassSVM: scikit-learn's habits, LIBSVM's problem, the share of outliers, other doors, bad input."""

from __future__ import annotations

import json

import numpy as np
import pytest
import reference
from every_case import every_case
from exchange import libsvm_twin
from making import write
from sklearn.exceptions import ConvergenceWarning
from sklearn.svm import OneClassSVM

from streamsvm import CuttingPlaneOneClassSVM, Store, load_model
from streamsvm.cli.app import app, exit_status
from streamsvm.data.rows import Rows
from streamsvm.kernels.distance import RBF

FEATURES = {"kernel": "rbf", "gamma": 0.5, "random_state": 0}


def away(n: int = 600) -> np.ndarray:
    """Rows on one side of 0."""
    return (np.random.default_rng(0).normal(size=(n, 4)) + [3, 1, 2, 1]).astype(np.float32)


def cloud(n: int = 600) -> np.ndarray:
    rng = np.random.default_rng(0)
    return (rng.normal(size=(n, 2)) + 4.0 * rng.integers(0, 2, (n, 1))).astype(np.float32)


@pytest.mark.parametrize("weighed", [False, True])
@pytest.mark.parametrize("nu", [0.05, 0.5])
def test_it_is_the_problem_of_one_class_svm(nu, weighed):
    X = away().astype(np.float64)
    weight = np.random.default_rng(1).uniform(0.2, 3, len(X)) if weighed else np.ones(len(X))
    ours = CuttingPlaneOneClassSVM(nu=nu, tol=1e-5).fit(X, sample_weight=weight)
    theirs = OneClassSVM(nu=nu, kernel="linear", tol=1e-8).fit(X, sample_weight=weight)
    w = theirs.coef_[0]
    assert ours.objective_ == pytest.approx(0.5 * w @ w, rel=1e-5)
    primal = reference.one_class_primal(X, weight, nu, ours.coef_[0], ours.offset_)
    assert ours.dual_gap_ == pytest.approx(primal + ours.objective_, abs=1e-6 * ours.objective_)
    assert 0 <= ours.dual_gap_ <= 1e-5 * ours.objective_
    np.testing.assert_allclose(ours.score_samples(X), X @ ours.coef_[0], rtol=1e-6)
    outside = ours.predict(X) == -1
    assert weight[outside].sum() <= nu * weight.sum() * (1 + 1e-9)
    assert weight[outside].sum() >= nu * weight.sum() - weight.max()


def test_all_landmarks_are_the_whole_kernel():
    X = cloud(300)
    ours = CuttingPlaneOneClassSVM(nu=0.1, landmarks=300, **FEATURES).fit(X)
    theirs = OneClassSVM(nu=0.1, gamma=0.5, tol=1e-6).fit(X)
    K = reference.kernel_matrix(RBF(0.5), theirs.support_vectors_, theirs.support_vectors_)
    least = 0.5 * theirs.dual_coef_[0] @ K @ theirs.dual_coef_[0]
    assert ours.objective_ == pytest.approx(least, rel=2e-3)
    found, expected = ours.decision_function(X), theirs.decision_function(X)
    assert np.corrcoef(found, expected)[0, 1] > 0.995
    assert ours.offset_ == pytest.approx(theirs.offset_[0], rel=0.02)


@pytest.mark.parametrize("nu", [0.01, 0.2, 1.0])
def test_the_share_of_outliers_is_nu(nu):
    X = cloud(1000)
    svm = CuttingPlaneOneClassSVM(nu=nu, landmarks=50, **FEATURES).fit(X)
    assert np.mean(svm.predict(X) == -1) == pytest.approx(nu, abs=0.003)


def test_rows_all_around_0_are_told():
    X = np.random.default_rng(0).normal(size=(300, 3))
    with pytest.warns(ConvergenceWarning, match="the rows lie all around 0: no linear function"):
        svm = CuttingPlaneOneClassSVM(nu=0.5).fit(X)
    assert svm.objective_ == pytest.approx(0, abs=1e-6 * 300**2)
    assert np.all(svm.predict(X) == 1)


def run(*words: object) -> int:
    return exit_status(lambda: app([*map(str, words)], standalone_mode=False))


def test_from_the_command_line_to_other_systems(tmp_path, capsys):
    ort = pytest.importorskip("onnxruntime", reason="an extra")
    X = away()
    store, model = write(tmp_path / "s.zarr", Rows(X), step=100, chunk_rows=100).url, tmp_path / "m"
    words = ("fit", "--store", store, "--task", "oneclass", "--solver", "cutting-plane", "--kernel", "linear")
    assert run(*words, "--dry-run", "--json") == 0
    assert json.loads(capsys.readouterr().out)["vector_bytes"] == 0
    assert run(*words, "--nu", 0.1, "--model", model) == 0
    capsys.readouterr()
    assert run("evaluate", "--model", model, "--store", store, "--json") == 0
    assert json.loads(capsys.readouterr().out)["outliers"] == pytest.approx(0.1)
    expected = load_model(model).decision_function(Rows(X))
    np.testing.assert_array_equal(CuttingPlaneOneClassSVM(nu=0.1).fit(Store.open(store)).decision_function(X), expected)
    for kind in ("onnx", "libsvm"):
        assert run("export", "--model", model, "--format", kind, "--out", tmp_path / kind) == 0
    session = ort.InferenceSession(str(tmp_path / "onnx"), providers=["CPUExecutionProvider"])
    label, scores = session.run(["label", "scores"], {"X": X})
    np.testing.assert_allclose(scores, expected, rtol=1e-5, atol=1e-3)
    np.testing.assert_array_equal(label, np.where(expected >= 0, 1, -1))
    assert (tmp_path / "libsvm").read_text().startswith("svm_type one_class\nkernel_type linear\n")
    twin = libsvm_twin.Twin(tmp_path / "libsvm", 4)
    np.testing.assert_allclose(twin.decisions(X)[:, 0], expected, rtol=1e-5, atol=1e-3)


@every_case(
    ("options", "said"),
    [
        (("--nu", 0), "nu: found 0"),
        (("--nu", 1.5), "nu: found 1.5"),
        (("--C", 3), "C is read by tasks"),
        (("--set", "cutting_plane.bias=2"), "cutting_plane.bias is read by tasks"),
        (
            ("--set", "cutting_plane.loss=logistic"),
            "cutting_plane.loss is read by tasks classify and multilabel only",
        ),
    ],
)
def test_bad_options_are_one_line(tmp_path, capfd, options, said):
    store = write(tmp_path / "s.zarr", Rows(away(30))).url
    words = ("fit", "--store", store, "--task", "oneclass", "--solver", "cutting-plane", "--kernel", "linear")
    assert run(*words, "--model", tmp_path / "m", *options) == 2
    error = capfd.readouterr().err
    assert said in error
    assert error.count("\n") == 1
    assert not (tmp_path / "m").exists()
