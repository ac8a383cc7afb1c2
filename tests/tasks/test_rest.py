"""Each class against the rest, next to scikit-learn's OneVsRestClassifier and to a binary fit of each class."""

from __future__ import annotations

import warnings
from functools import cache
from typing import Any

import numpy as np
import pytest
from cases import config
from making import write
from sklearn.datasets import load_digits
from sklearn.multiclass import OneVsRestClassifier
from sklearn.svm import SVC
from stepwise import killed_and_resumed

from streamsvm import ALFPGMSVC, DCSVC, Store
from streamsvm.choosing.sample_fits import TrialFit, losses, solve
from streamsvm.cli.app import app
from streamsvm.data.rows import Rows
from streamsvm.errors import ConfigError, DataError
from streamsvm.exchange.libsvm import write_libsvm
from streamsvm.exchange.onnx import onnx_model
from streamsvm.fits.prepare import prepare
from streamsvm.models.files import load_model
from streamsvm.parallel.engine import Engine
from streamsvm.tasks import task_of
from streamsvm.tasks.pairs import against_rest
from streamsvm.train import train_in_memory

K = 6
OPTIONS: dict[str, Any] = {"C": 5.0, "gamma": 0.5}
DIVIDED: dict[str, Any] = {"levels": 1, "part_rows": 150, "random_state": 0}


@cache
def digits() -> tuple[np.ndarray, np.ndarray]:
    X, y = load_digits(n_class=K, return_X_y=True)
    return (X[:500] / 16).astype(np.float32), np.array(list("fedcba"))[y[:500]]


@cache
def theirs() -> Any:
    return OneVsRestClassifier(SVC(**OPTIONS, tol=1e-5)).fit(*digits())


@pytest.mark.parametrize(
    "estimator",
    [
        ALFPGMSVC(**OPTIONS, tol=1e-5, multi_class="ovr"),
        DCSVC(**OPTIONS, tol=1e-5, multi_class="ovr", fit_intercept=True),
        DCSVC(**OPTIONS, tol=1e-5, multi_class="ovr", fit_intercept=True, **DIVIDED),
    ],
)
def test_it_is_the_answer_of_scikit_learn(estimator):
    (X, y), reference = digits(), theirs()
    estimator.fit(X, y)
    np.testing.assert_allclose(estimator.decision_function(X), reference.decision_function(X), atol=1e-4)
    np.testing.assert_array_equal(estimator.predict(X), reference.predict(X))
    np.testing.assert_allclose(estimator.intercept_, [svc.intercept_[0] for svc in reference.estimators_], atol=1e-4)
    for own, svc in zip(estimator.dual_coef_, reference.estimators_, strict=True):
        expected = np.zeros(len(X))
        expected[svc.support_] = svc.dual_coef_[0]
        found = np.zeros(len(X))
        found[estimator.support_] = own
        np.testing.assert_allclose(found, expected, atol=2e-3)
    counts = [np.count_nonzero(own) for own in estimator.dual_coef_]
    assert estimator.n_support_.tolist() == counts


@pytest.mark.parametrize("own", [{}, {"loss": "squared_hinge"}, {"nu": 0.2, "C": 1.0}])
def test_each_column_is_a_binary_fit(own):
    X, y = digits()
    parameters = {**OPTIONS, "tol": 1e-5, **own}
    decisions = DCSVC(**parameters, multi_class="ovr").fit(X, y).decision_function(X)
    for column, label in enumerate(np.unique(y)):
        alone = DCSVC(**parameters).fit(X, y == label)
        np.testing.assert_allclose(decisions[:, column], alone.decision_function(X), atol=2e-3)


def test_of_two_classes_it_is_the_same_problem():
    X, y = digits()
    first, other = (DCSVC(**OPTIONS, multi_class=how).fit(X, y == "a") for how in ("ovo", "ovr"))
    np.testing.assert_array_equal(first.decision_function(X), other.decision_function(X))
    assert other.dual_coef_.shape[0] == 1


@pytest.mark.parametrize("early", [{}, {"fit_intercept": True}])
def test_a_part_without_a_class_answers_against_it(early):
    """Sorted by class, so that parts have few of them; and to the last bit what the rows of a part say alone."""
    X, y = digits()
    model = DCSVC(**OPTIONS, multi_class="ovr", early=True, **DIVIDED, **early).fit(X, y).model_
    assert not model.present.all()
    decisions = model.decision_function(X)
    parts = model.partition.nearest(Rows(X), 1)[:, 0]
    for part in range(len(model.present)):
        here = parts == part
        np.testing.assert_array_equal(decisions[here][:, ~model.present[part]], -1.0)
        for column in np.flatnonzero(model.present[part]):
            rows, coef = model.part(part)
            said = model.header.kernel.exact(Rows(X[here]), rows) @ coef[:, column]
            bias = 0.0 if model.bias is None else model.bias[part, column]
            np.testing.assert_allclose(decisions[here][:, column], said + bias, atol=1e-4)


def test_what_a_part_of_one_side_says():
    rest, pairs = task_of("classify").by("rest"), task_of("classify")
    present = np.array([[1, 1, 0], [0, 1, 0], [1, 1, 1], [0, 0, 0]], bool)
    np.testing.assert_array_equal(rest.one_sided(present), [[0, 0, -1], [-1, 1, -1], [0] * 3, [0] * 3])
    np.testing.assert_array_equal(pairs.one_sided(present), [[0, -1, -1], [1, 0, -1], [0] * 3, [0] * 3])
    np.testing.assert_array_equal(rest.one_sided(present[:, 1:]), [[-1], [-1], [0], [0]])
    with pytest.raises(KeyError):
        pairs.by("votes")


@pytest.mark.parametrize(("single", "expected"), [(False, [0, 1]), (True, [0, 1, 2])])
def test_a_class_without_rows_is_no_problem(single, expected):
    parts = list(against_rest(np.array([0, 1, 1]), 3, single=single))
    assert [part.number for part in parts] == expected
    np.testing.assert_array_equal(parts[1].y, [-1, 1, 1])


@pytest.mark.parametrize("solver", ["alfpgm", "dcsvm"])
def test_a_class_of_no_weight_is_never_the_answer(solver):
    X, y = digits()
    store = Store.from_arrays(X, y, sample_weight=np.where(y == "a", 0.0, 1.0))
    for own in ({"dcsvm": {"bias": True}}, {}) if solver == "dcsvm" else ({},):
        fit = config(solver, multiclass="rest", **{"dcsvm": {}, "alfpgm": {}} | own)
        assert "a" not in train_in_memory(store, fit)[0].predict(X)


def test_killed_and_resumed_it_is_the_same(tmp_path):
    X, y = digits()
    store = write(tmp_path / "s", Rows(X), y, step=100, chunk_rows=100)
    fit = config("against the rest", checkpoint_every="1 step")
    whole, again = killed_and_resumed(store, fit, tmp_path)
    assert again["objective"] == whole["objective"]
    models = [load_model(tmp_path / name).decision_function(X) for name in ("whole", "m")]
    np.testing.assert_array_equal(*models)


def test_larger_nu_than_the_smallest_class_allows_is_one_line():
    X, y = digits()
    most = 2 * np.unique(y, return_counts=True)[1].min() / len(y)
    with pytest.raises(DataError, match=f"at most {most:.4g}, twice the share of the smaller side of a problem"):
        DCSVC(nu=0.6, multi_class="ovr").fit(X, y)


def test_parameters_that_are_none():
    X, y = digits()
    with pytest.raises(ConfigError, match="multi_class: found 'crammer_singer', expected 'ovo' or 'ovr'"):
        DCSVC(multi_class="crammer_singer").fit(X, y)
    with pytest.raises(ValueError, match="decision_function_shape is 'ovo', and multi_class 'ovr' has no"):
        ALFPGMSVC(multi_class="ovr", decision_function_shape="ovo").fit(X, y)


def test_libsvm_decides_the_same_by_pairs(tmp_path):
    """Exactly, as differences of two columns: the largest column wins all its pairs."""
    libsvm = pytest.importorskip("libsvm.svmutil", reason="needs LIBSVM itself: streamsvm[libsvm]")
    X, y = digits()
    model = ALFPGMSVC(**OPTIONS, multi_class="ovr").fit(X, np.unique(y, return_inverse=True)[1]).model_
    write_libsvm(model, tmp_path / "m.svm")
    loaded = libsvm.svm_load_model(str(tmp_path / "m.svm"))
    labels, _, values = libsvm.svm_predict([0] * len(X), X.tolist(), loaded, "-q")
    np.testing.assert_array_equal(labels, model.predict(X))
    f = model.decision_function(X)
    np.testing.assert_allclose(np.array(values)[:, 0], f[:, 0] - f[:, 1], atol=1e-4)


@pytest.mark.parametrize("early", [False, True])
def test_onnx_decides_the_same(early):
    onnxruntime = pytest.importorskip("onnxruntime")
    X, y = digits()
    model = DCSVC(**OPTIONS, multi_class="ovr", early=early, **DIVIDED).fit(X, y).model_
    session = onnxruntime.InferenceSession(onnx_model(model).SerializeToString())
    label, scores = session.run(["label", "scores"], {"X": X})
    np.testing.assert_array_equal(label, model.predict(X))
    np.testing.assert_allclose(scores, model.decision_function(X), atol=1e-4)


def test_trials_of_a_search_score_what_the_fit_does():
    """Losses of held-out rows by the coefficients that a trial finds, where a class has no rows, too."""
    X, y = digits()
    prepared = prepare(Store.from_arrays(X, y), config("against the rest"), Engine(1))
    for ids in (np.arange(300), np.flatnonzero(y != "a")[:300]):
        asked, held = prepared.target_source.take(ids), prepared.target_source.take(np.arange(300, 500))
        found = TrialFit(prepared.kernel, asked)
        solve([found], Rows(X[ids]), 1 << 30)
        [lost] = losses([found], Rows(X[ids]), Rows(X[300:]), held)
        told = [
            DCSVC(**OPTIONS, tol=0.1).fit(X[ids], y[ids] == label).decision_function(X[300:])
            if label in y[ids]
            else np.full(200, -1.0)
            for label in np.unique(y)
        ]
        wrong = np.unique(y)[np.argmax(told, axis=0)] != y[300:]
        assert np.mean((lost > 0) != wrong) < 0.02


def test_it_is_chosen_for_calibrated_and_explained(tmp_path, capsys):
    X, y = digits()
    store = write(tmp_path / "s.zarr", Rows(X), y)
    own = ["--trials", "2", "--set", "search.sample=300", "--set", "multiclass=rest", "--solver", "dcsvm"]
    words = ["fit", "--store", store.url, "--model", tmp_path / "m.zarr", *own, "--probability", "sigmoid"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        app([*map(str, words), "--json"], standalone_mode=False)
    model = load_model(tmp_path / "m.zarr")
    assert len(model.header.calibration.bounds) == K + 1
    proba = model.predict_proba(X)
    np.testing.assert_allclose(proba.sum(axis=1), 1)
    np.testing.assert_array_equal(model.classes[proba.argmax(axis=1)], model.predict(X))
    assert np.mean(model.predict(X) == y) > 0.95
    capsys.readouterr()
    app(
        ["explain", "--model", str(tmp_path / "m.zarr"), "--store", store.url, "--rows", "0", "--json"],
        standalone_mode=False,
    )
    assert '"label"' in capsys.readouterr().out
