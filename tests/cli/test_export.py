"""`streamsvm export` and `streamsvm import`."""

from __future__ import annotations

import json
import sys

import numpy as np
import onnxruntime
import pytest

from streamsvm import Store, load_model
from streamsvm.cli.app import app, exit_status
from streamsvm.config import build_config
from streamsvm.train import train


def run(*args):
    return exit_status(lambda: app([*map(str, args)], standalone_mode=False))


@pytest.fixture
def trained(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(80, 3)).astype(np.float32)
    y = np.array(["no", "yes"])[(X[:, 0] * X[:, 1] > 0).astype(int)]

    def fit(name, **options):
        values = {"scale": "minmax", "kernel": {"gamma": 2.0}} | options
        train(Store.from_arrays(X, y), build_config(("test", values)), model_path=tmp_path / name)
        return tmp_path / name, X

    return fit


def test_onnx_file_as_json(trained, tmp_path, capfd):
    model, X = trained("m.zarr", dcsvm={"early": True, "levels": 1, "part_rows": 30})
    assert run("export", "--model", model, "--format", "onnx", "--out", tmp_path / "m.onnx", "--json") == 0
    said, out = json.loads(capfd.readouterr().out), tmp_path / "m.onnx"
    size, n_support = out.stat().st_size, load_model(model).n_support
    facts = {
        "format": "onnx",
        "out": str(out),
        "bytes": size,
        "n_support": n_support,
        "files": [],
        "notes": [],
    }
    assert said == facts
    label, scores = onnxruntime.InferenceSession(str(out)).run(["label", "scores"], {"X": X})
    loaded, rows = load_model(model), Store.from_arrays(X).read(0, len(X))
    np.testing.assert_allclose(scores, loaded.decision_function(rows), atol=1e-5)
    assert label.tolist() == loaded.predict(rows).tolist()


def test_probabilities_are_left_out_and_that_is_said(trained, tmp_path, capfd):
    model, _ = trained("m.zarr", probability={"method": "sigmoid"})
    assert run("export", "--model", model, "--format", "libsvm", "--out", tmp_path / "m") == 0
    assert "probabilities are left out; labels follow the decision values" in capfd.readouterr().err


def test_a_graph_has_the_probabilities(trained, tmp_path, capfd):
    model, X = trained("m.zarr", probability={"method": "sigmoid"})
    assert run("export", "--model", model, "--format", "onnx", "--out", tmp_path / "m") == 0
    assert not capfd.readouterr().err
    session = onnxruntime.InferenceSession(tmp_path / "m", providers=["CPUExecutionProvider"])
    label, p = session.run(["label", "probabilities"], {"X": X})
    loaded = load_model(model)
    np.testing.assert_allclose(p, loaded.predict_proba(X), rtol=0, atol=1e-6)
    assert label.tolist() == loaded.predict(X).tolist()


def test_libsvm_file_and_back(trained, tmp_path, capfd):
    model, X = trained("m.zarr")
    out, again = tmp_path / "m.svm", tmp_path / "again.zarr"
    assert run("export", "--model", model, "--format", "libsvm", "--out", out, "--json") == 0
    told = capfd.readouterr()
    files = [f"{out}.range", f"{out}.labels.json"]
    assert json.loads(told.out)["files"] == files
    assert told.err.splitlines() == json.loads(told.out)["notes"]
    assert f"svm-scale -r {files[0]}" in told.err
    assert run("import", out, "--model", again, "--range", files[0], "--labels", files[1], "--json") == 0
    said = json.loads(capfd.readouterr().out)
    assert (said["kind"], said["d"], said["classes"]) == ("kernel", 3, ["no", "yes"])
    rows = Store.from_arrays(X).read(0, len(X))
    ours, theirs = (load_model(path).decision_function(rows) for path in (model, again))
    np.testing.assert_allclose(theirs, ours, atol=1e-6)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (["--format", "pmml"], "pmml"),
        (["--model", "nowhere"], "nowhere: no such model"),
        (["--out", "."], "is a directory"),
        (["--out", "no/such/folder"], "writing no/such/folder"),
    ],
)
def test_mistakes_are_one_line(trained, tmp_path, change, message, capfd):
    model, _ = trained("m.zarr")
    usual = {"--model": model, "--format": "libsvm", "--out": tmp_path / "m.svm"} | dict([change])
    assert run("export", *(word for pair in usual.items() for word in pair)) == 2
    assert message in capfd.readouterr().err.splitlines()[-1]


def test_a_damaged_file_is_one_line_and_no_model(tmp_path, capfd):
    (tmp_path / "m.svm").write_text("svm_type c_svc\n")
    assert run("import", tmp_path / "m.svm", "--model", tmp_path / "m.zarr") == 2
    assert f"{tmp_path}/m.svm, line 1: found the end" in capfd.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["m.svm"]


def test_without_onnx_the_package_is_named(trained, tmp_path, monkeypatch, capfd):
    model, _ = trained("m.zarr")
    monkeypatch.setitem(sys.modules, "onnx", None)
    assert run("export", "--model", model, "--format", "onnx", "--out", tmp_path / "m.onnx") == 2
    assert "pip install onnx" in capfd.readouterr().err
