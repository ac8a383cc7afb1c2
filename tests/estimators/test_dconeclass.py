"""DCOneClassSVM and task oneclass: scikit-learn's habits, LIBSVM's problem, parts with the same share of outliers."""

from __future__ import annotations

import json

import numpy as np
import pytest
import reference
from every_case import every_case
from making import write
from sklearn.svm import OneClassSVM

from streamsvm import DCOneClassSVM, Store, load_model
from streamsvm.cli.app import app, exit_status
from streamsvm.config import build_config
from streamsvm.data.rows import Rows
from streamsvm.kernels.distance import RBF
from streamsvm.train import train_in_memory

SAME = {"gamma": 0.5, "nu": 0.1, "tol": 1e-5}
DIVIDED = {"levels": 1, "children": 3, "part_rows": 300, "random_state": 0}
ONE_CLASS = {"task": "oneclass", "nu": 0.1, "kernel": {"gamma": 0.5}, "threads": 2}


def run(*words: object) -> int:
    return exit_status(lambda: app([*map(str, words)], standalone_mode=False))


def cloud(n: int = 600) -> np.ndarray:
    rng = np.random.default_rng(0)
    return (rng.normal(size=(n, 2)) + 4.0 * rng.integers(0, 2, (n, 1))).astype(np.float32)


@pytest.mark.parametrize("weighed", [False, True])
@pytest.mark.parametrize("options", [{}, DIVIDED], ids=["whole", "divided"])
def test_it_is_the_problem_of_one_class_svm(weighed, options):
    X = cloud()
    weight = np.random.default_rng(1).uniform(0.2, 3, len(X)) if weighed else None
    ours = DCOneClassSVM(**SAME, **options).fit(X, sample_weight=weight)
    theirs = OneClassSVM(**SAME).fit(X, sample_weight=weight)
    np.testing.assert_allclose(ours.decision_function(X), theirs.decision_function(X), atol=3e-3)
    np.testing.assert_allclose(ours.score_samples(X), theirs.score_samples(X), atol=3e-3)
    assert ours.offset_ == pytest.approx(theirs.offset_[0], abs=2e-3)
    sure = np.abs(theirs.decision_function(X)) > 5e-3
    np.testing.assert_array_equal(ours.predict(X)[sure], theirs.predict(X)[sure])
    if not weighed:
        values = ours.decision_function(X)  # rows at the margin are on either side of 0 by rounding
        assert np.count_nonzero(values < -1e-4) <= 60 <= np.count_nonzero(values < 1e-4)
        np.testing.assert_array_equal(ours.predict(X) == -1, values < 0)
    K = reference.kernel_matrix(RBF(0.5), theirs.support_vectors_, theirs.support_vectors_)
    least = 0.5 * theirs.dual_coef_[0] @ K @ theirs.dual_coef_[0]
    assert ours.objective_ == pytest.approx(least, rel=1e-5)
    assert -1e-6 * least <= ours.dual_gap_ <= 1e-4 * least
    assert ours.dual_coef_.sum() == pytest.approx(theirs.dual_coef_.sum())


@pytest.mark.parametrize("nu", [0.02, 0.5, 1.0])
@pytest.mark.parametrize("kernel", ["rbf", "poly"])
def test_it_is_the_least_of_the_twin(nu, kernel):
    X = cloud(80)
    svm = DCOneClassSVM(nu=nu, kernel=kernel, degree=2, coef0=1.0, gamma=0.5, tol=1e-5).fit(X)
    K = reference.kernel_matrix(svm.model_.header.kernel, X, X)
    a, rho = reference.solve_one_class(K, np.ones(len(X)), nu)
    assert svm.objective_ == pytest.approx(0.5 * a @ K @ a, rel=1e-4)
    f, n_out = K @ a, int(np.count_nonzero(svm.predict(X) == -1))
    if nu < 1:
        assert svm.offset_ == pytest.approx(rho, rel=1e-3)
        np.testing.assert_allclose(svm.score_samples(X), f, rtol=1e-3, atol=1e-3 * rho)
        assert n_out == int(nu * len(X))
    else:
        assert svm.offset_ == pytest.approx(f.max(), rel=1e-4)


def test_parts_of_an_early_model_have_the_same_share_of_outliers():
    X = cloud(1500)
    early = DCOneClassSVM(**SAME, **DIVIDED, early=True).fit(X)
    parts, answers = early.model_.partition.assign(Rows(X)), early.predict(X)
    assert len(early.model_.present) > 4
    for part in range(len(early.model_.present)):
        here = parts == part
        theirs = OneClassSVM(**SAME).fit(X[here])
        values = early.decision_function(X[here])
        np.testing.assert_allclose(values, theirs.decision_function(X[here]), atol=3e-3)
        np.testing.assert_array_equal(answers[here] == -1, values < 0)
        # rows at the margin are on either side of 0 by rounding
        within, beyond = np.count_nonzero(values < -1e-4), np.count_nonzero(values < 1e-4)
        assert within <= int(0.1 * here.sum()) <= beyond
    assert early.offset_ == 0.0
    with pytest.raises(AttributeError, match="support vectors by part"):
        _ = early.dual_coef_


@pytest.mark.parametrize("early", [False, True])
def test_rows_in_files_without_labels_give_the_same_model(early, monkeypatch, tmp_path):
    X = cloud(900)
    config = build_config(("t", ONE_CLASS | {"dcsvm": {"levels": 1, "part_rows": 300, "early": early}}))
    here, report = train_in_memory(Store.from_arrays(X, ["a", "b", "c"] * 300), config)
    monkeypatch.setattr("streamsvm.fits.divided.stay_in_memory", lambda *_: False)
    there, again = train_in_memory(write(tmp_path / "s.zarr", Rows(X), step=100, chunk_rows=100), config)
    np.testing.assert_array_equal(here.decision_function(X), there.decision_function(X))
    assert report["objective"] == again["objective"]
    assert set(there.predict(X)) == {-1, 1}


def test_labels_of_a_store_are_not_read(tmp_path):
    X, y = cloud(300), np.repeat([0, 1], 150)
    store = write(tmp_path / "s.zarr", Rows(X), y)
    np.testing.assert_array_equal(
        DCOneClassSVM(**SAME).fit(store).decision_function(store),
        DCOneClassSVM(**SAME).fit(X).decision_function(X),
    )


def test_from_the_command_line_to_a_score(tmp_path, capsys):
    X = np.concatenate([cloud(380), np.random.default_rng(2).uniform(12, 30, (20, 2)).astype(np.float32)])
    is_out = np.arange(400) >= 380
    write(tmp_path / "s.zarr", Rows(X))
    plain = ("--store", tmp_path / "s.zarr")
    model = ("--model", tmp_path / "m")
    assert run("fit", "--task", "oneclass", "--nu", "0.05", "--gamma", "0.02", *plain, *model) == 0
    assert run("predict", *model, *plain, "--out", tmp_path / "p.csv", "--decision") == 0
    name, *rows = (tmp_path / "p.csv").read_text().split()
    assert name == "label,decision"
    told = np.array([row.split(",")[0] for row in rows])
    assert set(told) == {"1", "-1"}
    capsys.readouterr()
    assert run("evaluate", *model, *plain, "--json") == 0
    said = json.loads(capsys.readouterr().out)
    assert said["outliers"] == np.mean(told == "-1") == 0.05
    assert "roc_auc" not in said
    for number, (labels, outlier) in enumerate(
        [(np.where(is_out, -1, 1), -1), (is_out.astype(int), 1), (np.where(is_out, "odd", "usual"), "odd")]
    ):
        write(tmp_path / str(number), Rows(X), labels)
        assert run("evaluate", *model, "--store", tmp_path / str(number), "--json") == 0
        said = json.loads(capsys.readouterr().out)
        assert said["outlier_label"] == outlier
        assert said["outliers_by_label"] == 0.05
        assert said["roc_auc"] > 0.95
        assert said["average_precision"] > 0.7


@pytest.mark.parametrize("early", ["true", "false"])
def test_exported_to_onnx_it_says_the_same(early, tmp_path):
    ort = pytest.importorskip("onnxruntime", reason="an extra")
    X = cloud(700)
    svm = DCOneClassSVM(gamma=0.5, nu=0.2, early=early == "true", levels=1, part_rows=200, random_state=0).fit(X)
    svm.save(tmp_path / "m")
    assert run("export", "--model", tmp_path / "m", "--out", tmp_path / "m.onnx", "--format", "onnx") == 0
    session = ort.InferenceSession(str(tmp_path / "m.onnx"), providers=["CPUExecutionProvider"])
    label, scores = session.run(["label", "scores"], {session.get_inputs()[0].name: X})
    np.testing.assert_allclose(np.ravel(scores), svm.decision_function(X), rtol=1e-4, atol=1e-3)
    sure = np.abs(svm.decision_function(X)) > 1e-2
    np.testing.assert_array_equal(label[sure], svm.predict(X)[sure])


@pytest.mark.parametrize("kernel", ["rbf", "linear"])
def test_libsvm_reads_and_writes_it(kernel, tmp_path):
    X = cloud(300) + 3
    svm = DCOneClassSVM(gamma=0.5, nu=0.2, kernel=kernel).fit(X)
    svm.save(tmp_path / "m")
    out = tmp_path / "m.model"
    assert run("export", "--model", tmp_path / "m", "--out", out, "--format", "libsvm") == 0
    assert out.read_text().startswith("svm_type one_class\n")
    assert "label" not in out.read_text()
    assert run("import", out, "--model", tmp_path / "back") == 0
    back = load_model(tmp_path / "back")
    np.testing.assert_allclose(back.decision_function(X), svm.decision_function(X), rtol=1e-5, atol=1e-3)
    sure = np.abs(svm.decision_function(X)) > 1e-2
    np.testing.assert_array_equal(back.predict(X)[sure], svm.predict(X)[sure])


def test_rows_that_are_all_the_same_are_learned():
    svm = DCOneClassSVM(nu=0.2).fit(np.ones((50, 3)))
    assert svm.offset_ == pytest.approx(10.0)
    assert svm.predict([[9.0, 9.0, 9.0]]) == [-1]


@every_case(
    ("values", "match"),
    [
        ({"nu": 0}, "nu: found 0, expected a number above 0"),
        ({"nu": 1.5}, "nu: found 1.5, expected a number at most 1"),
        ({"holdout": 10}, "holdout is 10, and task oneclass has no labels"),
        ({"solver": "alfpgm"}, "only solver dcsvm or bsgd or cutting-plane supports"),
        ({"positive": "a"}, "has no classes"),
        ({"probability": {"method": "sigmoid"}}, "probabilities"),
        ({"dcsvm": {"early": True, "levels": 1, "combine": "naive"}}, "adds up partitions"),
        ({"dcsvm": {"early": True, "levels": 1, "part_metric": 1}}, "learns no metric"),
    ],
)
def test_bad_options_are_named(values, match):
    with pytest.raises(ValueError, match=match):
        train_in_memory(Store.from_arrays(cloud(300)), build_config(("t", ONE_CLASS | values)))


@pytest.mark.parametrize(
    ("words", "match"),
    [
        (
            ("fit", "--task", "oneclass", "--C", "3"),
            "C is read by tasks classify, multilabel, ordinal, rank and regress only",
        ),
        (("fit", "--nu", "0.1", "--solver", "alfpgm"), "nu is read by solver"),
        (("tune", "--set", "task=oneclass"), "nothing is chosen for task oneclass"),
        (("tune", "--set", "task=oneclass", "--set", "tune.grid={nu=[0.1, 0.2]}"), "has no labels"),
    ],
)
def test_commands_say_in_a_line_what_is_not_read(words, match, tmp_path, capsys):
    write(tmp_path / "s.zarr", Rows(cloud(100)))
    assert run(*words, "--store", tmp_path / "s.zarr") == 2
    told = capsys.readouterr().err
    assert match in told
    assert "Traceback" not in told


def test_weights_that_are_all_zero_are_refused():
    with pytest.raises(ValueError, match="all weights are 0"):
        DCOneClassSVM().fit(Store.from_arrays(cloud(50), sample_weight=np.zeros(50)))
