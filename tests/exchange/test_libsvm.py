"""LIBSVM files: its decisions are the model's, and what the format cannot say stands next to the file."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from cases import labelled
from every_case import every_case
from exchange.libsvm_twin import Twin
from exchange.made import KERNELS, SUMS, D, local_model, model_of, raw_rows
from hypothesis import given, settings
from hypothesis import strategies as st

from streamsvm.config import build_config
from streamsvm.data.rows import Rows
from streamsvm.data.store import Store
from streamsvm.errors import ModelError, StorageError
from streamsvm.exchange.libsvm import import_libsvm, read_range, write_libsvm
from streamsvm.models import KernelModel
from streamsvm.train import train_in_memory

SCALES = ("none", "minmax", "maxabs")


def exported(model, folder):
    out = folder / "m.svm"
    facts = write_libsvm(model, out)
    ranges, labels = (folder / f"m.svm.{name}" for name in ("range", "labels.json"))
    assert facts["files"] == [str(path) for path in (ranges, labels) if path.exists()]
    assert {path.name for path in folder.iterdir()} == {
        "m.svm",
        *(path.rsplit("/")[-1] for path in facts["files"]),
    }
    return out, ranges if ranges.exists() else None, labels if labels.exists() else None


def svm_scale(path, X):
    """What svm-scale -r does to dense rows."""
    lines = path.read_text().splitlines()
    assert lines[0] == "x"
    lower, upper = map(float, lines[1].split())
    out = np.zeros_like(X)
    for line in lines[2:]:
        index, low, high = line.split()
        column = int(index) - 1
        if float(low) != float(high):
            out[:, column] = lower + (upper - lower) * (X[:, column] - float(low)) / (float(high) - float(low))
    return out


def ours_as_pairs(model, rows):
    """(m, pairs) by LIBSVM's signs: two classes, or a score, as they are; else positive for the pair's first class."""
    if isinstance(model, KernelModel) and len(model.classes) > 2:
        return -model.binary_decisions(rows)
    values = model.decision_function(rows)
    if model.task == "ordinal":
        starts = np.cumsum([0, *model.thresholds])
        values = np.outer(values, np.arange(len(starts))) - starts
        values = values[:, 1] if len(starts) == 2 else values
    if values.ndim == 1:
        return values[:, None]
    return np.stack([values[:, i] - values[:, j] for i, j in zip(*np.triu_indices(values.shape[1], 1), strict=True)], 1)


def assert_close(found, expected):
    np.testing.assert_allclose(found, expected, atol=1e-5 * max(1, np.abs(expected).max(initial=0)))


CASES = st.fixed_dictionaries(
    {
        "kind": st.sampled_from(SUMS),
        "kernel": st.sampled_from(list(KERNELS)),
        "k": st.integers(2, 4),
        "scale": st.sampled_from(SCALES),
        "labels": st.sampled_from(["text", "int", "float"]),
        "n_support": st.integers(1, 20),
        "seed": st.integers(0, 1000),
    }
)


@settings(derandomize=True)
@given(CASES, st.booleans())
def test_libsvm_decides_as_the_model(tmp_path_factory, case, is_sparse):
    is_sparse = is_sparse and case["scale"] != "minmax"
    model, rows = model_of(**case, is_sparse=is_sparse), raw_rows(30)
    out, ranges, labels = exported(model, tmp_path_factory.mktemp("svm"))
    twin = Twin(out, D)
    X = rows.X.astype(float) if ranges is None else svm_scale(ranges, rows.X.astype(float))
    expected = ours_as_pairs(model, rows)
    assert_close(twin.decisions(X), expected)
    assert_close(twin.by_its_code(X), expected)
    if twin.labels and np.abs(expected).min() > 1e-4:
        predicted = twin.predict(X)
        classes = predicted if labels is None else np.array(json.loads(labels.read_text()))[predicted]
        untied = replace(model, break_ties=False) if isinstance(model, KernelModel) else model
        assert classes.tolist() == untied.predict(rows).tolist()


@settings(derandomize=True)
@given(CASES, st.booleans())
def test_a_model_comes_back(tmp_path_factory, case, is_sparse):
    is_sparse = is_sparse and case["scale"] != "minmax"
    model, rows = model_of(**case, is_sparse=is_sparse), raw_rows(30, is_sparse=is_sparse)
    out, ranges, labels = exported(model, tmp_path_factory.mktemp("svm"))
    again = import_libsvm(out, ranges=ranges, labels=labels, features=D)
    expected = ours_as_pairs(model, rows)
    assert_close(ours_as_pairs(again, rows), expected)
    if model.task in ("rank", "regress"):
        assert again.task == "regress"
        assert_close(again.predict(rows), model.predict(rows))
    elif np.abs(expected).min() > 1e-4:
        untied = replace(model, break_ties=False) if isinstance(model, KernelModel) else model
        assert again.predict(rows).tolist() == untied.predict(rows).tolist()


@pytest.mark.parametrize("kind", ["kernel", "linear", "regress"])
@pytest.mark.parametrize("k", [2, 3])
def test_libsvm_itself_loads_the_file(kind, k, tmp_path):
    svmutil = pytest.importorskip("libsvm.svmutil", reason="needs LIBSVM itself: streamsvm[libsvm]")
    model, rows = model_of(kind, "rbf", k, labels="float"), raw_rows()
    loaded = svmutil.svm_load_model(str(exported(model, tmp_path)[0]))
    labels, _, values = svmutil.svm_predict([], rows.X.astype(float).tolist(), loaded, "-q")
    assert_close(np.array(values), ours_as_pairs(model, rows))
    expected = replace(model, break_ties=False) if kind == "kernel" else model
    np.testing.assert_allclose(labels, expected.predict(rows), atol=1e-5)


@pytest.mark.parametrize("k", [1, 2, 3])
def test_nu_names_the_file(k, tmp_path):
    """k 1: a regression."""
    X, y = labelled(max(2, k))
    config = {"nu": 0.65, "kernel": {"gamma": 0.5}, "task": "classify" if k > 1 else "regress"}
    store = Store.from_arrays(X, y if k > 1 else X[:, 0] * X[:, 1])
    model, rows = train_in_memory(store, build_config(("test", config)))[0], Rows(X[:40])
    out, _, _ = exported(model, tmp_path)
    svm = Twin(out, X.shape[1])
    assert svm.head["svm_type"] == ["nu_svc" if k > 1 else "nu_svr"]
    expected = ours_as_pairs(model, rows)
    assert_close(svm.decisions(rows.X.astype(float)).reshape(expected.shape), expected)
    assert_close(ours_as_pairs(import_libsvm(out, features=X.shape[1]), rows), expected)


def test_sparse_rows_stay_sparse(tmp_path):
    model = model_of("kernel", "linear", 3, "maxabs", is_sparse=True)
    out, ranges, _ = exported(model, tmp_path)
    assert ranges is None
    assert out.read_text().count(":") == model.support.X.nnz - np.count_nonzero(model.support.X.indices == 2)


@pytest.mark.parametrize(
    ("kernel", "scale", "needed"),
    [
        ("rbf", "maxabs", True),
        ("poly", "minmax", True),
        ("poly", "maxabs", False),
        ("linear", "minmax", False),
    ],
)
def test_a_range_file_where_the_kernel_cannot_hold_the_scaling(kernel, scale, needed, tmp_path):
    model = model_of("kernel", kernel, 2, scale)
    ranges = exported(model, tmp_path)[1]
    assert (ranges is not None) == needed
    if ranges:
        back, scaling = read_range(ranges), model.header.scaling
        used = scaling.scale != 0
        np.testing.assert_allclose(back.scale, scaling.scale, rtol=1e-14)
        np.testing.assert_allclose(back.offset[used], scaling.offset[used], rtol=1e-14)


@every_case(
    ("labels", "k", "numbers"),
    [
        ("int", 3, ["-1", "1", "7"]),
        ("int", 4, None),
        ("float", 3, ["-1", "1", "2"]),
        ("half", 3, None),
        ("text", 3, None),
    ],
)
def test_labels_that_are_no_integers_are_numbered(labels, k, numbers, tmp_path):
    model = model_of("kernel", k=k, labels=labels)
    out, _, names = exported(model, tmp_path)
    assert Twin(out, D).head["label"] == (numbers or [str(i) for i in range(k)])
    assert (names is None) == (numbers is not None)
    if names:
        assert json.loads(names.read_text()) == model.classes.tolist()


def test_the_second_class_is_written_first(tmp_path):
    out = exported(model_of("expansion", labels="int"), tmp_path)[0]
    assert Twin(out, D).head["label"] == ["1", "-1"]


def test_a_threshold_is_in_the_constant(tmp_path):
    plain, rows = model_of("kernel", labels="int"), raw_rows()
    middle = float(np.mean(np.sort(plain.decision_function(rows))[[3, 4]]))
    model = replace(plain, header=replace(plain.header, threshold=middle))
    [note] = write_libsvm(model, tmp_path / "m")["notes"]
    assert f"the threshold, {middle:.9g}, is subtracted" in note
    assert Twin(tmp_path / "m", D).predict(rows.X.astype(float)).tolist() == model.predict(rows).tolist()


def test_notes_say_what_the_file_cannot(tmp_path):
    notes = write_libsvm(model_of("expansion", k=3, scale="minmax"), tmp_path / "m")["notes"]
    assert ["svm-scale -r" in notes[0], "0 to 2 stand for" in notes[1], "became pairs" in notes[2]] == [True] * 3
    assert "equal votes" in write_libsvm(model_of("kernel", k=3, labels="int"), tmp_path / "m")["notes"][0]
    assert write_libsvm(model_of("kernel", labels="int"), tmp_path / "m")["notes"] == []


def test_costs_stay_behind(tmp_path):
    plain = model_of("kernel", labels="int")
    model = replace(plain, header=replace(plain.header, costs=np.array([[0.0, 5.0], [1.0, 0.0]])))
    [note] = write_libsvm(model, tmp_path / "m")["notes"]
    assert note == "costs of errors are not in LIBSVM's format: labels are those of decision values"


def test_early_predictions_are_refused(tmp_path):
    with pytest.raises(ModelError, match=r"early prediction.*export --format onnx"):
        write_libsvm(local_model("rbf", 2), tmp_path / "m")
    assert list(tmp_path.iterdir()) == []


def test_quantiles_are_no_range(tmp_path):
    with pytest.raises(ModelError, match=r"by quantiles, which svm-scale cannot; .*export --format onnx"):
        write_libsvm(model_of("kernel", scale="quantile"), tmp_path / "m")
    assert list(tmp_path.iterdir()) == []


def test_a_model_of_one_class_is_refused(tmp_path):
    with pytest.raises(ModelError, match="knows 1 classes so far"):
        write_libsvm(model_of("budget", k=1), tmp_path / "m")


def test_written_whole_or_not_at_all(tmp_path):
    (tmp_path / "m.labels.json").mkdir()  # a name that is taken
    with pytest.raises(StorageError):
        write_libsvm(model_of("kernel", scale="minmax"), tmp_path / "m")
    assert [path.name for path in tmp_path.iterdir()] == ["m.labels.json"]
