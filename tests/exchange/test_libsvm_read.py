"""Models of LIBSVM as ours: the same decisions; damaged files are one clear line, in bounded memory."""

from __future__ import annotations

import json
import tracemalloc

import numpy as np
import pytest
from every_case import every_case
from exchange.libsvm_twin import Twin
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy import sparse

from streamsvm.data.rows import Rows
from streamsvm.errors import ConfigError, DataError, StreamSVMError
from streamsvm.exchange.libsvm import import_libsvm
from streamsvm.models import ExpansionModel, KernelModel, LinearModel

THREE = """svm_type c_svc
kernel_type rbf
gamma 0.5
nr_class 3
total_sv 4
rho 0.25 -0.5 0.125
label 3 1 2
nr_sv 2 1 1
SV
1 0.5 1:0.5 3:-1.25
0.25 0 2:1
-1 0.75 1:1 2:2 3:3
-0.5 -0.75 
"""
TWO = """svm_type nu_svc
kernel_type polynomial
degree 2
gamma 0.5
coef0 -1
nr_class 2
total_sv 2
rho 0.25
label 1 -1
probA -1.5
probB 0.5
nr_sv 1 1
SV
1.5 1:0.5 3:-1.25
-1.5 2:1
"""
VALUES = "svm_type nu_svr\nkernel_type linear\nnr_class 2\ntotal_sv 2\nrho -2\nSV\n1.5 1:0.5 3:1\n-1 2:4\n"
X = np.random.default_rng(0).normal(size=(25, 3)).astype(np.float32)


def read(tmp_path, text, **options):
    (tmp_path / "m.svm").write_text(text)
    return import_libsvm(tmp_path / "m.svm", **options)


def test_several_classes_keep_the_order_of_the_file(tmp_path):
    model, twin = read(tmp_path, THREE), Twin(tmp_path / "m.svm", 3)
    assert isinstance(model, KernelModel)
    assert model.classes.tolist() == [3, 1, 2]
    np.testing.assert_allclose(-model.binary_decisions(Rows(X)), twin.decisions(X), atol=1e-6)
    assert model.predict(Rows(X)).tolist() == twin.predict(X).tolist()


def test_of_two_classes_the_first_is_the_positive_one(tmp_path):
    with pytest.warns(UserWarning, match="probA, probB left out"):
        model = read(tmp_path, TWO)
    twin = Twin(tmp_path / "m.svm", 3)
    np.testing.assert_allclose(model.decision_function(Rows(X)), twin.decisions(X)[:, 0], rtol=1e-5)
    assert model.predict(Rows(X)).tolist() == twin.predict(X).tolist()


def test_regressions_are_values(tmp_path):
    model = read(tmp_path, VALUES)
    assert isinstance(model, LinearModel)
    np.testing.assert_allclose(model.predict(Rows(X)), Twin(tmp_path / "m.svm", 3).decisions(X)[:, 0], rtol=1e-6)
    rbf = read(tmp_path, VALUES.replace("linear", "rbf\ngamma 2"))
    assert isinstance(rbf, ExpansionModel)
    np.testing.assert_allclose(rbf.predict(Rows(X)), Twin(tmp_path / "m.svm", 3).decisions(X)[:, 0], rtol=1e-5)


def test_a_linear_model_loses_nothing_to_cancelling(tmp_path):
    """w'x of 10^9 with a constant that takes it back."""
    text = VALUES.replace("nu_svr", "c_svc").replace("rho -2", "rho 1e9\nlabel 1 0\nnr_sv 1 1")
    model = read(tmp_path, text.replace("1.5 1:0.5 3:1", "1 1:1000000.25"))
    np.testing.assert_allclose(model.decision_function(Rows(np.array([[1000, 0, 0]], np.float32))), [250], rtol=1e-9)


def test_a_range_file_is_the_scaling(tmp_path):
    (tmp_path / "r").write_text("x\n-1 1\n1 0 10\n3 -5 5\n")
    model = read(tmp_path, THREE, ranges=tmp_path / "r", features=5)
    raw = np.array([[5, 7, -5, 9, 9], [10, 1, 0, 0, 1]])
    np.testing.assert_allclose(model.header.scaling.apply(Rows(raw)).X, [[0, 0, -1, 0, 0], [1, 0, 0, 0, 0]])
    assert model.d == 5


def test_a_range_without_offsets_takes_sparse_rows(tmp_path):
    (tmp_path / "r").write_text("x\n-1 1\n1 -2 2\n2 -4 4\n3 -1 1\n")
    model = read(tmp_path, THREE, ranges=tmp_path / "r")
    rows = Rows(sparse.csr_array(X))
    np.testing.assert_allclose(model.decision_function(rows), model.decision_function(Rows(X)), atol=1e-6)


def test_labels_by_name(tmp_path):
    (tmp_path / "l").write_text(json.dumps(["none", "one", "two", "three"]))
    assert read(tmp_path, THREE, labels=tmp_path / "l").classes.tolist() == ["three", "one", "two"]


@every_case(
    ("labels", "message"),
    [
        ("[", "no JSON"),
        ('{"a": 1}', "JSON list"),
        ('["a", "a", "b", "c"]', "different labels"),
        ('["a", 1, "b", "c"]', "all texts, all numbers or both booleans"),
        ('["a", "b", "c"]', "found 3 labels, the model's are 1 to 3"),
        ("[1, 2, 3, 1" + 30 * "0" + "]", "64 bits"),
        (100_000 * "[", "no JSON"),
    ],
)
def test_labels_that_do_not_fit(labels, message, tmp_path):
    (tmp_path / "l").write_text(labels)
    with pytest.raises(DataError, match=message):
        read(tmp_path, THREE, labels=tmp_path / "l")


def test_too_few_features_are_told(tmp_path):
    with pytest.raises(ConfigError, match=r"--features 2: .* has feature 3"):
        read(tmp_path, THREE, features=2)


@every_case(
    ("text", "old", "new", "message"),
    [
        (THREE, "c_svc", "svdd", "line 1: found svm_type 'svdd', supported are c_svc, nu_svc"),
        (
            THREE,
            "rbf",
            "wave",
            "line 2: found kernel_type 'wave', supported are rbf, polynomial, sigmoid, linear",
        ),
        (THREE, "rbf", "precomputed", "line 2: found kernel_type 'precomputed'"),
        (THREE, "gamma 0.5", "gamma x", "line 3: found gamma 'x', expected 1 number"),
        (THREE, "gamma 0.5", "gamma nan", "line 3: found gamma 'nan'"),
        (THREE, "gamma 0.5", "gamma -1", "line 3: found gamma -1"),
        (THREE, "gamma 0.5\n", "", "line 8: found SV, but no line gamma"),
        (THREE, "nr_class 3", "nr_class 1", "line 4: found nr_class 1"),
        (THREE, "nr_class 3", "nr_class 99999999999", "line 7: found label '3 1 2', expected 99999999999"),
        (THREE, "total_sv 4", "total_sv 5", "line 13: the file ends after 4 support vectors, line 5 says 5"),
        (THREE, "total_sv 4", "total_sv 3", "line 13: the file ends after 4 support vectors, line 5 says 3"),
        (THREE, "rho 0.25 -0.5 0.125", "rho 1 2", "line 6: found rho '1 2', expected 3 numbers"),
        (THREE, "label 3 1 2", "label 3 1 3", "line 7: expected a different integer"),
        (THREE, "label 3 1 2", "label 3 1 4294967296", "line 7: expected a different integer"),
        (THREE, "label 3 1 2", "label 3 1 two", "line 7: found label '3 1 two', expected 3 whole numbers"),
        (THREE, "nr_sv 2 1 1", "nr_sv 2 2 1", "line 8: the counts do not add up to 4"),
        (THREE, "nr_sv 2 1 1", "nr_sv 5 -1 0", "line 8: the counts do not add up"),
        (THREE, "nr_sv", "rho 0 0 0\nnr_sv", "line 8: found rho again, it is on line 6"),
        (THREE, "nr_sv", "colour 3\nnr_sv", "line 8: found 'colour', expected one of svm_type"),
        (THREE, THREE[THREE.index("SV\n") :], "", "line 8: found the end of the file"),
        (THREE, "2:1\n", "2:one\n", "line 11: expected 2 coefficients, then FEATURE:VALUE"),
        (THREE, "2:1\n", "2:inf\n", "line 11: expected 2 coefficients and values, all within float32"),
        (THREE, "2:1\n", "2:1e39\n", "line 11: .*within float32"),
        (THREE, "2:1\n", "0:1\n", "line 11: expected features from 1"),
        (THREE, "2:1\n", "2:1 1:1\n", "line 11: expected features from 1 .* rising"),
        (THREE, "2:1\n", "2147483648:1\n", "line 11: expected features from 1"),
        (THREE, "2:1\n", f"{10**30}:1\n", "line 11: expected features from 1"),
        (THREE, "2:1\n", "2\n", "line 11: expected 2 coefficients, then"),
        (THREE, "0.25 0 2:1", "0.25", "line 11: expected 2 coefficients"),
        (TWO, "degree 2", "degree 2.5", "line 3: found degree '2.5', expected 1 whole number"),
        (TWO, "degree 2", "degree 2000000000", "line 3: found degree 2000000000, expected 1 to 100"),
    ],
)
def test_damaged_files_name_the_line(text, old, new, message, tmp_path):
    assert old in text
    with pytest.raises(DataError, match=message):
        read(tmp_path, text.replace(old, new, 1))


@every_case(
    ("text", "message"),
    [
        ("", "line 1: found '', expected x"),
        ("y\n0 1\n0 5\nx\n0 1\n", "labels scaled with -y are not supported"),
        ("x\n0\n", "line 2: found '0', expected 2 numbers"),
        ("x\n0 1\n1 2\n", "line 3: found '1 2', expected 3 numbers"),
        ("x\n0 1\n1 2 nan\n", "line 3: .*expected 3 numbers"),
        ("x\n0 1\n1 2 1\n", "line 3: expected a feature from 1 to"),
        ("x\n0 1\n0 1 2\n", "line 3: expected a feature from 1 to"),
        ("x\n0 1\n1.5 1 2\n", "line 3: expected a feature from 1 to"),
        ("x\n0 1\n1e30 1 2\n", "line 3: expected a feature from 1 to"),
        ("x\n0 1e308\n1 0 5e-324\n", "the range of feature 1 is too wide or too narrow"),
    ],
)
def test_damaged_ranges_name_the_line(text, message, tmp_path):
    (tmp_path / "r").write_text(text)
    with pytest.raises(DataError, match=message):
        read(tmp_path, THREE, ranges=tmp_path / "r")


@pytest.mark.filterwarnings("ignore:.*left out. an imported model")
@settings(
    max_examples=4 * settings.default.max_examples,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(st.data())
def test_changed_files_are_a_model_or_one_clear_error(tmp_path, data):
    raw = bytearray(data.draw(st.sampled_from([THREE, TWO, VALUES])).encode())
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(raw)))
        change = st.one_of(
            st.binary(max_size=4), st.sampled_from([b"9" * 12, b" ", b"\n", b":", b"-", b"1e400", b"SV\n"])
        )
        raw[at : at + data.draw(st.integers(0, 6))] = data.draw(change)
    (tmp_path / "m.svm").write_bytes(raw)
    tracemalloc.start()
    try:
        model = import_libsvm(tmp_path / "m.svm")
        if model.d < 100:
            assert len(model.predict(Rows(np.zeros((2, model.d), np.float32)))) == 2
    except StreamSVMError as error:
        assert len(str(error).splitlines()) == 1  # noqa: PT017  for any error that may come
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak < 1 << 30
